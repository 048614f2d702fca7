/** The members of a JSON object's text, each value as written: no number passes through a double. Pure. */

import { JsonIndex } from './json-index.js';

/** A name that is there twice has its last value, as in `JSON.parse`. @param {string} text @returns {Map<string, string>} */
export function membersOf(text) {
  const index = new JsonIndex(new TextEncoder().encode(text));
  const root = index.root();
  return new Map(index.children(root, 0, Infinity).map((child) => [index.decodeString(child.keyStart, child.keyEnd, Infinity), index.text(child)]));
}
