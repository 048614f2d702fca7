/**
 * Which events of a log are compared with the server, and what a comparison found. Pure.
 */

import { jsonDiff } from './diff.js';

/** At most so many folds are compared: each asks the server to fold again. */
export const MOST_SAMPLES = 200;

/** The numbers of events at which folds are compared, ascending: all of a short log; of a long one the first, the last, and
 * one of each stretch between, another one each time. @param {number} last @param {() => number} random from 0 to 1 @param {number} [most] @returns {number[]} */
export function sampleNumbers(last, random, most = MOST_SAMPLES) {
  if (last <= most) return Array.from({ length: last }, (_, index) => index + 1);
  const inner = most - 2;
  const stretch = (last - 2) / inner;
  const between = Array.from({ length: inner }, (_, index) => {
    const [from, to] = [Math.floor(index * stretch), Math.floor((index + 1) * stretch)];
    return 2 + from + Math.floor(random() * (to - from));
  });
  return [1, ...between, last];
}

/** The first number from 1 on that a log does not have; null if it has all to `last`. @param {{seq: number}[]} events @param {number} last */
export function firstGap(events, last) {
  for (let seq = 1; seq <= last; seq += 1) if (events[seq - 1]?.seq !== seq) return seq;
  return events.length > last ? last + 1 : null;
}

/** Where two folds differ, as a sentence; empty if they are the same. @param {number} seq @param {any} here @param {any} there */
export function foldDifference(seq, here, there) {
  const { changes, more } = jsonDiff(here, there, 5);
  return changes.length === 0 ? '' : `At event ${seq} they differ: ${changes.map(({ path }) => path || '/').join(', ')}${more ? ' …' : ''}`;
}
