/** The form that submits a batch: JSON with an example, checked here before it is sent, and by the server. */

import { askedOf, checkBatch } from '../core/batch.js';
import { RawJson } from '../core/json-text.js';
import { get, segment } from '../ui/api.js';
import { context } from '../ui/context.js';
import { h } from '../ui/dom.js';
import { ConsoleElement } from '../ui/element.js';
import { mcpRequest } from '../ui/mcp.js';
import { announce, commandLine, problem } from '../ui/parts.js';

const SCOPE = 'execute:batchtools:batchtools';
const EXAMPLE = `{
  "operations": [
    { "id": "keep", "type": "memory.store", "args": { "namespace": "notes", "key": "a", "value": 1 } },
    { "id": "look", "type": "memory.get", "args": { "namespace": "notes", "key": "a" }, "needs": ["keep"] },
    { "id": "say", "type": "agent.call", "args": { "agent": "echo", "input": "hello" }, "retries": 2 }
  ],
  "priority": "normal"
}
`;

class NuncioBatchForm extends ConsoleElement {
  /** A batch that ran, whose operations are edited. */
  from = '';
  text = '';
  busy = false;
  /** What is wrong with the text as it was when it was checked. @type {string[] | null} */
  problems = null;
  checkedText = '';
  /** @type {unknown} */
  error = null;
  onClose = () => {};

  connected() {
    this.text = this.from ? '' : EXAMPLE;
    if (this.from) void this.readBatch();
  }

  async readBatch() {
    this.error = null;
    try {
      const event = await get(`tasks/${segment(this.from)}/events/1`);
      const { data } = askedOf(/** @type {any} */ ({ history: [event.data] }));
      this.text = JSON.stringify(data, null, 2);
      const area = this.querySelector('textarea');
      if (area) area.value = this.text;
    } catch (error) {
      this.error = error;
    }
    this.changed();
  }

  check() {
    const checked = checkBatch(this.text);
    Object.assign(this, { problems: checked.problems, checkedText: this.text, error: null });
    if (checked.problems.length === 0) announce('Nothing is wrong with it here; the server checks the rest');
    this.update();
    return checked.problems.length === 0 ? checked.text : null;
  }

  async submit() {
    const text = this.busy ? null : this.check();
    if (text === null) return;
    this.busy = true;
    this.update();
    try {
      // As typed: no number passes through a double.
      const result = await mcpRequest('tools/call', { name: 'batch_submit', arguments: new RawJson(text) });
      if (result.isError) throw new Error(result.content?.[0]?.text ?? 'the batch was not taken');
      context.go(`batches/${segment(result.structuredContent.batchId)}`);
    } catch (error) {
      this.error = error;
    }
    this.busy = false;
    this.update();
  }

  view() {
    const may = context.may(SCOPE);
    const old = this.text !== this.checkedText;
    return h(
      'section',
      { class: 'editor', 'aria-label': 'New batch' },
      h('div', { class: 'bar' }, h('h2', null, this.from ? 'Batch to submit again' : 'New batch'), h('button', { type: 'button', class: 'quiet', onclick: () => this.onClose() }, 'Close')),
      h(
        'form',
        { onsubmit: (/** @type {Event} */ event) => (event.preventDefault(), void this.submit()) },
        h('label', null, 'Batch as JSON', h('textarea', { class: 'code', rows: 11, spellcheck: 'false', autocomplete: 'off', prop: { value: this.text }, oninput: (/** @type {any} */ event) => ((this.text = event.target.value), this.changed()) })),
        h('p', { class: 'bar' }, h('button', { type: 'button', disabled: this.busy, onclick: () => this.check() }, 'Check'), h('button', { class: 'main', disabled: this.busy || !may, title: may ? null : `needs the scope ${SCOPE}` }, this.busy ? 'Sending…' : 'Submit'), !may && h('span', { class: 'note' }, `Submitting needs the scope ${SCOPE}`)),
      ),
      this.problems && this.problems.length > 0 ? h('div', { class: `problem ${old ? 'old' : ''}`, role: 'alert' }, h('p', { class: 'problem-title' }, old ? 'Not sent, before the last change' : 'Not sent'), h('ul', { class: 'problems' }, ...this.problems.map((one) => h('li', { class: 'plain' }, one)))) : null,
      this.problems?.length === 0 && !old && !this.error ? h('p', { class: 'sent', role: 'status' }, '✓ Nothing is wrong with it here; the server checks the rest when it is submitted.') : null,
      this.error ? problem(this.error, () => (this.text ? void this.submit() : void this.readBatch())) : null,
      commandLine('nuncio batch submit batch.json --watch'),
    );
  }
}

customElements.define('nuncio-batch-form', NuncioBatchForm);
