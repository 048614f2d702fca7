/** The operations of a batch: what each needs, how often it was tried, when, how long, and what it came to. Rows are virtual. */

import { many, OPERATION_STATES } from '../core/batch.js';
import { duration } from '../core/time.js';
import { h } from '../ui/dom.js';
import { ConsoleElement } from '../ui/element.js';
import { announce, loading, stateMark, time } from '../ui/parts.js';
import '../ui/json-view.js';
import '../ui/rows.js';

/** @typedef {import('../core/batch.js').Operation} Operation */

const COLUMNS = [['state', 'State'], ['op-id', 'Operation'], ['words', 'Type, needs, error'], ['events', 'Tries'], ['took', 'Took'], ['at', 'Began']];
const SMALL = 2048;

class NuncioBatchOperations extends ConsoleElement {
  /** @type {import('../ui/operation-pages.js').OperationPages | null} */
  pages = null;
  /** @type {Map<string, import('../core/batch.js').Asked>} */
  asked = new Map();
  filter = '';
  selected = '';
  size = 0;
  /** @type {Operation[]} */
  shown = [];
  /** @type {(values: {[name: string]: string}) => void} */
  goTo = () => {};
  #revealed = '';

  /** @returns {any} */
  get rows() {
    return this.querySelector('nuncio-rows');
  }

  /** @param {string} key */
  onKey(key) {
    const at = this.shown.findIndex(({ id }) => id === this.selected);
    if (key === 'j' || key === 'k') {
      const next = this.shown[Math.max(0, Math.min(this.shown.length - 1, at + (key === 'j' ? 1 : -1)))];
      if (next) this.goTo({ operation: next.id });
      if (next) announce(`${next.id} ${next.status}`);
    } else if (key === '.') {
      const next = this.shown.find(({ status }, index) => index > at && status === 'failed') ?? this.shown.find(({ status }) => status === 'failed');
      if (next) this.goTo({ operation: next.id });
    } else if (key === 'Enter' && at >= 0) this.rows?.toggle(at);
    else if (key === 'Escape') this.goTo({ operation: '' });
    else return false;
    return true;
  }

  view() {
    const { pages } = this;
    if (!pages) return null;
    if (!pages.status) return pages.error ? null : loading('the operations');
    const all = pages.operations;
    this.shown = this.filter ? all.filter(({ status }) => status === this.filter) : all;
    // A filter covers all operations, not only those that were read so far.
    if ((this.filter || (this.selected && !all.some(({ id }) => id === this.selected))) && pages.hasMore) void pages.more();
    if (all.length === 0) return h('p', { class: 'note' }, 'The operations are not known here yet: the batch has not begun, or another node runs it.');
    const total = pages.status.counts.total ?? all.length;
    return [
      this.chips(pages.status.counts, all),
      h('p', { class: 'list-head' }, this.filter ? `${this.shown.length} ${this.filter} of ${total}` : many(total, 'operation'), pages.hasMore && ` · ${all.length} read`),
      h('div', { class: 'event-line op-line columns', 'aria-hidden': 'true' }, ...COLUMNS.map(([name, text]) => h('span', { class: name }, text))),
      h('nuncio-rows', { class: 'op-rows', prop: { count: this.shown.length, label: 'Operations', rowAt: (/** @type {number} */ index) => this.row(index), rowClass: (/** @type {number} */ index) => (this.shown[index]?.id === this.selected ? 'selected' : ''), onNear: (/** @type {number} */ end) => end >= this.shown.length - 10 && void pages.more() } }),
    ];
  }

  /** @param {any} counts @param {Operation[]} all */
  chips(counts, all) {
    const count = (/** @type {string} */ state) => (state === 'pending' ? (counts.total ?? all.length) - (counts.succeeded ?? 0) - (counts.failed ?? 0) - (counts.skipped ?? 0) : (counts[state] ?? 0));
    const toggle = (/** @type {string} */ state) => {
      this.rows?.open.clear();
      this.goTo({ status: state === this.filter ? '' : state });
    };
    return h('div', { class: 'chips', role: 'group', 'aria-label': 'Operations by state' }, ...OPERATION_STATES.filter((state) => count(state) > 0 || state === this.filter).map((state) => h('button', { key: state, type: 'button', class: 'chip', 'aria-pressed': state === this.filter, onclick: () => toggle(state) }, state, h('span', { class: 'chip-count' }, ` ${count(state)}`))));
  }

  updated() {
    if (this.selected === this.#revealed) return;
    const index = this.shown.findIndex(({ id }) => id === this.selected);
    if (this.selected && index < 0) return; // It may be on a page that is being read.
    this.#revealed = this.selected;
    if (index >= 0) requestAnimationFrame(() => this.rows?.show(index));
  }

  /** @param {number} index */
  row(index) {
    const one = this.shown[index];
    if (!one) return ''; // The list draws once more before it is given the new count.
    const asked = this.asked.get(one.id);
    const open = Boolean(this.rows?.open.has(index));
    const line = h(
      'button',
      { type: 'button', class: 'event-line op-line', 'aria-expanded': open, onclick: () => this.rows?.toggle(index) },
      stateMark(one.status),
      h('span', { class: 'op-id' }, one.id),
      h('span', { class: 'words' }, one.type, asked && asked.needs.length > 0 && h('span', { class: 'note' }, ` · needs ${asked.needs.join(', ')}`), one.error && h('span', { class: one.status === 'failed' ? 'why' : 'note' }, ` — ${one.error}`)),
      h('span', { class: 'events' }, one.attempts > 0 ? `${one.attempts}${asked?.retries ? ` of ${asked.retries + 1}` : ''}` : ''),
      h('span', { class: 'took' }, typeof one.durationMs === 'number' ? duration(one.durationMs) : ''),
      one.startTime ? time(one.startTime) : h('span', { class: 'at note' }, '–'),
    );
    return open ? h('div', null, line, this.detail(one, asked)) : line;
  }

  /** @param {Operation} one @param {import('../core/batch.js').Asked | undefined} asked */
  detail(one, asked) {
    const value = (/** @type {any} */ given) => {
      const text = JSON.stringify(given);
      return h('nuncio-json', { prop: { text, plain: text.length < SMALL } });
    };
    return h(
      'div',
      { class: 'event-detail' },
      one.error && h('p', { class: one.status === 'failed' ? 'reason' : 'plain' }, one.error),
      asked && h('p', { class: 'note' }, [`at most ${many(asked.retries + 1, 'try', 'tries')}`, asked.priority && `${asked.priority} priority`, asked.needs.length > 0 && `needs ${asked.needs.join(', ')}`].filter(Boolean).join(' · ')),
      asked?.args !== undefined && h('h3', null, 'Arguments'),
      asked?.args !== undefined && value(asked.args),
      one.output !== undefined && h('h3', null, one.truncated ? 'Output, cut by the server' : 'Output'),
      one.output !== undefined && value(one.output),
    );
  }
}

customElements.define('nuncio-batch-operations', NuncioBatchOperations);
