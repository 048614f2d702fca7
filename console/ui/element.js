/**
 * The base class of the console's elements. An element describes its content in `view()`; `update()` brings its light DOM to
 * that description. Beside that: listeners that end with the element, and updates once a frame.
 */

import { morphChildren, toNodes } from './dom.js';

/** @typedef {import('./dom.js').Child} Child */

/** Elements whose update is due with the next frame. @type {Set<ConsoleElement>} */
const due = new Set();
/** An update may ask for others, of elements inside it. More rounds than elements are nested would be a circle. */
const MOST_ROUNDS = 10;

/**
 * Does the updates that are due, now instead of with the next frame. What a key does depends on what is shown, and the second
 * of two quick keys comes before the frame that the first one asked for.
 */
export function updateNow() {
  for (let round = 0; due.size > 0 && round < MOST_ROUNDS; round += 1) for (const element of [...due]) element.updateIfDue();
}

export class ConsoleElement extends HTMLElement {
  /** @type {(() => void)[]} */
  #cleanups = [];

  connectedCallback() {
    this.connected();
    this.update();
  }

  disconnectedCallback() {
    for (const cleanup of this.#cleanups.splice(0)) cleanup();
  }

  /** Runs once when the element enters the page. */
  connected() {}

  /** @returns {Child | Child[]} */
  view() {
    return null;
  }

  /** Runs after the content was brought up to date. */
  updated() {}

  /** @param {() => void} cleanup runs when the element leaves the page */
  onLeave(cleanup) {
    this.#cleanups.push(cleanup);
  }

  /** @param {EventTarget} target @param {string} type @param {(event: any) => void} handler */
  listenTo(target, type, handler) {
    target.addEventListener(type, handler);
    this.onLeave(() => target.removeEventListener(type, handler));
  }

  /** Asks for an update before the next frame; many requests are one. */
  changed() {
    if (due.has(this)) return;
    due.add(this);
    requestAnimationFrame(() => this.updateIfDue());
  }

  updateIfDue() {
    if (due.delete(this)) this.update();
  }

  update() {
    if (!this.isConnected) return;
    const content = this.view();
    morphChildren(this, toNodes(Array.isArray(content) ? content : [content]));
    this.updated();
  }
}
