/**
 * The log of one task in this tab: its tail first, then all of it from the first event, then what the live stream brings.
 * Events that came early wait until the fold reaches them, so that the fold never has a gap.
 */

import { LogFold } from '../core/fold.js';
import { get, segment } from './api.js';
import { context } from './context.js';

/** @typedef {import('../core/fold.js').LogEvent} LogEvent */

const TAIL = 200;
const PAGE = 1000;
/** The largest data of an event that is read for the fold; the limit of the API. */
const WHOLE = 1024 * 1024;

export class TaskLog {
  /** @param {string} id @param {any} head the answer of `tasks/{id}` @param {(added: number) => void} onChange */
  constructor(id, head, onChange) {
    this.id = id;
    this.head = head;
    this.onChange = onChange;
    this.fold = new LogFold(head.origin);
    /** @type {Map<number, LogEvent>} Events after the fold's end. */
    this.early = new Map();
    this.last = Number(head.row.events ?? 0);
    this.ended = false;
    /** Whether it was opened from a file: the server is not asked about it. */
    this.isFile = false;
    this.controller = new AbortController();
    /** @type {(() => void) | null} */
    this.unsubscribe = null;
    /** @type {unknown} */
    this.error = null;
  }

  /** Whether every event up to the last one is folded. */
  get isWhole() {
    return this.fold.events.length >= this.last;
  }

  /** @param {number} seq @returns {LogEvent | undefined} */
  eventAt(seq) {
    return this.fold.events[seq - 1] ?? this.early.get(seq);
  }

  /** The tail is asked for together with the head, so that it is there one round trip earlier. @param {string} id */
  static requestTail(id) {
    return get(`tasks/${segment(id)}/events?before=${Number.MAX_SAFE_INTEGER}&limit=${TAIL}&preview=${WHOLE}`);
  }

  /** @param {Promise<any>} tail */
  async load(tail) {
    const { signal } = this.controller;
    try {
      this.take(await tail);
      if (signal.aborted) return;
      this.follow();
      while (this.fold.events.length < this.last && !signal.aborted) {
        const before = this.fold.events.length;
        this.take(await this.page(`after=${before}&limit=${PAGE}&preview=${WHOLE}`, signal));
        if (this.fold.events.length === before) throw new Error(`the server sent no event after ${before}`);
      }
    } catch (error) {
      if (!signal.aborted) this.fail(error);
    }
  }

  /** @param {string} query @param {AbortSignal} signal */
  page(query, signal) {
    return get(`tasks/${segment(this.id)}/events?${query}`, { signal });
  }

  /** @param {{events: LogEvent[], last: number, ended: boolean}} page */
  take({ events, last, ended }) {
    const before = this.last;
    for (const event of events) if (event.seq > this.fold.events.length) this.early.set(event.seq, event);
    for (let next = this.early.get(this.fold.events.length + 1); next; next = this.early.get(next.seq + 1)) {
      this.fold.push([next]);
      this.early.delete(next.seq);
    }
    this.last = Math.max(this.last, last, events.at(-1)?.seq ?? 0);
    this.ended ||= ended;
    this.onChange(this.last - before);
  }

  follow() {
    if (this.ended || this.unsubscribe) return;
    const request = { topic: 'task', id: this.id, preview: WHOLE };
    this.unsubscribe = context.live.subscribe('task', request, String(this.last), (kind, data) => {
      if (kind === 'events') this.take(data);
      else if (kind === 'end' && data.why === 'ended') this.ended = true;
      else if (kind === 'end') this.fail(new Error(`the log cannot be followed any more: ${data.message ?? data.why}`));
    });
  }

  /** @param {unknown} error */
  fail(error) {
    this.error = error;
    this.onChange(0);
  }

  /** "1 to 4,211, none missing", or how far it has come. */
  get completeness() {
    const count = this.fold.events.length;
    if (!this.isWhole) return `${count} of ${this.last} events read`;
    return this.fold.isComplete ? `1 to ${this.last}, none missing` : 'events are missing';
  }

  close() {
    this.controller.abort();
    this.unsubscribe?.();
  }
}

/** @param {LogEvent} event @returns {string} one line about an event */
export function summary(event) {
  const data = event.data;
  if (data === undefined) return event.preview ?? '';
  /** @param {any} message */
  const text = (message) => (message?.parts ?? []).map(partText).join(' ');
  switch (event.type) {
    case 'message':
      return `${data.role}: ${text(data)}`;
    case 'status':
      return [data.state, text(data.message)].filter(Boolean).join(': ');
    case 'artifact':
      return `${data.name ?? data.id}${data.append ? ' +' : ''} ${(data.parts ?? []).map(partText).join(' ')}`;
    case 'progress':
      return `${data.done}${data.total === undefined ? '' : ` of ${data.total}`} ${data.text ?? ''}`;
    case 'log':
      return `${data.level}: ${data.text}`;
    case 'question':
      return data.text;
    case 'answer':
      return `${data.question}: ${typeof data.answer === 'string' ? data.answer : JSON.stringify(data.answer)}`;
    default:
      return data.question ?? '';
  }
}

/** @param {any} part @returns {string} */
function partText(part) {
  if (typeof part.text === 'string') return part.text.slice(0, 400);
  if (part.url !== undefined) return String(part.url);
  if (part.bytes !== undefined) return `${part.filename ?? 'file'} (${part.media_type ?? 'bytes'})`;
  return JSON.stringify(part.data ?? null).slice(0, 400);
}
