/**
 * What can be done with a workflow: submit the artifact of the current phase, let the agents go on, go back with a reason.
 * A refusal of the gate stands beside what was typed, and each violation leads to its place in it.
 */

import { indentJson, jsonProblem, memberText, offsetOf, RawJson } from '../core/json-text.js';
import { earlierPhases, versionsOf } from '../core/workflow.js';
import { h } from '../ui/dom.js';
import { ConsoleElement } from '../ui/element.js';
import { callTool, readResource } from '../ui/mcp.js';
import { announce, commandLine, quote } from '../ui/parts.js';
import { readTemplate } from './workflow-template.js';
import { verdictView } from './workflow-verdict.js';

/** What is typed outlives a change of the tab. @type {Map<string, {artifact: string, reason: string}>} */
const drafts = new Map();

class NuncioWorkflowActs extends ConsoleElement {
  /** @type {any} */
  workflow = null;
  phase = '';
  mayWrite = true;
  onChanged = () => {};
  isBusy = false;
  message = '';
  note = '';
  /** The gate's answer to the last submission. @type {any} */
  answer = null;
  to = '';

  get draft() {
    const key = `${this.workflow.contextId} ${this.phase}`;
    const draft = drafts.get(key) ?? { artifact: '', reason: '' };
    drafts.set(key, draft);
    return draft;
  }

  /** @param {string} note @param {() => Promise<void>} work */
  async act(note, work) {
    if (this.isBusy) return;
    Object.assign(this, { isBusy: true, message: '', note });
    this.update();
    try {
      await work();
    } catch (error) {
      this.note = '';
      this.message = error instanceof Error ? error.message : String(error);
    }
    this.isBusy = false;
    this.update();
    if (this.message) /** @type {HTMLElement | null} */ (this.querySelector('.problem'))?.focus();
  }

  submit() {
    const { contextId } = this.workflow;
    const { artifact } = this.draft;
    const wrong = artifact.trim() === '' ? 'an artifact is needed: begin with the example, or with a version' : jsonProblem(artifact);
    return this.act(this.phase === 'refinement' ? 'The gate checks it, and runs the tests' : 'The gate checks it', async () => {
      if (wrong) throw new Error(wrong);
      this.answer = await callTool('sparc_submit', { contextId, phase: this.phase, artifact: new RawJson(artifact) });
      this.note = this.answer.passed ? `Version ${this.answer.version} has passed the gate.` : `Version ${this.answer.version} was refused.`;
      if (this.answer.passed) drafts.delete(`${contextId} ${this.phase}`);
      announce(this.note);
      this.onChanged();
    });
  }

  back() {
    const { contextId } = this.workflow;
    const { draft } = this;
    const to = this.to || earlierPhases(this.workflow.currentPhase).at(-1);
    return this.act('Going back', async () => {
      if (draft.reason.trim() === '') throw new Error('a reason is needed, for those who read the history');
      await callTool('sparc_back', { contextId, to, reason: draft.reason });
      draft.reason = '';
      this.note = `Back at ${to}.`;
      announce(this.note);
      this.onChanged();
    });
  }

  run() {
    const { contextId, metadata } = this.workflow;
    return this.act('Starting', async () => {
      // In the conversation of the workflow's name, so that the page finds the task again.
      await callTool('task_send', { agent: 'coordinator', contextId, data: { contextId, goal: metadata.goal } });
      this.note = 'The coordinator works on it. Its questions appear here.';
      announce(this.note);
      this.onChanged();
    });
  }

  /** @param {() => Promise<string>} read */
  fill(read) {
    return this.act('', async () => {
      this.draft.artifact = indentJson(await read());
      const area = this.querySelector('textarea');
      if (area) area.value = this.draft.artifact;
      this.answer = null;
    });
  }

  /** Selects the place that a violation names in what is typed. @param {string} path */
  showPlace(path) {
    const area = this.querySelector('textarea');
    if (!area) return;
    const bytes = new TextEncoder().encode(area.value);
    const at = offsetOf(bytes, path);
    if (at < 0) return;
    const start = new TextDecoder().decode(bytes.subarray(0, at)).length;
    area.focus();
    area.setSelectionRange(start, area.value.indexOf('\n', start) < 0 ? area.value.length : area.value.indexOf('\n', start));
    area.scrollTop = (area.value.slice(0, start).split('\n').length - 3) * (area.scrollHeight / Math.max(1, area.value.split('\n').length));
  }

