/**
 * The agents: those of this server and those elsewhere, with their health, their skills and the caller's tasks by state. The
 * registry is read again every 15 s, and at once by a probe.
 */

import { STATES } from '../core/filter.js';
import { countsByAgent } from '../core/registry.js';
import { clock, get, segment } from '../ui/api.js';
import { healthMark, howToAdd, lastSeen, loadRegistry, probe, reached, REREAD, taskCounts } from '../ui/agent-health.js';
import { context, link } from '../ui/context.js';
import { h } from '../ui/dom.js';
import { ConsoleElement } from '../ui/element.js';
import { serverRoot } from '../ui/exchange.js';
import { announce, commandLine, empty, loading, problem } from '../ui/parts.js';

/** @typedef {import('../core/registry.js').AgentEntry} AgentEntry */

class NuncioAgents extends ConsoleElement {
  search = '';
  /** @type {AgentEntry[] | null} */
  entries = null;
  /** @type {Map<string, Map<string, number>> | null} */
  counts = null;
  /** @type {unknown} */
  error = null;
  readAt = 0;
  selected = -1;
  /** Agents whose probe is on its way. @type {Set<string>} */
  probing = new Set();
  /** Why a probe was refused, by agent. @type {Map<string, string>} */
  refused = new Map();

  connected() {
    this.listenTo(context, 'settings', () => this.changed());
    const timer = setInterval(() => document.visibilityState === 'visible' && void this.load(), REREAD);
    this.onLeave(() => clearInterval(timer));
    void this.load();
  }

  async load() {
    try {
      const { entries } = await loadRegistry();
      Object.assign(this, { entries, error: null, readAt: clock.now() });
      this.changed();
      this.counts = await loadCounts();
    } catch (error) {
      this.error = error;
    }
    this.changed();
  }

  /** @param {string} name */
  async probe(name) {
    this.probing.add(name);
    this.refused.delete(name);
    this.update();
    try {
      const found = await probe(name);
      this.entries = (this.entries ?? []).map((entry) => (entry.name === name && entry.kind === found.kind ? found : entry));
    } catch (error) {
      this.refused.set(name, error instanceof Error ? error.message : String(error));
      announce(`The probe of ${name} was refused`);
    }
    this.probing.delete(name);
    this.update();
  }

  get query() {
    const query = new URLSearchParams(this.search);
    return { words: query.get('q') ?? '', unhealthy: query.get('health') === 'unhealthy' };
  }

  /** @param {{words: string, unhealthy: boolean}} query */
  show({ words, unhealthy }) {
    const query = new URLSearchParams({ ...(words ? { q: words } : {}), ...(unhealthy ? { health: 'unhealthy' } : {}) }).toString();
    context.go(query ? `agents?${query}` : 'agents', { replace: true });
  }

  shown() {
    const { words, unhealthy } = this.query;
    const wanted = words.toLowerCase();
    return (this.entries ?? []).filter((entry) => (!unhealthy || entry.status !== 'healthy') && `${entry.name} ${entry.description} ${entry.capabilities.join(' ')}`.toLowerCase().includes(wanted));
  }

  /** @param {string} key */
  onKey(key) {
    const rows = this.shown();
    const row = rows[this.selected];
    if (key === '/') this.querySelector('input')?.focus();
    else if (key === 'j' || key === 'k') {
      this.selected = Math.max(0, Math.min(rows.length - 1, this.selected + (key === 'j' ? 1 : -1)));
      this.update();
      const item = /** @type {HTMLElement | undefined} */ (this.querySelectorAll('.agent-row a.agent-name')[this.selected]);
      item?.focus();
    } else if (key === 'p' && row) void this.probe(row.name);
    else if (key === 'Enter' && row) context.go(`agents/${segment(row.name)}`);
    else if (key === 'r') void this.load();
    else return false;
    return true;
  }

  view() {
    return [h('h1', null, 'Agents'), this.error ? problem(this.error, () => this.load()) : null, ...[this.content()].flat()];
  }

