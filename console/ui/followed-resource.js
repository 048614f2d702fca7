/**
 * A resource that a screen follows: by the live stream where the server has that topic, otherwise by reading it again when
 * the window is looked at. What was not live is labelled with the time at which it was read.
 */

import { clock } from './api.js';
import { context } from './context.js';
import { h } from './dom.js';
import { time } from './parts.js';

export class FollowedResource {
  /** @type {(() => void) | null} */
  #unsubscribe = null;
  #uri = '';
  #isFollowed = false;
  /** By the server's clock. */
  readAt = NaN;

  /** @param {string} key names the topic in this tab @param {() => void} read reads the resource again @param {import('./element.js').ConsoleElement} owner */
  constructor(key, read, owner) {
    this.key = key;
    this.read = read;
    this.owner = owner;
    owner.listenTo(window, 'focus', () => this.#uri && !this.isLive && this.read());
    owner.listenTo(context, 'live', () => owner.changed());
    owner.onLeave(() => this.stop());
  }

  /** @param {string} uri */
  follow(uri) {
    if (uri === this.#uri) return;
    this.stop();
    this.#uri = uri;
    this.#unsubscribe = context.live.subscribe(this.key, { topic: 'resource', uri }, undefined, (kind) => {
      this.#isFollowed = kind !== 'end';
      // Also once the stream has caught up: what changed between the first reading and the subscription is not in a frame.
      if (kind !== 'end') this.read();
      this.owner.changed();
    });
  }

  stop() {
    this.#unsubscribe?.();
    this.#unsubscribe = null;
    this.#uri = '';
    this.#isFollowed = false;
  }

  get isLive() {
    return this.#isFollowed && context.live.state === 'live';
  }

  wasRead() {
    this.readAt = clock.now();
  }

  label() {
    if (this.isLive) return h('span', { class: 'followed live-live' }, 'followed live');
    return h('span', { class: 'followed note' }, 'read at ', time(new Date(this.readAt || clock.now()).toISOString()), ' ', h('button', { type: 'button', class: 'quiet', onclick: () => this.read() }, 'Read again'));
  }
}
