/**
 * The client of the console's API: one function for requests, the token of this tab, and the sign-in by a one-time code.
 * The token is in `sessionStorage` and in the header `Authorization`, never in a URL and never in a cookie.
 */

import { ServerClock } from '../core/time.js';

const STORED = 'nuncio.console.token';

/** The public path of the console, such as `/console/`: two folders above `a/{hash}/`. */
export const BASE = new URL('../../../', import.meta.url).pathname;

export const clock = new ServerClock(() => performance.now());

/** A refusal of the server, or no answer at all (`status` 0). */
export class ApiError extends Error {
  /** @param {number} status @param {any} error */
  constructor(status, error) {
    super(typeof error?.message === 'string' ? error.message : `the server answered with status ${status}`);
    this.status = status;
    /** @type {string} */
    this.code = error?.code ?? (status === 0 ? 'unreachable' : 'unknown');
    /** @type {{[name: string]: any}} */
    this.details = error ?? {};
  }
}

/** @returns {string | null} */
export function token() {
  return sessionStorage.getItem(STORED);
}

/** @param {string | null} value */
export function setToken(value) {
  if (value) sessionStorage.setItem(STORED, value);
  else sessionStorage.removeItem(STORED);
}

/** @param {{[name: string]: string}} [more] @returns {{[name: string]: string}} */
export function headers(more = {}) {
  const held = token();
  return { ...more, ...(held ? { authorization: `Bearer ${held}` } : {}) };
}

/** @param {string} path below `api/` */
export function apiUrl(path) {
  return `${BASE}api/${path}`;
}

/** Sends a request and returns the response, whatever its status; without an answer it throws.
 * @param {string} path @param {RequestInit} [options] */
async function send(path, options = {}) {
  try {
    return await fetch(apiUrl(path), { credentials: 'omit', cache: 'no-store', redirect: 'error', ...options });
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error;
    throw new ApiError(0, { message: 'the server is unreachable' });
  }
}

/** @param {Response} response @returns {Promise<ApiError>} */
export async function refusal(response) {
  const body = await response.json().catch(() => null);
  return new ApiError(response.status, body?.error);
}

/** @param {string} path @param {{signal?: AbortSignal}} [options] @returns {Promise<any>} */
export async function get(path, { signal } = {}) {
  const response = await send(path, { headers: headers(), signal: signal ?? null });
  if (!response.ok) throw await refusal(response);
  const body = await response.json();
  clock.set(body?.now);
  return body;
}

/** The bytes of an answer, for values that are shown as written. @param {string} path @param {{signal?: AbortSignal}} [options] */
export async function getBytes(path, { signal } = {}) {
  const response = await send(path, { headers: headers(), signal: signal ?? null });
  if (!response.ok) throw await refusal(response);
  return new Uint8Array(await response.arrayBuffer());
}

/** Sends a JSON text as it is: numbers that a person typed are not rounded.
 * @param {string} path @param {string} text @returns {Promise<any>} */
export async function postText(path, text) {
  const response = await send(path, { method: 'POST', headers: headers({ 'content-type': 'application/json' }), body: text });
  if (!response.ok) throw await refusal(response);
  return response.status === 204 ? null : response.json();
}

/** @param {string} path @param {any} body */
export function post(path, body) {
  return postText(path, JSON.stringify(body));
}

/** @param {string} path @returns {Promise<any>} */
export async function remove(path) {
  const response = await send(path, { method: 'DELETE', headers: headers() });
  if (!response.ok) throw await refusal(response);
  return response.status === 204 ? null : response.json();
}

/** Exchanges the code in the fragment, if there is one. The fragment leaves the address at once, whatever comes of it. */
export async function signInByFragment() {
  const code = new URLSearchParams(location.hash.slice(1)).get('code');
  if (!code) return;
  history.replaceState(history.state, '', location.pathname + location.search);
  const session = await post('session', { code });
  setToken(session.token);
}

export async function signOut() {
  if (token()) await send('session', { method: 'DELETE', headers: headers() }).catch(() => null);
  setToken(null);
}

/** An id in a path. @param {string} id */
export function segment(id) {
  return encodeURIComponent(id);
}
