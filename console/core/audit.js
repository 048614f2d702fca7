/**
 * The filters of the audit as parameters of the API and as a command, and the task that a line is about. Pure.
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
