/**
 * Differences of two texts by line, for showing them beside each other. Pure; bounded: beyond `most` edits the middle part
 * counts as replaced as a whole, so that two unrelated texts of a MiB do not stop the page.
 */

/**
 * @typedef {{op: 'same' | 'removed' | 'added' | 'changed', before: string | null, after: string | null, beforeLine: number, afterLine: number}} DiffRow
 *   lines are counted from 1; 0 where there is none
 * @typedef {{rows: DiffRow[], added: number, removed: number, exact: boolean}} TextDiff
 */

const MAX_EDITS = 1000;

/** @param {string} before @param {string} after @param {number} [most] @returns {TextDiff} */
export function lineDiff(before, after, most = MAX_EDITS) {
  const [a, b] = [before.split('\n'), after.split('\n')];
  let start = 0;
  let [endA, endB] = [a.length, b.length];
  while (start < endA && start < endB && a[start] === b[start]) start += 1;
  while (endA > start && endB > start && a[endA - 1] === b[endB - 1]) {
    endA -= 1;
    endB -= 1;
  }
  const kept = commonLines(a.slice(start, endA), b.slice(start, endB), most);
  /** @type {DiffRow[]} */
  const rows = [];
  let [atA, atB] = [0, 0];
  /** The lines up to a common one: removed and added lines stand beside each other as changed ones. @param {number} toA @param {number} toB */
  const replace = (toA, toB) => {
    while (atA < toA || atB < toB) {
      const [hasA, hasB] = [atA < toA, atB < toB];
      rows.push({ op: hasA && hasB ? 'changed' : hasA ? 'removed' : 'added', before: hasA ? a[atA] : null, after: hasB ? b[atB] : null, beforeLine: hasA ? atA + 1 : 0, afterLine: hasB ? atB + 1 : 0 });
      atA += hasA ? 1 : 0;
      atB += hasB ? 1 : 0;
    }
  };
  const same = () => rows.push({ op: 'same', before: a[atA], after: b[atB], beforeLine: (atA += 1), afterLine: (atB += 1) });
  while (atA < start) same();
  for (const [x, y] of kept ?? []) {
    replace(start + x, start + y);
    same();
  }
  replace(endA, endB);
  while (atA < a.length) same();
  const count = (/** @type {'before' | 'after'} */ side) => rows.filter((row) => row.op !== 'same' && row[side] !== null).length;
  return { rows, added: count('after'), removed: count('before'), exact: kept !== null };
}

/** The pairs of a longest common subsequence, in order, by the algorithm of Myers; null beyond `most` edits.
 * @param {string[]} a @param {string[]} b @param {number} most @returns {[number, number][] | null} */
function commonLines(a, b, most) {
  const limit = Math.min(most, a.length + b.length);
  /** The furthest place in `a` on each diagonal. @type {Map<number, number>} */
  const furthest = new Map([[1, 0]]);
  /** @type {Map<number, number>[]} */
  const steps = [];
  for (let edits = 0; edits <= limit; edits += 1) {
    steps.push(new Map(furthest));
    for (let diagonal = -edits; diagonal <= edits; diagonal += 2) {
      let x = startOf(furthest, diagonal, edits);
      while (x < a.length && x - diagonal < b.length && a[x] === b[x - diagonal]) x += 1;
      furthest.set(diagonal, x);
      if (x >= a.length && x - diagonal >= b.length) return walkBack(steps, a.length, b.length);
    }
  }
  return null;
}

/** @param {Map<number, number>} furthest @param {number} diagonal @param {number} edits */
function startOf(furthest, diagonal, edits) {
  const [left, right] = [furthest.get(diagonal - 1) ?? -1, furthest.get(diagonal + 1) ?? -1];
  return diagonal === -edits || (diagonal !== edits && left < right) ? right : left + 1;
}

/** @param {Map<number, number>[]} steps @param {number} x @param {number} y @returns {[number, number][]} */
function walkBack(steps, x, y) {
  /** @type {[number, number][]} */
  const pairs = [];
  for (let edits = steps.length - 1; edits >= 0; edits -= 1) {
    const furthest = steps[edits];
    const diagonal = x - y;
    const began = startOf(furthest, diagonal, edits);
    while (x > began && x > 0 && y > 0) pairs.push([(x -= 1), (y -= 1)]);
    if (edits === 0) break;
    // The edit before: down from the diagonal on the right, or right from the one on the left.
    const down = diagonal === -edits || (diagonal !== edits && (furthest.get(diagonal - 1) ?? -1) < (furthest.get(diagonal + 1) ?? -1));
    if (down) y -= 1;
    else x -= 1;
  }
  return pairs.reverse();
}

/** The rows with long equal runs cut to `around` lines; a number is how many rows were left out there.
 * @param {DiffRow[]} rows @param {number} [around] @returns {(DiffRow | number)[]} */
export function foldSame(rows, around = 3) {
  const near = new Uint8Array(rows.length);
  for (const [at, row] of rows.entries()) if (row.op !== 'same') near.fill(1, Math.max(0, at - around), at + around + 1);
  /** @type {(DiffRow | number)[]} */
  const shown = [];
  for (const [at, row] of rows.entries()) {
    const last = shown.at(-1);
    if (near[at]) shown.push(row);
    else if (typeof last === 'number') shown[shown.length - 1] = last + 1;
    else shown.push(1);
  }
  return shown;
}
