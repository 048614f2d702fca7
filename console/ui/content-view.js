/**
 * Content of agents and callers: Markdown as elements, parts of messages and artifacts, links. Everything here is hostile:
 * it becomes text, a checked link, a picture from a blob, or a download, and nothing else.
 */

import { parseMarkdown, safeLink } from '../core/markdown.js';
import { h } from './dom.js';
import './json-view.js';
import { bytes as size } from './parts.js';

/** @typedef {import('../core/markdown.js').Block} Block */
/** @typedef {import('../core/markdown.js').Inline} Inline */

/** @param {string} source */
export function markdown(source) {
  return h('div', { class: 'markdown' }, ...parseMarkdown(source).map(block));
}

/** @param {Block} node @returns {Node} */
function block(node) {
  switch (node.type) {
    case 'heading':
      // Headings of agents stay below those of the page.
      return h('p', { class: `md-heading md-heading-${node.level}`, role: 'heading', 'aria-level': Math.min(6, node.level + 3) }, ...node.children.map(inline));
    case 'fence':
      return h('pre', { tabindex: 0 }, h('code', null, node.text));
    case 'list':
      return h(node.ordered ? 'ol' : 'ul', node.ordered ? { start: node.start } : null, ...node.items.map((item) => h('li', null, ...item.map(block))));
    default:
      return h('p', null, ...node.children.map(inline));
  }
}

/** @param {Inline} node @returns {Node} */
function inline(node) {
  switch (node.type) {
    case 'text':
      return document.createTextNode(node.text);
    case 'code':
      return h('code', null, node.text);
    case 'break':
      return h('br');
    case 'link':
      return outsideLink(node.href, node.host, ...node.children.map(inline));
    default:
      return h(node.type, null, ...node.children.map(inline));
  }
}

/** A link to elsewhere, with its host. @param {string} href @param {string} host @param {...Node} children */
function outsideLink(href, host, ...children) {
  return h('a', { href, rel: 'noopener noreferrer', target: '_blank' }, ...children, h('span', { class: 'host' }, ` (${host})`));
}

/** The link of an authorization: only https, and http to loopback. @param {string} url */
export function authorizationLink(url) {
  const safe = safeLink(url);
  const parsed = safe && new URL(safe.href);
  const loopback = parsed && ['localhost', '127.0.0.1', '[::1]'].includes(parsed.hostname);
  if (!safe || !(parsed?.protocol === 'https:' || loopback)) {
    return h('p', { class: 'problem' }, 'This link is not https, so it is shown and cannot be opened: ', h('code', null, url.slice(0, 500)));
  }
  return h('p', null, outsideLink(safe.href, safe.host, document.createTextNode('Open the authorization')));
}

/** Bytes of a value that is shown without a bar to find in it. */
const SMALL = 2048;
const IMAGES = new Set(['image/png', 'image/jpeg', 'image/gif', 'image/webp']);

/** @param {any} part @param {boolean} plain text as it is, not as Markdown */
export function partView(part, plain = false) {
  if (typeof part.text === 'string') return plain ? h('p', { class: 'plain' }, part.text) : markdown(part.text);
  if (typeof part.url === 'string') {
    const safe = safeLink(part.url);
    return h('p', null, safe ? outsideLink(safe.href, safe.host, document.createTextNode(part.filename ?? safe.href)) : h('code', null, part.url));
  }
  if (typeof part.bytes === 'string') return fileView(part);
  const text = JSON.stringify(part.data ?? null);
  return h('nuncio-json', { prop: { text, plain: text.length < SMALL } });
}

/** @param {any} part */
function fileView(part) {
  const name = String(part.filename ?? 'file');
  const type = String(part.media_type ?? 'application/octet-stream');
  const length = Math.floor((part.bytes.length * 3) / 4);
  const open = (/** @type {Event} */ event) => {
    const blob = new Blob([Uint8Array.from(atob(part.bytes), (char) => char.charCodeAt(0))], { type: IMAGES.has(type) ? type : 'application/octet-stream' });
    const url = URL.createObjectURL(blob);
    const place = /** @type {HTMLElement} */ (event.currentTarget).parentElement;
    if (IMAGES.has(type)) place?.append(h('img', { src: url, alt: name, class: 'picture' }));
    else h('a', { href: url, download: name.replaceAll(/[^\w.-]/g, '_').slice(0, 100) || 'file' }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  };
  return h('p', { class: 'file' }, `${name} · ${type} · ${size(length)} `, h('button', { type: 'button', class: 'quiet', onclick: open }, IMAGES.has(type) ? 'Show' : 'Download'));
}
