/**
 * The filters of the audit as parameters of the API and as a command, what came since a list was read, and the task that a line
 * is about. Pure.
 */

export const AUDIT_TYPES = ['a2a', 'memory', 'sparc', 'batchtools', 'admin'];
export const AUDIT_FILTERS = ['resource', 'caller', 'type', 'refused', 'since', 'until'];

/** The filters that the address has. @param {string} search */
export function auditFilters(search) {
  const query = new URLSearchParams(search);
  return new URLSearchParams(AUDIT_FILTERS.filter((name) => query.get(name)).map((name) => [name, query.get(name) ?? '']));
}

/** The command that shows the same; null where it has no flag for a filter. @param {URLSearchParams} filters @param {number} now @param {(text: string) => string} quote */
export function auditCommand(filters, now, quote) {
  const since = filters.get('since');
  const seconds = Math.ceil((now - Date.parse(since ?? '')) / 1000);
  if (filters.has('until') || (since && !(seconds > 0))) return null;
  const flags = [...filters].map(([name, value]) => (name === 'refused' ? '--refused' : `--${name} ${name === 'since' ? `${seconds}s` : quote(value)}`));
  return ['nuncio audit', ...flags].join(' ');
}

/** The id of the task in a resource such as `a2a://tasks/{id}/webhooks/{webhook}`; null if it is of something else. @param {unknown} resource */
export function taskOfResource(resource) {
  const [, id] = /^(?:a2a|admin):\/\/tasks\/([^/?#]+)/.exec(String(resource)) ?? [];
  try {
    return id ? decodeURIComponent(id) : null;
  } catch {
    return id ?? null;
  }
}

/** Lines that came since a list was read. A reading of the audit is a line itself where all is recorded: it is not counted, or
 * following would count its own steps. @param {{number: number}[]} shown @param {{entries: any[], next: string | null}} page the newest lines
 * @returns {{count: number, isMore: boolean}} `isMore`: there may be others between */
export function freshLines(shown, { entries, next }) {
  const newest = shown[0]?.number ?? 0;
  const fresh = entries.filter(({ number }) => number > newest);
  return { count: fresh.filter(({ operation }) => operation !== 'audit.read').length, isMore: fresh.length === entries.length && next !== null && newest > 0 };
}

/** The line that an act left: the newest about its resource since it began that is not a reading. @param {any[]} entries newest first @param {number} began */
export function lineOfAct(entries, began) {
  return entries.find(({ at, action }) => action !== 'read' && Date.parse(at) >= began) ?? null;
}
