/** The sign-in page: the command that opens the console signed in, or a token to paste. */

import { setToken } from '../ui/api.js';
import { h } from '../ui/dom.js';
import { ConsoleElement } from '../ui/element.js';
import { commandLine } from '../ui/parts.js';

class NuncioSignIn extends ConsoleElement {
  refused = '';
  onSignedIn = () => {};

  view() {
    const submit = (/** @type {SubmitEvent} */ event) => {
      event.preventDefault();
      const input = this.querySelector('input');
      if (!input?.value.trim()) return;
      setToken(input.value.trim());
      input.value = '';
      this.onSignedIn();
    };
    return h(
      'section',
      { class: 'sign-in' },
      h('h1', null, 'Sign in to Nuncio'),
      this.refused && h('p', { class: 'problem', role: 'alert' }, this.refused),
      h('p', null, 'On the machine of the server, this command opens the console signed in:'),
      commandLine('nuncio console'),
      h('form', { onsubmit: submit }, h('label', null, 'Or paste a token', h('input', { type: 'password', autocomplete: 'off', spellcheck: 'false' })), h('button', { class: 'main' }, 'Sign in')),
    );
  }
}

customElements.define('nuncio-sign-in', NuncioSignIn);
