/**
 * The list of tasks. Rows change in place and never move under the pointer: new ones are counted in a pill, and those that
 * leave the filter stay until the view is asked again.
 */

import { emptyFilter, isEmpty, matches, readFilter, search, STATES, toggle, writeFilter } from '../core/filter.js';
import { duration, millis } from '../core/time.js';
import { clock, get, segment } from '../ui/api.js';
import { context, link } from '../ui/context.js';
import { h } from '../ui/dom.js';
import { ConsoleElement } from '../ui/element.js';
import { announce, commandLine, curl, empty, loading, problem, stateMark, time } from '../ui/parts.js';
import '../ui/rows.js';

const PAGE = 100;
const REFRESH = 1000;
/** New tasks that are counted exactly: a list that is left open for a day on a busy server must not grow. */
const MOST_FRESH = 10_000;
const COLUMNS = [['state', 'State'], ['agent', 'Agent'], ['words', 'First text'], ['id', 'Task'], ['events', 'Events'], ['took', 'Took'], ['at', 'Status since']];
const ENDED = new Set(['completed', 'failed', 'canceled', 'rejected']);

class NuncioTasks extends ConsoleElement {
  /** @type {any[]} */
  rows = [];
  /** @type {any} */
  page = null;
  /** @type {unknown} */
  error = null;
  /** @type {Set<string>} New tasks that match and are not shown. */
  fresh = new Set();
  selected = -1;
  filter = emptyFilter();
  /** @type {string[]} */
  ignored = [];
  loadingMore = false;
  /** @type {string | null} */
  #search = null;
  /** @type {(() => void) | null} */
  unsubscribe = null;
  asked = 0;

