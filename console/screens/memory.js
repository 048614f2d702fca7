/**
 * The memory bank: namespaces, the keys of one, and an entry beside them. The address has what is shown; names are in its
 * query, because a key can be anything.
 */

import { keysUri, readView, viewPath } from '../core/memory.js';
import { clock } from '../ui/api.js';
import { context, link } from '../ui/context.js';
import { h } from '../ui/dom.js';
import { ConsoleElement } from '../ui/element.js';
import { callTool, readResource } from '../ui/mcp.js';
import { bytes, commandLine, empty, loading, problem, quote, time } from '../ui/parts.js';
import './memory-editor.js';
import './memory-entry.js';
import './memory-keys.js';
import './memory-transfer.js';

const PAGE = 50;
/** How many namespaces are counted at once. */
const AT_ONCE = 4;

class NuncioMemory extends ConsoleElement {
  #search = '';
  shown = readView('');
  adding = false;

  set search(search) {
    this.#search = search;
    const before = this.shown;
    this.shown = readView(search);
    if (before.namespace !== this.shown.namespace || before.key !== this.shown.key) this.adding = false;
  }

  get search() {
    return this.#search;
  }

  /** @param {string} key */
  onKey(key) {
    const { namespace, key: name, ...filters } = this.shown;
    if (key === 'Escape' && this.adding) this.add(false);
    else if (key === 'Escape' && name) context.go(viewPath({ namespace, ...filters }));
    else if (key === 'Escape' && namespace) context.go('memory');
    else if (key === 'n') this.add(true);
    else if (key === 'e' && name) return Boolean(/** @type {any} */ (this.querySelector('nuncio-memory-entry'))?.edit());
    else return /** @type {any} */ (this.querySelector('nuncio-memory-keys, nuncio-memory-namespaces'))?.onKey(key) ?? false;
    return true;
  }

  /** @param {boolean} adding */
  add(adding) {
    this.adding = adding;
    this.update();
    if (adding) /** @type {HTMLElement | null} */ (this.querySelector('nuncio-memory-editor input'))?.focus();
  }

  view() {
    const { namespace, key } = this.shown;
    const stored = (/** @type {string} */ space, /** @type {string} */ name) => context.go(viewPath({ namespace: space, key: name }));
    return [
      this.heading(),
      h('div', { key: 'new' }, this.adding && h('nuncio-memory-editor', { class: 'panel', prop: { namespace, onStored: stored, onClose: () => this.add(false) } })),
      namespace
        ? h(
            'div',
            { class: `panes ${key ? 'has-record' : ''}`, key: `in ${namespace}` },
            h('nuncio-memory-keys', { prop: { shown: this.shown } }),
            key ? h('nuncio-memory-entry', { key: `entry ${key}`, prop: { namespace, name: key } }) : null,
          )
        : h('nuncio-memory-namespaces', { key: 'namespaces', prop: { shown: this.shown } }),
    ];
  }

  heading() {
    const { namespace, key, ...filters } = this.shown;
    const step = (/** @type {string} */ path, /** @type {string} */ name, /** @type {boolean} */ last) => (last ? h('span', { 'aria-current': 'location' }, name) : h('a', { href: link(path) }, name));
    return h(
      'div',
      { class: 'bar title' },
      h('h1', null, step('memory', 'Memory', !namespace), namespace && [' / '], namespace && step(viewPath({ namespace, ...filters }), namespace, !key), key && ' / ', key && step('', key, true)),
      h('button', { type: 'button', 'aria-expanded': this.adding, title: 'Key: n', onclick: () => this.add(!this.adding) }, 'New entry'),
    );
  }
}

/** The namespaces that the caller may read, with what they hold. */
class NuncioMemoryNamespaces extends ConsoleElement {
  shown = readView('');
  /** @type {string | null} */
  loaded = null;
  /** @type {string[] | null} */
  names = null;
  /** @type {string | null} */
  next = null;
  /** @type {unknown} */
  error = null;
  /** @type {Map<string, any>} */
  stats = new Map();
  selected = -1;
  readAt = '';

