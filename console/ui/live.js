/**
 * The live stream of this tab: one POST whose answer is an event stream of all topics that screens subscribed to. Each
 * topic has its own cursor, taken from its frames, so that a new stream continues where the last one was cut.
 *
 * The stream reads by `fetch`: an `EventSource` cannot send a header. It closes 10 s after the tab is hidden, and when other
 * tabs need its connection (`tab-order.js`).
 */

import { SseParser } from '../core/sse.js';

/**
 * @typedef {{topic: string, [name: string]: any}} TopicRequest
 * @typedef {{request: TopicRequest, cursor: string | undefined, onFrame: (kind: string, data: any) => void, ended: boolean}} Subscription
 * @typedef {'off' | 'connecting' | 'catching-up' | 'live' | 'cut'} LiveState
 * @typedef {{open: (body: string, signal: AbortSignal) => Promise<Response>, later: (work: () => void, ms: number) => any, cancel: (timer: any) => void,
 *   now: () => number, onState?: () => void, onUnauthorized?: () => void}} LiveOptions
 */

const FIRST_RETRY = 250;
/** Below the 3 s within which a page is live again after the server is. */
const MAX_RETRY = 2000;
const MAX_SILENCE = 45_000;

export class LiveStream {
  /** @param {LiveOptions} options */
  constructor(options) {
    this.options = options;
    /** @type {Map<string, Subscription>} */
    this.subscriptions = new Map();
    /** @type {LiveState} */
    this.state = 'off';
    /** When the stream was cut, by the browser's clock. */
    this.cutSince = 0;
    this.paused = false;
    this.retries = 0;
    /** @type {AbortController | null} */
    this.controller = null;
    /** @type {any} */
    this.timer = null;
    /** @type {Set<string>} Topics that have not caught up yet. */
    this.behind = new Set();
  }

  /** @param {string} key @param {TopicRequest} request @param {string | undefined} cursor @param {(kind: string, data: any) => void} onFrame */
  subscribe(key, request, cursor, onFrame) {
    this.subscriptions.set(key, { request, cursor, onFrame, ended: false });
    this.restart(0);
    return () => {
      if (this.subscriptions.get(key)?.onFrame !== onFrame) return;
      this.subscriptions.delete(key);
      this.restart(0);
    };
  }

  /** @param {boolean} paused */
  pause(paused) {
    if (this.paused === paused) return;
    this.paused = paused;
    this.restart(0);
  }

  /** Ends the present stream and opens the next one after some time. @param {number} ms */
  restart(ms) {
    this.controller?.abort();
    this.controller = null;
    this.options.cancel(this.timer);
    this.timer = this.options.later(() => void this.run(), ms);
  }

  async run() {
    const topics = [...this.subscriptions].filter(([, { ended }]) => !ended);
    if (this.paused || topics.length === 0) return this.enter('off');
    const controller = new AbortController();
    this.controller = controller;
    if (this.state !== 'cut') this.enter('connecting');
    this.behind = new Set(topics.map(([key]) => key));
    const body = { topics: topics.map(([key, { request, cursor }]) => ({ key, ...request, ...(cursor === undefined ? {} : { after: cursor }) })) };
    let wait = Math.min(MAX_RETRY, FIRST_RETRY * 2 ** this.retries);
    try {
      const response = await this.options.open(JSON.stringify(body), controller.signal);
      if (response.status === 401) return this.options.onUnauthorized?.();
      if (response.ok && response.body) await this.read(response.body.getReader(), controller);
      else if (await this.endRefused(response, topics)) wait = 0;
      else wait = Math.max(wait, 1000 * Number(response.headers.get('retry-after') ?? 1));
    } catch {
      // Cut, refused or aborted: all continue below.
    }
    if (this.controller !== controller) return;
    this.retries += 1;
    if (this.state !== 'cut') this.cutSince = this.options.now();
    this.enter('cut');
    this.restart(wait);
  }

  /** The server refuses a whole stream for one topic and names it: that topic ends, the others continue. Of a kind of topic
   * that it does not know it names the kind.
   * @param {Response} response @param {[string, Subscription][]} topics */
  async endRefused(response, topics) {
    const body = await response.json().catch(() => null);
    const [, index] = /^topics\/(\d+)/.exec(body?.error?.field ?? '') ?? [];
    const [, kind] = /unknown variant `(\w+)`/.exec(body?.error?.message ?? '') ?? [];
    const at = index === undefined ? topics.findIndex(([, { request }]) => request.topic === kind) : Number(index);
    const [key, subscription] = topics[at] ?? [];
    if (!key || !subscription) return false;
    subscription.ended = true;
    subscription.onFrame('end', { key, why: body.error.code, message: body.error.message });
    return true;
  }

  /** @param {ReadableStreamDefaultReader<Uint8Array>} reader @param {AbortController} controller */
  async read(reader, controller) {
    const parser = new SseParser();
    let silence = null;
    try {
      for (;;) {
        silence = this.options.later(() => controller.abort(), MAX_SILENCE);
        const { done, value } = await reader.read();
        this.options.cancel(silence);
        if (done || this.controller !== controller) return;
        for (const frame of parser.push(value)) {
          this.take(frame.event, JSON.parse(frame.data));
          if (this.controller !== controller) return;
        }
      }
    } finally {
      this.options.cancel(silence);
      reader.cancel().catch(() => null);
    }
  }

  /** @param {string} kind @param {any} data */
  take(kind, data) {
    if (kind === 'open') {
      this.retries = 0;
      this.enter('catching-up');
      return;
    }
    if (kind === 'closing') return;
    const subscription = this.subscriptions.get(data.key);
    if (!subscription) return;
    subscription.onFrame(kind, data);
    // After the handler: an error in it must not move the cursor past what was not taken.
    if (typeof data.cursor === 'string') subscription.cursor = data.cursor;
    if (kind === 'end') subscription.ended = true;
    if (kind === 'caught-up' || kind === 'end') this.behind.delete(data.key);
    if (this.behind.size === 0) this.enter('live');
  }

  /** @param {LiveState} state */
  enter(state) {
    if (this.state === state) return;
    this.state = state;
    this.options.onState?.();
  }
}
