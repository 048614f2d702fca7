/**
 * A viewer of a JSON text of any size. Nodes are found and decoded when they are opened, in pages of 100; it has its own
 * find, because what is not in the DOM is not found by the browser's. Numbers are shown as written.
 */

import { JsonIndex } from '../core/json-index.js';
import { copyButton, bytes as size } from './parts.js';
import { h } from './dom.js';
import { ConsoleElement } from './element.js';

/** @typedef {import('../core/json-index.js').JsonNode} JsonNode */

const PAGE = 100;
const SHOWN = 4096;
const HEAD = 1024 * 1024;

export class NuncioJson extends ConsoleElement {
  /** @type {JsonIndex | null} */
  index = null;
  #text = '';
  /** How many children are shown, by the start of an open node. @type {Map<number, number>} */
  opened = new Map();
  found = -1;
  note = '';
  /** The owner has its own bar. */
  plain = false;

  /** @type {Uint8Array | null} */
  #bytes = null;

  /** @param {string} text */
  set text(text) {
    if (text === this.#text) return;
    Object.assign(this, { index: null, bytes: null });
    this.#text = text;
    this.changed();
  }

  get text() {
    return this.#text;
  }

  /** @param {Uint8Array | null} bytes */
  set bytes(bytes) {
    if (bytes === this.#bytes) return;
    this.#bytes = bytes;
    this.index = null;
    this.changed();
  }

  get bytes() {
    return this.#bytes;
  }

  /** Indexes when it is first shown: most elements are only descriptions of one that is there already. */
  prepare() {
    const bytes = this.#bytes ?? new TextEncoder().encode(this.#text);
    this.index = new JsonIndex(bytes);
    this.opened = new Map();
    this.found = -1;
    try {
      const root = this.index.root();
      this.openFrom(this.index, root, bytes.length < SHOWN ? 8 : 0);
    } catch {
      // Not JSON: it is shown as text.
    }
    return this.index;
  }

  /** @param {JsonIndex} index @param {JsonNode} node @param {number} depth */
  openFrom(index, node, depth) {
    this.opened.set(node.start, PAGE);
    if (depth === 0) return;
    for (const child of index.children(node, 0, PAGE)) this.openFrom(index, child, depth - 1);
  }

  view() {
    const index = this.index ?? this.prepare();
    try {
      const root = this.node(index.root(), false);
      return [this.plain ? null : this.bar(index), h('div', { class: 'json', role: 'group', 'aria-label': 'JSON' }, root)];
    } catch (error) {
      const text = index.decoder.decode(index.bytes.subarray(0, HEAD));
      return [h('p', { class: 'note' }, error instanceof Error ? error.message : ''), h('pre', { tabindex: 0 }, text)];
    }
  }

  /** @param {JsonIndex} index */
  bar(index) {
    return h(
      'form',
      { class: 'bar', role: 'search', onsubmit: (/** @type {SubmitEvent} */ event) => (event.preventDefault(), this.find()) },
      h('input', { type: 'search', name: 'find', 'aria-label': 'Find in this value', placeholder: 'Find' }),
      h('button', { class: 'quiet' }, 'Find'),
      h('span', { class: 'note', role: 'status' }, this.note || size(index.bytes.length)),
      index.bytes.length <= HEAD ? copyButton(index.decoder.decode(index.bytes), 'Copy this JSON as it is') : null,
      h('button', { type: 'button', class: 'quiet', onclick: () => this.download() }, 'Download'),
    );
  }

  /** @param {JsonNode} node @param {boolean} named @returns {Node} */
  node(node, named) {
    const index = /** @type {JsonIndex} */ (this.index);
    const key = named ? h('span', { class: 'json-key' }, `${node.keyStart < 0 ? node.index : JSON.stringify(index.key(node))}: `) : null;
    const mark = this.found >= 0 && (node.start === this.found || node.keyStart === this.found) ? 'json-found' : '';
    if (node.kind !== 'object' && node.kind !== 'array') {
      return h('div', { class: `json-line ${mark}` }, key, h('span', { class: `json-${node.kind}` }, this.scalar(index, node)));
    }
    const shown = this.opened.get(node.start) ?? 0;
    const brackets = node.kind === 'object' ? '{ }' : '[ ]';
    const children = shown > 0 ? index.children(node, 0, shown) : [];
    const count = index.count(node);
    return h(
      'div',
      { class: `json-node ${mark}` },
      h('button', { type: 'button', class: 'json-toggle', 'aria-expanded': shown > 0, onclick: () => this.toggle(node) }, shown > 0 ? '▾ ' : '▸ ', key, `${brackets}${count === null ? '' : ` ${count}`}`),
      shown > 0 && h('div', { class: 'json-children' }, ...children.map((child) => this.node(child, true))),
      shown > 0 && children.length === shown && count !== shown && h('button', { type: 'button', class: 'quiet', onclick: () => this.more(node) }, `Show ${PAGE} more`),
    );
  }

  /** @param {JsonIndex} index @param {JsonNode} node */
  scalar(index, node) {
    const length = index.end(node) - node.start;
    const text = index.text(node, SHOWN);
    return length > SHOWN ? `${text}… (${size(length)})` : text;
  }

  /** @param {JsonNode} node */
  toggle(node) {
    if (!this.opened.delete(node.start)) this.opened.set(node.start, PAGE);
    this.update();
  }

  /** @param {JsonNode} node */
  more(node) {
    this.opened.set(node.start, (this.opened.get(node.start) ?? 0) + PAGE);
    this.update();
  }

  /** Goes on from the last hit, a MiB at a time, so that the page stays alive. */
  async find() {
    const input = this.querySelector('input[name=find]');
    const index = this.index;
    if (!index || !(input instanceof HTMLInputElement) || input.value === '') return;
    let from = this.found + 1;
    while (from >= 0) {
      const { hits, next } = index.find(input.value, from, 1);
      if (hits.length > 0) return this.reveal(hits[0]);
      from = next;
      await new Promise((resolve) => setTimeout(resolve));
    }
    this.note = this.found < 0 ? 'not found' : 'no more';
    this.found = -1;
    this.update();
  }

  /** @param {number} offset */
  reveal(offset) {
    const path = /** @type {JsonIndex} */ (this.index).pathAt(offset);
    for (const [depth, node] of path.entries()) {
      const next = path[depth + 1];
      if (next) this.opened.set(node.start, Math.max(this.opened.get(node.start) ?? 0, (Math.floor(next.index / PAGE) + 1) * PAGE));
    }
    const last = path[path.length - 1];
    this.found = last.keyStart >= 0 && offset < last.keyEnd ? last.keyStart : last.start;
    this.note = `at byte ${offset}`;
    this.update();
    this.querySelector('.json-found')?.scrollIntoView({ block: 'nearest' });
  }

  download() {
    const blob = new Blob([/** @type {BlobPart} */ (/** @type {JsonIndex} */ (this.index).bytes)], { type: 'application/octet-stream' });
    const url = URL.createObjectURL(blob);
    h('a', { href: url, download: 'value.json' }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  }
}

customElements.define('nuncio-json', NuncioJson);
