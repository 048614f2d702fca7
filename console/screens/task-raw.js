/** The fold of a task as JSON, as of any event, its comparison with the server's own fold, and the proof of the whole log. */

import { foldDifference } from '../core/proof.js';
import { get, segment } from '../ui/api.js';
import { h } from '../ui/dom.js';
import { ConsoleElement } from '../ui/element.js';
import { commandLine, curl, problem } from '../ui/parts.js';
import './task-proof.js';

class NuncioTaskRaw extends ConsoleElement {
  /** @type {import('../ui/task-log.js').TaskLog | null} */
  log = null;
  /** @type {number | null} */
  at = null;
  taskId = '';
  size = 0;
  read = 0;
  result = '';
  /** @type {unknown} */
  error = null;

  get seq() {
    return this.at ?? this.log?.fold.events.length ?? 0;
  }

  async compare() {
    const { seq } = this;
    this.error = null;
    try {
      const { task } = await get(`tasks/${segment(this.taskId)}/at/${seq}`);
      this.result = foldDifference(seq, this.log?.fold.at(seq), task) || `At event ${seq} the fold here and the fold of the server are the same.`;
    } catch (error) {
      this.error = error;
    }
    this.changed();
  }

  view() {
    const { log, seq } = this;
    if (!log) return null;
    return [
      !log.isFile && h('p', { class: 'bar' }, h('button', { type: 'button', onclick: () => this.compare() }, 'Compare with the server'), h('span', { role: 'status' }, this.result)),
      this.error ? problem(this.error, () => this.compare()) : null,
      !log.isFile && h('nuncio-task-proof', { key: 'proof', prop: { log } }),
      h('nuncio-json', { prop: { text: JSON.stringify(log.fold.at(seq)) } }),
      !log.isFile && commandLine(curl(`tasks/${segment(this.taskId)}/at/${seq}`)),
    ];
  }
}

customElements.define('nuncio-task-raw', NuncioTaskRaw);
