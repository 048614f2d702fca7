/**
 * The audit's line of the last act in this tab, for callers that may read the audit: what it says, and a link to the lines about
 * the same resource. An audit whose level leaves the act out has no such line, and that is said.
 */

import { lineOfAct } from '../core/audit.js';
import { get } from './api.js';
import { context, link } from './context.js';
import { h } from './dom.js';
import { ConsoleElement } from './element.js';

/** The audit is written after the act was answered. */
const ATTEMPTS = 6;
const PAUSE = 400;
/** The server's clock is known here within the time that an answer takes. */
const CLOCK_ERROR = 50;

/** @type {{taskId: string, began: number, resource: string} | null} */
let last = null;

/** @param {string} taskId where it is shown @param {number} began by the server's clock @param {string} [resource] what the line is about */
export function noteAct(taskId, began, resource = taskId) {
  last = context.me?.may?.['read:admin:audit'] === true ? { taskId, began: began - CLOCK_ERROR, resource } : null;
  context.notify('act');
}

/** @param {string} taskId */
export function auditNote(taskId) {
  return last?.taskId === taskId ? h('nuncio-audit-note', { key: `audit ${last.began}`, prop: { began: last.began, resource: last.resource } }) : null;
}

class NuncioAuditNote extends ConsoleElement {
  began = 0;
  resource = '';
  /** @type {any} */
  line = null;
  isRead = false;

  connected() {
    void this.find();
  }

  async find() {
    for (let attempt = 0; attempt < ATTEMPTS && this.isConnected && !this.line; attempt += 1) {
      if (attempt > 0) await new Promise((resolve) => setTimeout(resolve, PAUSE));
      const page = await get(`audit?${new URLSearchParams({ resource: this.resource, since: new Date(this.began).toISOString() })}`).catch(() => null);
      this.line = lineOfAct(page?.entries ?? [], this.began);
    }
    this.isRead = true;
    this.changed();
  }

  view() {
    const { line } = this;
    if (!line) return h('p', { class: 'note', role: 'status' }, this.isRead ? 'The audit has no line of this: its level leaves it out.' : '');
    const lines = h('a', { href: link(`audit?${new URLSearchParams({ resource: this.resource })}`) }, 'in the audit');
    return h('p', { class: 'note', role: 'status' }, lines, ` as line ${line.number}: `, h('strong', null, line.operation), ` by ${line.tenant}/${line.caller}`);
  }
}

customElements.define('nuncio-audit-note', NuncioAuditNote);
