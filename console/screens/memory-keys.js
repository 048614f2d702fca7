/**
 * The keys of a namespace, by prefix, or what a search found, with scores. Rows change in place while the namespace is
 * followed; new keys are counted in a button, and deleted ones stay marked until the list is read again.
 */

import { duration } from '../core/time.js';
import { keysUri, readView, remaining, scoreText, searchUri, takeKeys, viewPath } from '../core/memory.js';
import { clock } from '../ui/api.js';
import { context, link } from '../ui/context.js';
import { h } from '../ui/dom.js';
import { ConsoleElement } from '../ui/element.js';
import { FollowedResource } from '../ui/followed-resource.js';
import { readResource } from '../ui/mcp.js';
import { isMissing } from '../ui/memory-bank.js';
import { announce, bytes, commandLine, empty, loading, problem, quote, time } from '../ui/parts.js';
import '../ui/rows.js';
import './memory-transfer.js';

const PAGE = 100;
/** The server's limit `keys_page`: what can be read again at once. */
const MAX_PAGE = 1000;
const FOUND = 20;
/** @type {[import('./memory-keys.js').Mode, string, string][]} */
const MODES = [['prefix', 'Keys that begin with', ''], ['pattern', 'Keys that match', 'task:*:notes'], ['text', 'Values with the words', 'green tea']];

/** @typedef {'prefix' | 'pattern' | 'text'} Mode */

class NuncioMemoryKeys extends ConsoleElement {
  shown = readView('');
  loaded = '';
  asked = 0;
  /** @type {any[] | null} */
  rows = null;
  /** @type {any} What the server said beside the rows: stats, pagination, next. */
  page = null;
  /** @type {string[]} */
  permissions = ['read', 'write'];
  /** @type {unknown} */
  error = null;
  fresh = 0;
  selected = -1;
  isLoadingMore = false;
  /** The kind of filter that is typed, before it is in the address. @type {Mode | null} */
  typing = null;
  /** @type {FollowedResource | null} */
  followed = null;

  connected() {
    this.followed = new FollowedResource('memory-keys', () => void this.refresh(), this);
    this.listenTo(context, 'settings', () => this.changed());
    const seconds = setInterval(() => this.isSearch && this.changed(), 1000);
    this.onLeave(() => clearInterval(seconds));
  }

  get isSearch() {
    return Boolean(this.shown.pattern || this.shown.text);
  }

  /** @param {{after?: string, limit?: number}} [more] */
  uri({ after, limit = PAGE } = {}) {
    const { namespace, prefix, pattern, text, page } = this.shown;
    return this.isSearch ? searchUri(namespace, { pattern, text, page, limit: FOUND }) : keysUri(namespace, { prefix, after, limit });
  }

  async load() {
    const asked = (this.asked += 1);
    this.loaded = this.uri();
    this.followed?.follow(this.loaded);
    try {
      const { value, meta } = await readResource(this.loaded);
      if (asked !== this.asked) return;
      Object.assign(this, { rows: value.keys ?? value.results, page: value, error: null, fresh: 0, selected: -1, permissions: meta.permissions ?? [] });
      announce(`${this.rows?.length} shown`);
    } catch (error) {
      if (asked !== this.asked) return;
      if (isMissing(error)) Object.assign(this, { rows: [], page: null, error: null, fresh: 0 });
      else this.error = error;
    }
    this.followed?.wasRead();
    this.changed();
  }

  /** After a change: known rows change in place, others are counted. Nothing can move in an empty list, and the order of
   * what a search found is its scores. */
  async refresh() {
    const { asked } = this;
    if (!this.rows || this.rows.length === 0) return this.load();
    try {
      const { value } = await readResource(this.uri({ limit: Math.min(MAX_PAGE, Math.max(PAGE, this.rows.length + PAGE)) }));
      if (asked !== this.asked) return;
      const read = value.keys ?? value.results;
      const { rows, fresh } = takeKeys(this.rows.slice(0, MAX_PAGE), read);
      // Keys after the last that is shown belong to the next page.
      const last = this.rows[this.rows.length - 1].key;
      const isInside = this.isSearch || !this.page?.next ? fresh : takeKeys(this.rows, read.filter((/** @type {any} */ row) => row.key < last)).fresh;
      Object.assign(this, { rows: [...rows, ...this.rows.slice(MAX_PAGE)], fresh: isInside, error: null, page: { ...this.page, stats: value.stats ?? this.page?.stats } });
    } catch (error) {
      if (asked !== this.asked) return;
      if (isMissing(error)) this.rows = this.rows.map((row) => ({ ...row, gone: true }));
      else this.error = error;
    }
    this.followed?.wasRead();
    this.changed();
  }

