/**
 * Small views that every screen uses: the three states (loading, empty, error), times, task states, copying.
 */

import { age, format } from '../core/time.js';
import { ApiError, apiUrl, BASE, clock, segment } from './api.js';
import { context } from './context.js';
import { h } from './dom.js';

/** @typedef {import('./dom.js').Child} Child */

/** A skeleton; the stylesheet shows it after 150 ms. @param {string} what */
export function loading(what) {
  return h('div', { class: 'loading', role: 'status' }, h('span', { class: 'visually-hidden' }, `Loading ${what}`), ...[1, 2, 3, 4].map(() => h('span', { class: 'bone', 'aria-hidden': 'true' })));
}

/** @param {string} title @param {Child} why @param {string} [command] */
export function empty(title, why, command) {
  return h('div', { class: 'empty' }, h('p', { class: 'empty-title' }, title), h('p', null, why), command && commandLine(command));
}

/** The server's words, the scope that is missing by its name, and a retry.
 * @param {unknown} error @param {() => void} retry */
export function problem(error, retry) {
  const api = error instanceof ApiError ? error : null;
  const wait = Number(api?.details.retryAfterSeconds ?? 0);
  return h(
    'div',
    { class: 'problem', role: 'alert' },
    h('p', { class: 'problem-title' }, titleOf(api)),
    h('p', null, error instanceof Error ? error.message : String(error)),
    api?.details.scope && h('p', null, 'Missing scope: ', h('code', null, api.details.scope)),
    wait > 0 && h('p', null, `The server asks to wait ${wait} s.`),
    h('button', { type: 'button', onclick: retry }, 'Retry'),
  );
}

/** @param {ApiError | null} error */
function titleOf(error) {
  if (!error) return 'The console failed';
  if (error.status === 0) return 'The server is unreachable';
  if (error.status === 404) return 'Not found, or not yours';
  if (error.status === 403) return 'Not allowed';
  if (error.status === 503 || error.status === 429) return 'The server is busy';
  return 'The server refused';
}

/** @param {string} text */
export function commandLine(text) {
  return h('p', { class: 'command' }, h('code', null, text), copyButton(text, 'Copy command'));
}

/** A text as one word of a shell. @param {string} text */
export function quote(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** The request of the API that gives what is shown. @param {string} path */
export function curl(path) {
  return `curl${secret()} ${quote(location.origin + apiUrl(path))}`;
}

/** The A2A request that continues a task's stream after an event. @param {string} id @param {number} seq */
export function resumeCommand(id, seq) {
  const root = location.origin + BASE.replace(/console\/$/, '');
  return `curl -N${secret()} ${quote(`${root}tasks/${segment(id)}:subscribe`)} -H 'A2A-Version: 1.0' -H 'Last-Event-ID: ${seq}'`;
}

/** The token is named, never shown. */
function secret() {
  return context.me?.by === 'local' ? '' : ' -H "Authorization: Bearer $NUNCIO_TOKEN"';
}

/** @param {string} text @param {string} [label] */
export function copyButton(text, label = 'Copy') {
  return h('button', { type: 'button', class: 'quiet', title: label, 'aria-label': label, onclick: () => copy(text) }, 'Copy');
}

/** @param {string} text */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    announce('Copied');
  } catch {
    announce('The browser did not allow copying');
  }
}

let lastSaid = 0;
/** Announces to screen readers, politely; updates at most every 5 s. @param {string} text @param {boolean} [isUpdate] */
export function announce(text, isUpdate = false) {
  const now = Date.now();
  if (isUpdate && now - lastSaid < 5000) return;
  lastSaid = now;
  const place = document.getElementById('announcer');
  if (place) place.textContent = text;
}

const SHAPES = new Map([
  ['submitted', '○'], ['working', '◐'], ['input-required', '?'], ['auth-required', '⚿'],
  ['completed', '✓'], ['failed', '✕'], ['canceled', '⊘'], ['rejected', '⊗'], ['replied', '✓'],
  // Of subtasks of a plan, of batches in the queue and of their operations.
  ['waiting', '○'], ['asks', '?'], ['retrying', '↻'], ['done', '✓'], ['skipped', '−'], ['queued', '○'], ['running', '◐'], ['paused', '‖'], ['pending', '○'], ['succeeded', '✓'],
  // Of deliveries to webhooks.
  ['dead', '✕'], ['sending', '◐'], ['due', '○'],
  // Of the phases of a workflow.
  ['active', '◐'], ['blocked', '✕'], ['passed', '✓'], ['refused', '✕'],
]);

/** A state by shape and word, never by colour alone. @param {string} state */
export function stateMark(state) {
  const known = SHAPES.has(state) ? state : 'unknown';
  return h('span', { class: `state state-${known}` }, h('span', { class: 'shape', 'aria-hidden': 'true' }, SHAPES.get(state) ?? '•'), ' ', state);
}

/** @param {string | number | null | undefined} at */
export function time(at) {
  const now = clock.now();
  const shown = format(at, context.timeMode, now);
  const other = context.timeMode === 'relative' ? format(at, 'utc', now) : age(at, now);
  return h('time', { title: other, ...(typeof at === 'string' ? { datetime: at } : {}) }, shown);
}

/** @param {number} bytes */
export function bytes(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  if (bytes < 1024 * 1024) return `${(bytes / 1024).toFixed(1)} KiB`;
  return `${(bytes / 1024 / 1024).toFixed(1)} MiB`;
}
