/**
 * One entry of the memory bank: its value, version, reads, and its TTL running down by the server's clock. A large value is
 * read on demand. When another caller writes, the new version is shown; an entry that is gone stays on the page, marked.
 */

import { duration } from '../core/time.js';
import { dataUri, remaining } from '../core/memory.js';
import { clock } from '../ui/api.js';
import { context } from '../ui/context.js';
import { h } from '../ui/dom.js';
import { ConsoleElement } from '../ui/element.js';
import { FollowedResource } from '../ui/followed-resource.js';
import { callTool, mcpBody } from '../ui/mcp.js';
import { readEntry, readMetadata } from '../ui/memory-bank.js';
import { bytes, commandLine, copyButton, empty, loading, problem, quote, time } from '../ui/parts.js';
import '../ui/json-view.js';
import './memory-editor.js';

const LARGE = 256 * 1024;

class NuncioMemoryEntry extends ConsoleElement {
  namespace = '';
  name = '';
  /** @type {import('../ui/memory-bank.js').Metadata | null} */
  metadata = null;
  /** The value as written; null while it is not read. @type {string | null} */
  text = null;
  /** The version whose value is in `text`. */
  version = 0;
  isGone = false;
  isLoaded = false;
  /** @type {unknown} */
  error = null;
  actError = '';
  /** As far as the server said; it decides. */
  mayWrite = true;
  isEditing = false;
  isDeleting = false;
  reading = false;
  readAgain = false;
  /** @type {FollowedResource | null} */
  followed = null;

  connected() {
    this.followed = new FollowedResource('memory-entry', () => void this.load(), this);
    this.listenTo(context, 'settings', () => this.changed());
    const seconds = setInterval(() => this.tick(), 1000);
    this.onLeave(() => clearInterval(seconds));
    this.followed.follow(dataUri(this.namespace, this.name));
    void this.load();
  }

  tick() {
    if (this.metadata?.ttl === null) return;
    this.changed();
    const left = this.metadata ? remaining(this.metadata, clock.now()) : null;
    if (left === 0 && !this.isGone) void this.load();
  }

  /** Reads the metadata, and the value if it is new and not large. @param {boolean} [large] */
  async load(large = false) {
    if (this.reading) return void (this.readAgain = true);
    this.reading = true;
    try {
      const metadata = await readMetadata(this.namespace, this.name);
      const isNew = !metadata || metadata.version !== this.version || metadata.updated !== this.metadata?.updated;
      if (metadata) this.metadata = metadata;
      if (metadata && metadata.size > LARGE && !large) {
        if (isNew) Object.assign(this, { text: null, version: 0 });
        this.isGone = false;
      } else if (metadata === null) this.isGone = true;
      else if (isNew || this.text === null) this.take(await readEntry(this.namespace, this.name));
      else this.isGone = false;
      this.error = null;
    } catch (error) {
      this.error = error;
    }
    this.reading = false;
    this.isLoaded = true;
    this.followed?.wasRead();
    this.changed();
    if (!this.readAgain) return;
    this.readAgain = false;
    void this.load();
  }

  /** @param {import('../ui/memory-bank.js').Entry | null} entry */
  take(entry) {
    if (!entry) return void (this.isGone = true);
    Object.assign(this, { metadata: entry.metadata, text: entry.text, version: entry.metadata.version, isGone: false, mayWrite: entry.permissions.includes('write') });
  }

  edit() {
    if (this.text === null || !this.mayWrite) return false;
    this.isEditing = true;
    this.update();
    this.querySelector('textarea')?.focus();
    return true;
  }

  async delete() {
    this.actError = '';
    try {
      await callTool('memory_delete', { namespace: this.namespace, key: this.name, ...(this.metadata && { expectedVersion: this.metadata.version }) });
      Object.assign(this, { isDeleting: false, isGone: true });
    } catch (error) {
      this.actError = error instanceof Error ? error.message : String(error);
    }
    void this.load();
    this.changed();
  }

  view() {
    // The places of the children are fixed, so that the editor is never moved, and stays focused.
    return [h('h2', { class: 'name' }, this.name, ' ', copyButton(this.name, 'Copy key')), h('div', { key: 'error' }, this.error ? problem(this.error, () => this.load()) : null), ...this.content()];
  }

