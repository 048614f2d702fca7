/**
 * Access: the server's own tokens, what each may do in words, until when, and when it was last used. A token is made in a
 * form and revoked by a second press.
 */

import { age } from '../core/time.js';
import { clock, remove, segment } from '../ui/api.js';
import { context, link } from '../ui/context.js';
import { h } from '../ui/dom.js';
import { OperatorList, verdict } from '../ui/operator-list.js';
import { announce, commandLine, empty, problem, time } from '../ui/parts.js';
import { fact } from '../ui/task-record.js';
import './token-form.js';

const WRITE = 'write:admin:tokens';
/** A first press on Revoke is forgotten after this time. */
const ARMED = 8000;

class NuncioAccess extends OperatorList {
  path = 'access';
  noun = 'the tokens';
  rows = '.token';
  fields = 'name, tenant, id or scope';
  /** The token whose revocation waits for the second press. @type {string | null} */
  armed = null;
  stop = false;
  /** @type {any} */
  timer = null;
  /** Why a token was not revoked. @type {{id: string, error: unknown} | null} */
  refused = null;

  get request() {
    return 'tokens';
  }

  command() {
    return 'nuncio token list';
  }

  /** @param {string | null} id */
  arm(id) {
    clearTimeout(this.timer);
    Object.assign(this, { armed: id, stop: false, refused: null });
    if (id) this.timer = setTimeout(() => this.arm(null), ARMED);
    this.changed();
  }

  /** @param {any} token */
  async revoke({ id, name }) {
    if (this.armed !== id) {
      announce(`Press again to revoke the token of ${name}`);
      return this.arm(id);
    }
    const { stop } = this;
    this.arm(null);
    try {
      await remove(`tokens/${segment(id)}${stop ? '?stop=true' : ''}`);
      announce(`The token of ${name} is revoked`);
      await this.load();
    } catch (error) {
      this.refused = { id, error };
      this.changed();
    }
  }

  /** @param {string} key */
  onKey(key) {
    if (key === 'n' && context.may(WRITE) && this.answer) this.show({ new: 'token' });
    else if (key === 'Escape' && this.armed) this.arm(null);
    else return super.onKey(key);
    return true;
  }

  head() {
    const [may, isNew] = [context.may(WRITE), this.query.has('new')];
    return [
      h('div', { class: 'bar' }, h('h1', null, 'Access'), this.answer && !isNew && h('button', { type: 'button', class: 'main', disabled: !may, onclick: () => this.show({ new: 'token' }) }, 'New token'), this.answer && !may && h('span', { class: 'note' }, 'needs ', h('code', null, WRITE))),
      isNew && may && this.answer && h('nuncio-token-form', { key: 'form', prop: { onMade: () => void this.load(), onClose: () => this.show({ new: null }) } }),
    ];
  }

  /** @param {any} answer */
  content({ tokens }) {
    if (tokens.length === 0) return [empty('No token yet', 'A token is how a caller shows who it is and what it may do. "New token" makes one; the command:', "nuncio token create --name ada --scope 'read,execute:a2a' --expires 30d")];
    const isActive = (/** @type {any} */ one) => one.state === 'active';
    const shown = tokens.filter((/** @type {any} */ one) => (!this.query.has('state') || isActive(one)) && this.isWanted([one.id, one.tenant, one.name, one.createdBy, ...one.scopes, ...one.scopesInWords]));
    return [this.bar(this.chip('state', 'active', `active ${tokens.filter(isActive).length}`), h('span', { class: 'note' }, `${shown.length} of ${tokens.length}`)), shown.length === 0 ? this.none() : h('ul', { class: 'records' }, ...shown.map((/** @type {any} */ one) => this.row(one)))];
  }

  /** @param {any} one */
  row(one) {
    const { id, tenant, name, state, scopes, scopesInWords, expiresAt } = one;
    const isArmed = this.armed === id;
    const refused = this.refused?.id === id ? this.refused : null;
    return h(
      'li',
      { key: id, class: 'token', tabindex: -1 },
      h('strong', null, `${tenant}/${name}`),
      verdict(state === 'active', state, state === 'active' ? '✓' : '⊘'),
      h('code', null, id),
      state === 'active' && h('span', { class: 'bar acts' }, h('button', { type: 'button', class: isArmed ? 'main' : '', disabled: !context.may(WRITE), onclick: () => void this.revoke(one) }, isArmed ? 'Press again to revoke' : 'Revoke', h('span', { class: 'visually-hidden' }, ` ${tenant}/${name} ${id}`)), isArmed && h('button', { type: 'button', onclick: () => this.arm(null) }, 'Keep it')),
      h('ul', { class: 'detail scopes' }, ...scopesInWords.map((/** @type {string} */ words, /** @type {number} */ n) => h('li', null, words, ' ', h('code', { class: 'note' }, scopes[n])))),
      h(
        'dl',
        { class: 'facts detail' },
        fact('Last use', one.lastUsedAt ? time(one.lastUsedAt) : 'never'),
        fact('Expires', expiresAt ? time(expiresAt) : 'never', expiresAt && ` (${age(expiresAt, clock.now())})`),
        fact('Created', time(one.createdAt), ` by ${one.createdBy}`),
        one.revokedAt && fact('Revoked', time(one.revokedAt), ` by ${one.revokedBy}`),
        fact('Its lines', h('a', { href: link(`audit?${new URLSearchParams({ caller: tenant === 'home' ? name : `${tenant}/${name}` })}`) }, 'audit')),
      ),
      isArmed && h('div', { class: 'detail' }, 'Its streams close within seconds. ', h('label', null, h('input', { type: 'checkbox', prop: { checked: this.stop }, onchange: (/** @type {any} */ event) => (this.stop = event.target.checked) }), ' cancel its tasks as well'), commandLine(`nuncio token revoke ${id}`)),
      refused && h('div', { class: 'detail' }, problem(refused.error, () => void this.revoke(one))),
    );
  }
}

customElements.define('nuncio-access', NuncioAccess);
