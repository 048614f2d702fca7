/**
 * The timeline of a task: spans of its log and of its journal in lanes, the scale from times to places, and how many points
 * are drawn. Pure functions; times are milliseconds since 1970.
 */

import { lanes, stack } from './layout.js';

/**
 * @typedef {import('./fold.js').LogEvent} LogEvent
 * @typedef {import('./layout.js').Span & {kind?: string, detail?: string, taskId?: string, count?: number}} TimelineSpan
 * @typedef {{runs: any[], effects: any[], moreRuns?: boolean}} Journal
 * @typedef {{from: number, to: number, at: (time: number) => number, gaps: {from: number, to: number}[]}} Scale
 */

/** The lanes from top to bottom, with their names. */
export const LANE_NAMES = new Map([
  ['run', 'Runs'], ['state', 'State'], ['step', 'Steps'], ['sleep', 'Sleeps'], ['call', 'Calls'], ['question', 'Questions'],
  ['artifact', 'Artifacts'], ['message', 'Messages'], ['progress', 'Progress'], ['log', 'Log'],
  ['follower', 'Followers'], ['webhook', 'Webhooks'],
]);

/** A run that died has no end: it is drawn up to the last thing that is known of it.
 * @param {Journal | null} journal @param {LogEvent[]} events @param {number} now @param {TimelineSpan[]} [marks] @returns {TimelineSpan[]} */
export function timelineSpans(journal, events, now, marks = []) {
  const spans = journal ? journalSpans(journal, events, now) : [];
  return [...stack(spans), ...lanes(events, now), ...marks];
}

/** @param {Journal} journal @param {LogEvent[]} events @param {number} now @returns {TimelineSpan[]} */
function journalSpans({ runs, effects }, events, now) {
  /** @type {TimelineSpan[]} */
  const spans = [];
  /** @param {string} lane @param {string} label @param {number} from @param {number | null} to @param {Partial<TimelineSpan>} more */
  const add = (lane, label, from, to, more = {}) => {
    spans.push({ lane, label, from, to: Math.max(from, to ?? now), seq: 0, endSeq: 0, row: 0, open: to === null, ...more });
  };
  for (const [index, run] of runs.entries()) {
    const from = Date.parse(run.beganAt);
    const next = runs[index + 1];
    const end = run.endedAt ? Date.parse(run.endedAt) : run.end === 'running' ? null : lastBefore(events, next ? Date.parse(next.beganAt) : now, from);
    add('run', `run ${run.epoch}: ${RUN_ENDS.get(run.end) ?? run.end}`, from, end, { kind: `run-${run.end}`, detail: `node ${run.node}${run.attempts > 0 ? `; ${run.attempts} before it died without writing anything` : ''}` });
  }
  for (const effect of effects) {
    const from = Date.parse(effect.beganAt ?? '');
    if (Number.isNaN(from)) continue;
    const to = effect.endedAt ? Date.parse(effect.endedAt) : null;
    if (effect.kind === 'step') add('step', effect.name, from, to, { kind: effect.ok ? 'step-ok' : 'step-failed', detail: [effect.position, effect.result].filter(Boolean).join('  ') });
    if (effect.kind === 'sleep') add('sleep', 'sleep', from, Math.min(now, Date.parse(effect.until)), { kind: 'sleep', detail: `${effect.position} until ${effect.until}` });
    if (effect.kind === 'call') add('call', effect.agent, from, to, { kind: `call-${effect.state}`, detail: `${effect.position} ${effect.state}`, taskId: effect.taskId });
  }
  return spans;
}

const RUN_ENDS = new Map([
  ['running', 'running'], ['parked', 'parked, nothing held'], ['ended', 'ended the task'], ['lost', 'lost with its process'], ['handed-back', 'handed back'],
]);

/** The time of the last event before `end`, at least `from`. @param {LogEvent[]} events @param {number} end @param {number} from */
function lastBefore(events, end, from) {
  for (let index = events.length - 1; index >= 0; index -= 1) {
    const at = Date.parse(events[index].timestamp);
    if (at < end) return Math.max(at, from);
  }
  return from;
}

/** Lanes in which something lasts that is work, not waiting. */
const BUSY = new Set(['run', 'step', 'call']);
/** Lanes that say who has seen an event, not that something happened then. */
const MARKS = new Set(['follower', 'webhook']);
/** How much of the width a folded gap takes. */
const FOLDED = 0.02;

/** The scale of a range. With `folded`, times in which nothing ran are drawn as narrow gaps.
 * @param {TimelineSpan[]} spans @param {number} from @param {number} to @param {boolean} folded @returns {Scale} */
export function scaleOf(spans, from, to, folded) {
  const gaps = folded ? idleGaps(spans, from, to) : [];
  const idle = gaps.reduce((sum, gap) => sum + gap.to - gap.from, 0);
  const narrow = Math.min(0.5, gaps.length * FOLDED);
  const busy = Math.max(1, to - from - idle);
  /** @param {number} time @returns {number} from 0 to 1 */
  const at = (time) => {
    let [before, passed] = [0, 0];
    for (const [index, gap] of gaps.entries()) {
      if (time <= gap.from) break;
      const share = Math.min(1, (time - gap.from) / Math.max(1, gap.to - gap.from));
      before += Math.min(time, gap.to) - gap.from;
      passed = (narrow / gaps.length) * (index + share);
    }
    return Math.max(0, Math.min(1, ((time - from - before) / busy) * (1 - narrow) + passed));
  };
  return { from, to, at, gaps };
}

/** The times of a range in which nothing ran and nothing was said, if they are long enough to be worth folding.
 * @param {TimelineSpan[]} spans @param {number} from @param {number} to */
export function idleGaps(spans, from, to) {
  const busy = spans.filter((span) => BUSY.has(span.lane) || (!(span.to > span.from) && !MARKS.has(span.lane))).sort((a, b) => a.from - b.from);
  const gaps = [];
  let end = from;
  for (const span of busy) {
    const next = Math.min(span.from, to);
    if (next - end > (to - from) / 20) gaps.push({ from: end, to: next });
    end = Math.max(end, span.to);
  }
  if (to - end > (to - from) / 20) gaps.push({ from: end, to });
  return gaps;
}

/** Points of a lane that fall on one place become one with a count, so that a long log draws few elements.
 * @param {TimelineSpan[]} spans @param {Scale} scale @param {number} [places] @returns {TimelineSpan[]} */
export function thin(spans, scale, places = 120) {
  /** @type {Map<string, TimelineSpan>} */
  const points = new Map();
  const kept = [];
  for (const span of spans) {
    if (span.to < scale.from || span.from > scale.to) continue;
    const [left, right] = [scale.at(span.from), scale.at(span.to)];
    if (span.open || right - left > 1 / places) {
      kept.push(span);
      continue;
    }
    const key = `${span.lane} ${span.row} ${span.kind ?? ''} ${Math.floor(left * places)}`;
    const known = points.get(key);
    if (known) known.count = (known.count ?? 1) + 1;
    else {
      const point = { ...span };
      points.set(key, point);
      kept.push(point);
    }
  }
  return kept;
}

/** The range that a query names, in milliseconds after the task's beginning; the whole where it names none.
 * @param {string} search @param {number} began @param {number} end @returns {{from: number, to: number}} */
export function readRange(search, began, end) {
  const [, from, to] = /^(\d{1,13})-(\d{1,13})$/.exec(new URLSearchParams(search).get('zoom') ?? '') ?? [];
  if (from === undefined || Number(to) <= Number(from)) return { from: began, to: Math.max(end, began + 1) };
  return { from: began + Number(from), to: began + Number(to) };
}
