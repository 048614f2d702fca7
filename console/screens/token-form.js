/**
 * The form of a new token, and its secret, which the server shows once. The secret is a property of this element as long as
 * it is shown: it is in no address, in no storage, and gone with the element.
 */

import { ApiError, post } from '../ui/api.js';
import { context } from '../ui/context.js';
import { h } from '../ui/dom.js';
import { ConsoleElement } from '../ui/element.js';
import { announce, commandLine, copy, problem, quote, time } from '../ui/parts.js';

const DAY = 86_400;

class NuncioTokenForm extends ConsoleElement {
  draft = { name: '', tenant: '', scopes: '', days: '90' };
  /** The token that was made, with its secret. @type {any} */
  made = null;
  /** @type {unknown} */
  error = null;
  isSending = false;
  /** @type {() => void} */
  onMade = () => {};
  /** @type {() => void} */
  onClose = () => {};

  connected() {
    this.onLeave(() => (this.made = null));
    requestAnimationFrame(() => this.querySelector('input')?.focus());
  }

  get scopes() {
    return this.draft.scopes.split('\n').map((line) => line.trim()).filter(Boolean);
  }

  /** @param {Event} event */
  async create(event) {
    event.preventDefault();
    if (this.isSending) return;
    Object.assign(this, { isSending: true, error: null });
    this.update();
    const { name, tenant, days } = this.draft;
    try {
      this.made = await post('tokens', { name: name.trim(), ...(tenant.trim() ? { tenant: tenant.trim() } : {}), scopes: this.scopes, expiresIn: Number(days) * DAY });
      announce('The token was created; its secret is shown now');
      this.onMade();
    } catch (error) {
      this.error = error;
    }
    this.isSending = false;
    this.update();
    if (this.made) this.querySelector('button')?.focus();
  }

  close() {
    this.made = null;
    this.onClose();
  }

  view() {
    return this.made ? this.secret(this.made) : this.form();
  }

  /** @param {any} made */
  secret(made) {
    return h(
      'section',
      { class: 'panel', key: 'secret', 'aria-label': 'The new token' },
      h('h2', null, `The token of ${made.tenant}/${made.name}`),
      h('p', { class: 'why' }, 'This is shown only now. Store it where only its user can read it: the server has a digest of it, and nobody can show it again.'),
      h('p', { class: 'command' }, h('code', { class: 'token-secret' }, made.token), h('button', { type: 'button', class: 'main', onclick: () => copy(made.token) }, 'Copy token')),
      h('p', { class: 'note' }, made.scopesInWords.join('; '), '; expires ', time(made.expiresAt)),
      h('button', { type: 'button', onclick: () => this.close() }, 'I have stored it'),
    );
  }

  form() {
    const refused = this.error instanceof ApiError ? this.error.details.field : null;
    const bind = (/** @type {'name' | 'tenant' | 'scopes' | 'days'} */ name) => ({ name, 'aria-invalid': refused === (name === 'days' ? 'expiresIn' : name) ? 'true' : null, prop: { value: this.draft[name] }, oninput: (/** @type {any} */ event) => ((this.draft[name] = event.target.value), this.changed()) });
    const own = context.me?.caller.tenant;
    return h(
      'form',
      { class: 'panel answer token-form', key: 'form', 'aria-label': 'New token', onsubmit: (/** @type {Event} */ event) => void this.create(event) },
      h('label', null, 'Name of the caller', h('input', { ...bind('name'), required: true, maxlength: 64, autocomplete: 'off', spellcheck: 'false' })),
      h('label', null, 'Tenant', h('input', { ...bind('tenant'), placeholder: own, autocomplete: 'off', spellcheck: 'false' })),
      h('label', null, 'Scopes, one a line: ACTIONS:TYPE[:NAMES]; none: everything but administration', h('textarea', { ...bind('scopes'), class: 'code', rows: 4, spellcheck: 'false', placeholder: 'read,execute:a2a\nread,write:memory:team-*' })),
      h('label', null, 'Expires after days', h('select', bind('days'), ...['1', '7', '30', '90', '365'].map((days) => h('option', { value: days, selected: days === this.draft.days }, days)))),
      this.error ? problem(this.error, () => this.querySelector('form')?.requestSubmit()) : null,
      h('div', { class: 'bar' }, h('button', { class: 'main', disabled: this.isSending }, this.isSending ? 'Creating…' : 'Create token'), h('button', { type: 'button', onclick: () => this.close() }, 'Close')),
      commandLine(this.command()),
    );
  }

  command() {
    const { name, tenant, days } = this.draft;
    return ['nuncio token create', `--name ${name.trim() ? quote(name.trim()) : 'NAME'}`, tenant.trim() && `--tenant ${quote(tenant.trim())}`, ...this.scopes.map((scope) => `--scope ${quote(scope)}`), `--expires ${days}d`].filter(Boolean).join(' ');
  }
}

customElements.define('nuncio-token-form', NuncioTokenForm);
