/** The bytes of a webhook's delivery as they would be sent, with the headers; secrets are hidden by the server. */

import { get } from './api.js';
import { h } from './dom.js';
import { ConsoleElement } from './element.js';
import { copyButton, loading, problem } from './parts.js';
import './json-view.js';

class NuncioDeliveryPayload extends ConsoleElement {
  /** The address below the API's base. */
  path = '';
  /** @type {{text: string | null, why: string | null, headers: {[name: string]: string} | null} | null} */
  frame = null;
  /** @type {unknown} */
  error = null;

  connected() {
    void this.load();
  }

  async load() {
    try {
      const { frames } = await get(this.path);
      Object.assign(this, { frame: frames[0] ?? { text: null, why: 'the server has no frame of a webhook', headers: null }, error: null });
    } catch (error) {
      this.error = error;
    }
    this.changed();
  }

  view() {
    const { frame } = this;
    if (this.error) return problem(this.error, () => void this.load());
    if (!frame) return loading('the payload');
    if (frame.text === null) return h('p', { class: 'note' }, `Nothing would be sent: ${frame.why}`);
    return [
      frame.headers && h('pre', { tabindex: 0, 'aria-label': 'Headers' }, ...Object.entries(frame.headers).map(([name, value]) => `${name}: ${value}\n`)),
      h('nuncio-json', { prop: { text: frame.text, plain: true } }),
      copyButton(frame.text, 'Copy the payload'),
    ];
  }
}

customElements.define('nuncio-delivery-payload', NuncioDeliveryPayload);
