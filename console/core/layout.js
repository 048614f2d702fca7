/**
 * Layout of virtual rows and of a task's timeline. Pure functions from numbers to numbers: elements only place what they
 * are given.
 */

/** @typedef {import('./fold.js').LogEvent} LogEvent */
/** @typedef {{lane: string, label: string, from: number, to: number, seq: number, endSeq: number, row: number, open: boolean}} Span */

/** Heights of rows, most of which have one height; a few (those that are open) have their own. */
export class RowHeights {
  /** @param {number} base */
  constructor(base) {
    this.base = base;
    /** Indices with a height of their own, ascending, and what each adds in all rows up to it. @type {{index: number, extra: number, sum: number}[]} */
    this.own = [];
  }

  /** @param {number} index @param {number | null} height null: the common height */
  set(index, height) {
    const own = this.own.filter((entry) => entry.index !== index);
    if (height !== null && height !== this.base) own.push({ index, extra: height - this.base, sum: 0 });
    own.sort((a, b) => a.index - b.index);
    let sum = 0;
    for (const entry of own) entry.sum = sum += entry.extra;
    this.own = own;
  }

  /** The top of a row. @param {number} index */
  top(index) {
    const before = this.lastOwn((entry) => entry.index < index);
    return index * this.base + (before?.sum ?? 0);
  }

  /** The row at a height. @param {number} y */
  indexAt(y) {
    const before = this.lastOwn((entry) => entry.index * this.base + entry.sum - entry.extra <= y);
    if (!before) return Math.max(0, Math.floor(y / this.base));
    const end = (before.index + 1) * this.base + before.sum;
    return y < end ? before.index : before.index + 1 + Math.floor((y - end) / this.base);
  }

  /** @param {(entry: {index: number, extra: number, sum: number}) => boolean} holds true up to some entry, false after it */
  lastOwn(holds) {
    let [low, high] = [0, this.own.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (holds(this.own[middle])) low = middle + 1;
      else high = middle;
    }
    return low > 0 ? this.own[low - 1] : undefined;
  }
}

/** The rows to draw: from `first` to before `end`, at most `most` of them.
 * @param {RowHeights} heights @param {number} count @param {number} scrollTop @param {number} viewHeight
 * @param {number} [overscan] @param {number} [most] */
export function visibleRows(heights, count, scrollTop, viewHeight, overscan = 8, most = 120) {
  const total = heights.top(count);
  const top = Math.max(0, Math.min(scrollTop, total - viewHeight));
  const first = Math.max(0, Math.min(heights.indexAt(top), count) - overscan);
  const end = Math.min(count, heights.indexAt(top + viewHeight) + 1 + overscan, first + most);
  return { first, end: Math.max(first, end), total };
}

/** The scroll position that shows a row, as near to the present one as possible.
 * @param {RowHeights} heights @param {number} index @param {number} scrollTop @param {number} viewHeight */
export function scrollTo(heights, index, scrollTop, viewHeight) {
  const [top, bottom] = [heights.top(index), heights.top(index + 1)];
  if (top < scrollTop) return top;
  if (bottom > scrollTop + viewHeight) return Math.max(0, Math.min(top, bottom - viewHeight));
  return scrollTop;
}

const LANES = ['state', 'question', 'artifact', 'message', 'progress', 'log'];

/** The spans of a log's lanes. A span that has not ended is `open` and lasts until `now`. Spans of a lane that overlap get
 * rows of their own.
 * @param {LogEvent[]} events @param {number} now @returns {Span[]} */
export function lanes(events, now) {
  /** @type {Span[]} */
  const spans = [];
  /** @type {Map<string, Span>} */
  const running = new Map();
  /** @param {string} lane @param {string} label @param {LogEvent} event @param {boolean} lasts */
  const begin = (lane, label, event, lasts) => {
    const at = Date.parse(event.timestamp);
    const span = { lane, label, from: at, to: lasts ? now : at, seq: event.seq, endSeq: event.seq, row: 0, open: lasts };
    spans.push(span);
    return span;
  };
  /** @param {string} key @param {LogEvent} event */
  const end = (key, event) => {
    const span = running.get(key);
    if (!span) return;
    running.delete(key);
    span.to = Math.max(span.from, Date.parse(event.timestamp));
    span.endSeq = event.seq;
    span.open = false;
  };
  /** @param {string} state @param {LogEvent} event */
  const enter = (state, event) => {
    end('state', event);
    const ended = ['completed', 'failed', 'canceled', 'rejected', 'replied'].includes(state);
    const span = begin('state', state, event, !ended);
    if (!ended) running.set('state', span);
    else for (const key of [...running.keys()]) end(key, event);
  };
  const asked = new Set();
  for (const event of events) {
    const data = event.data;
    if (event.type === 'status' && data) enter(data.state, event);
    else if (event.type === 'question' && data) {
      if (asked.size === 0) enter(data.ask.authorization ? 'auth-required' : 'input-required', event);
      asked.add(data.id);
      running.set(`question ${data.id}`, begin('question', data.text, event, true));
    } else if ((event.type === 'answer' || event.type === 'withdrawn') && data) {
      end(`question ${data.question}`, event);
      asked.delete(data.question);
      if (asked.size === 0) enter('working', event);
    } else if (event.type === 'artifact' && data) {
      const key = `artifact ${data.index}`;
      if (!running.has(key)) running.set(key, begin('artifact', data.name ?? data.id, event, true));
      if (data.last) end(key, event);
    } else if (LANES.includes(event.type)) {
      if (event.seq === 1) running.set('state', begin('state', 'submitted', event, true));
      begin(event.type, event.type, event, false);
    }
  }
  return stack(spans);
}

/** Gives each span the first row of its lane that is free at its beginning.
 * @template {Span} T @param {T[]} spans @returns {T[]} */
export function stack(spans) {
  /** @type {Map<string, number[]>} */
  const ends = new Map();
  for (const span of spans) {
    const rows = ends.get(span.lane) ?? [];
    ends.set(span.lane, rows);
    if (span.from === span.to && !span.open) continue; // A point: it may share a row.
    let row = rows.findIndex((end) => end <= span.from);
    if (row < 0) row = rows.length;
    rows[row] = span.to;
    span.row = row;
  }
  return spans;
}

/** Places of a span in a view of a time range, as fractions from 0 to 1; null if it lies outside.
 * @param {{from: number, to: number}} span @param {number} from @param {number} to */
export function place(span, from, to) {
  if (span.to < from || span.from > to) return null;
  const length = Math.max(1, to - from);
  const left = Math.max(0, (span.from - from) / length);
  const right = Math.min(1, (span.to - from) / length);
  return { left, width: Math.max(0, right - left) };
}

/** Round times for an axis of a range, at most `most`.
 * @param {number} from @param {number} to @param {number} [most] @returns {number[]} */
export function ticks(from, to, most = 8) {
  const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000, 120_000, 300_000, 600_000,
    1_800_000, 3_600_000, 10_800_000, 21_600_000, 43_200_000, 86_400_000];
  const wanted = Math.max(1, to - from) / most;
  const step = steps.find((candidate) => candidate >= wanted) ?? Math.ceil(wanted / 86_400_000) * 86_400_000;
  const marks = [];
  for (let at = Math.ceil(from / step) * step; at <= to && marks.length < most + 1; at += step) marks.push(at);
  return marks;
}
