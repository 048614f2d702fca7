/** The list of SPARC workflows, each with how far it has come, and the form that starts one. */

import { phaseStates, workflowPath } from '../core/workflow.js';
import { clock } from '../ui/api.js';
import { context, link } from '../ui/context.js';
import { h } from '../ui/dom.js';
import { ConsoleElement } from '../ui/element.js';
import { callTool, mcpBody } from '../ui/mcp.js';
import { announce, commandLine, copyButton, empty, loading, problem, stateMark, time } from '../ui/parts.js';
import './workflow.js';
import './workflow-template.js';

const PAGE = 50;

class NuncioWorkflows extends ConsoleElement {
  search = '';
  /** @type {string | null} */
  loaded = null;
  /** @type {any[] | null} */
  rows = null;
  /** @type {string | null} */
  next = null;
  /** @type {unknown} */
  error = null;
  selected = -1;
  readAt = '';
  isStarting = false;
  typed = { goal: '', name: '', batch: false };
  message = '';
  isBusy = false;

  connected() {
    this.listenTo(context, 'settings', () => this.changed());
    this.listenTo(window, 'focus', () => void this.load());
  }

  get prefix() {
    return new URLSearchParams(this.search).get('prefix') ?? '';
  }

  async load(after = '') {
    const { prefix } = this;
    this.loaded = prefix;
    try {
      const page = await callTool('sparc_list', { ...(prefix && { prefix }), ...(after && { after }), limit: PAGE });
      if (this.loaded !== prefix) return;
      Object.assign(this, { rows: [...(after ? (this.rows ?? []) : []), ...page.workflows], next: page.next, error: null, readAt: new Date(clock.now()).toISOString() });
    } catch (error) {
      this.error = error;
    }
    this.changed();
  }

  async start() {
    const { goal, name, batch } = this.typed;
    this.message = goal.trim() === '' ? 'a goal is needed: what is to be achieved' : '';
    if (this.message) return this.update();
    this.isBusy = true;
    this.update();
    try {
      const { contextId } = await callTool('sparc_start', { goal, ...(name && { contextId: name }), ...(batch && { batchtoolsEnabled: true }) });
      this.typed = { goal: '', name: '', batch: false };
      announce(`Workflow ${contextId} has started`);
      context.go(workflowPath(contextId));
    } catch (error) {
      this.message = error instanceof Error ? error.message : String(error);
    }
    this.isBusy = false;
    this.update();
  }

  /** @param {string} key */
  onKey(key) {
    const one = /** @type {any} */ (this.querySelector(':scope > nuncio-workflow'));
    if (one) return one.onKey(key);
    const links = [.../** @type {NodeListOf<HTMLElement>} */ (this.querySelectorAll('.records a'))];
    if (key === '/') /** @type {HTMLElement | null} */ (this.querySelector('input[type=search]'))?.focus();
    else if (key === 'j' || key === 'k') {
      this.selected = Math.max(0, Math.min(links.length - 1, this.selected + (key === 'j' ? 1 : -1)));
      links[this.selected]?.focus();
    } else if (key === 'n') this.toggleStart(true);
    else if (key === 'Escape' && this.isStarting) this.toggleStart(false);
    else if (key === 'r') void this.load();
    else return false;
    return true;
  }

  /** @param {boolean} isStarting */
  toggleStart(isStarting) {
    this.isStarting = isStarting;
    this.update();
    if (isStarting) this.querySelector('textarea')?.focus();
  }

