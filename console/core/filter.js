/**
 * The filter of the list of tasks, as a URL's query and back. The URL is the view: what is read from it is written to it
 * again, in one order, and what it does not know stays out. Pure.
 */

/** @typedef {{state: string[], agent: string[], owner: string, context: string, roots: boolean, since: string, before: string, id: string}} TaskFilter */

export const STATES = ['submitted', 'working', 'input-required', 'auth-required', 'completed', 'failed', 'canceled', 'rejected'];

const MAX_VALUE = 256;

/** @returns {TaskFilter} */
export function emptyFilter() {
  return { state: [], agent: [], owner: '', context: '', roots: false, since: '', before: '', id: '' };
}

/** @param {string} search @returns {{filter: TaskFilter, ignored: string[]}} `ignored` names what the URL has and cannot be used */
export function readFilter(search) {
  const filter = emptyFilter();
  /** @type {string[]} */
  const ignored = [];
  for (const [name, value] of new URLSearchParams(search)) {
    const fits = value !== '' && value.length <= MAX_VALUE;
    if (name === 'state' && STATES.includes(value)) addOnce(filter.state, value);
    else if (name === 'agent' && fits) addOnce(filter.agent, value);
    else if ((name === 'owner' || name === 'context') && fits) filter[name] = value;
    else if (name === 'roots' && value === 'true') filter.roots = true;
    else if ((name === 'since' || name === 'before') && isTime(value)) filter[name] = value;
    else if (name === 'id' && /^[0-9a-fA-F-]{1,36}$/.test(value)) filter.id = value.toLowerCase();
    else if (Object.hasOwn(filter, name)) ignored.push(`${name}=${value.slice(0, 64)}`);
  }
  filter.state.sort((a, b) => STATES.indexOf(a) - STATES.indexOf(b));
  return { filter, ignored };
}

/** @param {string[]} list @param {string} value */
function addOnce(list, value) {
  if (!list.includes(value)) list.push(value);
}

/** @param {string} value */
function isTime(value) {
  return value.length <= 40 && /^\d{4}-\d{2}-\d{2}(T[\d:.]+(Z|[+-]\d{2}:\d{2}))?$/.test(value) && Number.isFinite(Date.parse(value));
}

/** The query of a filter, without `?`; empty for no filter. The API takes the same.
 * @param {TaskFilter} filter */
export function writeFilter(filter) {
  const query = new URLSearchParams();
  for (const state of filter.state) query.append('state', state);
  for (const agent of filter.agent) query.append('agent', agent);
  if (filter.owner) query.set('owner', filter.owner);
  if (filter.context) query.set('context', filter.context);
  if (filter.roots) query.set('roots', 'true');
  if (filter.since) query.set('since', filter.since);
  if (filter.before) query.set('before', filter.before);
  if (filter.id) query.set('id', filter.id);
  return query.toString();
}

/** @param {TaskFilter} filter */
export function isEmpty(filter) {
  return writeFilter(filter) === '';
}

/** The filter with one value of a set switched.
 * @param {TaskFilter} filter @param {'state' | 'agent'} name @param {string} value @returns {TaskFilter} */
export function toggle(filter, name, value) {
  const values = filter[name].includes(value) ? filter[name].filter((other) => other !== value) : [...filter[name], value];
  return { ...filter, [name]: values };
}

/** A row of the list that a live frame brings: does it belong to the view?
 * @param {TaskFilter} filter @param {{state: string, agent: string, taskId: string, contextId: string, parentId?: string | null, statusAt: string}} row */
export function matches(filter, row) {
  const at = Date.parse(row.statusAt);
  return (
    (filter.state.length === 0 || filter.state.includes(row.state)) &&
    (filter.agent.length === 0 || filter.agent.includes(row.agent)) &&
    (!filter.context || filter.context === row.contextId) &&
    (!filter.roots || !row.parentId) &&
    (!filter.id || row.taskId.startsWith(filter.id)) &&
    (!filter.since || at >= Date.parse(filter.since)) &&
    (!filter.before || at < Date.parse(filter.before))
  );
}

/** What the search box means: an id or its beginning, a known agent, or a context.
 * @param {string} text @param {string[]} agents @param {TaskFilter} filter @returns {TaskFilter} */
export function search(text, agents, filter) {
  const wanted = text.trim().slice(0, MAX_VALUE);
  if (wanted === '') return { ...filter, id: '', context: '' };
  if (agents.includes(wanted)) return { ...filter, agent: [wanted] };
  if (/^[0-9a-fA-F-]{4,36}$/.test(wanted)) return { ...filter, id: wanted.toLowerCase() };
  return { ...filter, context: wanted };
}