  async more() {
    if (this.isLoadingMore || !this.page?.next || !this.rows || this.isSearch) return;
    this.isLoadingMore = true;
    const { asked } = this;
    try {
      const { value } = await readResource(this.uri({ after: this.rows.at(-1).key }));
      if (asked !== this.asked) return;
      this.rows = [...this.rows, ...value.keys];
      this.page = value;
    } catch (error) {
      this.error = error;
    } finally {
      this.isLoadingMore = false;
      this.changed();
    }
  }

  /** @param {string} key */
  onKey(key) {
    /** @type {any[]} */
    const rows = this.rows ?? [];
    if (key === '/') this.querySelector('input')?.focus();
    else if (key === 'j' || key === 'k') {
      this.selected = Math.max(0, Math.min(rows.length - 1, this.selected + (key === 'j' ? 1 : -1)));
      /** @type {any} */ (this.querySelector('nuncio-rows'))?.show(this.selected);
      this.update();
      announce(rows[this.selected]?.key ?? '');
    } else if (key === 'Enter' && rows[this.selected]) context.go(viewPath({ ...this.shown, key: rows[this.selected].key }));
    else if (key === 'r') void this.load();
    else return false;
    return true;
  }

  view() {
    if (this.uri() !== this.loaded) void this.load();
    return [this.bar(), h('div', { key: 'error' }, this.error ? problem(this.error, () => this.load()) : null), this.content(), h('nuncio-memory-transfer', { prop: { namespace: this.shown.namespace, total: this.page?.stats?.total ?? null, asOf: this.followed?.readAt ?? NaN, mayWrite: this.permissions.includes('write'), onDone: () => void this.load() } }), commandLine(this.command())];
  }

  bar() {
    const { namespace } = this.shown;
    const inAddress = MODES.find(([mode]) => this.shown[mode])?.[0] ?? 'prefix';
    const mode = this.typing ?? inAddress;
    const submit = (/** @type {SubmitEvent} */ event) => {
      event.preventDefault();
      const value = this.querySelector('input')?.value ?? '';
      this.typing = null;
      context.go(viewPath({ namespace, [mode]: value }));
    };
    const choose = (/** @type {any} */ event) => {
      this.typing = event.target.value;
      this.update();
      this.querySelector('input')?.focus();
    };
    return h(
      'div',
      { class: 'filters' },
      h(
        'form',
        { role: 'search', class: 'bar', onsubmit: submit },
        h('select', { 'aria-label': 'Kind of search', onchange: choose, prop: { value: mode } }, ...MODES.map(([value, name]) => h('option', { value, selected: value === mode }, name))),
        h('input', { type: 'search', 'aria-label': MODES.find(([value]) => value === mode)?.[1], placeholder: MODES.find(([value]) => value === mode)?.[2] || '/', prop: { value: this.shown[mode] } }),
        h('button', null, mode === 'prefix' ? 'Filter' : 'Search'),
      ),
      MODES.some(([value]) => this.shown[value]) && h('button', { type: 'button', class: 'quiet', onclick: () => context.go(viewPath({ namespace })) }, 'Show all keys'),
      this.rows && this.followed?.label(),
    );
  }

