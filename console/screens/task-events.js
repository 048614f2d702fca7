/** Every event of a task's log: number, time, gap to the one before, kind, one line; several can be open at once. */

import { duration, millis } from '../core/time.js';
import { getBytes, segment } from '../ui/api.js';
import { h } from '../ui/dom.js';
import { ConsoleElement } from '../ui/element.js';
import { bytes, commandLine, copyButton, problem, resumeCommand, time } from '../ui/parts.js';
import { summary } from '../ui/task-log.js';
import '../ui/rows.js';

/** @typedef {import('../core/fold.js').LogEvent} LogEvent */

const SMALL = 2048;
const KINDS = ['message', 'status', 'artifact', 'progress', 'log', 'question', 'answer', 'withdrawn'];

class NuncioTaskEvents extends ConsoleElement {
  /** @type {import('../ui/task-log.js').TaskLog | null} */
  log = null;
  /** @type {number | null} */
  at = null;
  size = 0;
  read = 0;
  /** @type {(seq: number, tab: string) => void} */
  goTo = () => {};
  /** @type {Set<string>} */
  hiddenKinds = new Set();
  text = '';
  /** @type {Map<string, number>} How many events of each kind the log has. */
  counts = new Map();
  /** @type {number[]} The numbers of the events that are shown. */
  shown = [];
  /** Large values that were fetched. @type {Map<number, Uint8Array | Error | null>} */
  values = new Map();
  #filtered = '';
  /** @type {number | null} */
  #shownAt = null;

  /** @param {string} key */
  onKey(key) {
    if (key === '/') this.querySelector('input')?.focus();
    else if (key === 'Enter' && this.at !== null) this.rows?.toggle(this.shown.indexOf(this.at));
    else if (key === 'j' || key === 'k') {
      const here = this.at === null ? this.shown.length - 1 : this.shown.indexOf(this.at);
      const next = this.shown[Math.max(0, Math.min(this.shown.length - 1, here + (key === 'j' ? 1 : -1)))];
      if (next) this.goTo(next, 'events');
    } else return false;
    return true;
  }

  /** @returns {any} */
  get rows() {
    return this.querySelector('nuncio-rows');
  }

