/**
 * The settings in force, each with its source, and a diagnosis to copy. Secrets are hidden by the server: the page shows and
 * copies what the server gives, and nothing else.
 */

import { get } from '../ui/api.js';
import { h } from '../ui/dom.js';
import { OperatorList } from '../ui/operator-list.js';
import { copy, empty } from '../ui/parts.js';

class NuncioServerConfig extends OperatorList {
  path = 'server/config';
  noun = 'the configuration';
  fields = 'name, value, source or meaning';

  get request() {
    return 'config';
  }

  command() {
    return 'nuncio serve --print-config';
  }

  /** Version, nodes, the last hour and settings as the server gives them, for a report of a problem. */
  async copyDiagnosis() {
    try {
      const [{ settings, version, node, now }, { nodes }, pulse] = await Promise.all(['config', 'nodes', 'pulse'].map((path) => get(path)));
      await copy(JSON.stringify({ version, node, now, nodes, lastHour: pulse.total.all, settings }, null, 2));
    } catch (error) {
      this.error = error;
      this.changed();
    }
  }

  /** @param {any} answer */
  content({ settings, version }) {
    const isSet = (/** @type {any} */ one) => one.source !== 'default';
    const shown = settings.filter((/** @type {any} */ one) => (!this.query.has('set') || isSet(one)) && this.isWanted([one.key, one.about, one.source, one.from, valueText(one.value)]));
    return [
      this.bar(this.chip('set', 'true', `not default ${settings.filter(isSet).length}`), h('span', { class: 'note' }, `${shown.length} of ${settings.length} settings, Nuncio ${version}`), h('button', { type: 'button', onclick: () => void this.copyDiagnosis() }, 'Copy diagnosis')),
      settings.length === 0 ? empty('The server does not name its settings', 'A program that embeds the server sets ServerOptions::settings; nuncio serve always does.') : shown.length === 0 && this.none(),
      h('ul', { class: 'records' }, ...shown.map(row)),
    ];
  }
}

/** @param {any} value */
function valueText(value) {
  return value === null ? 'not set' : Array.isArray(value) ? value.join(', ') || 'none' : String(value);
}

/** @param {any} one */
function row({ key, value, source, from, about }) {
  return h('li', { key, class: 'setting', tabindex: -1 }, h('strong', { class: 'name' }, key), h('code', null, valueText(value)), h('span', { class: from ? 'tag' : 'note' }, source, from && ` ${from}`), h('span', { class: 'note detail' }, about));
}

customElements.define('nuncio-server-config', NuncioServerConfig);