  set search(value) {
    if (value === this.#search) return;
    this.#search = value;
    ({ filter: this.filter, ignored: this.ignored } = readFilter(value ?? ''));
    if (this.isConnected) void this.load();
  }

  get search() {
    return this.#search ?? '';
  }

  connected() {
    this.listenTo(context, 'settings', () => this.changed());
    const ages = setInterval(() => this.changed(), 5000);
    this.onLeave(() => clearInterval(ages));
    this.onLeave(() => this.unsubscribe?.());
    this.onLeave(() => clearTimeout(this.refreshTimer));
    void this.load();
    // Not part of what the first list needs.
    void Promise.all([import('../ui/bulk-acts.js'), import('../ui/named-views.js')]).then(() => this.changed());
  }

  async load() {
    const asked = (this.asked += 1);
    try {
      const page = await get(`tasks?${writeFilter(this.filter)}&limit=${PAGE}`.replace('?&', '?'));
      if (asked !== this.asked || !this.isConnected) return;
      Object.assign(this, { page, rows: page.rows, error: null, selected: -1 });
      this.fresh.clear();
      this.subscribe(page.liveCursor);
      announce(countText(page.total, page.rows.length, Boolean(page.next)));
    } catch (error) {
      if (asked !== this.asked) return;
      this.error = error;
    }
    this.changed();
  }

  /** @param {string} cursor */
  subscribe(cursor) {
    this.unsubscribe?.();
    const { owner, agent, context: conversation } = this.filter;
    const filter = { agent, ...(owner && { owner }), ...(conversation && { context: conversation }) };
    this.unsubscribe = context.live.subscribe('list', { topic: 'rows', filter }, cursor, (kind, data) => {
      if (kind === 'gap') this.refreshSoon();
      if (kind !== 'rows') return;
      for (const row of data.rows) this.patch(row);
      // Nothing can move in an empty list.
      if (this.rows.length === 0 && this.fresh.size > 0) return void this.load();
      const gone = new Set(data.gone ?? []);
      this.rows = this.rows.map((row) => (gone.has(row.taskId) ? { ...row, gone: true } : row));
      this.changed();
    });
  }

  /** @param {any} row */
  patch(row) {
    const at = this.rows.findIndex((known) => known.taskId === row.taskId);
    if (at >= 0) this.rows[at] = row;
    else if (this.fresh.size < MOST_FRESH && matches(this.filter, row)) this.fresh.add(row.taskId);
  }

  /** After a gap the newest rows are read again: known ones change in place, others are counted. At most once a second, so
   * that a busy server is not asked without end. */
  refreshSoon() {
    this.refreshTimer ??= setTimeout(() => void this.refresh(), REFRESH);
  }

  async refresh() {
    const { asked } = this;
    try {
      const page = await get(`tasks?${writeFilter(this.filter)}&limit=${PAGE}`.replace('?&', '?'));
      if (asked === this.asked) for (const row of page.rows) this.patch(row);
    } catch (error) {
      this.error = error;
    } finally {
      this.refreshTimer = null;
      this.changed();
    }
  }

  /** @type {any} */
  refreshTimer = null;

  async more() {
    if (this.loadingMore || !this.page?.next) return;
    this.loadingMore = true;
    const { asked } = this;
    try {
      const next = await get(`tasks?${writeFilter(this.filter)}&limit=${PAGE}&cursor=${segment(this.page.next)}`.replace('?&', '?'));
      if (asked !== this.asked) return;
      const known = new Set(this.rows.map((row) => row.taskId));
      this.rows = [...this.rows, ...next.rows.filter((/** @type {any} */ row) => !known.has(row.taskId))];
      this.page = { ...this.page, next: next.next };
    } catch (error) {
      this.error = error;
    } finally {
      this.loadingMore = false;
      this.changed();
    }
  }

  /** @param {import('../core/filter.js').TaskFilter} filter */
  show(filter) {
    const query = writeFilter(filter);
    context.go(query ? `tasks?${query}` : 'tasks');
  }

  /** @param {string} key */
  onKey(key) {
    const list = /** @type {any} */ (this.querySelector('nuncio-rows'));
    if (key === '/') this.querySelector('input')?.focus();
    else if (key === 'j' || key === 'k') {
      this.selected = Math.max(0, Math.min(this.rows.length - 1, this.selected + (key === 'j' ? 1 : -1)));
      this.goToSelected(list);
      announce(this.rows[this.selected]?.firstText ?? '');
    } else if (key === '.') {
      const next = this.rows.findIndex((row, index) => index > this.selected && row.state === 'failed');
      if (next >= 0) this.selected = next;
      this.goToSelected(list);
    } else if (key === 'Enter' && this.rows[this.selected]) context.go(`tasks/${segment(this.rows[this.selected].taskId)}`);
    else if (key === 'x' && this.rows[this.selected]) this.mark(this.rows[this.selected].taskId);
    else if (key === 'r') void this.load();
    else if (key === 'v') /** @type {any} */ (this.querySelector('nuncio-named-views'))?.open();
    else return false;
    return true;
  }

  /** The focus goes along: on a chip that was pressed before, Enter would press it again instead of opening the row. @param {any} list */
  goToSelected(list) {
    list?.show(this.selected);
    list?.focus({ preventScroll: true });
    this.update();
  }

  /** Marks two tasks to compare them. @param {string} id */
  mark(id) {
    if (!this.marked.delete(id)) this.marked.add(id);
    const [first] = this.marked;
    if (this.marked.size > 2) this.marked.delete(first);
    this.update();
    announce(`${this.marked.size} marked`);
  }

  /** @type {Set<string>} */
  marked = new Set();

  view() {
    return [h('h1', { class: 'visually-hidden' }, 'Tasks'), this.bar(), this.error ? problem(this.error, () => this.load()) : null, this.content()];
  }

  bar() {
    const facets = this.page?.facets ?? {};
    const agents = [...new Set([...Object.keys(facets.agent ?? {}), ...this.filter.agent])].sort();
    const chip = (/** @type {'state' | 'agent'} */ name, /** @type {string} */ value) =>
      h('button', { type: 'button', class: 'chip', key: `${name} ${value}`, 'aria-pressed': this.filter[name].includes(value), onclick: () => this.show(toggle(this.filter, name, value)) }, value, facets[name] && h('span', { class: 'chip-count' }, ` ${facets[name][value] ?? 0}`));
    const submit = (/** @type {SubmitEvent} */ event) => {
      event.preventDefault();
      this.show(search(this.querySelector('input')?.value ?? '', agents, this.filter));
    };
    return h(
      'div',
      { class: 'filters' },
      h('form', { role: 'search', onsubmit: submit }, h('input', { type: 'search', 'aria-label': 'Filter by task id, agent or context', placeholder: 'Task id, agent or context  /', prop: { value: this.filter.id || this.filter.context } })),
      h('div', { class: 'chips', role: 'group', 'aria-label': 'State' }, ...STATES.filter((state) => !facets.state || facets.state[state] || this.filter.state.includes(state)).map((state) => chip('state', state))),
      agents.length > 0 && h('div', { class: 'chips', role: 'group', 'aria-label': 'Agent' }, ...agents.slice(0, 20).map((agent) => chip('agent', agent))),
      h('button', { type: 'button', class: 'chip', 'aria-pressed': this.filter.roots, onclick: () => this.show({ ...this.filter, roots: !this.filter.roots }) }, 'roots only'),
      context.me?.may?.['read:admin:tasks'] === true && h('button', { type: 'button', class: 'chip', 'aria-pressed': this.filter.owner === 'all', onclick: () => this.show({ ...this.filter, owner: this.filter.owner ? '' : 'all' }) }, 'all callers'),
      !isEmpty(this.filter) && h('button', { type: 'button', class: 'quiet', onclick: () => this.show(emptyFilter()) }, 'Clear filters'),
      customElements.get('nuncio-named-views') && h('nuncio-named-views', { key: 'named views', prop: { query: writeFilter(this.filter) } }),
      customElements.get('nuncio-bulk-acts') && h('nuncio-bulk-acts', { key: 'bulk acts', prop: { filter: this.filter, search: this.search } }),
      h('a', { href: link('file') }, 'Open a log file'),
      this.ignored.length > 0 && h('p', { class: 'note' }, `Not used from the address: ${this.ignored.join(', ')}`),
    );
  }

  content() {
    if (!this.page) return this.error ? null : loading('tasks');
    if (this.rows.length === 0) {
      if (!isEmpty(this.filter)) return empty('No task matches', h('button', { type: 'button', onclick: () => this.show(emptyFilter()) }, 'Drop all filters'));
      return empty('No task yet', 'Send one to an agent:', `nuncio send -a ${context.me?.publicUrl ?? location.origin} --agent echo "Hello"`);
    }
    const fresh = this.fresh.size;
    return h(
      'div',
      { class: `list ${this.error ? 'old' : ''}` },
      h('p', { class: 'list-head' }, countText(this.page.total, this.rows.length, Boolean(this.page.next)), fresh > 0 && h('button', { type: 'button', class: 'pill', onclick: () => this.load() }, `${fresh}${fresh === MOST_FRESH ? ' or more' : ''} new`), this.marked.size > 0 && this.compareLink()),
      h('div', { class: 'task-row columns', 'aria-hidden': 'true' }, ...COLUMNS.map(([name, text]) => h('span', { class: name }, text))),
      h('nuncio-rows', { prop: { count: this.rows.length, label: 'Tasks', rowAt: (/** @type {number} */ index) => this.row(index), rowClass: (/** @type {number} */ index) => (index === this.selected ? 'selected' : ''), onNear: (/** @type {number} */ end) => end >= this.rows.length - 10 && void this.more() } }),
      commandLine(curl(isEmpty(this.filter) ? 'tasks' : `tasks?${writeFilter(this.filter)}`)),
    );
  }

  compareLink() {
    const [a, b = ''] = this.marked;
    return h('a', { class: 'pill', href: link(`compare?a=${segment(a)}&b=${segment(b)}`) }, b ? 'Compare the two marked tasks' : 'Compare the marked task');
  }

  /** @param {number} index */
  row(index) {
    const row = this.rows[index];
    if (!row) return ''; // The list draws once more before it is given the new count.
    const ended = ENDED.has(row.state);
    const took = (ended ? millis(row.statusAt) : clock.now()) - millis(row.createdAt);
    return h(
      'a',
      { class: `task-row ${row.gone ? 'gone' : ''} ${this.marked.has(row.taskId) ? 'marked' : ''}`, href: link(`tasks/${segment(row.taskId)}`), 'aria-current': index === this.selected ? 'true' : null },
      stateMark(row.state),
      h('span', { class: 'agent' }, row.agent, this.filter.owner && h('span', { class: 'note' }, ` ${row.owner}`)),
      h('span', { class: 'words' }, row.firstText || '(no text)', row.why && h('span', { class: 'why' }, ` — ${row.why}`)),
      h('span', { class: 'id' }, row.taskId.slice(-8)),
      h('span', { class: 'events' }, row.events),
      h('span', { class: 'took' }, duration(took)),
      time(row.statusAt),
    );
  }
}

/** How many tasks the view has. The server does not count where that would cost more than the page.
 * @param {number | null | undefined} total @param {number} read @param {boolean} more */
function countText(total, read, more) {
  const count = total ?? read;
  return `${count}${typeof total !== 'number' && more ? ' or more' : ''} ${count === 1 ? 'task' : 'tasks'}`;
}

customElements.define('nuncio-tasks', NuncioTasks);