  content() {
    const { metadata, namespace, name } = this;
    if (!metadata && !this.isLoaded) return [this.error ? null : loading('the entry')];
    if (!metadata) return [empty('There is no such entry', `Nothing is stored under this key in ${namespace}: it was never written, was deleted, or has expired.`, `nuncio memory set ${quote(namespace)} ${quote(name)} '"a value"'`)];
    const closed = () => {
      this.isEditing = false;
      this.update();
      /** @type {HTMLElement | null} */ (this.querySelector('.acts button'))?.focus();
    };
    const stored = () => {
      closed();
      void this.load();
    };
    const entry = this.text === null ? null : { metadata: { ...metadata, version: this.isGone ? 0 : metadata.version }, text: this.text, permissions: [] };
    return [
      h('div', { key: 'gone' }, this.isGone && h('p', { class: 'as-of', role: 'status' }, `This entry is gone: it was deleted or has expired. What is shown is version ${metadata.version}, as it was read.`)),
      this.facts(metadata),
      h('div', { key: 'meanwhile' }, this.isEditing && this.meanwhile()),
      h('div', { key: 'editing' }, this.isEditing && entry && h('nuncio-memory-editor', { prop: { namespace, name, entry, onStored: stored, onClose: closed, onRebased: () => this.changed() } })),
      h('div', { key: 'acts' }, !this.isEditing && this.acts(), this.actError && h('p', { class: 'problem', role: 'alert' }, this.actError)),
      h('div', { key: 'value' }, !this.isEditing && this.value(metadata)),
      commandLine(`nuncio memory get ${quote(namespace)} ${quote(name)} --verbose`),
      h('p', { class: 'note' }, 'MCP call memory_get ', copyButton(JSON.stringify(mcpBody('tools/call', { name: 'memory_get', arguments: { namespace, key: name } })), 'Copy the MCP call')),
      h('p', { class: 'note' }, 'Old values are not kept: an entry has no history.'),
    ];
  }

  /** What changed while the editor is open; its typed value stays. */
  meanwhile() {
    const editor = /** @type {any} */ (this.querySelector('nuncio-memory-editor'));
    const expected = editor?.expected ?? (this.isGone ? 0 : this.version);
    const version = this.isGone ? 0 : (this.metadata?.version ?? 0);
    if (version === expected) return null;
    return h('p', { class: 'as-of', role: 'status' }, version === 0 ? 'The entry was deleted or has expired meanwhile.' : `Version ${version} was stored meanwhile: storing yours will show both.`);
  }

  /** @param {import('../ui/memory-bank.js').Metadata} metadata */
  facts(metadata) {
    const fact = (/** @type {string} */ name, /** @type {import('../ui/dom.js').Child[]} */ ...value) => h('div', null, h('dt', null, name), h('dd', null, ...value));
    return h(
      'dl',
      { class: `facts ${this.isGone ? 'old' : ''}` },
      fact('Version', metadata.version),
      fact('TTL', this.life(metadata)),
      fact('Size', bytes(metadata.size)),
      fact('Written', time(metadata.updated)),
      fact('Created', time(metadata.created)),
      fact('Reads', h('span', { title: 'Reads by key, those of this page included; lists and searches are not counted' }, metadata.accessCount)),
      fact('Last read', time(metadata.accessed)),
      h('div', null, h('dt', { class: 'visually-hidden' }, 'Followed'), h('dd', null, this.followed?.label())),
    );
  }

  /** @param {import('../ui/memory-bank.js').Metadata} metadata */
  life(metadata) {
    const left = remaining(metadata, clock.now());
    if (left === null) return 'none, until it is deleted';
    const whole = duration(/** @type {number} */ (metadata.ttl) * 1000).replace('.0 s', ' s');
    const bar = h('progress', { max: /** @type {number} */ (metadata.ttl) * 1000, value: left, 'aria-label': 'TTL that is left' });
    return h('span', { class: 'ttl' }, bar, ' ', left === 0 ? 'expired' : `${duration(Math.ceil(left / 1000) * 1000).replace('.0 s', ' s')} of ${whole} left`);
  }

  acts() {
    const confirm = () => {
      this.isDeleting = true;
      this.update();
      /** @type {HTMLElement | null} */ (this.querySelector('.confirm button'))?.focus();
    };
    if (this.isDeleting && !this.isGone) {
      return h(
        'p',
        { class: 'bar confirm', role: 'group', 'aria-label': 'Delete' },
        h('span', null, `Delete version ${this.metadata?.version}? This cannot be undone.`),
        h('button', { type: 'button', onclick: () => void this.delete() }, 'Delete'),
        h('button', { type: 'button', class: 'quiet', onclick: () => ((this.isDeleting = false), this.update()) }, 'No'),
      );
    }
    const scope = `needs the scope write:memory:${this.namespace}`;
    const title = this.mayWrite ? null : scope;
    return h(
      'p',
      { class: 'bar acts' },
      h('button', { type: 'button', title: title ?? (this.text === null ? 'read the value first' : 'Key: e'), disabled: this.text === null || !this.mayWrite, onclick: () => this.edit() }, this.isGone ? 'Store again' : 'Edit'),
      !this.isGone && h('button', { type: 'button', title, disabled: !this.mayWrite, onclick: confirm }, 'Delete'),
      title && h('span', { class: 'note' }, `Changing it ${scope}.`),
    );
  }

  /** @param {import('../ui/memory-bank.js').Metadata} metadata */
  value(metadata) {
    if (this.text === null) {
      return h('p', { class: 'bar' }, h('span', null, `The value has ${bytes(metadata.size)}.`), h('button', { type: 'button', onclick: () => void this.load(true) }, 'Read the value'));
    }
    return h('nuncio-json', { class: this.isGone ? 'old' : '', prop: { text: this.text } });
  }
}

customElements.define('nuncio-memory-entry', NuncioMemoryEntry);