  view() {
    const { workflow, phase } = this;
    if (!workflow) return null;
    const isCurrent = workflow.currentPhase === phase && !workflow.done;
    return [
      h(
        'div',
        { key: 'said' },
        this.message && h('p', { class: 'problem', role: 'alert', tabindex: -1 }, this.message),
        h('p', { class: 'note', role: 'status' }, this.note),
        this.answer && !this.answer.passed && isCurrent && verdictView(this.answer.gate, (path) => this.showPlace(path), `version ${this.answer.version}`),
      ),
      isCurrent ? this.submitForm() : null,
      isCurrent ? h('p', { class: 'bar' }, h('button', { type: 'button', disabled: this.isBusy || !this.mayWrite, title: this.scopeNote(), onclick: () => void this.run() }, 'Let the agents go on'), h('span', { class: 'note' }, 'from this phase to the end; without a model they ask here')) : null,
      phase === workflow.currentPhase && earlierPhases(phase).length > 0 ? this.backForm() : null,
    ];
  }

  scopeNote() {
    return this.mayWrite ? null : `needs the scope write:sparc:${this.workflow.contextId}`;
  }

  submitForm() {
    const { workflow, phase, draft } = this;
    const last = versionsOf(workflow.artifacts, phase)[0];
    const example = () => readTemplate(phase).then(({ examples }) => JSON.stringify(examples[0]?.artifact ?? {}));
    const version = () => readResource(last.uri).then(({ text }) => memberText(text, 'content') ?? '{}');
    return h(
      'details',
      { key: 'submit', open: draft.artifact !== '' || !last },
      h('summary', null, `Submit the ${phase}`),
      h(
        'form',
        { class: 'answer entry-form', novalidate: true, onsubmit: (/** @type {SubmitEvent} */ event) => (event.preventDefault(), this.mayWrite && void this.submit()) },
        h('p', { class: 'bar' }, h('button', { type: 'button', class: 'quiet', onclick: () => void this.fill(example) }, 'Begin with the example'), last && h('button', { type: 'button', class: 'quiet', onclick: () => void this.fill(version) }, `Begin with version ${last.version}`)),
        h('label', { class: 'wide' }, 'Artifact as JSON', h('textarea', { rows: 10, class: 'code', spellcheck: 'false', prop: { value: draft.artifact }, oninput: (/** @type {any} */ event) => (this.draft.artifact = event.target.value) })),
        h('p', { class: 'bar' }, h('button', { class: 'main', disabled: this.isBusy || !this.mayWrite, title: this.scopeNote() }, 'Submit to the gate'), !this.mayWrite && h('span', { class: 'note' }, this.scopeNote())),
        commandLine(`nuncio sparc submit ${quote(workflow.contextId)} ${phase}.json`),
      ),
    );
  }

  backForm() {
    const { workflow, draft } = this;
    const earlier = earlierPhases(workflow.currentPhase);
    return h(
      'details',
      { key: 'back' },
      h('summary', null, 'Go back'),
      h(
        'form',
        { class: 'answer', novalidate: true, onsubmit: (/** @type {SubmitEvent} */ event) => (event.preventDefault(), this.mayWrite && void this.back()) },
        h('label', null, 'To the phase', h('select', { onchange: (/** @type {any} */ event) => (this.to = event.target.value), prop: { value: this.to || earlier.at(-1) } }, ...earlier.map((one) => h('option', { value: one, selected: one === (this.to || earlier.at(-1)) }, one)))),
        h('label', null, 'Reason, for the history', h('input', { type: 'text', autocomplete: 'off', 'aria-required': 'true', prop: { value: draft.reason }, oninput: (/** @type {any} */ event) => (this.draft.reason = event.target.value) })),
        h('p', { class: 'note' }, 'The phases after it are pending again; the artifacts stay.'),
        h('p', null, h('button', { disabled: this.isBusy || !this.mayWrite, title: this.scopeNote() }, 'Go back')),
      ),
    );
  }
}

customElements.define('nuncio-workflow-acts', NuncioWorkflowActs);
