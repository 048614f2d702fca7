/**
 * Batches: what can be said of one before it is sent, what was asked of a sent one, the chart of its operations over time,
 * and its figures in words. A figure that was not measured is null, and is called so. Pure.
 */

/**
 * @typedef {{id: string, type: string, status: string, attempts: number, startTime?: string, durationMs?: number, output?: any, truncated?: boolean, error?: string}} Operation
 * @typedef {{needs: string[], retries: number, priority: string, args: any}} Asked
 * @typedef {{id: string, status: string, lane: number, left: number, width: number, durationMs: number}} Bar
 * @typedef {{bars: Bar[], lanes: number, from: number, to: number, left: number}} Chart `left`: operations that have not ended
 */

export const BATCH_AGENT = 'batch';
export const OPERATION_STATES = ['pending', 'succeeded', 'failed', 'skipped'];
const ID = /^[A-Za-z0-9_.:-]{1,64}$/;
const MAX_PROBLEMS = 20;

/** A batch as text, and what is wrong with it; the server checks the rest. A list alone is a batch of these operations, as
 * for the command. @param {string} text @returns {{text: string, problems: string[]}} */
export function checkBatch(text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    return { text, problems: [`not JSON: ${error instanceof Error ? error.message : error}`] };
  }
  const isList = Array.isArray(value);
  if (!isList && !isObject(value)) return { text, problems: ['a batch is an object, or a list of operations'] };
  const operations = isList ? value : value.operations;
  const sent = isList ? `{"operations":${text}}` : text;
  if (operations === undefined && (value.process !== undefined || value.optimize !== undefined)) return { text: sent, problems: [] };
  if (!Array.isArray(operations) || operations.length === 0) return { text: sent, problems: ['operations: a list with at least one operation'] };
  return { text: sent, problems: operationProblems(operations).slice(0, MAX_PROBLEMS) };
}

/** @param {any[]} operations */
function operationProblems(operations) {
  /** @type {string[]} */
  const problems = [];
  const ids = new Set();
  for (const [at, one] of operations.entries()) {
    const place = `operations[${at}]`;
    if (!isObject(one)) problems.push(`${place}: an operation is an object`);
    else if (typeof one.id !== 'string' || !ID.test(one.id)) problems.push(`${place}.id: letters, digits and . _ : -, at most 64`);
    else if (ids.has(one.id)) problems.push(`${place}.id: "${one.id}" is there twice`);
    else ids.add(one.id);
    if (isObject(one) && typeof one.type !== 'string') problems.push(`${place}.type: such as agent.call, memory.store or wait`);
  }
  for (const [at, one] of operations.entries()) {
    if (!isObject(one) || one.needs === undefined) continue;
    if (!Array.isArray(one.needs)) problems.push(`operations[${at}].needs: a list of ids`);
    else for (const need of one.needs) if (!ids.has(need)) problems.push(`operations[${at}].needs: there is no operation ${JSON.stringify(need)}`);
  }
  const circle = problems.length === 0 ? circleOf(operations) : [];
  if (circle.length > 0) problems.push(`needs: these wait for each other: ${circle.join(' → ')}`);
  return problems;
}

/** A circle of needs, from an operation to itself; empty if there is none. @param {{id: string, needs?: string[]}[]} operations @returns {string[]} */
function circleOf(operations) {
  const needs = new Map(operations.map((one) => [one.id, one.needs ?? []]));
  const done = new Set();
  for (const { id } of operations) {
    /** @type {{id: string, next: number}[]} */
    const path = [{ id, next: 0 }];
    while (path.length > 0) {
      const top = path[path.length - 1];
      const need = done.has(top.id) ? undefined : (needs.get(top.id) ?? [])[top.next];
      top.next += 1;
      if (need === undefined) done.add(path.pop()?.id);
      else {
        const at = path.findIndex((one) => one.id === need);
        if (at >= 0) return [...path.slice(at).map((one) => one.id), need];
        path.push({ id: need, next: 0 });
      }
    }
  }
  return [];
}

/** What was asked of a batch: the data of the first message of its task; its own cap is 0 if it has none.
 * @param {import('./fold.js').Task} task @returns {{data: any, cap: number, operations: Map<string, Asked>}} */
export function askedOf(task) {
  const data = task.history.find(({ role }) => role === 'user')?.parts.find((part) => part.data !== undefined)?.data ?? null;
  /** @type {Map<string, Asked>} */
  const operations = new Map();
  const list = Array.isArray(data?.operations) ? data.operations : [];
  for (const one of list) {
    if (!isObject(one) || typeof one.id !== 'string') continue;
    const needs = Array.isArray(one.needs) ? one.needs.filter((need) => typeof need === 'string') : [];
    operations.set(one.id, { needs, retries: Number(one.retries) || 0, priority: typeof one.priority === 'string' ? one.priority : '', args: one.args });
  }
  return { data, cap: Number.isSafeInteger(data?.maxConcurrency) ? data.maxConcurrency : 0, operations };
}

