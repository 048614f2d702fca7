/**
 * The tasks of one agent as a list: rows of the console's API, which the live stream changes in place, and beside each row
 * what a tool of the agent knows of it, such as a plan's name. The latter is polled, and says when it was read.
 */

import { isTerminal } from '../core/fold.js';
import { format } from '../core/time.js';
import { clock, get, segment } from './api.js';
import { context } from './context.js';
import { h } from './dom.js';

const PAGE = 50;
/** The least time between two reads of the details. */
const PAUSE = 1000;
const POLL = 5000;

/** @typedef {{details: any[], next?: string}} DetailPage */

export class AgentTasks {
  /** @param {{agent: string, key: string, states: string[], readDetails: (token: string | undefined) => Promise<DetailPage>, idOf: (detail: any) => string, onChange: () => void}} options */
  constructor(options) {
    this.options = options;
    /** @type {any[]} */
    this.rows = [];
    /** @type {any} The first page; null before it is there. */
    this.page = null;
    /** @type {Map<string, any>} */
    this.details = new Map();
    /** When the details were read, by the server's clock. */
    this.readAt = 0;
    /** @type {unknown} */
    this.error = null;
    /** @type {Set<string>} Tasks that began since, and are not shown. */
    this.fresh = new Set();
    this.asked = 0;
    /** Whether the stream left out changes of rows. */
    this.missed = false;
    this.reading = false;
    /** How many pages of details are read. */
    this.pages = 1;
    this.lastRead = 0;
    /** @type {any} */
    this.timer = setInterval(() => this.poll(), POLL);
    /** @type {any} */
    this.soon = null;
    /** @type {(() => void) | null} */
    this.unsubscribe = null;
  }

  get query() {
    const states = this.options.states.map((state) => `&state=${segment(state)}`).join('');
    return `tasks?agent=${segment(this.options.agent)}${states}&limit=${PAGE}`;
  }

  async load() {
    const asked = (this.asked += 1);
    try {
      const [page] = await Promise.all([get(this.query), this.readDetails()]);
      if (asked !== this.asked) return;
      Object.assign(this, { page, rows: page.rows, error: null });
      this.fresh.clear();
      this.follow(page.liveCursor);
    } catch (error) {
      if (asked !== this.asked) return;
      this.error = error;
    }
    this.options.onChange();
  }

  async more() {
    if (!this.page?.next || this.reading) return;
    const { asked } = this;
    try {
      this.pages += 1;
      const [further] = await Promise.all([get(`${this.query}&cursor=${segment(this.page.next)}`), this.readDetails()]);
      if (asked !== this.asked) return;
      const known = new Set(this.rows.map((row) => row.taskId));
      this.rows = [...this.rows, ...further.rows.filter((/** @type {any} */ row) => !known.has(row.taskId))];
      this.page = { ...this.page, next: further.next };
    } catch (error) {
      this.error = error;
    }
    this.options.onChange();
  }

  /** Reads the details of all pages that are shown. */
  async readDetails() {
    if (this.reading) return;
    this.reading = true;
    this.lastRead = performance.now();
    try {
      /** @type {string | undefined} */
      let token;
      for (let page = 0; page < this.pages; page += 1) {
        const { details, next } = await this.options.readDetails(token);
        for (const detail of details) this.details.set(this.options.idOf(detail), detail);
        if (!next) break;
        token = next;
      }
      this.readAt = clock.now();
    } finally {
      this.reading = false;
    }
  }

  /** @param {string} cursor */
  follow(cursor) {
    this.unsubscribe?.();
    this.unsubscribe = context.live.subscribe(this.options.key, { topic: 'rows', filter: { agent: [this.options.agent] } }, cursor, (kind, data) => {
      if (kind === 'gap') {
        this.missed = true;
        this.refreshSoon();
      }
      if (kind !== 'rows') return;
      for (const row of data.rows) this.patch(row);
      // Nothing can move in an empty list.
      if (this.rows.length === 0 && this.fresh.size > 0) return void this.load();
      this.refreshSoon();
      this.options.onChange();
    });
  }

  /** @param {any} row */
  patch(row) {
    if (row.agent !== this.options.agent) return;
    const at = this.rows.findIndex((known) => known.taskId === row.taskId);
    const { states } = this.options;
    if (at >= 0) this.rows[at] = row;
    else if (states.length === 0 || states.includes(row.state)) this.fresh.add(row.taskId);
  }

  refreshSoon() {
    const wait = Math.max(0, this.lastRead + PAUSE - performance.now());
    this.soon ??= setTimeout(() => {
      this.soon = null;
      void this.refresh();
    }, wait);
  }

  poll() {
    const running = this.rows.some((row) => !isTerminal(row.state));
    if (running && document.visibilityState === 'visible') void this.refresh();
  }

  /** Reads the details again, and after a gap the newest rows: known ones change in place, others are counted. */
  async refresh() {
    const { asked, missed } = this;
    this.missed = false;
    try {
      const [page] = await Promise.all([missed ? get(this.query) : null, this.readDetails()]);
      if (asked !== this.asked) return;
      for (const row of page?.rows ?? []) this.patch(row);
      this.error = null;
    } catch (error) {
      this.error = error;
    }
    this.options.onChange();
  }

  close() {
    this.asked += 1;
    clearInterval(this.timer);
    clearTimeout(this.soon);
    this.unsubscribe?.();
  }
}

/** When a value was read that no stream follows; the zone is that of the page's times. @param {string} what @param {number} readAt by the server's clock */
export function readMark(what, readAt) {
  const at = format(readAt, context.timeMode === 'local' ? 'local' : 'utc', readAt);
  return h('span', { class: 'note' }, readAt ? `${what} read ${at.slice(11, 19)}${at.slice(23)}` : '');
}