  connected() {
    this.listenTo(context, 'settings', () => this.changed());
    this.listenTo(window, 'focus', () => void this.load());
  }

  async load(after = '') {
    const { prefix } = this.shown;
    this.loaded = prefix;
    try {
      const page = await callTool('memory_list', { ...(prefix && { prefix }), ...(after && { after }), limit: PAGE });
      if (this.loaded !== prefix) return;
      this.names = [...(after ? (this.names ?? []) : []), ...page.namespaces];
      Object.assign(this, { next: page.next ?? null, error: null, readAt: new Date(clock.now()).toISOString() });
      void this.count(page.namespaces);
    } catch (error) {
      this.error = error;
    }
    this.changed();
  }

  /** The list has names only; how much each holds is asked for beside it, a few at a time. @param {string[]} names */
  async count(names) {
    const left = [...names];
    const work = async () => {
      for (let name = left.shift(); name !== undefined && this.isConnected; name = left.shift()) {
        const read = await readResource(keysUri(name, { limit: 1 })).catch(() => null);
        if (read) this.stats.set(name, read.value.stats);
        this.changed();
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
  }

  /** @param {string} key */
  onKey(key) {
    const links = [.../** @type {NodeListOf<HTMLElement>} */ (this.querySelectorAll('.records a'))];
    if (key === '/') this.querySelector('input')?.focus();
    else if (key === 'j' || key === 'k') {
      this.selected = Math.max(0, Math.min(links.length - 1, this.selected + (key === 'j' ? 1 : -1)));
      links[this.selected]?.focus();
    } else if (key === 'r') void this.load();
    else return false;
    return true;
  }

  view() {
    if (this.loaded !== this.shown.prefix) void this.load();
    const submit = (/** @type {SubmitEvent} */ event) => {
      event.preventDefault();
      context.go(viewPath({ prefix: this.querySelector('input')?.value ?? '' }));
    };
    return [
      h('div', { class: 'filters' }, h('form', { role: 'search', onsubmit: submit }, h('input', { type: 'search', 'aria-label': 'Namespaces that begin with', placeholder: 'Namespaces that begin with  /', prop: { value: this.shown.prefix } })), this.readAt && h('span', { class: 'note' }, 'read at ', time(this.readAt), ' ', h('button', { type: 'button', class: 'quiet', onclick: () => void this.load() }, 'Read again'))),
      h('div', { key: 'error' }, this.error ? problem(this.error, () => this.load()) : null),
      this.content(),
      h('nuncio-memory-transfer', { prop: { namespace: '', onDone: () => void this.load() } }),
      commandLine(`nuncio memory list${this.shown.prefix ? ` --prefix ${quote(this.shown.prefix)}` : ''}`),
    ];
  }

  content() {
    const { prefix } = this.shown;
    if (!this.names) return this.error ? null : loading('namespaces');
    if (this.names.length === 0) {
      const why = prefix ? `No namespace that you may read begins with ${JSON.stringify(prefix)}.` : 'A namespace exists while it has entries, and is listed with a scope such as read:memory:* or read:memory:notes. A tenant has up to 10,000 of them (namespaces_per_tenant).';
      return empty(prefix ? 'No such namespace' : 'Nothing is stored', why, "nuncio memory set notes hello '\"world\"'");
    }
    const more = () => this.load(/** @type {string} */ (this.next));
    return h(
      'div',
      { class: this.error ? 'old' : '' },
      h('ul', { class: 'records' }, ...this.names.map((name) => this.row(name))),
      this.next && h('button', { type: 'button', onclick: more }, 'Show more'),
    );
  }

  /** @param {string} name */
  row(name) {
    const stats = this.stats.get(name);
    return h('li', { key: name }, h('a', { href: link(viewPath({ namespace: name })) }, name), stats && h('span', null, `${stats.total} ${stats.total === 1 ? 'entry' : 'entries'}`), stats && h('span', { class: 'note' }, bytes(stats.size)), stats && h('span', { class: 'note' }, 'oldest ', time(stats.oldestEntry)));
  }
}

customElements.define('nuncio-memory', NuncioMemory);
customElements.define('nuncio-memory-namespaces', NuncioMemoryNamespaces);
