/** One event in the bytes of every dialect, side by side, with what differs from the dialect before it. */

import { jsonDiff } from '../core/diff.js';
import { get, segment } from '../ui/api.js';
import { h } from '../ui/dom.js';
import { ConsoleElement } from '../ui/element.js';
import { copyButton, loading, problem } from '../ui/parts.js';

class NuncioTaskWire extends ConsoleElement {
  /** @type {import('../ui/task-log.js').TaskLog | null} */
  log = null;
  /** @type {number | null} */
  at = null;
  taskId = '';
  size = 0;
  read = 0;
  /** @type {any} */
  answer = null;
  /** @type {unknown} */
  error = null;
  loaded = 0;

  /** @param {number} seq */
  async load(seq) {
    this.loaded = seq;
    try {
      const answer = await get(`tasks/${segment(this.taskId)}/wire/${seq}`);
      if (this.loaded !== seq) return;
      Object.assign(this, { answer, error: null });
    } catch (error) {
      this.error = error;
    }
    this.changed();
  }

  view() {
    const seq = this.at ?? this.log?.last ?? 0;
    if (seq > 0 && seq !== this.loaded) void this.load(seq);
    if (this.error) return problem(this.error, () => this.load(seq));
    if (!this.answer) return loading('the event on the wire');
    /** @type {any} */
    let before = null;
    const frames = this.answer.frames.map((/** @type {any} */ frame) => {
      const shown = this.frame(frame, before);
      if (frame.text !== null) before = frame;
      return shown;
    });
    return [h('p', { class: 'note' }, `Event ${this.answer.seq} (${this.answer.type}). The task was created in ${this.answer.createdIn}.`), h('div', { class: 'frames' }, ...frames)];
  }

  /** @param {any} frame @param {any} before */
  frame(frame, before) {
    if (frame.text === null) return h('section', { class: 'frame', key: frame.as }, h('h2', null, frame.as), h('p', { class: 'note' }, `No frame: ${frame.why}`));
    return h(
      'section',
      { class: 'frame', key: frame.as },
      h('h2', null, frame.as, ' ', copyButton(frame.text, `Copy the bytes of ${frame.as}`)),
      frame.headers && h('pre', { tabindex: 0 }, ...Object.entries(frame.headers).map(([name, value]) => `${name}: ${value}\n`)),
      h('nuncio-json', { prop: { text: frame.text, plain: true } }),
      before && this.differences(before, frame),
    );
  }

  /** @param {any} before @param {any} frame */
  differences(before, frame) {
    let result;
    try {
      result = jsonDiff(JSON.parse(before.text), JSON.parse(frame.text), 30);
    } catch {
      return null;
    }
    if (result.changes.length === 0) return h('p', { class: 'note' }, `The same as ${before.as}.`);
    return h('details', null, h('summary', null, `${result.changes.length}${result.more ? '+' : ''} differences from ${before.as}`), h('ul', null, ...result.changes.map((change) => h('li', null, h('code', null, change.path || '/'), ` ${change.op}`))));
  }
}

customElements.define('nuncio-task-wire', NuncioTaskWire);
