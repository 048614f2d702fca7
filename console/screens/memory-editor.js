/**
 * The editor of an entry of the memory bank. It stores only over the version that it began with. If another caller has
 * written meanwhile, it shows both values beside each other, and the person decides; what was typed stays.
 */

import { indentJson, jsonProblem, RawJson } from '../core/json-text.js';
import { readTtl } from '../core/memory.js';
import { h } from '../ui/dom.js';
import { ConsoleElement } from '../ui/element.js';
import { callTool } from '../ui/mcp.js';
import { readEntry } from '../ui/memory-bank.js';
import { announce } from '../ui/parts.js';
import '../ui/diff-view.js';

/** @typedef {import('../ui/memory-bank.js').Entry} Entry */

class NuncioMemoryEditor extends ConsoleElement {
  namespace = '';
  /** The key of an existing entry; '' where a new one is made. */
  name = '';
  /** @type {Entry | null} What the editor begins with. */
  entry = null;
  /** Whether the caller may write here, as far as the server said. */
  mayWrite = true;
  /** @type {(namespace: string, key: string) => void} */
  onStored = () => {};
  onClose = () => {};
  /** Called when it stores over another version than before. */
  onRebased = () => {};

  /** The version over which it stores; 0: there must be none. */
  expected = 0;
  typed = { namespace: '', name: '', value: '', ttl: '' };
  /** @type {Map<string, string>} */
  problems = new Map();
  message = '';
  isBusy = false;
  /** The entry that is stored by now, instead of the expected version; null: there is none any more. @type {{entry: Entry | null} | null} */
  conflict = null;
  /** What was typed before the stored value was taken over. @type {{value: string, ttl: string} | null} */
  mine = null;

  hasBegun = false;

  connected() {
    if (this.hasBegun) return;
    this.hasBegun = true;
    const { metadata, text } = this.entry ?? {};
    this.expected = metadata?.version ?? 0;
    this.typed = { namespace: this.namespace, name: this.name, value: text === undefined ? '' : indentJson(text), ttl: metadata?.ttl ? String(metadata.ttl) : '' };
  }

  check() {
    const { namespace, name, value, ttl } = this.typed;
    this.problems.clear();
    if (namespace === '') this.problems.set('namespace', 'a name is needed');
    if (name === '') this.problems.set('name', 'a key is needed');
    const problem = value.trim() === '' ? 'a JSON value is needed, such as "text", 12 or {"a": 1}' : jsonProblem(value);
    if (problem) this.problems.set('value', problem);
    if (ttl.trim() !== '' && readTtl(ttl) === null) this.problems.set('ttl', 'whole seconds, or 15m, 2h, 7d');
    return this.problems.size === 0;
  }

  async store() {
    this.message = '';
    if (!this.check()) return this.showProblem();
    const { namespace, name, value, ttl } = this.typed;
    const seconds = readTtl(ttl);
    this.isBusy = true;
    this.update();
    try {
      const stored = await callTool('memory_store', { namespace, key: name, value: new RawJson(value), ...(seconds && { ttl: seconds }), expectedVersion: this.expected });
      announce(`Stored version ${stored.version}`);
      this.isBusy = false;
      this.onStored(namespace, name);
      return;
    } catch (error) {
      await this.takeRefusal(error);
    }
    this.isBusy = false;
    this.showProblem();
  }

  /** The server refuses a store over another version in words; the stored entry shows whether it was that. @param {unknown} error */
  async takeRefusal(error) {
    const { namespace, name } = this.typed;
    const current = await readEntry(namespace, name).catch(() => undefined);
    const version = current?.metadata.version ?? 0;
    if (current !== undefined && version !== this.expected) {
      this.conflict = { entry: current };
      this.expected = version;
      this.onRebased();
    } else this.message = error instanceof Error ? error.message : String(error);
  }

  showProblem() {
    this.update();
    /** @type {HTMLElement | null} */ (this.querySelector('[aria-invalid=true], .problem, .conflict'))?.focus();
  }

  /** The stored value comes into the editor; what was typed can be brought back. */
  takeTheirs() {
    const theirs = this.conflict?.entry;
    this.mine = { value: this.typed.value, ttl: this.typed.ttl };
    this.conflict = null;
    if (!theirs) return this.onClose();
    this.setValue({ value: indentJson(theirs.text), ttl: theirs.metadata.ttl ? String(theirs.metadata.ttl) : '' });
  }

  bringBack() {
    if (this.mine) this.setValue(this.mine);
    this.mine = null;
  }

