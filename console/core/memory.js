/**
 * The memory screen's address, the life of an entry, rows of keys after a change, and the parts of an import. Pure.
 */

/**
 * @typedef {{namespace: string, key: string, prefix: string, pattern: string, text: string, page: number}} MemoryView
 * @typedef {{key: string, size: number, ttl: number | null, created: string, accessed: string, gone?: boolean}} KeyRow
 * @typedef {{lines: string, first: number, count: number}} ImportPart `first`: the number of its first line in the file
 */

/** What `nuncio memory import` sends at once. */
const PART_LINES = 500;
const PART_BYTES = 512 * 1024;

/** @param {string} search @returns {MemoryView} */
export function readView(search) {
  const query = new URLSearchParams(search);
  const text = (/** @type {string} */ name) => query.get(name) ?? '';
  const page = Number(query.get('page'));
  return { namespace: text('namespace'), key: text('key'), prefix: text('prefix'), pattern: text('pattern'), text: text('text'), page: Number.isInteger(page) && page > 1 ? page : 1 };
}

/** The address of a view below the console's base. Names are in the query: a path cannot hold the key `..`.
 * @param {Partial<MemoryView>} view */
export function viewPath({ namespace, key, prefix, pattern, text, page }) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries({ namespace, prefix, pattern, text })) if (value) query.set(name, value);
  if (page && page > 1) query.set('page', String(page));
  if (key) query.set('key', key);
  const written = query.toString();
  return written ? `memory?${written}` : 'memory';
}

/** The milliseconds that an entry has left; null: it stays until it is deleted. The TTL counts from the last write.
 * @param {{ttl: number | null, updated: string}} metadata @param {number} now */
export function remaining({ ttl, updated }, now) {
  return ttl === null ? null : Math.max(0, Date.parse(updated) + ttl * 1000 - now);
}

/** A duration as a TTL is typed: `90`, `15m`, `2h`, `7d`; null if it is none. @param {string} text @returns {number | null} seconds */
export function readTtl(text) {
  const [, digits, unit] = /^\s*(\d{1,12})\s*([smhd]?)\s*$/.exec(text) ?? [];
  if (!digits) return null;
  const seconds = Number(digits) * { s: 1, m: 60, h: 3600, d: 86_400, '': 1 }[/** @type {'s' | 'm' | 'h' | 'd' | ''} */ (unit)];
  return seconds > 0 && Number.isSafeInteger(seconds) ? seconds : null;
}

/** The rows on the screen after the keys were read again: known ones change in place, deleted ones are marked, new ones are
 * counted. @param {KeyRow[]} shown @param {KeyRow[]} read @returns {{rows: KeyRow[], fresh: number}} */
export function takeKeys(shown, read) {
  const found = new Map(read.map((row) => [row.key, row]));
  const rows = shown.map((row) => found.get(row.key) ?? { ...row, gone: true });
  const known = new Set(shown.map((row) => row.key));
  return { rows, fresh: read.filter((row) => !known.has(row.key)).length };
}

/** A file of JSON Lines in parts that the server takes at once. A line longer than a part is a part of its own.
 * @param {string} file @param {number} [lines] @param {number} [bytes] @returns {ImportPart[]} */
export function importParts(file, lines = PART_LINES, bytes = PART_BYTES) {
  const encoder = new TextEncoder();
  /** @type {ImportPart[]} */
  const parts = [];
  let size = 0;
  for (const [at, line] of file.split('\n').entries()) {
    if (line.trim() === '') continue;
    const length = encoder.encode(line).length + 1;
    const part = parts.at(-1);
    // A part has no gaps, so that a line's number in the file follows from its number in the part.
    const follows = part && part.first + part.count === at + 1;
    if (part && follows && part.count < lines && size + length <= bytes) {
      part.lines += `${line}\n`;
      part.count += 1;
      size += length;
    } else {
      parts.push({ lines: `${line}\n`, first: at + 1, count: 1 });
      size = length;
    }
  }
  return parts;
}

/** The name of an exported file: what any file system takes. @param {string} namespace */
export function fileName(namespace) {
  return `${namespace.replaceAll(/[^\p{L}\p{N}._-]+/gu, '_').replace(/^[._]+/, '') || 'memory'}.jsonl`;
}

/** A score as text: four digits, and small ones by their power. @param {number} score */
export function scoreText(score) {
  return score === 0 || score >= 0.0001 ? score.toFixed(4) : score.toExponential(1);
}

/** The address of a resource of the memory bank. @param {string} namespace @param {string} key */
export function dataUri(namespace, key) {
  return `memory://data/${part(namespace)}/${part(key)}`;
}

/** @param {string} namespace @param {{prefix?: string, after?: string, limit?: number}} [query] */
export function keysUri(namespace, { prefix, after, limit } = {}) {
  const query = [after && `after=${part(after)}`, limit && `limit=${limit}`, prefix && `prefix=${part(prefix)}`].filter(Boolean).join('&');
  return `memory://namespace/${part(namespace)}/keys${query ? `?${query}` : ''}`;
}

/** @param {string} namespace @param {{pattern?: string, text?: string, page?: number, limit?: number}} query */
export function searchUri(namespace, { pattern, text, page, limit }) {
  const query = [pattern ? `pattern=${part(pattern)}` : `text=${part(text ?? '')}`, page && `page=${page}`, limit && `limit=${limit}`].filter(Boolean).join('&');
  return `memory://search/${part(namespace)}?${query}`;
}

/** Percent-encoded as the server writes it: all but unreserved characters. @param {string} text */
function part(text) {
  return encodeURIComponent(text).replaceAll(/[!'()*]/g, (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`);
}
