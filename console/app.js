/**
 * The console's frame: sign-in, the menu, the router and the state of the live stream. The URL is the view; a screen is an
 * element that gets the rest of the path.
 */

import { ApiError, BASE, get, setToken, signInByFragment, signOut, token } from './ui/api.js';
import { context, link } from './ui/context.js';
import { h } from './ui/dom.js';
import { ConsoleElement } from './ui/element.js';
import { listenToKeys, showHelp } from './ui/keyboard.js';
import { empty, loading, problem } from './ui/parts.js';
import { routeOf, SCREENS } from './ui/screens.js';
import { TabOrder } from './ui/tab-order.js';

const HIDDEN_CLOSES = 10_000;

class NuncioApp extends ConsoleElement {
  /** @type {'starting' | 'in' | 'out' | 'failed'} */
  phase = 'starting';
  /** @type {unknown} */
  error = null;
  refused = '';

  connected() {
    this.listenTo(window, 'popstate', () => this.changed());
    this.listenTo(document, 'click', (event) => this.follow(event));
    this.listenTo(document, 'visibilitychange', () => this.watchVisibility());
    for (const what of ['navigate', 'live', 'questions']) this.listenTo(context, what, () => this.changed());
    this.listenTo(context, 'settings', () => this.applySettings());
    this.listenTo(context, 'unauthorized', () => this.signedOut('The token is not accepted any more.'));
    this.listenTo(window, 'focus', () => this.order.front());
    listenToKeys(() => this.querySelector('main > *'));
    this.applySettings();
    // A tab that was opened in the background was never hidden: nothing else would close its stream.
    if (document.visibilityState === 'hidden') context.live.pause(true);
    else this.order.front();
    void this.start();
  }

  async start() {
    this.phase = 'starting';
    this.changed();
    try {
      await signInByFragment();
      context.me = await get('me');
      this.phase = 'in';
      this.watchQuestions();
    } catch (error) {
      if (error instanceof ApiError && error.status === 401) return this.signedOut(error.code === 'bad_code' ? error.message : token() ? 'This token is not accepted.' : '');
      this.phase = 'failed';
      this.error = error;
    }
    this.changed();
  }

  /** @param {string} why */
  signedOut(why) {
    setToken(null);
    context.me = null;
    this.refused = why;
    this.phase = 'out';
    this.changed();
  }

  /** The count of open questions in the menu and in the tab's title. */
  async watchQuestions() {
    const count = (/** @type {number} */ open) => {
      context.questions = open;
      context.notify('questions');
    };
    try {
      const page = await get('questions?limit=1');
      count(page.total);
      context.live.subscribe('questions-count', { topic: 'questions' }, page.liveCursor, (kind, data) => {
        if (kind === 'questions') count(Math.max(0, context.questions + data.asked.length - data.closed.length));
        else if (kind === 'gap') void get('questions?limit=1').then((again) => count(again.total));
      });
    } catch {
      // Without the scope there is no count, and the inbox says why.
    }
  }

  watchVisibility() {
    clearTimeout(this.hiddenTimer);
    if (document.visibilityState === 'hidden') this.hiddenTimer = setTimeout(() => context.live.pause(true), HIDDEN_CLOSES);
    else this.order.front();
  }

  order = new TabOrder(new BroadcastChannel('nuncio.console.tabs'), `${Date.now()} ${Math.random()}`, () => document.visibilityState === 'hidden', (gives) => context.live.pause(gives));

  /** @type {any} */
  hiddenTimer = null;

  /** Follows links inside the console without loading the page again. @param {MouseEvent} event */
  follow(event) {
    const anchor = event.target instanceof Element ? event.target.closest('a[href]') : null;
    const href = anchor?.getAttribute('href') ?? '';
    if (event.defaultPrevented || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || !href.startsWith(BASE)) return;
    event.preventDefault();
    context.go(href.slice(BASE.length));
  }

  applySettings() {
    document.documentElement.dataset.theme = context.theme;
    this.changed();
  }

  view() {
    const open = context.questions;
    document.title = `${open > 0 ? `(${open}) ` : ''}Nuncio`;
    if (this.phase === 'starting') return h('main', { id: 'main' }, loading('the console'));
    if (this.phase === 'failed') return h('main', { id: 'main' }, problem(this.error, () => this.start()));
    if (this.phase === 'out') return h('main', { id: 'main' }, this.load('nuncio-sign-in', () => import('./screens/sign-in.js'), { prop: { refused: this.refused, onSignedIn: () => this.start() } }));
    return [this.header(), h('main', { id: 'main', tabindex: -1 }, this.screen())];
  }

  /** @param {string} name @param {() => Promise<any>} load @param {import('./ui/dom.js').Attributes} attributes */
  load(name, load, attributes) {
    if (customElements.get(name)) return h(name, attributes);
    load().then(
      () => this.changed(),
      (error) => Object.assign(this, { phase: 'failed', error }) && this.changed(),
    );
    return loading('the screen');
  }

  header() {
    const here = location.pathname.slice(BASE.length);
    const { caller } = context.me;
    return h(
      'header',
      { class: 'top' },
      h('a', { class: 'brand', href: link('tasks') }, 'Nuncio'),
      h(
        'nav',
        { 'aria-label': 'Screens' },
        ...SCREENS.filter(({ isAside }) => !isAside).map(({ path, name }) =>
          h('a', { href: link(path), 'aria-current': here.startsWith(path) ? 'page' : null }, name, path === 'inbox' && context.questions > 0 && h('span', { class: 'count' }, context.questions)),
        ),
      ),
      h('span', { class: `live live-${context.live.state}`, role: 'status' }, liveText()),
      choice('Time', 'time', context.timeMode, ['utc', 'local', 'relative']),
      choice('Look', 'theme', context.theme, ['auto', 'dark', 'light']),
      h('button', { type: 'button', class: 'quiet', 'aria-label': 'Keys', onclick: showHelp }, '?'),
      h('span', { class: 'who' }, `${caller.tenant}/${caller.name}`),
      token() && h('button', { type: 'button', class: 'quiet', onclick: () => void signOut().then(() => this.signedOut('')) }, 'Sign out'),
    );
  }

  screen() {
    const route = routeOf(location.pathname.slice(BASE.length));
    if (!route) return empty('There is no such screen', h('a', { href: link('tasks') }, 'Tasks'));
    const { element, load, key, id, tab } = route;
    return this.load(element, load, { key, prop: { recordId: id, tab, search: location.search } });
  }
}

function liveText() {
  const { state, cutSince } = context.live;
  if (state === 'cut') return `cut since ${new Date(cutSince).toISOString().slice(11, 16)} UTC`;
  return { off: 'not live', connecting: 'connecting', 'catching-up': 'catching up', live: 'live' }[state];
}

const OPTION_NAMES = new Map([['utc', 'UTC'], ['local', 'local time'], ['relative', 'ages'], ['auto', 'auto theme']]);

/** @param {string} label @param {'time' | 'theme'} name @param {string} value @param {string[]} values */
function choice(label, name, value, values) {
  const change = (/** @type {any} */ event) => context.set(name, event.target.value);
  return h('label', { class: 'choice' }, h('span', { class: 'visually-hidden' }, label), h('select', { onchange: change, prop: { value } }, ...values.map((one) => h('option', { value: one, selected: one === value }, OPTION_NAMES.get(one) ?? one))));
}

customElements.define('nuncio-app', NuncioApp);