  content() {
    const { rows, page } = this;
    if (!rows) return this.error ? null : loading('keys');
    if (rows.length === 0) return this.none();
    const total = page?.pagination?.total ?? page?.stats?.total;
    const pages = page?.pagination ? Math.ceil(page.pagination.total / page.pagination.limit) : 1;
    return h(
      'div',
      { class: `list ${this.error ? 'old' : ''}` },
      h('p', { class: 'list-head' }, this.isSearch ? `${total} found, best first` : `${total} ${total === 1 ? 'entry' : 'entries'} in the namespace, ${bytes(page?.stats?.size ?? 0)}`, this.fresh > 0 && h('button', { type: 'button', class: 'pill', onclick: () => this.load() }, `${this.fresh} new`)),
      h('nuncio-rows', { prop: { count: rows.length, label: 'Entries', rowAt: (/** @type {number} */ index) => this.row(index), rowClass: (/** @type {number} */ index) => (index === this.selected || rows[index]?.key === this.shown.key ? 'selected' : ''), onNear: (/** @type {number} */ end) => end >= rows.length - 10 && void this.more() } }),
      pages > 1 && h('p', { class: 'bar' }, ...this.pager(pages)),
    );
  }

  /** @param {number} pages */
  pager(pages) {
    const { page } = this.shown;
    const turn = (/** @type {number} */ to, /** @type {string} */ name) => (to >= 1 && to <= pages ? h('a', { href: link(viewPath({ ...this.shown, page: to })) }, name) : null);
    return [turn(page - 1, 'Previous'), h('span', { class: 'note' }, `Page ${page} of ${pages}`), turn(page + 1, 'Next')];
  }

  none() {
    const { namespace, prefix, pattern, text, page } = this.shown;
    const total = this.page?.stats?.total;
    if (page > 1) return empty('This page is empty', h('a', { href: link(viewPath({ ...this.shown, page: 1 })) }, 'First page'));
    if (pattern) return empty('No key matches', `* stands for any characters, ? for one, [abc] for one of these. A pattern has up to 256 bytes (pattern_bytes) and 8 stars (pattern_stars).`);
    if (text) return empty('No value has all of these words', 'Strings and numbers in values are searched, up to 64 KiB of words in each; names of members are not. Up to 16 words (search_words).');
    if (prefix) return empty(`No key begins with ${JSON.stringify(prefix)}`, total === undefined ? '' : `The namespace has ${total} entries. Keys are compared byte by byte.`);
    return empty('The namespace is empty', `A namespace exists while it has entries, and is shown to callers with read:memory:${namespace}. It has up to 1,000,000 entries (entries_per_namespace).`, `nuncio memory set ${quote(namespace)} hello '"world"'`);
  }

  /** @param {number} index */
  row(index) {
    const row = this.rows?.[index];
    if (!row) return '';
    const { key, metadata = null, score } = row;
    const size = metadata?.size ?? row.size;
    return h(
      'a',
      { class: `key-row ${row.gone ? 'gone' : ''} ${score === undefined ? '' : 'key-found'}`, href: link(viewPath({ ...this.shown, key })), 'aria-current': key === this.shown.key ? 'true' : null },
      score !== undefined && h('span', { class: 'score', title: 'Score' }, scoreText(score)),
      h('span', { class: 'name' }, key),
      score !== undefined && h('span', { class: 'words note' }, row.preview),
      h('span', { class: 'size' }, bytes(size)),
      h('span', { class: 'life note' }, metadata ? left(metadata) : row.ttl === null ? '' : `${duration(row.ttl * 1000)} TTL`),
      score === undefined && h('span', { class: 'at' }, time(row.created)),
    );
  }

  command() {
    const { namespace, prefix, pattern, text } = this.shown;
    if (pattern) return `nuncio memory search ${quote(namespace)} ${quote(pattern)}`;
    if (text) return `nuncio memory search ${quote(namespace)} --text ${quote(text)}`;
    return `nuncio memory list ${quote(namespace)}${prefix ? ` --prefix ${quote(prefix)}` : ''}`;
  }
}

/** @param {{ttl: number | null, updated: string}} metadata */
function left(metadata) {
  const ms = remaining(metadata, clock.now());
  return ms === null ? '' : ms === 0 ? 'expired' : `${duration(Math.ceil(ms / 1000) * 1000).replace('.0 s', ' s')} left`;
}

customElements.define('nuncio-memory-keys', NuncioMemoryKeys);
