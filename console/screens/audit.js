/**
 * The audit: who did what to which resource, and what was refused. The filters are in the address; older lines are read by
 * a cursor. The audit has no topic: to follow it is to read it every 3 s, new lines are counted until they are asked for, and
 * the page says when it was read.
 */

import { AUDIT_TYPES, auditCommand, auditFilters, freshLines, taskOfResource } from '../core/audit.js';
import { ApiError, clock, get, segment } from '../ui/api.js';
import { context, link } from '../ui/context.js';
import { h } from '../ui/dom.js';
import { download } from '../ui/download.js';
import { OperatorList, readAt, verdict } from '../ui/operator-list.js';
import { announce, empty, quote, time } from '../ui/parts.js';

const HOUR = 3_600_000;
const POLL = 3000;
const PAGE = 1000;
/** Lines of an export; of more, the newest. */
const MOST = 100_000;

class NuncioAudit extends OperatorList {
  path = 'audit';
  noun = 'the audit';
  rows = '.audit-line';
  /** The audit's level; empty if the caller may not read the configuration. */
  level = '';

  connected() {
    super.connected();
    const timer = setInterval(() => this.query.get('follow') === 'on' && document.visibilityState === 'visible' && void this.poll(), POLL);
    this.onLeave(() => clearInterval(timer));
    this.onLeave(() => this.exporting?.abort());
    if (context.may('read:admin:server')) void this.readLevel();
  }

  async readLevel() {
    const config = await get('config').catch(() => null);
    this.level = config?.settings.find((/** @type {any} */ one) => one.key === 'audit')?.value ?? '';
    this.changed();
  }

  /** Lines that came since the list was read. */
  fresh = { count: 0, isMore: false };
  /** @type {AbortController | null} */
  exporting = null;
  /** What came of the export, or how far it is. */
  exported = '';

  async load() {
    this.fresh = { count: 0, isMore: false };
    await super.load();
  }

  async poll() {
    const { asked, answer } = this;
    if (!answer || asked === null) return;
    try {
      const page = await get(asked);
      if (asked !== this.asked || answer !== this.answer) return;
      Object.assign(this, { fresh: freshLines(answer.entries, page), readAt: clock.now(), error: null });
      if (this.fresh.count > 0) announce(`${this.fresh.count} new lines`, true);
      // Nothing can move in an empty list.
      if (answer.entries.length === 0 && page.entries.length > 0) Object.assign(this, { answer: page, fresh: { count: 0, isMore: false } });
    } catch (error) {
      if (asked === this.asked) this.error = error;
    }
    this.changed();
  }

  /** Saves the lines that match as JSON lines; a second press stops it. */
  async export() {
    if (this.exporting) return this.exporting.abort();
    const { signal } = (this.exporting = new AbortController());
    const say = (/** @type {string} */ text) => ((this.exported = text), this.changed());
    const filters = auditFilters(this.search);
    filters.set('limit', String(PAGE));
    /** @type {string[]} */
    const lines = [];
    say('Reading the audit');
    try {
      for (let next = ''; ; ) {
        if (next) filters.set('cursor', next);
        const page = await get(`audit?${filters}`, { signal });
        lines.push(...page.entries.map((/** @type {any} */ entry) => `${JSON.stringify(entry)}\n`));
        next = page.next ?? '';
        say(`Reading: ${lines.length} lines`);
        if (!next || lines.length >= MOST) {
          const name = `audit-${new Date(clock.now()).toISOString().slice(0, 19).replaceAll(':', '')}${next ? '-cut' : ''}.jsonl`;
          download(lines.slice(0, MOST), name, 'application/jsonl');
          say(`${Math.min(lines.length, MOST)} lines saved as ${name}. ${next ? 'It was cut: there are older lines, which narrower filters reach.' : ''}`);
          announce(this.exported);
          break;
        }
      }
    } catch (error) {
      say(signal.aborted ? 'Stopped: nothing was saved.' : `Nothing was saved: ${error instanceof Error ? error.message : error}`);
    }
    this.exporting = null;
    this.changed();
  }

  get request() {
    const filters = auditFilters(this.search);
    return filters.size > 0 ? `audit?${filters}` : 'audit';
  }

  command() {
    return auditCommand(auditFilters(this.search), clock.now(), quote);
  }

  async older() {
    const { asked, answer } = this;
    try {
      const filters = auditFilters(this.search);
      filters.set('cursor', answer.next);
      const page = await get(`audit?${filters}`);
      if (asked === this.asked) this.answer = { ...page, entries: [...answer.entries, ...page.entries] };
    } catch (error) {
      this.error = error;
    }
    this.changed();
  }

  head() {
    return [h('div', { class: 'bar' }, h('h1', null, 'Audit'), this.level && h('span', { class: 'note' }, `level ${this.level}`), this.answer && readAt(this)), this.form(), this.tools()];
  }