/** The operations that ended, as bars in lanes: as many lanes as ran beside each other. @param {Operation[]} operations @returns {Chart} */
export function chartOf(operations) {
  const timed = operations.flatMap(({ id, status, startTime, durationMs }) => {
    const from = Date.parse(startTime ?? '');
    return Number.isFinite(from) && typeof durationMs === 'number' ? [{ id, status, from, to: from + durationMs, durationMs }] : [];
  });
  timed.sort((a, b) => a.from - b.from || a.to - b.to);
  const from = Math.min(...timed.map((one) => one.from));
  const to = Math.max(...timed.map((one) => one.to));
  const length = Math.max(1, to - from);
  /** @type {number[]} */
  const ends = [];
  const bars = timed.map((one) => {
    // Starts are rounded to milliseconds: one that begins as another ends is not beside it.
    let lane = ends.findIndex((end) => end <= one.from + 1);
    if (lane < 0) lane = ends.length;
    ends[lane] = one.to;
    return { id: one.id, status: one.status, lane, left: (one.from - from) / length, width: (one.to - one.from) / length, durationMs: one.durationMs };
  });
  return { bars, lanes: ends.length, from: timed.length > 0 ? from : NaN, to: timed.length > 0 ? to : NaN, left: operations.filter(({ status }) => status === 'pending').length };
}

/** The measured speedup in words, with what it was measured against. @param {any} metrics @returns {{value: string, basis: string}} */
export function speedupText(metrics) {
  const basis = metrics?.speedupBasis;
  if (typeof metrics?.speedup !== 'number') return { value: 'not measured', basis: metrics ? 'not every type of operation was measured alone, here or in an earlier batch' : 'measured when the batch has ended' };
  const said = [];
  if (basis?.sampleOperations > 0) said.push(`${many(basis.sampleOperations, 'operation')} that ran alone first${typeof basis.sampleShare === 'number' ? `, ${percent(basis.sampleShare)} of the batch` : ''}`);
  for (const one of Array.isArray(basis?.calibrations) ? basis.calibrations : []) said.push(`${one.type} of earlier batches, ${one.operations} measured, ${ageText(one.ageSeconds)} old`);
  return { value: `${Number(metrics.speedup.toFixed(2))}×`, basis: said.length > 0 ? `against ${said.join('; ')}` : '' };
}

/** @param {number} seconds */
function ageText(seconds) {
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min`;
  return seconds < 86_400 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86_400)} d`;
}

/** A number with its noun. @param {number} count @param {string} one @param {string} [more] */
export function many(count, one, more = `${one}s`) {
  return `${count} ${count === 1 ? one : more}`;
}

/** @param {number} share */
export function percent(share) {
  return `${Number((share * 100).toFixed(1))} %`;
}

/** Counts in words. @param {any} counts */
export function countsText(counts) {
  if (typeof counts?.succeeded !== 'number') return typeof counts?.total === 'number' ? many(counts.total, 'operation') : 'not known yet';
  const said = [`${counts.succeeded} of ${counts.total} succeeded`];
  if (counts.failed) said.push(`${counts.failed} failed`);
  if (counts.skipped) said.push(`${counts.skipped} skipped`);
  return said.join(', ');
}

/** The settings that a form holds, which are flat, and the change that `batch_configure` takes: only what differs.
 * @param {any} settings @param {any} typed */
export function settingsChange(settings, typed) {
  const known = flatSettings(settings);
  /** @type {{[name: string]: any}} */
  const change = {};
  for (const [name, value] of Object.entries(typed)) {
    if (JSON.stringify(sorted(value)) === JSON.stringify(sorted(known[name]))) continue;
    if (THRESHOLDS.includes(name)) change.thresholds = { ...change.thresholds, [name]: value };
    else change[name] = value;
  }
  return change;
}

const THRESHOLDS = ['memoryUsage', 'cpuUsage', 'queueSize'];

/** @param {any} settings @returns {{[name: string]: any}} */
export function flatSettings({ thresholds, ...rest }) {
  return { ...rest, ...thresholds };
}

/** @param {any} value */
const sorted = (value) => (Array.isArray(value) ? [...value].sort() : value);
/** @param {any} value @returns {value is {[key: string]: any}} */
const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value);
