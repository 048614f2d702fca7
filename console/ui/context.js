/**
 * What all screens share: who calls, the live stream, the settings of this browser, navigation. One object, because a tab
 * has one of each.
 */

import { apiUrl, BASE, headers } from './api.js';
import { LiveStream } from './live.js';
import { read, write } from './stored.js';

/** @typedef {import('../core/time.js').TimeMode} TimeMode */

class ConsoleContext extends EventTarget {
  /** The answer of `me`; null before sign-in. @type {any} */
  me = null;
  questions = 0;

  live = new LiveStream({
    open: (body, signal) =>
      fetch(apiUrl('live'), { method: 'POST', headers: headers({ 'content-type': 'application/json', accept: 'text/event-stream' }), body, signal, credentials: 'omit', cache: 'no-store' }),
    later: (work, ms) => setTimeout(work, ms),
    cancel: (timer) => clearTimeout(timer),
    now: () => Date.now(),
    onState: () => this.notify('live'),
    onUnauthorized: () => this.notify('unauthorized'),
  });

  /** @param {string} what */
  notify(what) {
    this.dispatchEvent(new Event(what));
  }

  /** @param {string} scope @returns {boolean} */
  may(scope) {
    const may = this.me?.may ?? {};
    // Of agents only those are named that the caller may send to.
    const isOther = scope.startsWith('execute:a2a:') && !(scope in may);
    return may[isOther ? 'execute:a2a' : scope] !== false;
  }

  /** The caller as tasks name their owner. @returns {string} */
  get owner() {
    const { name, tenant } = this.me?.caller ?? { name: '', tenant: '' };
    return tenant === 'home' ? name : `${tenant}/${name}`;
  }

  /** @returns {TimeMode} */
  get timeMode() {
    const mode = read('time');
    return mode === 'local' || mode === 'relative' ? mode : 'utc';
  }

  /** @returns {'auto' | 'dark' | 'light'} */
  get theme() {
    const theme = read('theme');
    return theme === 'dark' || theme === 'light' ? theme : 'auto';
  }

  get singleKeys() {
    return read('keys') !== 'off';
  }

  /** @param {'time' | 'theme' | 'keys'} name @param {string} value */
  set(name, value) {
    write(name, value);
    this.notify('settings');
  }

  /** @param {string} path below the console's base @param {{replace?: boolean}} [options] */
  go(path, { replace = false } = {}) {
    const url = BASE + path.replace(/^\//, '');
    if (replace) history.replaceState(null, '', url);
    else if (url !== location.pathname + location.search) history.pushState(null, '', url);
    this.notify('navigate');
  }
}

export const context = new ConsoleContext();

/** The address of a screen, for links. @param {string} path */
export function link(path) {
  return BASE + path;
}
