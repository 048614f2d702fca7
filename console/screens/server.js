/**
 * The server: a frame with three tabs. Overview has the nodes and the pulse, Streams the open streams and sessions, and
 * Configuration the settings in force. Each tab is an element of its own and loads what it shows.
 */

import { link } from '../ui/context.js';
import { h } from '../ui/dom.js';
import { ConsoleElement } from '../ui/element.js';
import { empty } from '../ui/parts.js';
import './server-config.js';
import './server-overview.js';
import './server-streams.js';

/** @type {{[tab: string]: {name: string, element: string}}} */
const TABS = {
  overview: { name: 'Overview', element: 'nuncio-server-overview' },
  streams: { name: 'Streams', element: 'nuncio-server-streams' },
  config: { name: 'Configuration', element: 'nuncio-server-config' },
};

class NuncioServer extends ConsoleElement {
  recordId = '';
  search = '';

  /** @param {string} key */
  onKey(key) {
    const shown = /** @type {any} */ (this.lastElementChild);
    return Boolean(shown?.onKey?.(key));
  }

  view() {
    const tab = this.recordId || 'overview';
    const shown = Object.hasOwn(TABS, tab) ? TABS[tab] : undefined;
    return [
      h('h1', null, 'Server'),
      h('nav', { class: 'tabs', 'aria-label': 'Parts of the server' }, ...Object.entries(TABS).map(([path, { name }]) => h('a', { href: link(path === 'overview' ? 'server' : `server/${path}`), 'aria-current': path === tab ? 'page' : null }, name))),
      shown ? h(shown.element, { key: tab, prop: { search: this.search } }) : empty('The server has no such part', h('a', { href: link('server') }, 'Overview')),
    ];
  }
}

customElements.define('nuncio-server', NuncioServer);
