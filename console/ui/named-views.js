/**
 * Views of the list of tasks with a name. A view is the query of an address and nothing else: to apply one is to follow its
 * link. They are in this browser's `localStorage`; a tab shows what another one stored.
 */

import { readFilter, writeFilter } from '../core/filter.js';
import { filterText } from '../core/bulk.js';
import { MAX_NAME, putNamed, readNamed, renameNamed } from '../core/named-list.js';
import { context, link } from './context.js';
import { h } from './dom.js';
import { ConsoleElement } from './element.js';
import { announce } from './parts.js';
import { keyOf, read, write } from './stored.js';

/** @typedef {{name: string, query: string}} NamedView */

const STORED = 'views';
const MOST = 50;

/** A query is read as a filter and written again: what it has beside filters goes, and views of one filter are equal.
 * @returns {NamedView[]} */
function namedViews() {
  const views = /** @type {NamedView[]} */ (readNamed(read(STORED), (one) => typeof one.query === 'string' && one.query.length <= 4096, MOST));
  return views.map(({ name, query }) => ({ name, query: writeFilter(readFilter(query).filter) }));
}

class NuncioNamedViews extends ConsoleElement {
  /** The query of the view that is shown. */
  query = '';
  views = namedViews();
  message = '';
  /** The view whose name is being changed. */
  renaming = '';

  connected() {
    this.listenTo(context, 'settings', () => this.changed());
    this.listenTo(window, 'storage', (/** @type {StorageEvent} */ event) => {
      if (event.key !== keyOf(STORED)) return;
      this.views = namedViews();
      this.changed();
    });
    this.listenTo(this, 'keydown', (/** @type {KeyboardEvent} */ event) => {
      const details = this.querySelector('details');
      if (event.key !== 'Escape' || !details?.open) return;
      event.preventDefault();
      this.renaming ? (this.renaming = '') : (details.open = false);
      this.update();
      this.querySelector('summary')?.focus();
    });
  }

  /** By its key. */
  open() {
    const details = this.querySelector('details');
    if (!details) return;
    details.open = true;
    /** @type {HTMLElement | null} */ (details.querySelector('a, input'))?.focus();
  }

  /** @param {NamedView[] | null} views @param {string} said @param {string} [why] why there is no list */
  store(views, said, why = '') {
    this.message = views ? (write(STORED, JSON.stringify(views)) ?? '') : why;
    if (!this.message) Object.assign(this, { views: namedViews(), renaming: '' });
    announce(this.message || said);
    this.update();
  }

  /** @param {SubmitEvent} event @param {(name: string) => void} act */
  submit(event, act) {
    event.preventDefault();
    const form = /** @type {HTMLFormElement} */ (event.currentTarget);
    const name = String(new FormData(form).get('name') ?? '').trim();
    if (!name) return;
    act(name);
    if (!this.message) form.reset();
  }

  view() {
    const { views, query, message } = this;
    const here = views.filter((one) => one.query === query).map(({ name }) => name);
    const save = (/** @type {string} */ name) => this.store(putNamed(views, { name, query }, MOST), `Saved ${name}`, `at most ${MOST} views are stored: delete one first`);
    return h(
      'details',
      { class: 'views' },
      h('summary', null, here.length > 0 ? `View: ${here.join(', ')}` : views.length > 0 ? `Views (${views.length})` : 'Views'),
      h(
        'div',
        { class: 'panel' },
        views.length === 0 ? h('p', { key: 'none', class: 'note' }, 'A view is the filters of the list under a name, in this browser.') : h('ul', { key: 'list', class: 'examples', 'aria-label': 'Views' }, ...views.map((one) => this.row(one))),
        h('form', { key: 'save', class: 'bar', onsubmit: (/** @type {SubmitEvent} */ event) => this.submit(event, save) }, h('input', { name: 'name', required: true, maxlength: MAX_NAME, 'aria-label': 'Name of the view', placeholder: 'Name', autocomplete: 'off' }), h('button', null, 'Save these filters')),
        h('p', { class: 'note' }, filterText(readFilter(query).filter)),
        message && h('p', { class: 'problem', role: 'alert' }, message),
      ),
    );
  }

  /** @param {NamedView} view */
  row({ name, query }) {
    const rename = (/** @type {string} */ to) => this.store(renameNamed(this.views, name, to), `Renamed to ${to}`, `there is a view ${to} already`);
    if (this.renaming === name) {
      return h('li', { key: `rename ${name}` }, h('form', { class: 'bar', onsubmit: (/** @type {SubmitEvent} */ event) => this.submit(event, rename) }, h('input', { name: 'name', required: true, maxlength: MAX_NAME, 'aria-label': `New name of ${name}`, autocomplete: 'off', prop: { value: name } }), h('button', null, 'Rename')));
    }
    const begin = () => {
      this.renaming = name;
      this.update();
      /** @type {HTMLElement | null} */ (this.querySelector('li input'))?.focus();
    };
    return h(
      'li',
      { key: name },
      h('a', { href: link(query ? `tasks?${query}` : 'tasks'), 'aria-current': query === this.query ? 'true' : null }, name),
      h('button', { type: 'button', class: 'quiet', 'aria-label': `Rename ${name}`, onclick: begin }, 'Rename'),
      h('button', { type: 'button', class: 'quiet', 'aria-label': `Delete ${name}`, onclick: () => this.store(this.views.filter((one) => one.name !== name), `Deleted ${name}`) }, 'Delete'),
    );
  }
}

customElements.define('nuncio-named-views', NuncioNamedViews);
