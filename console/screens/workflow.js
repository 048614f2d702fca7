/**
 * One SPARC workflow: its goal, its five phases with their gates, and for the chosen phase the artifact, what to do next,
 * and the questions of agents that work on it.
 */

import { PHASES, versionsOf, workflowPath, workflowUri } from '../core/workflow.js';
import { context, link } from '../ui/context.js';
import { h } from '../ui/dom.js';
import { ConsoleElement } from '../ui/element.js';
import { FollowedResource } from '../ui/followed-resource.js';
import { mcpBody, readResource } from '../ui/mcp.js';
import { isMissing } from '../ui/memory-bank.js';
import { commandLine, copyButton, empty, loading, problem, quote, stateMark, time } from '../ui/parts.js';
import './workflow-acts.js';
import './workflow-artifact.js';
import './workflow-history.js';
import './workflow-runs.js';
import './workflow-template.js';

class NuncioWorkflow extends ConsoleElement {
  recordId = '';
  tab = '';
  search = '';
  /** @type {any} */
  workflow = null;
  /** @type {string[]} */
  permissions = [];
  /** @type {unknown} */
  error = null;
  reading = false;
  readAgain = false;
  /** @type {FollowedResource | null} */
  followed = null;

  connected() {
    this.listenTo(context, 'settings', () => this.changed());
    this.followed = new FollowedResource('workflow', () => void this.load(), this);
    this.followed.follow(workflowUri(this.recordId));
    void this.load();
  }

  async load() {
    if (this.reading) return void (this.readAgain = true);
    this.reading = true;
    try {
      const { value, meta } = await readResource(workflowUri(this.recordId));
      Object.assign(this, { workflow: value, permissions: meta.permissions ?? [], error: null });
    } catch (error) {
      this.error = error;
    }
    this.reading = false;
    this.followed?.wasRead();
    this.changed();
    if (this.readAgain) {
      this.readAgain = false;
      void this.load();
    }
  }

  /** The phase of the address, or the current one; 'history' is a tab of its own. */
  get shown() {
    return this.tab === 'history' || PHASES.some((phase) => phase === this.tab) ? this.tab : this.workflow.currentPhase;
  }

  /** @param {string} key */
  onKey(key) {
    if (!this.workflow) return false;
    const tabs = [...PHASES, 'history'];
    const at = tabs.indexOf(this.shown);
    if (key === '[' && at > 0) context.go(workflowPath(this.recordId, tabs[at - 1]));
    else if (key === ']' && at < tabs.length - 1) context.go(workflowPath(this.recordId, tabs[at + 1]));
    else if (key === 'Escape') context.go('sparc');
    else if (key === 'a') /** @type {HTMLElement | null} */ (this.querySelector('nuncio-question :is(input, textarea, select, button)'))?.focus();
    else if (key === 'e') /** @type {HTMLElement | null} */ (this.querySelector('nuncio-workflow-acts textarea'))?.focus();
    else if (key === 'r') void this.load();
    else return false;
    return true;
  }

  view() {
    const { workflow } = this;
    if (!workflow && isMissing(this.error)) return empty('Not found, or not yours', h('span', null, `There is no workflow ${JSON.stringify(this.recordId)} that you may read (read:sparc:${this.recordId}). `, h('a', { href: link('sparc') }, 'All workflows')), `nuncio sparc start "…" --context ${quote(this.recordId)}`);
    if (!workflow) return this.error ? problem(this.error, () => this.load()) : loading('the workflow');
    return [h('div', { key: 'error' }, this.error ? problem(this.error, () => this.load()) : null), this.head(workflow), this.phases(workflow), h('div', { class: `reading ${this.error ? 'old' : ''}`, key: this.shown }, ...this.content(workflow))];
  }

  /** @param {any} workflow */
  head(workflow) {
    const { metadata } = workflow;
    const fact = (/** @type {string} */ name, /** @type {import('../ui/dom.js').Child[]} */ ...value) => h('div', null, h('dt', null, name), h('dd', null, ...value));
    return h(
      'section',
      { class: 'task-head' },
      h('h1', null, h('a', { href: link('sparc') }, 'Workflows'), ' / ', this.recordId),
      h('p', { class: 'plain' }, metadata.goal),
      h(
        'dl',
        { class: 'facts' },
        fact('State', workflow.done ? 'all five phases have passed' : `phase ${PHASES.indexOf(workflow.currentPhase) + 1} of 5, ${workflow.currentPhase}`),
        fact('Started', time(metadata.startTime)),
        fact('Changed', time(metadata.lastModified)),
        metadata.batchtoolsEnabled && fact('Artifacts', 'stored in memory at the end of a run'),
        h('div', null, h('dt', { class: 'visually-hidden' }, 'Followed'), h('dd', null, this.followed?.label())),
      ),
    );
  }

  /** @param {any} workflow */
  phases(workflow) {
    const tab = (/** @type {string} */ name, /** @type {import('../ui/dom.js').Child[]} */ ...content) => h('a', { key: name, class: 'phase', href: link(workflowPath(this.recordId, name)), 'aria-current': name === this.shown ? 'page' : null }, ...content);
    return h(
      'nav',
      { class: 'phases', 'aria-label': 'Phases' },
      ...PHASES.map((phase, at) => {
        const { status } = workflow.phases[phase];
        const count = versionsOf(workflow.artifacts, phase).length;
        return tab(phase, h('span', { class: 'phase-name' }, `${at + 1} ${phase}`), stateMark(status), count > 0 && h('span', { class: 'note' }, `${count} ${count === 1 ? 'version' : 'versions'}`));
      }),
      tab('history', h('span', { class: 'phase-name' }, 'history'), h('span', { class: 'note' }, `${workflow.metadata.historyEntries} entries`)),
    );
  }

  /** @param {any} workflow @returns {import('../ui/dom.js').Child[]} */
  content(workflow) {
    const id = this.recordId;
    const phase = this.shown;
    if (phase === 'history') return [h('nuncio-workflow-history', { prop: { workflowId: id, total: workflow.metadata.historyEntries } }), commandLine(`nuncio sparc history ${quote(id)}`)];
    const state = workflow.phases[phase];
    return [
      h('p', { class: 'note' }, this.about(state), state.enteredAt && ' · entered ', state.enteredAt && time(state.enteredAt), state.passedAt && ' · passed ', state.passedAt && time(state.passedAt)),
      h('div', { key: 'reason' }, state.reason && h('p', { class: 'reason' }, state.reason)),
      h('nuncio-workflow-runs', { prop: { workflowId: id, artifacts: workflow.artifacts, onChanged: () => void this.load() } }),
      h('nuncio-workflow-acts', { key: 'acts', prop: { workflow, phase, mayWrite: this.permissions.includes('write'), onChanged: () => void this.load() } }),
      h('nuncio-phase-template', { prop: { phase } }),
      h('nuncio-artifact', { prop: { workflowId: id, phase, search: this.search, artifacts: workflow.artifacts } }),
      commandLine(`nuncio sparc show ${quote(id)}`),
      h('p', { class: 'note' }, 'MCP call sparc_status ', copyButton(JSON.stringify(mcpBody('tools/call', { name: 'sparc_status', arguments: { contextId: id } })), 'Copy the MCP call')),
    ];
  }

  /** @param {any} state */
  about(state) {
    if (state.status === 'pending') return `Waits for the phases before it. Its agent is ${state.agentType}.`;
    return `${state.attempts} ${state.attempts === 1 ? 'attempt' : 'attempts'} · agent ${state.agentType}`;
  }
}

customElements.define('nuncio-workflow', NuncioWorkflow);