  view() {
    const query = new URLSearchParams(this.search);
    const id = query.get('id');
    if (id) return h('nuncio-workflow', { key: `workflow ${id}`, prop: { recordId: id, tab: query.get('tab') ?? '', search: this.search } });
    if (this.loaded !== this.prefix) void this.load();
    const filter = (/** @type {SubmitEvent} */ event) => {
      event.preventDefault();
      const input = /** @type {HTMLInputElement | null} */ (this.querySelector('input[type=search]'));
      context.go(input?.value ? `sparc?${new URLSearchParams({ prefix: input.value })}` : 'sparc');
    };
    return [
      h('div', { class: 'bar title' }, h('h1', null, 'Workflows'), h('button', { type: 'button', 'aria-expanded': this.isStarting, title: 'Key: n', onclick: () => this.toggleStart(!this.isStarting) }, 'Start a workflow')),
      h('div', { key: 'start' }, this.isStarting && this.startForm()),
      h('div', { class: 'filters' }, h('form', { role: 'search', onsubmit: filter }, h('input', { type: 'search', 'aria-label': 'Workflows whose name begins with', placeholder: 'Names that begin with  /', prop: { value: this.prefix } })), this.readAt && h('span', { class: 'note' }, 'read at ', time(this.readAt), ' ', h('button', { type: 'button', class: 'quiet', onclick: () => void this.load() }, 'Read again'))),
      h('div', { key: 'error' }, this.error ? problem(this.error, () => this.load()) : null),
      this.content(),
    ];
  }

  startForm() {
    const set = (/** @type {'goal' | 'name'} */ name) => (/** @type {any} */ event) => (this.typed[name] = event.target.value);
    return h(
      'form',
      { class: 'answer panel', novalidate: true, onsubmit: (/** @type {SubmitEvent} */ event) => (event.preventDefault(), this.isBusy || void this.start()) },
      this.message && h('p', { class: 'problem', role: 'alert' }, this.message),
      h('label', null, 'Goal', h('textarea', { rows: 3, 'aria-required': 'true', 'aria-invalid': this.message && !this.typed.goal.trim() ? 'true' : null, prop: { value: this.typed.goal }, oninput: set('goal') })),
      h('label', null, 'Name', h('input', { type: 'text', autocomplete: 'off', placeholder: 'one is made if it is empty', prop: { value: this.typed.name }, oninput: set('name') })),
      h('label', { class: 'check' }, h('input', { type: 'checkbox', prop: { checked: this.typed.batch }, onchange: (/** @type {any} */ event) => (this.typed.batch = event.target.checked) }), ' A run of the agents stores the artifacts in memory, namespace sparc-workflow'),
      h('p', { class: 'bar' }, h('button', { class: 'main', disabled: this.isBusy }, 'Start'), h('button', { type: 'button', onclick: () => this.toggleStart(false) }, 'Discard')),
    );
  }

  content() {
    const { rows, prefix } = this;
    if (!rows) return this.error ? null : loading('workflows');
    if (rows.length === 0) {
      if (prefix) return empty('No such workflow', `No workflow that you may read begins with ${JSON.stringify(prefix)}. The scope read:sparc:NAME shows one.`);
      return h('div', null, empty('No workflow yet', 'A workflow goes through five phases, each with a gate that checks its artifact. This starts one, and this shows what its first artifact needs:', 'nuncio sparc start "A URL shortener whose links expire" --context short'), commandLine('nuncio sparc template specification --example > spec.json'), h('nuncio-phase-template', { prop: { phase: 'specification', isOpen: true } }));
    }
    return h(
      'div',
      { class: this.error ? 'old' : '' },
      h('ul', { class: 'records' }, ...rows.map((row) => this.row(row))),
      this.next && h('button', { type: 'button', onclick: () => this.load(/** @type {string} */ (this.next)) }, 'Show more'),
      prefix ? null : commandLine('nuncio sparc list'),
      h('p', { class: 'note' }, 'MCP call sparc_list ', copyButton(JSON.stringify(mcpBody('tools/call', { name: 'sparc_list', arguments: prefix ? { prefix } : {} })), 'Copy the MCP call')),
    );
  }

  /** @param {any} row */
  row(row) {
    const states = phaseStates(row);
    const passed = states.filter(({ status }) => status === 'passed').length;
    return h(
      'li',
      { key: row.contextId },
      h('a', { href: link(workflowPath(row.contextId)) }, row.contextId),
      h('span', { class: 'track', role: 'img', 'aria-label': `${passed} of 5 phases passed` }, ...states.map(({ status }) => h('span', { class: `track-${status}` }))),
      row.done ? stateMark('passed') : h('span', null, stateMark(row.status), ` ${row.currentPhase}`),
      h('span', { class: 'goal' }, row.goal),
      h('span', { class: 'note' }, 'changed ', time(row.lastModified)),
    );
  }
}

customElements.define('nuncio-workflows', NuncioWorkflows);