  tools() {
    return h(
      'p',
      { key: 'tools', class: 'bar' },
      this.chip('follow', 'on', 'follow'),
      this.query.get('follow') === 'on' && h('span', { class: 'note' }, `read every ${POLL / 1000} s while it is looked at; readings of the audit are not counted as new`),
      h('button', { type: 'button', onclick: () => void this.export() }, this.exporting ? 'Stop the export' : 'Export'),
      h('span', { class: 'note', role: 'status' }, this.exported),
    );
  }

  form() {
    const refused = this.error instanceof ApiError && this.error.details.field;
    const filters = auditFilters(this.search);
    const labelled = (/** @type {string} */ name, /** @type {string} */ label, /** @type {string} */ element, /** @type {any} */ attributes, /** @type {Node[]} */ children = []) => h('label', null, label, h(element, { name, 'aria-invalid': refused === name ? 'true' : null, prop: { value: filters.get(name) ?? '' }, ...attributes }, ...children));
    const submit = (/** @type {any} */ event) => {
      event.preventDefault();
      const fields = /** @type {[string, string][]} */ ([...new FormData(event.currentTarget)]);
      this.show(Object.fromEntries(fields.map(([name, value]) => [name, value.trim()])));
    };
    const within = (/** @type {string} */ name, /** @type {number} */ ms) => h('button', { type: 'button', class: 'chip', onclick: () => this.show({ since: new Date(clock.now() - ms).toISOString(), until: null }) }, name);
    const type = filters.get('type') ?? '';
    const types = ['', ...new Set([...AUDIT_TYPES, ...(type ? [type] : [])])];
    return h(
      'form',
      // The fields begin anew with another filter, so that they show it.
      { key: `form ${filters}`, class: 'audit-form', onsubmit: submit },
      labelled('resource', 'Resource', 'input', { type: 'search', placeholder: "A task's id, a namespace…  /" }),
      labelled('caller', 'Caller', 'input', { placeholder: 'ada or acme/ada' }),
      labelled('type', 'Type', 'select', { prop: null }, types.map((one) => h('option', { value: one, selected: one === type }, one || 'all'))),
      labelled('since', 'Since', 'input', { placeholder: '2026-01-31T12:00:00Z' }),
      labelled('until', 'Until', 'input', { placeholder: '2026-01-31T12:00:00Z' }),
      h('div', { class: 'bar' }, h('button', { class: 'main' }, 'Filter'), this.chip('refused', 'true', 'refused only'), within('last hour', HOUR), within('last day', 24 * HOUR), filters.size > 0 && h('button', { type: 'button', class: 'quiet', onclick: () => context.go('audit') }, 'Drop all filters')),
    );
  }

  /** @param {any} answer */
  content({ entries, next }) {
    // A page for which the server has read many lines ends early, and may be empty: there are older lines.
    if (entries.length === 0 && !next) return [auditFilters(this.search).size > 0 ? this.none() : empty('The audit has no line', `The level in force is ${this.level || 'not known to you'}; the setting audit says what is recorded:`, 'nuncio serve --audit all')];
    return [
      h('p', { class: 'list-head' }, `${entries.length} lines, newest first`, this.fresh.count > 0 && h('button', { type: 'button', class: 'pill', onclick: () => void this.load() }, `${this.fresh.count}${this.fresh.isMore ? ' or more' : ''} new`)),
      h('ol', { class: 'audit-lines', 'aria-label': 'Lines of the audit' }, ...entries.map((/** @type {any} */ entry) => this.line(entry))),
      next ? h('button', { type: 'button', onclick: () => void this.older() }, 'Older lines') : h('p', { class: 'note' }, 'No older lines.'),
    ];
  }

  /** @param {any} entry */
  line({ number, at, tenant, caller, token, from, operation, action, type, resource, allowed, reason }) {
    const task = taskOfResource(resource);
    const address = h('code', null, resource);
    return h(
      'li',
      { key: number, class: 'audit-line', tabindex: -1 },
      verdict(allowed, allowed ? 'allowed' : 'refused'),
      h('span', null, h('strong', null, operation), ` ${action} ${type}`),
      h('button', { type: 'button', class: 'link', title: 'Lines of this caller', onclick: () => this.show({ caller: tenant === 'home' ? caller : `${tenant}/${caller}` }) }, `${tenant}/${caller}`),
      h('span', null, task ? h('a', { href: link(`tasks/${segment(task)}`) }, address) : address),
      h('span', { class: 'note' }, from && `from ${from}`, token && ` by token ${token}`),
      time(at),
      reason && h('span', { class: 'why detail' }, reason),
    );
  }
}

customElements.define('nuncio-audit', NuncioAudit);
