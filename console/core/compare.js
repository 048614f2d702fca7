/**
 * Two logs aligned by what happened, so that one event more in one of them does not shift the rest. Pure; built on the line
 * diff, with one line for each event.
 */

import { essence, jsonDiff, same } from './diff.js';
import { lineDiff } from './line-diff.js';

/**
 * @typedef {import('./fold.js').LogEvent} LogEvent
 * @typedef {{op: 'same' | 'differs' | 'only-a' | 'only-b', a: LogEvent | null, b: LogEvent | null, changes: import('./diff.js').Change[]}} CompareRow
 * @typedef {{rows: CompareRow[], first: number | null, exact: boolean, compared: [number, number]}} Comparison `first`: the row of the first difference
 */

/** What an event is about, without its content: events with one key are put beside each other.
 * @param {LogEvent} event @returns {string} */
export function eventKey({ type, data }) {
  const about = {
    message: data?.role,
    status: data?.state,
    artifact: data && `${data.index} ${data.append ? 'more' : 'new'}`,
    question: data?.text,
    answer: data?.question,
    withdrawn: data?.question,
    log: data?.level,
  }[type];
  return JSON.stringify([type, about ?? null]);
}

/** @param {LogEvent[]} a @param {LogEvent[]} b @returns {Comparison} */
export function compareLogs(a, b) {
  const lines = (/** @type {LogEvent[]} */ events) => events.map(eventKey).join('\n');
  // An empty text is one empty line to the diff.
  const { rows: aligned, exact } = lineDiff(lines(a), lines(b));
  /** @type {CompareRow[]} */
  const rows = [];
  for (const row of aligned) {
    const [left, right] = [a[row.beforeLine - 1] ?? null, b[row.afterLine - 1] ?? null];
    if (row.op === 'same' && left && right) {
      const [one, other] = [essence(left), essence(right)];
      const equal = same(one, other);
      rows.push({ op: equal ? 'same' : 'differs', a: left, b: right, changes: equal ? [] : jsonDiff(one, other, 50).changes });
      continue;
    }
    if (left) rows.push({ op: 'only-a', a: left, b: null, changes: [] });
    if (right) rows.push({ op: 'only-b', a: null, b: right, changes: [] });
  }
  const first = rows.findIndex((row) => row.op !== 'same');
  return { rows, first: first < 0 ? null : first, exact, compared: [a.length, b.length] };
}

/** How long after the event before it an event came; null for the first. @param {LogEvent[]} events @param {LogEvent} event */
export function gapOf(events, event) {
  const before = events[event.seq - 2];
  return before ? Date.parse(event.timestamp) - Date.parse(before.timestamp) : null;
}

/** From the first to the last event. @param {LogEvent[]} events */
export function lengthOf(events) {
  return events.length > 0 ? Date.parse(events[events.length - 1].timestamp) - Date.parse(events[0].timestamp) : 0;
}
