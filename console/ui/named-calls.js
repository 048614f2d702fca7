/**
 * Calls with a name, for calling again. They are in this browser's `localStorage`: no other user sees them, and another
 * browser does not have them. A call has no token.
 */

/** @typedef {{name: string, kind: 'agent' | 'tool', target: string, as: string, how: string, value: string}} NamedCall */

const STORED = 'nuncio.console.calls';
const MOST = 100;

/** @returns {NamedCall[]} by name */
export function namedCalls() {
  try {
    const stored = JSON.parse(localStorage.getItem(STORED) ?? '[]');
    return Array.isArray(stored) ? stored.filter(isCall) : [];
  } catch {
    return [];
  }
}

/** Stores a call in the place of one with its name. @param {NamedCall} call @returns {string | null} why it was not stored */
export function storeCall(call) {
  const others = namedCalls().filter((one) => one.name !== call.name);
  if (others.length >= MOST) return `at most ${MOST} calls are kept: forget one first`;
  return write([...others, call].sort((a, b) => (a.name < b.name ? -1 : 1)));
}

/** @param {string} name */
export function deleteCall(name) {
  return write(namedCalls().filter((one) => one.name !== name));
}

/** @param {NamedCall[]} calls @returns {string | null} */
function write(calls) {
  try {
    localStorage.setItem(STORED, JSON.stringify(calls));
    return null;
  } catch {
    return 'this browser did not store it';
  }
}

/** The address of a call below the console. @param {NamedCall} call */
export function callPath({ name, kind, target, as, how }) {
  return `try?${new URLSearchParams({ [kind]: target, as, how, call: name })}`;
}

/** @param {any} call */
function isCall(call) {
  return ['name', 'target', 'as', 'how', 'value'].every((member) => typeof call?.[member] === 'string') && (call.kind === 'agent' || call.kind === 'tool');
}
