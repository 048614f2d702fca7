/**
 * The keyboard: one listener that gives keys to the screen that is shown, and the keys that work everywhere. Single keys
 * can be switched off (WCAG 2.1.4), and never act while a person types.
 */

import { context } from './context.js';
import { h } from './dom.js';
import { updateNow } from './element.js';
import { SCREENS } from './screens.js';

const HELP = [
  ['?', 'this help'], ['Ctrl K', 'go to a screen, an agent or a task'], ['/', 'filter'], ['j  k', 'next, previous row'], ['Enter', 'open'], ['Esc', 'back, close'],
  ['[  ]', 'previous, next event'], ['.', 'next failure'], ['a', 'answer'], ['e', 'edit'], ['n', 'new plan, new batch'], ['v', 'named views'], ['x', 'mark a task to compare'], ['c', 'copy link'],
  ...SCREENS.map(({ key, name }) => [`g ${key}`, name]),
];

let going = false;

/** @type {typeof import('./palette.js') | null} */
let palette = null;

/** Not part of what is loaded first; once it is there it opens with its key, so that what is typed after that goes into it. */
const loadPalette = async () => (palette ??= await import('./palette.js'));

/** @param {() => any} screen the element that is shown; its `onKey(key)` returns true if it used the key */
export function listenToKeys(screen) {
  globalThis.requestIdleCallback?.(() => void loadPalette().catch(() => null));
  document.addEventListener('keydown', (event) => {
    if (event.key === 'k' && (event.ctrlKey || event.metaKey) && context.me) {
      event.preventDefault();
      if (palette) palette.showPalette();
      else void loadPalette().then(({ showPalette }) => showPalette());
      return;
    }
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    const target = event.target instanceof Element ? event.target : null;
    const typing = target?.closest('input:not([type=checkbox],[type=radio],[type=range]), textarea, select, [contenteditable]');
    if (event.key === 'Escape' && typing instanceof HTMLElement) return typing.blur();
    if (typing || document.querySelector('dialog[open]')) return;
    if (!context.singleKeys && event.key.length === 1) return;
    if (event.key === 'Enter' && target?.closest('a, button, summary')) return;
    updateNow();
    if (act(event.key, screen())) event.preventDefault();
  });
}

/** @param {string} key @param {any} screen */
function act(key, screen) {
  if (going) {
    going = false;
    const wanted = SCREENS.find((one) => one.key === key);
    if (wanted) context.go(wanted.path);
    return Boolean(wanted);
  }
  if (key === 'g') return (going = true);
  if (key === '?') return showHelp();
  if (key === 'c') {
    void navigator.clipboard?.writeText(location.href);
    return true;
  }
  return Boolean(screen?.onKey?.(key));
}

export function showHelp() {
  const dialog = h(
    'dialog',
    { class: 'help', 'aria-label': 'Keys', onclose: () => dialog.remove() },
    h('h2', null, 'Keys'),
    h('dl', null, ...HELP.flatMap(([key, what]) => [h('dt', null, h('kbd', null, key)), h('dd', null, what)])),
    h('p', null, h('label', null, h('input', { type: 'checkbox', prop: { checked: context.singleKeys }, onchange: (/** @type {any} */ event) => context.set('keys', event.target.checked ? 'on' : 'off') }), ' Single keys')),
    h('form', { method: 'dialog', onsubmit: (/** @type {Event} */ event) => (event.preventDefault(), dialog.close()) }, h('button', null, 'Close')),
  );
  document.body.append(dialog);
  dialog.showModal();
  return true;
}