  content() {
    const { entries } = this;
    if (!entries) return this.error ? null : loading('agents');
    if (entries.length === 0) return empty('No agent', 'This server has no agents, or you may not see them.');
    const rows = this.shown();
    const group = (/** @type {string} */ title, /** @type {AgentEntry[]} */ list) => list.length > 0 && h('section', { key: title }, h('h2', null, `${title} `, h('span', { class: 'note' }, list.length)), h('ul', { class: 'family' }, ...list.map((entry) => this.row(entry, rows.indexOf(entry)))));
    return [
      this.bar(entries, rows),
      h('div', { class: this.error ? 'old' : '' }, group('Of this server', rows.filter((entry) => entry.kind === 'local')), group('Elsewhere, listed only', rows.filter((entry) => entry.kind !== 'local')), rows.length === 0 && empty('No agent matches', h('button', { type: 'button', onclick: () => this.show({ words: '', unhealthy: false }) }, 'Drop all filters')), entries.every((entry) => entry.kind === 'local') && howToAdd()),
      commandLine(`nuncio agents -a ${serverRoot().replace(/\/$/, '')}`),
    ];
  }

  /** @param {AgentEntry[]} entries @param {AgentEntry[]} rows */
  bar(entries, rows) {
    const query = this.query;
    const bad = entries.filter((entry) => entry.status !== 'healthy').length;
    return h(
      'div',
      { class: 'filters' },
      h('input', { type: 'search', 'aria-label': 'Filter by name, skill or description', placeholder: 'Name, skill or description  /', prop: { value: query.words }, oninput: (/** @type {any} */ event) => this.show({ ...query, words: event.target.value }) }),
      h('button', { type: 'button', class: 'chip', 'aria-pressed': query.unhealthy, onclick: () => this.show({ ...query, unhealthy: !query.unhealthy }) }, 'unhealthy', h('span', { class: 'chip-count' }, ` ${bad}`)),
      h('span', { class: 'note' }, `${rows.length} of ${entries.length} · read ${new Date(this.readAt).toISOString().slice(11, 19)} UTC, again every ${REREAD / 1000} s`),
    );
  }

  /** @param {AgentEntry} entry @param {number} index */
  row(entry, index) {
    const { name } = entry;
    const refused = this.refused.get(name);
    const busy = this.probing.has(name);
    return h(
      'li',
      { key: `${entry.kind} ${name}`, class: `agent-row ${index === this.selected ? 'selected' : ''}`, onfocusin: () => (this.selected = index) },
      h('a', { class: 'agent-name', href: link(`agents/${segment(name)}`), 'aria-current': index === this.selected ? 'true' : null }, h('strong', null, name || '(no name)')),
      healthMark(entry),
      h('span', { class: 'note' }, ...reached(entry)),
      h('span', { class: 'note' }, lastSeen(entry)),
      h('span', { class: 'plain about' }, entry.description),
      entry.lastError && h('span', { class: 'why about' }, entry.lastError),
      refused && h('span', { class: 'why about', role: 'alert' }, refused),
      h('span', { class: 'chips' }, ...entry.capabilities.slice(0, 8).map((skill) => h('span', { class: 'tag' }, skill)), entry.capabilities.length > 8 && h('span', { class: 'note' }, `and ${entry.capabilities.length - 8} more`)),
      entry.kind === 'local' && (this.counts ? taskCounts(name, this.counts.get(name)) : h('span', { class: 'note' }, '…')),
      h('span', { class: 'bar acts' }, h('button', { type: 'button', disabled: busy, onclick: () => this.probe(name) }, busy ? 'Probing…' : 'Probe'), entry.kind === 'local' && h('a', { href: link(`try?agent=${segment(name)}`) }, 'Try'), entry.kind === 'local' && h('a', { href: link(`tasks?agent=${segment(name)}`) }, 'Tasks')),
    );
  }
}

/** The caller's tasks by agent and state: one page of one row for each state that there is. */
async function loadCounts() {
  const { facets } = await get('tasks?limit=1');
  const states = STATES.filter((state) => facets?.state?.[state] > 0);
  const pages = await Promise.all(states.map(async (state) => ({ state, agents: (await get(`tasks?state=${state}&limit=1`)).facets?.agent })));
  return countsByAgent(pages);
}

customElements.define('nuncio-agents', NuncioAgents);