  /** @param {{value: string, ttl: string}} next */
  setValue(next) {
    Object.assign(this.typed, next);
    /** @type {HTMLElement | null} */ (document.activeElement)?.blur();
    this.update();
    this.querySelector('textarea')?.focus();
  }

  view() {
    const isNew = this.name === '';
    const submit = (/** @type {SubmitEvent} */ event) => {
      event.preventDefault();
      if (!this.isBusy && this.mayWrite) void this.store();
    };
    const rule = this.expected === 0 ? 'Stored only if there is no entry with this key.' : `Stored only if the entry is still at version ${this.expected}. The TTL counts from this write on; old values are not kept.`;
    return h(
      'form',
      { class: 'answer entry-form', novalidate: true, 'aria-label': isNew ? 'New entry' : `Edit ${this.name}`, onsubmit: submit },
      h('h2', null, isNew ? 'New entry' : 'Edit'),
      h('div', { key: 'said' }, this.message && h('p', { class: 'problem', role: 'alert', tabindex: -1 }, this.message), this.conflict && this.conflictView(this.conflict.entry)),
      isNew && h('div', { class: 'bar' }, this.field('namespace', 'Namespace'), this.field('name', 'Key')),
      this.valueField(),
      this.field('ttl', 'TTL', 'none: until it is deleted'),
      h('p', { class: 'note' }, rule),
      h(
        'p',
        { class: 'bar' },
        h('button', { class: this.conflict ? '' : 'main', disabled: this.isBusy || !this.mayWrite, title: this.mayWrite ? null : `needs the scope write:memory:${this.namespace}` }, this.conflict ? this.overwriteText() : 'Store'),
        h('button', { type: 'button', onclick: () => this.onClose() }, 'Discard'),
        this.mine && h('button', { type: 'button', class: 'quiet', onclick: () => this.bringBack() }, 'Bring back what I typed'),
        !this.mayWrite && h('span', { class: 'note' }, `Needs the scope write:memory:${this.namespace}.`),
      ),
    );
  }

  overwriteText() {
    return this.expected === 0 ? 'Store mine as a new entry' : `Overwrite version ${this.expected} with mine`;
  }

  /** @param {Entry | null} theirs */
  conflictView(theirs) {
    const name = theirs ? `version ${theirs.metadata.version}` : '';
    return h(
      'section',
      { class: 'conflict', role: 'alert', tabindex: -1, 'aria-label': 'Conflict' },
      h('p', { class: 'problem-title' }, theirs ? `Not stored: another caller has written ${name} meanwhile.` : 'Not stored: the entry was deleted or has expired meanwhile.'),
      theirs && h('nuncio-diff', { prop: { left: indentJson(theirs.text), right: indentJson(this.typed.value), names: [`${name}, stored`, 'yours'] } }),
      h('p', { class: 'bar' }, h('button', { type: 'button', onclick: () => this.takeTheirs() }, theirs ? `Take ${name}` : 'Leave it deleted'), h('span', { class: 'note' }, `Or edit yours below, and overwrite.`)),
    );
  }

  /** @param {'namespace' | 'name' | 'ttl'} field @param {string} label @param {string} [hint] */
  field(field, label, hint = '') {
    const problem = this.problems.get(field);
    const about = `editor-${field}`;
    return h(
      'label',
      { key: field },
      h('span', { class: 'label' }, label),
      h('input', { type: 'text', autocomplete: 'off', spellcheck: 'false', placeholder: hint || null, 'aria-invalid': problem ? 'true' : null, 'aria-describedby': problem ? about : null, prop: { value: this.typed[field] }, oninput: (/** @type {any} */ event) => (this.typed[field] = event.target.value) }),
      problem && h('span', { class: 'field-problem', id: about }, problem),
    );
  }

  valueField() {
    const problem = this.problems.get('value');
    const lines = Math.max(4, Math.min(18, this.typed.value.split('\n').length + 1));
    return h(
      'label',
      { key: 'value', class: 'wide' },
      h('span', { class: 'label' }, 'Value as JSON'),
      h('textarea', { rows: lines, class: 'code', spellcheck: 'false', 'aria-invalid': problem ? 'true' : null, 'aria-describedby': problem ? 'editor-value' : null, prop: { value: this.typed.value }, oninput: (/** @type {any} */ event) => (this.typed.value = event.target.value) }),
      problem && h('span', { class: 'field-problem', id: 'editor-value' }, problem),
    );
  }
}

customElements.define('nuncio-memory-editor', NuncioMemoryEditor);
