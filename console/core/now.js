/**
 * The figures of the screen Now: each is a number with the address of the list that it counts, from answers that may be
 * missing. A figure without an answer is never a zero: it is being read, refused for a scope, or an error. Pure.
 */

import { emptyFilter, STATES, writeFilter } from './filter.js';
import { age, duration } from './time.js';

/**
 * @typedef {{answer: any, error: any, readAt: number}} Reading what a source gave last, and why it gave nothing since
 * @typedef {'good' | 'bad' | 'wait' | ''} Tone
 * @typedef {{name: string, path: string, count: string, note: string, tone: Tone, scope: string, error: string, isRead: boolean}} Figure
 */

/** Rows that are counted by reading them: the server counts no task by time and no delivery. */
export const MOST = 100;
const HOUR = 3_600_000;

/** The filter of tasks that failed in the last hour. @param {number} now */
export function failuresQuery(now) {
  return writeFilter({ ...emptyFilter(), state: ['failed', 'rejected'], since: new Date(now - HOUR).toISOString() });
}

/** The scope that a refusal names; empty if it is something else. @param {any} error */
export function scopeOf(error) {
  return typeof error?.details?.scope === 'string' ? error.details.scope : '';
}

/** The figures beside the counts of tasks, in the order in which a person looks. @param {{[name: string]: Reading | undefined}} readings @param {number} now */
export function figures(readings, now) {
  const { questions, failures, dead, retrying, queue, registry, nodes } = readings;
  /** @param {string} name @param {string} path @param {Reading | undefined} reading @param {(answer: any) => [string | number, string, Tone]} figure @returns {Figure} */
  const figure = (name, path, reading, figure) => {
    const { answer = null, error = null } = reading ?? {};
    const [count, note, tone] = answer ? figure(answer) : ['', '', /** @type {Tone} */ ('')];
    return { name, path, count: String(count), note, tone, scope: scopeOf(error), error: error ? String(error.message ?? error) : '', isRead: answer !== null };
  };
  return [
    figure('Questions', 'inbox', questions, ({ total, more, questions: [oldest] }) => [atLeast(total, more), oldest ? `the oldest asked ${age(oldest.askedAt, now)}` : 'nothing waits for you', total > 0 ? 'wait' : 'good']),
    figure('Failures', `tasks?${failuresQuery(failures?.readAt ?? now)}`, failures, ({ rows, next }) => [atLeast(rows.length, next), 'in the last hour', rows.length > 0 ? 'bad' : 'good']),
    figure('Dead letters', 'webhooks?state=dead', dead, ({ deliveries, next }) => [atLeast(deliveries.length, next), 'deliveries given up', deliveries.length > 0 ? 'bad' : 'good']),
    figure('Retries', 'webhooks?state=retrying', retrying, ({ deliveries, next }) => [atLeast(deliveries.length, next), 'deliveries wait for their next attempt', deliveries.length > 0 ? 'wait' : 'good']),
    figure('Remote agents', 'agents', registry, remotes),
    figure('Batches', 'batches', queue, (status) => [Number(status.activeBatches ?? 0), `running; ${Number(status.queueSize ?? 0)} in the queue`, '']),
    figure('Nodes', 'server', nodes, (answer) => nodeFigure(answer, now)),
  ];
}

/** @param {any[]} entries @returns {[string, string, Tone]} */
function remotes(entries) {
  const others = entries.filter((one) => one.kind !== 'local');
  const bad = entries.filter((one) => one.status !== 'healthy');
  if (bad.length > 0) return [String(bad.length), `unhealthy: ${bad.slice(0, 3).map((one) => one.name).join(', ')}${bad.length > 3 ? ' …' : ''}`, 'bad'];
  return [String(others.length), others.length > 0 ? 'all healthy' : 'none is configured', others.length > 0 ? 'good' : ''];
}

/** @param {{nodes: any[], more: boolean}} answer @param {number} now @returns {[string, string, Tone]} */
function nodeFigure({ nodes, more }, now) {
  const alive = nodes.filter((one) => !one.gone);
  // A node that was stopped was meant to go; one whose lease expired was not.
  const lost = nodes.filter((one) => one.gone && !one.stopped);
  const longest = Math.min(...alive.map((one) => Date.parse(one.startedAt)));
  const note = Number.isFinite(longest) ? `alive, for up to ${duration(now - longest)}` : 'alive';
  return [atLeast(alive.length, more), lost.length > 0 ? `${note}; ${lost.length} lost` : note, lost.length > 0 ? 'wait' : 'good'];
}

/** @param {number} count @param {unknown} isMore */
function atLeast(count, isMore) {
  return isMore ? `${count} or more` : String(count);
}

/** Counts by state in the order of a task's life, and by agent with the most first; each with its list.
 * @param {{state?: {[name: string]: number}, agent?: {[name: string]: number}} | null | undefined} facets */
export function taskCounts(facets) {
  const { state = {}, agent = {} } = facets ?? {};
  const path = (/** @type {Partial<import('./filter.js').TaskFilter>} */ part) => `tasks?${writeFilter({ ...emptyFilter(), ...part })}`;
  return {
    states: STATES.filter((one) => state[one]).map((one) => ({ name: one, count: state[one], path: path({ state: [one] }) })),
    agents: Object.entries(agent).sort(([a, more], [b, less]) => less - more || (a < b ? -1 : 1)).map(([name, count]) => ({ name, count, path: path({ agent: [name] }) })),
  };
}

/** The agent for a first message: echo, else the first that the caller may send to. @param {{[scope: string]: boolean}} may */
export function firstAgent(may) {
  const agents = Object.keys(may).filter((scope) => scope.startsWith('execute:a2a:') && may[scope]).map((scope) => scope.slice('execute:a2a:'.length));
  return agents.includes('echo') ? 'echo' : (agents[0] ?? null);
}