  /** Filters again only what came or when the filter changed. @param {import('../ui/task-log.js').TaskLog} log */
  filter(log) {
    const key = `${[...this.hiddenKinds].join()} ${this.text} ${log.last} ${log.fold.events.length}`;
    if (key === this.#filtered) return;
    this.#filtered = key;
    this.shown = [];
    this.counts = new Map();
    const wanted = this.text.toLowerCase();
    for (let seq = 1; seq <= log.last; seq += 1) {
      const event = log.eventAt(seq);
      if (event) this.counts.set(event.type, (this.counts.get(event.type) ?? 0) + 1);
      if (event && (this.hiddenKinds.has(event.type) || (wanted && !summary(event).toLowerCase().includes(wanted)))) continue;
      if (!event && (wanted || this.hiddenKinds.size > 0)) continue;
      this.shown.push(seq);
    }
  }

  view() {
    const { log } = this;
    if (!log) return null;
    const before = this.shown.length;
    const follows = this.at === null && (before === 0 || this.rows?.isAtEnd);
    this.filter(log);
    if (follows && this.shown.length !== before) requestAnimationFrame(() => this.rows?.show(this.shown.length - 1));
    const toggle = (/** @type {string} */ kind) => {
      if (!this.hiddenKinds.delete(kind)) this.hiddenKinds.add(kind);
      this.rows?.open.clear();
      this.update();
    };
    return [
      h(
        'div',
        { class: 'filters' },
        h('input', { type: 'search', 'aria-label': 'Text in events', placeholder: 'Text in events  /', oninput: (/** @type {any} */ event) => ((this.text = event.target.value), this.changed()) }),
        h('div', { class: 'chips', role: 'group', 'aria-label': 'Kinds' }, ...KINDS.filter((kind) => this.counts.has(kind)).map((kind) => h('button', { type: 'button', class: 'chip chip-kind', 'aria-pressed': !this.hiddenKinds.has(kind), onclick: () => toggle(kind) }, kind, h('span', { class: 'chip-count' }, ` ${this.counts.get(kind)}`)))),
        h('span', { class: 'note', role: 'status' }, this.shown.length < log.last ? `${this.shown.length} shown, ${log.last - this.shown.length} hidden by the filter` : `${log.last} events`),
      ),
      h('nuncio-rows', { class: 'events-rows', prop: { count: this.shown.length, label: 'Events', rowAt: (/** @type {number} */ index) => this.row(log, index), rowClass: (/** @type {number} */ index) => (this.shown[index] === this.at ? 'selected' : '') } }),
    ];
  }

  updated() {
    if (this.at === this.#shownAt) return;
    this.#shownAt = this.at;
    const index = this.at === null ? -1 : this.shown.indexOf(this.at);
    if (index >= 0) requestAnimationFrame(() => this.rows?.show(index));
  }

  /** @param {import('../ui/task-log.js').TaskLog} log @param {number} index */
  row(log, index) {
    const seq = this.shown[index];
    const event = log.eventAt(seq);
    if (!event) return h('span', { class: 'event-line note' }, `${seq}  being read`);
    const before = log.eventAt(seq - 1);
    const gap = before ? `+${duration(millis(event.timestamp) - millis(before.timestamp))}` : '';
    const line = h(
      'button',
      { type: 'button', class: 'event-line', 'aria-expanded': Boolean(this.rows?.open.has(index)), onclick: () => (this.rows?.toggle(index), void this.fetchLarge(log, event)) },
      h('span', { class: 'seq' }, seq),
      h('span', { class: `kind kind-${KINDS.includes(event.type) ? event.type : 'other'}` }, event.type),
      h('span', { class: 'words' }, summary(event).slice(0, 300)),
      h('span', { class: 'gap' }, gap),
      time(event.timestamp),
    );
    return this.rows?.open.has(index) ? h('div', null, line, this.detail(log, event)) : line;
  }

  /** @param {import('../ui/task-log.js').TaskLog} log @param {LogEvent} event */
  detail(log, event) {
    return h(
      'div',
      { class: 'event-detail' },
      h('p', { class: 'bar' }, h('button', { type: 'button', onclick: () => this.goTo(event.seq, 'story') }, 'Task as of here'), !log.isFile && h('button', { type: 'button', onclick: () => this.goTo(event.seq, 'wire') }, 'Wire'), this.isSmall(event) && copyButton(JSON.stringify(event.data), 'Copy the data of this event'), event.size !== undefined && this.isSmall(event) && h('span', { class: 'note' }, bytes(event.size))),
      this.value(log, event),
      ...(log.isFile ? [] : [h('p', { class: 'note' }, 'Resume from here:'), commandLine(resumeCommand(log.id, event.seq))]),
    );
  }

  /** Small enough to be shown without a bar to find in it. @param {LogEvent} event */
  isSmall(event) {
    return event.data !== undefined && (event.size ?? 0) < SMALL;
  }

  /** @param {import('../ui/task-log.js').TaskLog} log @param {LogEvent} event */
  value(log, event) {
    if (event.data !== undefined) return h('nuncio-json', { prop: { text: JSON.stringify(event.data), plain: this.isSmall(event) } });
    const value = this.values.get(event.seq);
    if (value instanceof Error) return problem(value, () => (this.values.delete(event.seq), void this.fetchLarge(log, event)));
    return value ? h('nuncio-json', { prop: { bytes: value } }) : h('pre', null, (event.preview ?? '').slice(0, SMALL));
  }

  /** @param {import('../ui/task-log.js').TaskLog} log @param {LogEvent} event */
  async fetchLarge(log, event) {
    if (event.data !== undefined || this.values.has(event.seq)) return;
    this.values.set(event.seq, null);
    try {
      this.values.set(event.seq, await getBytes(`tasks/${segment(log.id)}/events/${event.seq}?part=data`));
    } catch (error) {
      this.values.set(event.seq, error instanceof Error ? error : new Error(String(error)));
    }
    this.update();
  }
}

customElements.define('nuncio-task-events', NuncioTaskEvents);
