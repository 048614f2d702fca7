/**
 * Webhooks: deliveries that wait for their next attempt, and those that were given up. The list is read every 5 s while it
 * can be seen, and says when; rows stay in their places, and what came or left meanwhile is said.
 */

import { mergeDeliveries, missingScope, outcomeText, readView, writeView } from '../core/deliveries.js';
import { readMark } from '../ui/agent-tasks.js';
import { clock, get, post, segment } from '../ui/api.js';
import { context, link } from '../ui/context.js';
import { h } from '../ui/dom.js';
import { ConsoleElement } from '../ui/element.js';
import { announce, commandLine, curl, empty, loading, problem, quote, stateMark, time } from '../ui/parts.js';
import '../ui/delivery-payload.js';

const PAGE = 100;
const POLL = 5000;
/** An attempt that was asked for is seldom over at once. */
const SOON = 800;

class NuncioWebhooks extends ConsoleElement {
  /** @type {any[]} */
  rows = [];
  /** @type {any} */
  page = null;
  /** @type {unknown} */
  error = null;
  /** Deliveries that are listed by the server and not here. */
  fresh = 0;
  /** Whether there are some in the other state, read where this list is empty. */
  others = false;
  readAt = NaN;
  selected = -1;
  /** @type {Set<string>} */
  marked = new Set();
  /** The ids that a second press discards. */
  discarding = '';
  /** @type {{act: 'replay' | 'discard', ids: string[], error: unknown} | null} */
  refused = null;
  outcome = '';
  busy = false;
  asked = 0;
  /** @type {string | null} */
  #search = null;
  shown = readView('');

