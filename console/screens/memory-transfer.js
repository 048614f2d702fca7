/**
 * Export, import and clearing of a namespace. An export is read page by page into one file; an import is sent in parts, as
 * the command does, and says how far it came; clearing needs the namespace's name, typed.
 */

import { fileName, importParts } from '../core/memory.js';
import { h } from '../ui/dom.js';
import { download } from '../ui/download.js';
import { ConsoleElement } from '../ui/element.js';
import { callTool } from '../ui/mcp.js';
import { announce, quote, time } from '../ui/parts.js';

/** Bytes of a value of one import that a browser holds as text. */
const MAX_FILE = 256 * 1024 * 1024;
const MODES = [['overwrite', 'are overwritten'], ['keep', 'stay as they are'], ['fail', 'refuse their part of the file']];

class NuncioMemoryTransfer extends ConsoleElement {
  namespace = '';
  /** How many entries there are, if that is known. @type {number | null} */
  total = null;
  /** When that was, by the server's clock. */
  asOf = NaN;
  mayWrite = true;
  onDone = () => {};
  into = '';
  mode = 'fail';
  typedName = '';
  isBusy = false;
  note = '';
  message = '';
  /** @type {{line: number, error: string}[]} */
  errors = [];

  /** @param {string} what @param {() => Promise<string>} work gives what came of it */
  async act(what, work) {
    if (this.isBusy) return;
    Object.assign(this, { isBusy: true, message: '', errors: [], note: what });
    this.update();
    try {
      this.note = await work();
      announce(this.note);
    } catch (error) {
      this.note = '';
      this.message = error instanceof Error ? error.message : String(error);
    }
    this.isBusy = false;
    this.update();
  }

  export() {
    return this.act('Exporting', async () => {
      const { namespace } = this;
      /** @type {Blob[]} */
      const parts = [];
      let [count, after] = [0, /** @type {string | undefined} */ (undefined)];
      do {
        const page = await callTool('memory_export', { namespace, ...(after !== undefined && { after }) });
        parts.push(new Blob([page.lines]));
        count += page.count;
        after = page.next;
        this.note = `Exporting: ${count} entries`;
        this.update();
      } while (after !== undefined && this.isConnected);
      download(parts, fileName(namespace), 'application/jsonl');
      return `Exported ${count} entries to ${fileName(namespace)}.`;
    });
  }

  /** @param {File | undefined} file */
  import(file) {
    const namespace = this.namespace || this.into;
    return this.act('Importing', async () => {
      if (!namespace) throw new Error('name the namespace to import into');
      if (!file) throw new Error('choose a file of JSON Lines');
      if (file.size > MAX_FILE) throw new Error(`the file is too large for a page: nuncio memory import ${quote(namespace)} ${quote(file.name)}`);
      const parts = importParts(await file.text());
      const sums = { written: 0, kept: 0 };
      for (const [at, { lines, first, count }] of parts.entries()) {
        this.note = `Importing part ${at + 1} of ${parts.length}`;
        this.update();
        const result = await callTool('memory_import', { namespace, lines, mode: this.mode }).catch((error) => {
          if (!Array.isArray(error?.details?.errors)) throw error;
          return error.details;
        });
        sums.written += result.written;
        sums.kept += result.kept;
        if (result.failed > 0) {
          this.errors = result.errors.map((/** @type {any} */ one) => ({ ...one, line: one.line + first - 1 }));
          throw new Error(`${result.failed} lines were refused in lines ${first} to ${first + count - 1}. Written: ${sums.written}, kept as they were: ${sums.kept}; the lines after ${first + count - 1} were not sent.`);
        }
      }
      this.onDone();
      return `Imported into ${namespace}: ${sums.written} written, ${sums.kept} kept as they were.`;
    });
  }

  clear() {
    return this.act('Clearing', async () => {
      const { cleared } = await callTool('memory_clear', { namespace: this.namespace, confirm: true });
      this.typedName = '';
      this.onDone();
      return `Deleted ${cleared} entries of ${this.namespace}.`;
    });
  }

  view() {
    const { namespace } = this;
    return h(
      'section',
      { class: 'transfer', 'aria-label': 'Transfer' },
      h('div', { class: 'bar' }, namespace && h('button', { type: 'button', disabled: this.isBusy, onclick: () => void this.export() }, 'Export'), this.importView(), namespace && this.clearView()),
      h('p', { class: 'note', role: 'status' }, this.note),
      this.message && h('p', { class: 'problem', role: 'alert' }, this.message),
      this.errors.length > 0 && h('ul', { class: 'refused' }, ...this.errors.map(({ line, error }) => h('li', null, `line ${line}: ${error}`))),
    );
  }

  importView() {
    const submit = (/** @type {SubmitEvent} */ event) => {
      event.preventDefault();
      const input = this.querySelector('input[type=file]');
      void this.import(input instanceof HTMLInputElement ? input.files?.[0] : undefined);
    };
    return h(
      'details',
      { key: 'import' },
      h('summary', null, 'Import'),
      h(
        'form',
        { class: 'answer', onsubmit: submit },
        !this.namespace && h('label', null, 'Into the namespace', h('input', { type: 'text', autocomplete: 'off', prop: { value: this.into }, oninput: (/** @type {any} */ event) => (this.into = event.target.value) })),
        h('label', null, 'File of JSON Lines, as an export has them', h('input', { type: 'file' })),
        h('label', null, 'Keys that are there already', h('select', { onchange: (/** @type {any} */ event) => (this.mode = event.target.value), prop: { value: this.mode } }, ...MODES.map(([value, name]) => h('option', { value, selected: value === this.mode }, name)))),
        h('p', { class: 'note' }, 'Sent in parts of 500 lines or 512 KiB, each checked as a whole. A TTL begins anew; versions begin at 1.'),
        h('p', null, h('button', { disabled: this.isBusy || !this.mayWrite, title: this.mayWrite ? null : `needs the scope write:memory:${this.namespace}` }, 'Import')),
      ),
    );
  }

  clearView() {
    const { namespace, total } = this;
    const isTyped = this.typedName === namespace;
    const type = (/** @type {any} */ event) => {
      this.typedName = event.target.value;
      this.update();
    };
    return h(
      'details',
      { key: 'clear' },
      h('summary', null, 'Clear'),
      h(
        'form',
        { class: 'answer', onsubmit: (/** @type {SubmitEvent} */ event) => (event.preventDefault(), isTyped && this.mayWrite && void this.clear()) },
        h('p', null, `Deletes all entries of `, h('strong', null, namespace), total === null ? '. ' : `: ${total} as of `, total === null ? null : time(Number.isNaN(this.asOf) ? null : new Date(this.asOf).toISOString()), '. This cannot be undone; an export keeps a copy.'),
        h('label', null, 'Type the name of the namespace', h('input', { type: 'text', autocomplete: 'off', spellcheck: 'false', prop: { value: this.typedName }, oninput: type })),
        h('p', null, h('button', { disabled: this.isBusy || !isTyped || !this.mayWrite, title: this.mayWrite ? null : `needs the scope write:memory:${namespace}` }, 'Clear the namespace')),
      ),
    );
  }
}

customElements.define('nuncio-memory-transfer', NuncioMemoryTransfer);
