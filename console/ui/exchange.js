/**
 * One request and its response, with the bytes of both as they were sent and received, and the messages of the response as
 * they arrive. The token is in a header that is never part of what is shown.
 */

import { SseParser } from '../core/sse.js';
import { BASE, headers, token } from './api.js';
import { context } from './context.js';

/** @typedef {import('../core/dialects.js').WireRequest} WireRequest */

/** The bytes of a response that are held for showing; of more, the count. */
const HELD = 1024 * 1024;

/** The address of the server, above the console. */
export function serverRoot() {
  return location.origin + BASE.replace(/console\/$/, '');
}

export class Exchange {
  status = 0;
  /** @type {[string, string][]} */
  headers = [];
  /** The response as received, its first MiB. */
  text = '';
  size = 0;
  frames = 0;
  took = 0;
  done = false;
  /** Why there was no response, or not all of it. @type {string | null} */
  broken = null;

  /** @param {WireRequest} request */
  constructor(request) {
    this.request = request;
    this.withToken = token() !== null;
    this.controller = new AbortController();
  }

  stop() {
    this.controller.abort();
  }

  /** @param {(message: any, id: string) => void} onMessage @param {() => void} onChange */
  async run(onMessage, onChange) {
    const began = performance.now();
    try {
      const { method, path, body } = this.request;
      const response = await fetch(serverRoot() + path, { method, body, headers: headers(this.request.headers), credentials: 'omit', cache: 'no-store', redirect: 'error', signal: this.controller.signal });
      this.status = response.status;
      this.headers = [...response.headers];
      onChange();
      await this.read(response, onMessage, onChange);
      if (response.status === 401) context.notify('unauthorized');
    } catch (error) {
      const stopped = error instanceof DOMException && error.name === 'AbortError';
      this.broken = stopped ? 'stopped here' : this.status === 0 ? 'the server is unreachable' : `the response was cut: ${error instanceof Error ? error.message : error}`;
    }
    this.took = performance.now() - began;
    this.done = true;
    onChange();
  }

  /** @param {Response} response @param {(message: any, id: string) => void} onMessage @param {() => void} onChange */
  async read(response, onMessage, onChange) {
    const reader = response.body?.getReader();
    if (!reader) return;
    const streamed = response.headers.get('content-type')?.startsWith('text/event-stream');
    const parser = streamed ? new SseParser() : null;
    const decoder = new TextDecoder();
    let whole = '';
    for (;;) {
      const { done, value } = await reader.read();
      const text = decoder.decode(value, { stream: !done });
      this.size += value?.length ?? 0;
      if (this.text.length < HELD) this.text = (this.text + text).slice(0, HELD);
      if (!parser) whole += text;
      for (const frame of parser && value ? parser.push(value) : []) {
        if (!frame.data) continue;
        this.frames += 1;
        onMessage(JSON.parse(frame.data), frame.id);
      }
      onChange();
      if (done) break;
    }
    if (!parser) onMessage(parsed(whole, response.status), '');
  }
}

/** A body that is no JSON is a refusal in words. @param {string} text @param {number} status */
function parsed(text, status) {
  try {
    return JSON.parse(text);
  } catch {
    return { error: { message: text.slice(0, 2000) || `the server answered with status ${status}` } };
  }
}
