/**
 * JSON texts as they are written: indented, cut out of a larger text, put into one. No number passes through a double, so
 * 3.0 stays 3.0 and 20 digits stay 20 digits. Pure.
 */

import { JsonIndex } from './json-index.js';

/** A JSON text that `writeJson` writes as it is. */
export class RawJson {
  /** @param {string} text valid JSON */
  constructor(text) {
    this.text = text;
  }
}

/** As `JSON.stringify`, with every `RawJson` as it is. @param {any} value @returns {string} */
export function writeJson(value) {
  if (value instanceof RawJson) return value.text;
  if (Array.isArray(value)) return `[${value.map(writeJson).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value) ?? 'null';
  const members = Object.entries(value).filter(([, member]) => member !== undefined);
  return `{${members.map(([name, member]) => `${JSON.stringify(name)}:${writeJson(member)}`).join(',')}}`;
}

/** Why a text is not JSON; null if it is. @param {string} text */
export function jsonProblem(text) {
  try {
    JSON.parse(text);
    return null;
  } catch (error) {
    return `not JSON: ${error instanceof Error ? error.message : error}`;
  }
}

/** The text of a member of an object; undefined if there is none. @param {string} text @param {string} name */
export function memberText(text, name) {
  const index = new JsonIndex(new TextEncoder().encode(text));
  const node = childOf(index, index.root(), name);
  return node ? index.text(node) : undefined;
}

/** The offset, in bytes, of the value that a JSON pointer names; -1 if there is none. @param {Uint8Array} bytes @param {string} pointer */
export function offsetOf(bytes, pointer) {
  if (pointer !== '' && !pointer.startsWith('/')) return -1;
  const index = new JsonIndex(bytes);
  try {
    /** @type {import('./json-index.js').JsonNode | undefined} */
    let node = index.root();
    for (const token of pointer.split('/').slice(1)) {
      node = node && childOf(index, node, token.replaceAll('~1', '/').replaceAll('~0', '~'));
    }
    return node?.start ?? -1;
  } catch {
    return -1;
  }
}

/** @param {JsonIndex} index @param {import('./json-index.js').JsonNode} node @param {string} name */
function childOf(index, node, name) {
  if (node.kind === 'array') return /^\d{1,9}$/.test(name) ? index.children(node, Number(name), 1)[0] : undefined;
  const page = 256;
  for (let from = 0; ; from += page) {
    const children = index.children(node, from, page);
    const found = children.find((child) => index.key(child) === name);
    if (found || children.length < page) return found;
  }
}

const TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s"{}[\],:]+/g;

/** The same text with one member or element a line. Text that is not JSON is returned as it is. @param {string} text */
export function indentJson(text) {
  if (jsonProblem(text) !== null) return text;
  const tokens = text.match(TOKEN) ?? [];
  let [written, depth] = ['', 0];
  const line = () => `\n${'  '.repeat(depth)}`;
  for (const [at, token] of tokens.entries()) {
    if (token === '{' || token === '[') {
      const isEmpty = tokens[at + 1] === '}' || tokens[at + 1] === ']';
      depth += 1;
      written += isEmpty ? token : token + line();
    } else if (token === '}' || token === ']') {
      depth -= 1;
      written += tokens[at - 1] === '{' || tokens[at - 1] === '[' ? token : line() + token;
    } else if (token === ',') written += token + line();
    else written += token === ':' ? ': ' : token;
  }
  return written;
}
