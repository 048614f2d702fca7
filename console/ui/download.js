/** A file that the browser saves, made of texts. */

import { h } from './dom.js';

/** @param {BlobPart[]} parts @param {string} name @param {string} type */
export function download(parts, name, type) {
  const url = URL.createObjectURL(new Blob(parts, { type }));
  h('a', { href: url, download: name }).click();
  // The browser reads it meanwhile.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
