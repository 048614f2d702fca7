/**
 * Acts on all tasks that match a filter: what is asked of the server, what an act does in words, and the count that is typed
 * before an act on many. Pure.
 */

import { writeFilter } from './filter.js';

/** @typedef {import('./filter.js').TaskFilter} TaskFilter */

/** Above this count it is typed. */
const TYPED_ABOVE = 20;

/** The filter of `POST selections`: only what is set. @param {TaskFilter} filter */
export function selectionFilter(filter) {
  const set = Object.entries(filter).filter(([, value]) => (Array.isArray(value) ? value.length > 0 : Boolean(value)));
  return Object.fromEntries(set);
}

/** @param {TaskFilter} filter */
export function filterText(filter) {
  if (writeFilter(filter) === '') return 'No filter: every task of yours, in whatever state';
  const parts = [
    filter.state.length > 0 && `state ${filter.state.join(' or ')}`,
    filter.agent.length > 0 && `agent ${filter.agent.join(' or ')}`,
    filter.owner === 'all' ? 'of all callers' : filter.owner ? `of ${filter.owner}` : 'of yours',
    filter.context && `context ${filter.context}`,
    filter.roots && 'called by no task',
    filter.since && `since ${filter.since}`,
    filter.before && `before ${filter.before}`,
    filter.id && `id begins with ${filter.id}`,
  ];
  return parts.filter(Boolean).join(' · ');
}

/** @param {number} count */
export function tasksText(count) {
  return count === 1 ? '1 task' : `${count} tasks`;
}

/** @typedef {{name: 'cancel' | 'rerun', label: (count: number) => string, what: (count: number) => string, scopes: (filter: TaskFilter) => string[]}} BulkAct */

const BATCH = 'execute:batchtools:batchtools';

/** @type {BulkAct[]} */
export const ACTS = [
  {
    name: 'cancel',
    label: (count) => `Cancel ${tasksText(count)}`,
    what: () => 'Each is asked to stop. A task that has ended by then is skipped.',
    scopes: (filter) => [filter.owner ? 'write:admin:tasks' : 'write:a2a:tasks', BATCH],
  },
  {
    name: 'rerun',
    label: (count) => `Run ${tasksText(count)} again`,
    what: (count) => `The first message of each is sent to its agent again: ${count === 1 ? '1 new task' : `${count} new tasks`} of yours. The old ones stay as they are.`,
    scopes: () => [BATCH],
  },
];

/** What can be done with the tasks of a filter. Those of others are not sent again: their words would run with the rights of who sends
 * them. @param {TaskFilter} filter */
export function actsOn(filter) {
  return ACTS.filter((act) => act.name === 'cancel' || !filter.owner);
}

/** @param {number} count */
export function mustBeTyped(count) {
  return count > TYPED_ABOVE;
}

/** Whether the act may begin: the count is small, or typed, with or without separators. @param {number} count @param {string} typed */
export function isConfirmed(count, typed) {
  return count > 0 && (!mustBeTyped(count) || typed.replace(/[\s,.']/g, '') === String(count));
}
