/**
 * The editor of a plan: TOML or JSON is checked by the server before it is run, and all that is wrong is shown, a circle as
 * its path. A plan that ran can be brought back here, and a request in words can be made into a plan.
 */

import { circlePath, readPlan } from '../core/plan.js';
import { ApiError, segment } from '../ui/api.js';
import { context } from '../ui/context.js';
import { h } from '../ui/dom.js';
import { ConsoleElement } from '../ui/element.js';
import { callTool, mcpRequest } from '../ui/mcp.js';
import { announce, commandLine, problem } from '../ui/parts.js';
import '../ui/plan-graph.js';

const RUN_SCOPE = 'execute:a2a:orchestrator';
const EXAMPLE = `name = "trip to Lisbon"
request = "Lisbon"

[[tasks]]
id = "sights"
agent = "research_agent"
input = "What to see in {{ request }}"

[[tasks]]
id = "booking"
agent = "travel_agent"
input = { data = { destination = "{{ request }}" } }

[[tasks]]
id = "summary"
needs = ["sights", "booking"]
agent = "echo"
input = "{{ tasks.booking.text }}"
`;

class NuncioPlanEditor extends ConsoleElement {
  /** A plan that ran, whose file is edited. */
  from = '';
  text = '';
  busy = '';
  /** The answer of the check, of the text as it was then. @type {any} */
  checked = null;
  checkedText = '';
  /** The drawing of a plan in TOML, which is not read here. */
  drawing = '';
  /** @type {unknown} */
  error = null;
  onClose = () => {};

  connected() {
    this.text = this.from ? '' : EXAMPLE;
    if (this.from) void this.work('reading', () => this.readPlan());
  }

  async readPlan() {
    const { plan } = await callTool('plan_status', { planId: this.from });
    if (!plan) throw new ApiError(400, { message: 'that task has no plan' });
    this.set(JSON.stringify(plan, null, 2));
  }

  /** @param {string} text */
  set(text) {
    this.text = text;
    const area = this.querySelector('textarea');
    if (area) area.value = text;
  }

  /** One act at a time; a refusal is shown here, and what was typed stays. @param {string} busy @param {() => Promise<void>} act */
  async work(busy, act) {
    if (this.busy) return;
    Object.assign(this, { busy, error: null });
    this.update();
    try {
      await act();
    } catch (error) {
      this.error = error;
    }
    this.busy = '';
    this.update();
  }

  async check() {
    const { text } = this;
    const answer = await callTool('plan_check', { plan: text });
    Object.assign(this, { checked: answer, checkedText: text, drawing: '' });
    announce(answer.valid ? 'The plan is valid' : `${answer.problems.length} problems`);
    if (answer.valid && !jsonOf(text)) this.drawing = (await callTool('plan_show', { plan: text, format: 'text' })).drawing;
    return answer.valid;
  }

  async run() {
    const { text } = this;
    if (!(await this.check())) return;
    // In the background: the plan goes on when this page is closed.
    const result = await mcpRequest('tools/call', { name: 'plan_run', arguments: { plan: text }, _meta: { 'nuncio/background': true } });
    const task = result._meta?.['nuncio/taskId'];
    if (result.isError || !task) throw new ApiError(400, { message: result.content?.[0]?.text ?? 'the plan was not taken' });
    context.go(`plans/${segment(task)}`);
  }

  async make() {
    const input = this.querySelector('input');
    const request = input?.value.trim() ?? '';
    if (!request) return input?.focus();
    const { file } = await callTool('plan_make', { request });
    this.set(file);
    await this.check();
  }

  view() {
    const may = context.may(RUN_SCOPE);
    const submit = (/** @type {() => Promise<any>} */ act, /** @type {string} */ busy) => (/** @type {Event} */ event) => (event.preventDefault(), void this.work(busy, act));
    return h(
      'section',
      { class: 'editor', 'aria-label': 'New plan' },
      h('div', { class: 'bar' }, h('h2', null, this.from ? 'Plan to run again' : 'New plan'), h('button', { type: 'button', class: 'quiet', onclick: () => this.onClose() }, 'Close')),
      h('form', { class: 'bar', onsubmit: submit(() => this.make(), 'making') }, h('input', { class: 'wide', 'aria-label': 'Request in words', placeholder: 'Request in words, to make a plan of' }), h('button', { disabled: Boolean(this.busy) }, this.busy === 'making' ? 'Making…' : 'Make')),
      h(
        'form',
        { onsubmit: submit(() => this.run(), 'running') },
        h('label', null, 'Plan as TOML or JSON', h('textarea', { class: 'code', rows: 14, spellcheck: 'false', autocomplete: 'off', prop: { value: this.text }, oninput: (/** @type {any} */ event) => ((this.text = event.target.value), this.changed()) })),
        h(
          'p',
          { class: 'bar' },
          h('button', { type: 'button', disabled: Boolean(this.busy), onclick: submit(() => this.check(), 'checking') }, this.busy === 'checking' ? 'Checking…' : 'Check'),
          h('button', { class: 'main', disabled: Boolean(this.busy) || !may, title: may ? null : `needs the scope ${RUN_SCOPE}` }, this.busy === 'running' ? 'Starting…' : 'Run'),
          !may && h('span', { class: 'note' }, `Running needs the scope ${RUN_SCOPE}`),
        ),
      ),
      this.error ? problem(this.error, () => void this.work('checking', async () => void (await this.check()))) : null,
      this.verdict(),
      commandLine('nuncio plan check my.toml'),
      commandLine('nuncio plan run my.toml'),
    );
  }

  verdict() {
    const { checked } = this;
    if (!checked) return null;
    const old = this.text !== this.checkedText;
    if (!checked.valid) {
      return h('div', { class: `problem ${old ? 'old' : ''}`, role: 'alert' }, h('p', { class: 'problem-title' }, `${checked.problems.length} ${checked.problems.length === 1 ? 'problem' : 'problems'}${old ? ', before the last change' : ''}`), h('ul', { class: 'problems' }, ...checked.problems.map(problemItem)));
    }
    const plan = readPlan(jsonOf(this.checkedText) ?? {});
    return h(
      'div',
      { class: `checked ${old ? 'old' : ''}`, role: 'status' },
      h('p', null, h('strong', null, `✓ Valid: ${checked.tasks} ${checked.tasks === 1 ? 'subtask' : 'subtasks'}${old ? ', before the last change' : ''}`), checked.longestWay?.length > 1 && h('span', { class: 'note' }, ` · longest way: ${checked.longestWay.join(' → ')}`)),
      plan.tasks.length > 0 ? h('nuncio-plan-graph', { prop: { tasks: plan.tasks, parts: new Map() } }) : this.drawing ? h('pre', { tabindex: 0 }, this.drawing) : null,
    );
  }
}

/** @param {{task: string | null, key: string, why: string}} found */
function problemItem({ task, key, why }) {
  const path = circlePath(why);
  const place = h('span', { class: 'note' }, task ? h('code', null, task) : 'plan', ' · ', h('code', null, key), ' ');
  if (path.length === 0) return h('li', null, place, h('span', { class: 'plain' }, why));
  return h('li', null, place, 'these need each other: ', h('span', { class: 'circle' }, ...path.flatMap((id, at) => [at > 0 ? ' → ' : null, h('code', null, id)])));
}

/** The value of a text that is JSON; null of any other. @param {string} text */
function jsonOf(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

customElements.define('nuncio-plan-editor', NuncioPlanEditor);
