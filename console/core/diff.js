/**
 * Differences: of two JSON values, and of two logs. Pure; bounded, so that hostile values cost no more than they show.
 */

/** @typedef {import('./fold.js').LogEvent} LogEvent */
/** @typedef {{path: string, op: 'added' | 'removed' | 'changed', before?: any, after?: any}} Change */

/** Whether two JSON values are equal; the order of an object's members does not count.
 * @param {any} a @param {any} b @returns {boolean} */
export function same(a, b) {
  if (a === b) return true;
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) return false;
  if (Array.isArray(a) !== Array.isArray(b)) return false;
  if (Array.isArray(a)) return a.length === b.length && a.every((item, index) => same(item, b[index]));
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every((key) => Object.hasOwn(b, key) && same(a[key], b[key]));
}

/** One token of a JSON pointer.
 * @param {string | number} key */
export function pointer(key) {
  return '/' + String(key).replaceAll('~', '~0').replaceAll('/', '~1');
}

/** The changes from one value to another, in the order of the first, at most `limit`.
 * @param {any} before @param {any} after @param {number} [limit] @returns {{changes: Change[], more: boolean}} */
export function jsonDiff(before, after, limit = 500) {
  /** @type {Change[]} */
  const changes = [];
  let more = false;
  /** @param {Change} change */
  const add = (change) => {
    if (changes.length < limit) changes.push(change);
    else more = true;
  };
  /** @param {any} a @param {any} b @param {string} path */
  const walk = (a, b, path) => {
    if (more || a === b) return;
    const nested = typeof a === 'object' && typeof b === 'object' && a !== null && b !== null;
    if (!nested || Array.isArray(a) !== Array.isArray(b)) {
      add({ path, op: 'changed', before: a, after: b });
    } else if (Array.isArray(a)) {
      walkArrays(a, b, path);
    } else {
      for (const key of Object.keys(a)) {
        const at = path + pointer(key);
        if (Object.hasOwn(b, key)) walk(a[key], b[key], at);
        else add({ path: at, op: 'removed', before: a[key] });
      }
      for (const key of Object.keys(b)) {
        if (!Object.hasOwn(a, key)) add({ path: path + pointer(key), op: 'added', after: b[key] });
      }
    }
  };
  /** Equal ends are left aside, so that one insertion is one change. @param {any[]} a @param {any[]} b @param {string} path */
  const walkArrays = (a, b, path) => {
    let start = 0;
    let endA = a.length;
    let endB = b.length;
    while (start < endA && start < endB && same(a[start], b[start])) start += 1;
    while (endA > start && endB > start && same(a[endA - 1], b[endB - 1])) {
      endA -= 1;
      endB -= 1;
    }
    const paired = Math.min(endA, endB);
    for (let index = start; index < paired; index += 1) walk(a[index], b[index], path + pointer(index));
    for (let index = paired; index < endA; index += 1) add({ path: path + pointer(index), op: 'removed', before: a[index] });
    for (let index = paired; index < endB; index += 1) add({ path: path + pointer(index), op: 'added', after: b[index] });
  };
  walk(before, after, '');
  return { changes, more };
}

/** What of an event is compared between two runs: not its time, and no id that every run makes anew.
 * @param {LogEvent} event */
export function essence(event) {
  const data = event.data;
  if (data === undefined) return { cut: event.preview ?? '', size: event.size };
  if (event.type === 'message') return { ...data, id: null };
  if (event.type === 'status' && data.message) return { ...data, message: { ...data.message, id: null } };
  return data;
}

/** The first event at which two logs differ; null if they are the same as far as they are compared.
 * @param {LogEvent[]} a @param {LogEvent[]} b
 * @returns {{index: number, why: 'kind' | 'content' | 'shorter', changes: Change[]} | null} */
export function firstDifference(a, b) {
  const shared = Math.min(a.length, b.length);
  for (let index = 0; index < shared; index += 1) {
    if (a[index].type !== b[index].type) return { index, why: 'kind', changes: [] };
    const [left, right] = [essence(a[index]), essence(b[index])];
    if (!same(left, right)) return { index, why: 'content', changes: jsonDiff(left, right).changes };
  }
  return a.length === b.length ? null : { index: shared, why: 'shorter', changes: [] };
}
