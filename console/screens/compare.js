/** Two tasks beside each other: their logs aligned by what happened, the first difference, and how long each part took. */

import { compareLogs, gapOf, lengthOf } from '../core/compare.js';
import { duration } from '../core/time.js';
import { get, segment } from '../ui/api.js';
import { context, link } from '../ui/context.js';
import { h } from '../ui/dom.js';
import { ConsoleElement } from '../ui/element.js';
import { commandLine, curl, empty, loading, problem, stateMark } from '../ui/parts.js';
import { summary } from '../ui/task-log.js';

/** How many events of a log are read: what a person compares. */
const MOST = 5000;
const ROWS = 400;
const PAGE = 1000;

const MARKS = { same: ['=', 'same'], differs: ['≠', 'content differs'], 'only-a': ['←', 'only in A'], 'only-b': ['→', 'only in B'] };

class NuncioCompare extends ConsoleElement {
  recordId = '';
  tab = '';
  /** @type {{a: any, b: any} | null} */
  tasks = null;
  /** @type {unknown} */
  error = null;
  shown = '';
  all = false;

  #search = '';
  get search() {
    return this.#search;
  }
  set search(value) {
    this.#search = value;
    const { a, b } = this.ids;
    if (this.isConnected && `${a} ${b}` !== this.shown) void this.load();
  }

  get ids() {
    const query = new URLSearchParams(this.#search);
    return { a: query.get('a') ?? '', b: query.get('b') ?? '' };
  }

  connected() {
    this.listenTo(context, 'settings', () => this.changed());
    void this.load();
  }

  async load() {
    const { a, b } = this.ids;
    this.shown = `${a} ${b}`;
    Object.assign(this, { tasks: null, error: null });
    this.changed();
    if (!a || !b) return;
    try {
      const [one, other] = await Promise.all([readTask(a), readTask(b)]);
      if (this.shown === `${a} ${b}`) this.tasks = { a: one, b: other };
    } catch (error) {
      this.error = error;
    }
    this.changed();
  }

  /** @param {string} key */
  onKey(key) {
    if (key !== 's') return false;
    this.swap();
    return true;
  }

  swap() {
    const { a, b } = this.ids;
    context.go(`compare?a=${segment(b)}&b=${segment(a)}`, { replace: true });
  }

  view() {
    const { a, b } = this.ids;
    return [h('h1', null, 'Compare'), this.form(a, b), ...[this.content(a, b)].flat()];
  }

  /** @param {string} a @param {string} b */
  form(a, b) {
    const submit = (/** @type {any} */ event) => {
      event.preventDefault();
      const [one, other] = [...event.target.querySelectorAll('input')].map((input) => input.value.trim());
      context.go(`compare?a=${segment(one)}&b=${segment(other)}`);
    };
    const field = (/** @type {string} */ name, /** @type {string} */ value) => h('label', null, `Task ${name} `, h('input', { type: 'text', required: true, spellcheck: 'false', 'aria-label': `Task ${name}`, prop: { value } }));
    return h('form', { class: 'bar', onsubmit: submit }, field('A', a), field('B', b), h('button', null, 'Compare'), a && b && h('button', { type: 'button', class: 'quiet', onclick: () => this.swap() }, 'Swap  s'));
  }

  /** @param {string} a @param {string} b */
  content(a, b) {
    if (!a || !b) return empty('Two tasks are compared', 'Give the ids of both. In the list of tasks, x selects two and compares them.', 'nuncio task list');
    if (this.error) return problem(this.error, () => this.load());
    if (!this.tasks) return loading('both tasks');
    const [one, other] = [this.tasks.a, this.tasks.b];
    const { rows, first, exact } = compareLogs(one.events, other.events);
    const shown = this.all ? rows : rows.slice(Math.max(0, (first ?? 0) - 3), Math.max(0, (first ?? 0) - 3) + ROWS);
    return [
      h('div', { class: 'frames pair' }, head('A', one), head('B', other)),
      h('p', { role: 'status', class: first === null ? 'note' : 'verdict' }, this.verdict(rows, first)),
      !exact && h('p', { class: 'note' }, 'They differ too much to be aligned event by event: the middle counts as replaced.'),
      (one.cut || other.cut) && h('p', { class: 'note' }, `The first ${MOST} events of each are compared.`),
      h('ol', { class: 'compared' }, ...shown.map((row) => this.row(row, one.events, other.events))),
      shown.length < rows.length && h('button', { type: 'button', onclick: () => ((this.all = true), this.changed()) }, `Show all ${rows.length} rows`),
      commandLine(curl(`tasks/${segment(a)}/events?limit=1000`)),
    ];
  }

  /** @param {import('../core/compare.js').CompareRow[]} rows @param {number | null} first */
  verdict(rows, first) {
    if (first === null) return `Nothing differs: ${rows.length} events of each were compared, without their times and without ids that every run makes anew.`;
    const row = rows[first];
    const place = row.a && row.b ? `event ${row.a.seq} of A and ${row.b.seq} of B` : row.a ? `event ${row.a.seq} of A, which B does not have` : `event ${row.b?.seq} of B, which A does not have`;
    return `The first difference is at ${place}. ${rows.filter((one) => one.op === 'same').length} of ${rows.length} rows are the same.`;
  }

  /** @param {import('../core/compare.js').CompareRow} row @param {any[]} a @param {any[]} b */
  row(row, a, b) {
    const [mark, word] = MARKS[row.op];
    const side = (/** @type {any} */ event, /** @type {any[]} */ events, /** @type {string} */ id) => {
      if (!event) return h('div', { class: 'side none' });
      const gap = gapOf(events, event);
      return h('div', { class: 'side' }, h('a', { href: link(`tasks/${segment(id)}/events?at=${event.seq}`) }, `${event.seq}`), ' ', h('span', { class: 'tag' }, event.type), gap !== null && h('span', { class: 'note' }, ` +${duration(gap)} `), h('span', { class: 'plain' }, summary(event).slice(0, 300)));
    };
    const { a: idA, b: idB } = this.ids;
    const changes = row.changes.length > 0 && h('details', null, h('summary', null, `${row.changes.length} differences`), h('ul', { class: 'changes' }, ...row.changes.map((change) => h('li', null, h('code', null, change.path || '/'), ` ${text(change.before)} → ${text(change.after)}`))));
    return h('li', { class: `compare-${row.op}` }, h('span', { class: 'shape', title: word, 'aria-label': word, role: 'img' }, mark), side(row.a, a, idA), side(row.b, b, idB), changes);
  }
}

/** @param {any} value */
function text(value) {
  return value === undefined ? '(absent)' : JSON.stringify(value).slice(0, 200);
}

/** @param {string} name @param {any} task */
function head(name, task) {
  const { row } = task.head;
  return h('section', { class: 'frame' }, h('h2', null, `${name}: `, h('a', { href: link(`tasks/${segment(row.taskId)}`) }, row.agent)), h('p', null, stateMark(row.state), ` ${row.events} events, ${duration(lengthOf(task.events))}`), h('p', { class: 'note' }, row.firstText ?? ''));
}

/** @param {string} id */
async function readTask(id) {
  const head = await get(`tasks/${segment(id)}`);
  const events = [];
  let last = 0;
  do {
    const page = await get(`tasks/${segment(id)}/events?after=${events.length}&limit=${PAGE}&preview=1048576`);
    events.push(...page.events);
    last = page.last;
    if (page.events.length === 0) break;
  } while (events.length < Math.min(last, MOST));
  return { head, events, cut: events.length < last };
}

customElements.define('nuncio-compare', NuncioCompare);
