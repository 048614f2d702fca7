/** The health of agents on screen: the registry as read, a probe now, and the views that the list and one agent share. */

import { isProbed, readEntry, readRegistry } from '../core/registry.js';
import { segment } from './api.js';
import { link } from './context.js';
import { h } from './dom.js';
import { callTool, readResource } from './mcp.js';
import { announce, copyButton, stateMark, time } from './parts.js';

/** @typedef {import('../core/registry.js').AgentEntry} AgentEntry */

/** How often a screen reads the registry, in ms. Probes are not pushed. */
export const REREAD = 15_000;

export async function loadRegistry() {
  const { value } = await readResource('a2a://agents/registry');
  return { entries: readRegistry(value), at: Date.now() };
}

/** Probes an agent now, and gives what was found. @param {string} name @returns {Promise<AgentEntry>} */
export async function probe(name) {
  const entry = readEntry(await callTool('agents_probe', { name }));
  announce(`${entry.name} is ${entry.status}`);
  return entry;
}

/** Health by shape and word. @param {AgentEntry} entry */
export function healthMark({ status }) {
  const good = status === 'healthy';
  return h('span', { class: `state health ${good ? 'state-completed' : 'state-failed'}` }, h('span', { class: 'shape', 'aria-hidden': 'true' }, good ? '✓' : '✕'), ' ', status || 'unknown');
}

/** Where it is, and how it was last reached. @param {AgentEntry} entry */
export function reached(entry) {
  const kinds = new Map([['local', 'served here'], ['a2a', 'A2A, listed only'], ['mcp', 'MCP server, listed only']]);
  return [kinds.get(entry.kind) ?? entry.kind, isProbed(entry) ? ` · breaker ${entry.breaker}` : '', entry.latencyMs === null ? '' : ` · probe took ${entry.latencyMs.toFixed(1)} ms`];
}

/** @param {AgentEntry} entry */
export function lastSeen(entry) {
  if (!isProbed(entry)) return null;
  return entry.lastSeen ? h('span', null, 'last reached ', time(entry.lastSeen)) : h('span', null, 'never reached');
}

/** Tasks by state, each a link to them. @param {string} agent @param {Map<string, number> | undefined} counts */
export function taskCounts(agent, counts) {
  if (!counts || counts.size === 0) return h('span', { class: 'note' }, 'no tasks of yours');
  return h('span', { class: 'bar' }, ...[...counts].map(([state, count]) => h('a', { class: 'tally', href: link(`tasks?agent=${segment(agent)}&state=${state}`) }, stateMark(state), ` ${count}`)));
}

const TABLE = `[[agent]]
name = "planner"
kind = "a2a"
url = "https://planner.example.org"
# serve = false    only lists and probes it, from the next start on
`;

/** What to do where there are no agents elsewhere. */
export function howToAdd() {
  return h('div', { class: 'empty' }, h('p', { class: 'empty-title' }, 'No agent elsewhere is listed'), h('p', null, 'A table in nuncio.toml adds one; the server reads the file while it runs. ', copyButton(TABLE, 'Copy the table')), h('pre', { tabindex: 0 }, TABLE));
}
