/**
 * The base of a screen that lists the tasks of one agent: the filter by state in the address, rows that change in place,
 * keys, and the three states. A screen adds what it knows of a row, and what stands above the list.
 */

import { STATES } from '../core/filter.js';
import { isTerminal } from '../core/fold.js';
import { duration, millis } from '../core/time.js';
import { AgentTasks, readMark } from './agent-tasks.js';
import { clock, segment } from './api.js';
import { context, link } from './context.js';
import { h } from './dom.js';
import { ConsoleElement } from './element.js';
import { callTool } from './mcp.js';
import { announce, commandLine, empty, loading, problem, stateMark, time } from './parts.js';
import './rows.js';

/** @typedef {import('./dom.js').Child} Child */

const PAGE = 50;
const POLL = 5000;

export class AgentListScreen extends ConsoleElement {
  /** The screen's path, which is also the plural of what it lists. */
  path = '';
  noun = '';
  agent = '';
  /** The tool that lists, and the member of its answer that has the list. */
  tool = '';
  /** The heads of the columns of words, and of the count. @type {[string, string]} */
  heads = ['', ''];
  command = '';
  /** @type {AgentTasks | null} */
  list = null;
  selected = -1;
  #search = '';

  set search(value) {
    if (value === this.#search) return;
    const before = this.states.join();
    this.#search = value;
    if (this.isConnected && before !== this.states.join()) this.load();
  }

  get search() {
    return this.#search;
  }

  get query() {
    return new URLSearchParams(this.#search);
  }

  /** @returns {string[]} */
  get states() {
    return this.query.getAll('state').filter((state) => STATES.includes(state));
  }

  connected() {
    this.listenTo(context, 'settings', () => this.changed());
    const timer = setInterval(() => (this.poll(), this.changed()), POLL);
    this.onLeave(() => clearInterval(timer));
    this.onLeave(() => this.list?.close());
    this.load();
  }

  /** Runs every 5 s, beside the list's own reading. */
  poll() {}

  /** Runs when rows have changed. */
  changes() {}

  load() {
    this.list?.close();
    this.selected = -1;
    this.list = new AgentTasks({
      agent: this.agent,
      key: this.path,
      states: this.states,
      readDetails: async (pageToken) => {
        this.changes();
        const answer = await callTool(this.tool, { pageSize: PAGE, ...(pageToken ? { pageToken } : {}) });
        return { details: answer[this.path], next: answer.nextPageToken };
      },
      idOf: (one) => one[`${this.noun}Id`],
      onChange: () => this.changed(),
    });
    void this.list.load();
  }

  /** Changes the address: `null` takes a value out. @param {{state?: string[], [name: string]: string | string[] | null | undefined}} values */
  show(values) {
    const query = this.query;
    for (const [name, value] of Object.entries(values)) {
      query.delete(name);
      for (const one of [value ?? []].flat()) query.append(name, one);
    }
    const text = query.toString();
    context.go(text ? `${this.path}?${text}` : this.path);
  }

  /** @param {string} key */
  onKey(key) {
    const rows = this.list?.rows ?? [];
    if (key === 'n') this.show({ new: '', settings: null });
    else if (key === 'Escape' && (this.query.has('new') || this.query.has('settings'))) this.show({ new: null, settings: null });
    else if (key === 'j' || key === 'k') {
      this.selected = Math.max(0, Math.min(rows.length - 1, this.selected + (key === 'j' ? 1 : -1)));
      /** @type {any} */ (this.querySelector('nuncio-rows'))?.show(this.selected);
      this.update();
      if (rows[this.selected]) announce(`${rows[this.selected].state} ${this.wordsOf(rows[this.selected])}`);
    } else if (key === 'Enter' && rows[this.selected]) context.go(`${this.path}/${segment(rows[this.selected].taskId)}`);
    else if (key === 'r') this.load();
    else return false;
    return true;
  }

  /** What stands above the list. @returns {Child[]} */
  top() {
    return [];
  }

  /** What is there while nothing is listed. @returns {Child} */
  none() {
    return null;
  }

  /** @param {any} _row @returns {string} */
  wordsOf(_row) {
    return '';
  }

  /** @param {any} row @returns {string} */
  stateOf(row) {
    return row.state;
  }

  /** How many of how many are over. @param {any} _detail @returns {[number | undefined, number | undefined]} */
  countOf(_detail) {
    return [undefined, undefined];
  }

  view() {
    return [...this.top(), this.chips(), this.list?.error ? problem(this.list.error, () => this.load()) : null, this.content()];
  }

  chips() {
    const facets = this.list?.page?.facets?.state;
    const { states } = this;
    const shown = STATES.filter((state) => facets?.[state] || states.includes(state));
    const toggle = (/** @type {string} */ state) => this.show({ state: states.includes(state) ? states.filter((one) => one !== state) : [...states, state] });
    return shown.length > 0 && h('div', { class: 'chips', role: 'group', 'aria-label': 'State' }, ...shown.map((state) => h('button', { key: state, type: 'button', class: 'chip', 'aria-pressed': states.includes(state), onclick: () => toggle(state) }, state, facets && h('span', { class: 'chip-count' }, ` ${facets[state] ?? 0}`))));
  }

  content() {
    const { list } = this;
    if (!list?.page) return list?.error ? null : loading(this.path);
    const count = list.rows.length;
    if (count === 0) return this.states.length > 0 ? empty(`No ${this.noun} matches`, h('button', { type: 'button', onclick: () => this.show({ state: [] }) }, 'Drop the filter')) : this.none();
    const total = list.page.total ?? count;
    const fresh = list.fresh.size;
    const columns = [['state', 'State'], ['words', this.heads[0]], ['counted', this.heads[1]], ['id', 'Task'], ['took', 'Took'], ['at', 'Status since']];
    return h(
      'div',
      { class: `list ${list.error ? 'old' : ''}` },
      h('p', { class: 'list-head' }, `${total} ${total === 1 ? this.noun : this.path} · `, readMark('counts', list.readAt), fresh > 0 && h('button', { type: 'button', class: 'pill', onclick: () => this.load() }, `${fresh} new`)),
      h('div', { class: 'task-row plan-row columns', 'aria-hidden': 'true' }, ...columns.map(([name, text]) => h('span', { class: name }, text))),
      h('nuncio-rows', { prop: { count, label: this.path, rowAt: (/** @type {number} */ index) => this.row(index), rowClass: (/** @type {number} */ index) => (index === this.selected ? 'selected' : ''), onNear: (/** @type {number} */ end) => end >= count - 5 && void list.more() } }),
      commandLine(this.command),
    );
  }

  /** @param {number} index */
  row(index) {
    const row = this.list?.rows[index];
    if (!row) return ''; // The list draws once more before it is given the new count.
    const [over, all] = this.countOf(this.list?.details.get(row.taskId));
    const took = (isTerminal(row.state) ? millis(row.statusAt) : clock.now()) - millis(row.createdAt);
    return h(
      'a',
      { class: 'task-row plan-row', href: link(`${this.path}/${segment(row.taskId)}`), 'aria-current': index === this.selected ? 'true' : null },
      stateMark(this.stateOf(row)),
      h('span', { class: 'words' }, this.wordsOf(row) || '–', row.why && h('span', { class: 'why' }, ` — ${row.why}`)),
      h('span', { class: 'counted' }, all ? [h('progress', { max: all, value: over ?? 0, 'aria-hidden': 'true' }), ` ${over ?? 0} of ${all}`] : '–'),
      h('span', { class: 'id' }, row.taskId.slice(-8)),
      h('span', { class: 'took' }, duration(took)),
      time(row.statusAt),
    );
  }
}
