/** The tasks around a task: those that called it, outermost first, and those that it called. */

import { get, segment } from '../ui/api.js';
import { link } from '../ui/context.js';
import { h } from '../ui/dom.js';
import { ConsoleElement } from '../ui/element.js';
import { commandLine, curl, empty, loading, problem, stateMark, time } from '../ui/parts.js';

const PAUSE = 2000;

class NuncioTaskFamily extends ConsoleElement {
  taskId = '';
  /** The number of events that are known: a task that has made another event may have called another task. */
  size = 0;
  readAt = -1;
  /** The earliest time of the next read, by the browser's clock: a task that streams makes many events a second. */
  nextRead = 0;
  /** @type {{callers: any[], called: any[], more: boolean} | null} */
  family = null;
  /** @type {unknown} */
  error = null;

  /** Reads again if the task has made events since, at most every two seconds. */
  follow() {
    if (this.readAt === this.size) return;
    const wait = this.nextRead - performance.now();
    if (wait <= 0) void this.load();
    else setTimeout(() => this.isConnected && this.changed(), wait);
  }

  async load() {
    this.readAt = this.size;
    this.nextRead = performance.now() + PAUSE;
    this.error = null;
    try {
      this.family = await get(`tasks/${segment(this.taskId)}/family`);
    } catch (error) {
      this.error = error;
    }
    this.changed();
  }

  view() {
    this.follow();
    if (this.error) return problem(this.error, () => this.load());
    const { family } = this;
    if (!family) return loading('the family');
    if (family.callers.length === 0 && family.called.length === 0) return empty('This task stands alone', 'No task called it, and it has called none. A plan, a batch and an agent that calls others have a family.');
    return [
      family.callers.length > 0 && h('h2', null, 'Called by'),
      family.callers.length > 0 && h('ol', { class: 'family' }, ...family.callers.map(member)),
      family.called.length > 0 && h('h2', null, `Called ${family.called.length}${family.more ? ' and more' : ''}`),
      family.called.length > 0 && h('ol', { class: 'family' }, ...family.called.map(member)),
      commandLine(curl(`tasks/${segment(this.taskId)}/family`)),
    ];
  }
}

/** @param {any} row */
function member(row) {
  return h(
    'li',
    { key: row.taskId },
    stateMark(row.state),
    h('a', { href: link(`tasks/${segment(row.taskId)}`) }, row.agent),
    h('span', { class: 'words' }, row.firstText ?? ''),
    row.why ? h('span', { class: 'why' }, row.why) : null,
    h('span', { class: 'note' }, time(row.statusAt)),
  );
}

customElements.define('nuncio-task-family', NuncioTaskFamily);
