/**
 * The pulse of a node: counts and durations of the last hour in intervals of 10 s, the next interval that the live stream
 * sends, and the outlines of its charts. Pure. `null` is an interval that was not measured, never a zero.
 */

/** @typedef {(number | null)[]} Series oldest first, one member for each interval */
/** @typedef {{[series: string]: Series}} SeriesByName */
/** @typedef {{node: string, intervalMs: number, from: string, until: string, total: SeriesByName, agents: {agent: string | null, series: SeriesByName}[]}} Pulse */

const COUNTS = ['sends', 'events', 'commits', 'ended', 'failed'];
const DURATIONS = ['p50Ms', 'p99Ms'];

/** @param {any} one @returns {SeriesByName} */
function seriesOf(one) {
  return Object.fromEntries([...COUNTS, ...DURATIONS, 'queued', 'running'].filter((name) => Array.isArray(one[name])).map((name) => [name, one[name]]));
}

/** The answer of `GET /pulse`. @param {any} answer @returns {Pulse} */
export function readPulse(answer) {
  const { node, intervalMs, from, until, total, agents } = answer;
  return { node, intervalMs, from, until, total: seriesOf(total), agents: agents.map((/** @type {any} */ one) => ({ agent: one.agent, series: seriesOf(one) })) };
}

/** The pulse with the interval of a live frame; the same pulse if it has that interval; null if intervals between are missing.
 * @param {Pulse} pulse @param {any} frame @returns {Pulse | null} */
export function withInterval(pulse, frame) {
  const [at, until] = [Date.parse(frame.at), Date.parse(pulse.until)];
  if (at < until) return pulse;
  if (at > until) return null;
  const sent = new Map(frame.agents.map((/** @type {any} */ one) => [one.agent, one]));
  const known = new Set(pulse.agents.map(({ agent }) => agent));
  // An agent that is named for the first time did nothing in the intervals that were measured before.
  const idle = pulse.total.sends?.map((value) => (value === null ? null : 0)) ?? [];
  const fresh = [...sent.keys()].filter((agent) => !known.has(agent)).map((agent) => ({ agent, series: Object.fromEntries([...COUNTS.map((name) => [name, idle]), ...DURATIONS.map((name) => [name, idle.map(() => null)])]) }));
  return {
    ...pulse,
    from: new Date(Date.parse(pulse.from) + pulse.intervalMs).toISOString(),
    until: new Date(until + pulse.intervalMs).toISOString(),
    total: shifted(pulse.total, frame.total),
    agents: [...pulse.agents, ...fresh].map(({ agent, series }) => ({ agent, series: shifted(series, sent.get(agent) ?? {}) })),
  };
}

/** @param {SeriesByName} series @param {any} next @returns {SeriesByName} */
function shifted(series, next) {
  return Object.fromEntries(Object.entries(series).map(([name, values]) => [name, [...values.slice(1), next[name] ?? (COUNTS.includes(name) ? 0 : null)]]));
}

/** @param {Series} values */
export function figuresOf(values) {
  const numbers = values.filter((value) => value !== null);
  return {
    sum: numbers.reduce((sum, value) => sum + value, 0),
    most: numbers.length === 0 ? null : numbers.reduce((most, value) => Math.max(most, value), 0),
    last: values.at(-1) ?? null,
    /** The newest number that there is. */
    latest: numbers.at(-1) ?? null,
    intervals: numbers.length,
  };
}

/** The outline of bars, and of the intervals that were not measured, as paths of an SVG drawing.
 * @param {Series} values @param {{width: number, height: number, most: number, measured?: Series}} options `measured`: null where the node did not measure, if that differs from `values` */
export function outlines(values, { width, height, most, measured = values }) {
  const step = width / Math.max(1, values.length);
  const place = (/** @type {number} */ n) => Number(n.toFixed(2));
  let [bars, gaps] = ['', ''];
  for (let index = 0; index < values.length; index += 1) {
    const value = values[index] ?? 0;
    if (measured[index] === null) {
      let end = index + 1;
      while (end < values.length && measured[end] === null) end += 1;
      gaps += `M${place(index * step)} 0H${place(end * step)}V${height}H${place(index * step)}Z`;
      index = end - 1;
    } else if (value > 0 && most > 0) {
      // A small number beside a large one is still seen.
      const top = height - Math.max(1.5, (Math.min(value, most) / most) * height);
      bars += `M${place(index * step)} ${height}V${place(top)}H${place((index + 1) * step)}V${height}Z`;
    }
  }
  return { bars, gaps };
}
