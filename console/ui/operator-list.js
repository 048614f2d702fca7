/**
 * The base of the operator's lists (streams, settings, audit, tokens): one request whose parameters and filters are in the
 * address, its three states, the time of the reading, and the keys. Below it, what a refused operator is told.
 */

import { ApiError, clock, get } from './api.js';
import { context } from './context.js';
import { h } from './dom.js';
import { ConsoleElement } from './element.js';
import { commandLine, curl, empty, loading, problem, time } from './parts.js';

/** @typedef {import('./dom.js').Child} Child */

export class OperatorList extends ConsoleElement {
  search = '';
  /** The screen's path. */
  path = '';
  noun = '';
  /** A selector of the rows. */
  rows = '.records > li';
  /** What the filter looks at. */
  fields = '';
  /** @type {any} */
  answer = null;
  /** @type {unknown} */
  error = null;
  readAt = 0;
  /** The request whose answer is shown, or on its way. @type {string | null} */
  asked = null;

  connected() {
    this.listenTo(context, 'settings', () => this.changed());
  }

  get query() {
    return new URLSearchParams(this.search);
  }

  /** The path of the API for what the address asks. */
  get request() {
    return this.path;
  }

  async load() {
    const asked = (this.asked = this.request);
    try {
      const answer = await get(asked);
      if (asked === this.asked) Object.assign(this, { answer, error: null, readAt: clock.now() });
    } catch (error) {
      if (asked === this.asked) this.error = error;
    }
    this.changed();
  }

  /** @param {{[name: string]: string | null}} changes of the address */
  show(changes) {
    const { query } = this;
    for (const [name, value] of Object.entries(changes)) value ? query.set(name, value) : query.delete(name);
    context.go(query.size > 0 ? `${this.path}?${query}` : this.path, { replace: true });
  }

  /** @param {string} key */
  onKey(key) {
    if (key === 'r') void this.load();
    else if (key === 'Enter') /** @type {HTMLElement | null} */ (document.activeElement?.querySelector('a'))?.click();
    else return moveByKey(this, key, this.rows);
    return true;
  }

  view() {
    if (this.asked !== this.request) {
      Object.assign(this, { answer: null, error: null });
      void this.load();
    }
    const { answer, error } = this;
    return [...this.head(), error ? operatorProblem(error, () => void this.load()) : null, answer ? h('div', { key: 'content', class: error ? 'old' : '' }, ...this.content(answer)) : error ? null : loading(this.noun), commandLine(this.command() ?? curl(this.request))];
  }

  /** @returns {Child[]} */
  head() {
    return [];
  }

  /** @param {any} _answer @returns {Child[]} */
  content(_answer) {
    return [];
  }

  /** @returns {string | null} */
  command() {
    return null;
  }

  /** @param {(string | null | undefined)[]} texts */
  isWanted(texts) {
    return texts.join(' ').toLowerCase().includes((this.query.get('q') ?? '').toLowerCase());
  }

  /** @param {...Child} more */
  bar(...more) {
    return h('div', { class: 'filters' }, h('input', { type: 'search', 'aria-label': `Filter by ${this.fields}`, placeholder: `${this.fields}  /`, prop: { value: this.query.get('q') ?? '' }, oninput: (/** @type {any} */ event) => this.show({ q: event.target.value }) }), ...more, readAt(this));
  }

  /** A filter that is on or off in the address. @param {string} name @param {string} value @param {Child} label @param {boolean} [disabled] */
  chip(name, value, label, disabled = false) {
    const isOn = this.query.get(name) === value;
    return h('button', { type: 'button', class: 'chip', 'aria-pressed': isOn, disabled, onclick: () => this.show({ [name]: isOn ? null : value }) }, label);
  }

  none() {
    return empty('Nothing matches', h('button', { type: 'button', onclick: () => context.go(this.path) }, 'Drop all filters'));
  }
}

/** @param {unknown} error @param {() => void} retry */
export function operatorProblem(error, retry) {
  const isRefused = error instanceof ApiError && error.status === 403;
  return h('div', null, problem(error, retry), isRefused && context.me?.by === 'local' && h('div', null, h('p', null, 'Without a token you act as the local user. This command opens the console as the operator:'), commandLine('nuncio console')));
}

/** @param {{readAt: number, load: () => any}} screen @param {boolean} [isLive] */
export function readAt(screen, isLive = false) {
  if (isLive) return h('span', { class: 'live-live' }, 'followed live');
  return h('span', { class: 'note' }, 'read at ', time(new Date(screen.readAt || clock.now()).toISOString()), ' ', h('button', { type: 'button', class: 'quiet', onclick: () => void screen.load() }, 'Read again'));
}

/** Allowed or not, alive or not: by shape and word. @param {boolean} isGood @param {string} word @param {string} [shape] */
export function verdict(isGood, word, shape = isGood ? '✓' : '✕') {
  return h('span', { class: `state state-${isGood ? 'completed' : 'failed'}` }, h('span', { class: 'shape', 'aria-hidden': 'true' }, shape), ` ${word}`);
}

/** Moves the focus through rows by `j` and `k`, and to the filter by `/`. @param {HTMLElement} screen @param {string} key @param {string} rows */
export function moveByKey(screen, key, rows) {
  if (key === '/') screen.querySelector('input')?.focus();
  else if (key === 'j' || key === 'k') {
    const items = /** @type {HTMLElement[]} */ ([...screen.querySelectorAll(rows)]);
    const at = items.findIndex((item) => item.contains(document.activeElement));
    items[Math.max(0, Math.min(items.length - 1, at + (key === 'j' ? 1 : -1)))]?.focus();
  } else return false;
  return true;
}
