/**
 * Reads of the memory bank that the memory screen uses. A read by key is counted by the server; a search for exactly that
 * key is not, and has the same metadata. So the page looks for a new version without counting as a reader each time.
 */

import { memberText } from '../core/json-text.js';
import { dataUri, searchUri } from '../core/memory.js';
import { ApiError } from './api.js';
import { readResource } from './mcp.js';

/**
 * @typedef {{namespace: string, created: string, updated: string, accessed: string, accessCount: number, ttl: number | null, version: number, size: number}} Metadata
 * @typedef {{metadata: Metadata, text: string, permissions: string[]}} Entry `text` is the value as the server wrote it
 */

/** The limit `pattern_bytes` of the server. */
const PATTERN_BYTES = 256;

/** Whether the server says that there is no such resource. @param {unknown} error */
export function isMissing(error) {
  return error instanceof ApiError && typeof error.details.uri === 'string';
}

/** The entry, or null if there is none. The server counts this read. @param {string} namespace @param {string} key @returns {Promise<Entry | null>} */
export async function readEntry(namespace, key) {
  try {
    const { text, value, meta } = await readResource(dataUri(namespace, key));
    return { metadata: value.metadata, text: memberText(text, 'value') ?? 'null', permissions: meta.permissions ?? [] };
  } catch (error) {
    if (isMissing(error)) return null;
    throw error;
  }
}

/** The metadata of an entry without its value; null if there is no entry, undefined if the key is too long for a pattern.
 * @param {string} namespace @param {string} key @returns {Promise<Metadata | null | undefined>} */
export async function readMetadata(namespace, key) {
  const pattern = key.replaceAll(/[*?[]/g, (sign) => `[${sign}]`);
  if (new TextEncoder().encode(pattern).length > PATTERN_BYTES) return undefined;
  const { value } = await readResource(searchUri(namespace, { pattern, limit: 1 }));
  return value.results[0]?.metadata ?? null;
}