  set search(value) {
    if (value === this.#search) return;
    const before = this.shown;
    this.#search = value;
    this.shown = readView(value ?? '');
    if (!this.isConnected) return;
    const isOther = before.state !== this.shown.state || before.cursor !== this.shown.cursor;
    if (isOther) Object.assign(this, { page: null, rows: [], outcome: '', refused: null });
    if (isOther) void this.load();
    else this.changed();
  }

  get search() {
    return this.#search ?? '';
  }

  connected() {
    const refresh = () => document.visibilityState === 'visible' && void this.refresh();
    const timer = setInterval(refresh, POLL);
    this.onLeave(() => clearInterval(timer));
    this.listenTo(document, 'visibilitychange', refresh);
    this.listenTo(context, 'settings', () => this.changed());
    void this.load();
  }

  get path() {
    const { state, cursor } = this.shown;
    return `deliveries?state=${state}&limit=${PAGE}${cursor && `&cursor=${segment(cursor)}`}`;
  }

  /** Reads the list anew: rows take their places again. */
  async load() {
    this.marked.clear();
    await this.read((page) => Object.assign(this, { rows: page.deliveries, fresh: 0, selected: this.rowOf(page.deliveries, this.shown.open), discarding: '' }));
  }

  /** Reads the list again, and changes the rows in their places. Nothing can move in an empty list. */
  async refresh() {
    if (!this.page) return this.load();
    await this.read((page) => Object.assign(this, this.rows.length > 0 ? mergeDeliveries(this.rows, page, this.shown) : { rows: page.deliveries }));
  }

  /** @param {(page: any) => void} take */
  async read(take) {
    const asked = (this.asked += 1);
    try {
      const page = await get(this.path);
      const other = this.shown.state === 'dead' ? 'retrying' : 'dead';
      const others = page.deliveries.length === 0 && (await get(`deliveries?state=${other}&limit=1`)).deliveries.length > 0;
      if (asked !== this.asked || !this.isConnected) return;
      Object.assign(this, { page, others, error: null, readAt: clock.now() });
      take(page);
    } catch (error) {
      if (asked !== this.asked) return;
      this.error = error;
    }
    this.changed();
  }

  /** @param {any[]} rows @param {string} id */
  rowOf(rows, id) {
    return rows.findIndex((row) => row.id === id);
  }

  /** @param {Partial<import('../core/deliveries.js').DeliveryView>} values */
  show(values) {
    context.go(`webhooks?${writeView({ ...this.shown, ...values })}`);
  }

  /** What an act is about: the marked deliveries, else the selected one. @returns {any[]} */
  targets() {
    const rows = this.marked.size > 0 ? this.rows.filter((row) => this.marked.has(row.id)) : [this.rows[this.selected]];
    return rows.filter((row) => row && !row.left);
  }

  /** @param {'replay' | 'discard'} act @param {string[]} ids */
  async act(act, ids) {
    if (ids.length === 0 || this.busy) return;
    Object.assign(this, { busy: true, refused: null, outcome: '', discarding: '' });
    this.update();
    try {
      const { results } = await post(`deliveries/${act}`, { ids });
      this.outcome = outcomeText(act, results);
      this.marked.clear();
      announce(this.outcome);
      setTimeout(() => this.isConnected && void this.refresh(), SOON);
    } catch (error) {
      this.refused = { act, ids, error };
    }
    this.busy = false;
    await this.refresh();
  }

  /** The first press asks, the second one acts; the second click of a double click is neither.
   * @param {MouseEvent} event @param {string[]} ids */
  discard(event, ids) {
    if (event.detail > 1) return;
    if (this.discarding === ids.join()) return void this.act('discard', ids);
    this.discarding = ids.join();
    announce('Press again to discard');
    this.update();
  }

  /** @param {string} key */
  onKey(key) {
    const row = this.rows[this.selected];
    if (key === 'j' || key === 'k') this.select(this.selected + (key === 'j' ? 1 : -1));
    else if (key === 'x' && row && !row.left) this.mark(row.id);
    else if (key === 'Enter' && row) this.show({ open: this.shown.open === row.id ? '' : row.id });
    else if (key === 'r') void this.replayTargets();
    else if (key === 'Escape' && (this.discarding || this.shown.open)) this.discarding ? ((this.discarding = ''), this.update()) : this.show({ open: '' });
    else return false;
    return true;
  }

  async replayTargets() {
    const targets = this.targets();
    if (targets.length === 0 || this.missing(targets)) return this.load();
    await this.act('replay', targets.map(({ id }) => id));
  }

  /** @param {number} index */
  select(index) {
    this.selected = Math.max(0, Math.min(this.rows.length - 1, index));
    this.update();
    const row = this.rows[this.selected];
    this.querySelectorAll('.delivery')[this.selected]?.scrollIntoView({ block: 'nearest' });
    if (row) announce(`${row.left ?? row.state} ${row.address ?? ''} ${row.reason ?? ''}`);
  }

  /** @param {string} id */
  mark(id) {
    if (!this.marked.delete(id)) this.marked.add(id);
    this.discarding = '';
    this.update();
    announce(`${this.marked.size} marked`);
  }

  /** @param {any[]} deliveries */
  missing(deliveries) {
    return deliveries.map((delivery) => missingScope(delivery, context.owner, (scope) => context.may(scope))).find(Boolean) ?? null;
  }

  view() {
    const { state } = this.shown;
    const tab = (/** @type {'retrying' | 'dead'} */ name, /** @type {string} */ text) => h('a', { href: link(`webhooks?state=${name}`), 'aria-current': state === name ? 'page' : null }, text);
    return [
      h('h1', null, 'Webhooks'),
      h('nav', { class: 'tabs', 'aria-label': 'Deliveries' }, tab('retrying', 'Retrying'), tab('dead', 'Dead')),
      this.error ? problem(this.error, () => void this.refresh()) : null,
      this.content(),
    ];
  }

  content() {
    if (!this.page) return this.error ? null : loading('deliveries');
    const { state, cursor } = this.shown;
    const { own, next } = this.page;
    const command = commandLine(state === 'dead' && context.me?.by !== 'token' ? 'nuncio push list' : curl(`deliveries?state=${state}`));
    return h(
      'div',
      { class: this.error ? 'old' : '' },
      h('p', { class: 'list-head' }, own ? 'Of your own tasks · ' : 'Of all tasks that you administer · ', readMark('', this.readAt), this.fresh > 0 && h('button', { type: 'button', class: 'pill', onclick: () => void this.load() }, `${this.fresh} not shown`)),
      this.outcome && h('p', { class: 'as-of', role: 'status' }, this.outcome),
      this.refused && problem(this.refused.error, () => this.refused && void this.act(this.refused.act, this.refused.ids)),
      this.rows.length === 0 ? this.none() : [this.acts(), h('ul', { class: 'records' }, ...this.rows.map((row, index) => this.row(row, index)))],
      (cursor || next) && h('p', { class: 'bar' }, cursor && h('a', { href: link(`webhooks?state=${state}`) }, 'Newest'), next && h('a', { href: link(`webhooks?${writeView({ state, cursor: next, open: '' })}`) }, 'Older')),
      command,
    );
  }

  none() {
    const { state } = this.shown;
    const other = state === 'dead' ? 'retrying' : 'dead';
    if (this.others) return empty(state === 'dead' ? 'None is dead' : 'None is being retried', h('a', { href: link(`webhooks?state=${other}`) }, state === 'dead' ? 'Some wait for their next attempt' : 'Some were given up'));
    return empty('All delivered', 'No delivery to a webhook is being retried, and none was given up. One that fails is listed here with the reason.');
  }

  /** The acts on the marked deliveries. */
  acts() {
    const targets = this.rows.filter((row) => this.marked.has(row.id) && !row.left);
    const markable = this.rows.filter((row) => !row.left);
    const isAll = targets.length === markable.length;
    const markAll = () => {
      this.marked = new Set(isAll ? [] : markable.map(({ id }) => id));
      this.discarding = '';
      this.update();
    };
    return h(
      'p',
      { class: 'bar', role: 'group', 'aria-label': 'Marked deliveries' },
      markable.length > 0 && h('button', { type: 'button', class: 'quiet', onclick: markAll }, isAll ? 'Unmark all' : `Mark all ${markable.length}`),
      ...(targets.length > 0 ? this.buttons(targets, ` ${targets.length} marked`) : [h('span', { class: 'note' }, h('kbd', null, 'x'), ' marks, ', h('kbd', null, 'r'), ' replays, ', h('kbd', null, 'Enter'), ' shows the payload')]),
    );
  }

  /** @param {any[]} targets @param {string} [which] */
  buttons(targets, which = '') {
    const ids = targets.map(({ id }) => id);
    const missing = this.missing(targets);
    const disabled = this.busy || missing !== null;
    const isSure = this.discarding === ids.join();
    return [
      h('button', { key: 'replay', type: 'button', class: which ? 'main' : '', disabled, onclick: () => void this.act('replay', ids) }, `Replay${which}`),
      h('button', { key: 'discard', type: 'button', disabled, onclick: (/** @type {MouseEvent} */ event) => this.discard(event, ids) }, isSure ? 'Press again: never sent' : `Discard${which}`),
      missing && h('span', { class: 'note' }, 'Needs the scope ', h('code', null, missing)),
    ];
  }

  /** @param {any} row @param {number} index */
  row(row, index) {
    const isOpen = this.shown.open === row.id;
    const task = `tasks/${segment(row.taskId)}`;
    return h(
      'li',
      { key: row.id, class: `delivery ${index === this.selected ? 'selected' : ''} ${row.left ? 'old' : ''}`, 'aria-current': index === this.selected ? 'true' : null },
      !row.left && h('input', { type: 'checkbox', 'aria-label': `Mark the delivery of event ${row.seq} of task ${row.taskId}`, prop: { checked: this.marked.has(row.id) }, onchange: () => this.mark(row.id) }),
      stateMark(row.left ?? row.state),
      h('code', { class: 'goal' }, row.address ?? '(its webhook cannot be read)'),
      h('span', null, h('a', { href: link(task) }, row.agent, ' ', row.taskId.slice(-8)), ' · ', h('a', { href: link(`${task}/events?at=${row.seq}`) }, `event ${row.seq}`)),
      h('span', { class: 'detail why' }, row.reason ?? 'no reason was recorded'),
      h(
        'span',
        { class: 'note' },
        typeof row.attempts === 'number' ? `${row.attempts} ${row.attempts === 1 ? 'attempt' : 'attempts'}` : 'attempts not counted',
        row.since && [' · ', row.state === 'retrying' ? 'failing since ' : 'given up '], row.since && time(row.since),
        row.nextAt && ' · next try ', row.nextAt && time(row.nextAt),
        ` · ${row.owner} · ${row.webhookId}`,
      ),
      h('span', { class: 'bar acts' }, h('button', { type: 'button', class: 'quiet', 'aria-expanded': isOpen, onclick: () => ((this.selected = index), this.show({ open: isOpen ? '' : row.id })) }, 'Payload'), ...(row.left ? [] : this.buttons([row]))),
      isOpen && this.detail(row, task),
    );
  }

  /** @param {any} row @param {string} task */
  detail(row, task) {
    return h(
      'div',
      { class: 'detail', key: 'detail' },
      h('p', null, 'As it would be sent, in ', row.dialect ?? 'its dialect', '. ', h('a', { href: link(`${task}/wire?at=${row.seq}`) }, 'The event on the wire')),
      h('nuncio-delivery-payload', { key: row.payload, prop: { path: row.payload } }),
      commandLine(`${curl('deliveries/replay')} -H 'Content-Type: application/json' -d ${quote(JSON.stringify({ ids: [row.id] }))}`),
    );
  }
}

customElements.define('nuncio-webhooks', NuncioWebhooks);
