/**
 * The base of a screen that shows one log in several readings, from the server or from a file: the tabs, the scrubber, and the
 * event as of which it is shown, all in the address.
 */

import { context, link } from '../ui/context.js';
import { h } from '../ui/dom.js';
import { ConsoleElement } from '../ui/element.js';
import './task-events.js';
import './task-raw.js';
import './task-story.js';
import './task-timeline.js';

/** @typedef {import('../ui/task-log.js').TaskLog} TaskLog */

export class LogScreen extends ConsoleElement {
  recordId = '';
  tab = 'story';
  search = '';
  tabNames = ['story', 'timeline', 'events', 'raw'];
  /** @type {TaskLog | null} */
  log = null;

  /** The screen's address without the tab. */
  get path() {
    return '';
  }

  /** The event as of which the task is shown; null: the newest. */
  get at() {
    const at = Number(new URLSearchParams(this.search).get('at'));
    return Number.isInteger(at) && at > 0 && this.log ? Math.min(at, this.log.last) : null;
  }

  /** @param {number | null} at @param {string} [tab] @param {boolean} [replace] */
  goTo(at, tab = this.tab, replace = true) {
    const query = new URLSearchParams(this.search);
    if (at === null) query.delete('at');
    else query.set('at', String(at));
    const text = query.toString();
    context.go(`${this.path}/${tab}${text ? `?${text}` : ''}`, { replace });
  }

  /** @param {string} key */
  onKey(key) {
    const last = this.log?.last ?? 0;
    const at = this.at ?? last;
    if (key === '[') this.goTo(Math.max(1, at - 1));
    else if (key === ']') this.goTo(at + 1 >= last ? null : at + 1);
    else if (key === 'Escape') context.go('tasks');
    else if (key === 'a') /** @type {HTMLElement | null} */ (this.querySelector('nuncio-question :is(input, textarea, select, button)'))?.focus();
    else if (key === '.') this.goToFailure(at);
    else return /** @type {any} */ (this.querySelector('.reading > *'))?.onKey?.(key) ?? false;
    return true;
  }

  /** The next event after `at` that tells of a failure. From the newest event it is the last one, which is why the task
   * failed; after that they come from the first on. @param {number} at */
  goToFailure(at) {
    const events = this.log?.fold.events ?? [];
    const failed = events.filter(({ type, data }) => (type === 'status' && (data?.state === 'failed' || data?.state === 'rejected')) || (type === 'log' && ['error', 'critical', 'alert', 'emergency'].includes(data?.level)));
    const next = this.at === null ? failed.at(-1) : (failed.find((event) => event.seq > at) ?? failed[0]);
    if (next) this.goTo(next.seq, 'events', false);
  }

  /** The task as it is shown: of an event, or the newest that is known. @param {TaskLog} log */
  shown(log) {
    const at = this.at;
    return at === null ? log.fold.task : log.fold.at(at);
  }

  tabs() {
    return h('nav', { class: 'tabs', 'aria-label': 'Readings of the log' }, ...this.tabNames.map((tab) => h('a', { href: link(`${this.path}/${tab}${this.search}`), 'aria-current': tab === this.tab ? 'page' : null }, tab[0].toUpperCase() + tab.slice(1))));
  }

  /** @param {TaskLog} log */
  scrubber(log) {
    const at = this.at ?? log.last;
    const move = (/** @type {any} */ event) => this.goTo(Number(event.target.value) >= log.last ? null : Number(event.target.value));
    return h(
      'div',
      { class: 'scrubber' },
      h('button', { type: 'button', class: 'quiet', 'aria-label': 'Previous event', onclick: () => this.onKey('[') }, '['),
      h('input', { type: 'range', min: 1, max: Math.max(1, log.last), 'aria-label': 'Task as of event', 'aria-valuetext': `event ${at} of ${log.last}`, oninput: move, prop: { value: String(at) } }),
      h('button', { type: 'button', class: 'quiet', 'aria-label': 'Next event', onclick: () => this.onKey(']') }, ']'),
      h('span', { class: 'note' }, `${at} / ${log.last}`),
    );
  }

  /** @param {TaskLog} log */
  reading(log) {
    const prop = { log, at: this.at, size: log.last, read: log.fold.events.length, taskId: log.id, path: this.path, search: this.search, goTo: (/** @type {number} */ seq, /** @type {string} */ tab) => this.goTo(seq, tab, false) };
    return h(`nuncio-task-${this.tabNames.includes(this.tab) ? this.tab : 'story'}`, { prop });
  }
}
