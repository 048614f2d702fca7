/**
 * Calls with a name, for calling again. They are in this browser's `localStorage`: no other user sees them, and another
 * browser does not have them. A call has no token.
 */

import { putNamed, readNamed } from '../core/named-list.js';
import { read, write } from './stored.js';

/** @typedef {{name: string, kind: 'agent' | 'tool', target: string, as: string, how: string, value: string}} NamedCall */

const STORED = 'calls';
const MOST = 100;

/** @returns {NamedCall[]} by name */
export function namedCalls() {
  return readNamed(read(STORED), isCall, MOST);
}

/** Stores a call in the place of one with its name. @param {NamedCall} call @returns {string | null} why it was not stored */
export function storeCall(call) {
  const calls = putNamed(namedCalls(), call, MOST);
  return calls ? write(STORED, JSON.stringify(calls)) : `at most ${MOST} calls are kept: forget one first`;
}

/** @param {string} name */
export function deleteCall(name) {
  return write(STORED, JSON.stringify(namedCalls().filter((one) => one.name !== name)));
}

/** The address of a call below the console. @param {NamedCall} call */
export function callPath({ name, kind, target, as, how }) {
  return `try?${new URLSearchParams({ [kind]: target, as, how, call: name })}`;
}

/** @param {any} call */
function isCall(call) {
  return ['target', 'as', 'how', 'value'].every((member) => typeof call[member] === 'string') && (call.kind === 'agent' || call.kind === 'tool');
}
