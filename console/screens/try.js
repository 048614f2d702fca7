/**
 * Try: calls any agent or tool, in a protocol of choice. Without a choice in the address it lists what can be called; with
 * one it has the form of its schema, and the answer below or beside it.
 */

import { dialectsOf, isMcp } from '../core/dialects.js';
import { indentJson } from '../core/json-text.js';
import { segment } from '../ui/api.js';
import { loadCatalog } from '../ui/catalog.js';
import { context, link } from '../ui/context.js';
import { h } from '../ui/dom.js';
import { ConsoleElement } from '../ui/element.js';
import { serverRoot } from '../ui/exchange.js';
import { callPath, deleteCall, namedCalls, storeCall } from '../ui/named-calls.js';
import { announce, commandLine, empty, loading, problem, quote } from '../ui/parts.js';
import { ValueEditor } from '../ui/value-editor.js';
import './try-answer.js';

/** @typedef {import('../ui/catalog.js').Target} Target */
/** @typedef {import('../core/dialects.js').Call} Call */

const HOWS = { stream: 'stream the answer', wait: 'wait for the answer', background: 'in the background' };

class NuncioTry extends ConsoleElement {
  /** @type {import('../ui/catalog.js').Catalog | null} */
  catalog = null;
  /** @type {unknown} */
  error = null;
  #search = '';
  query = new URLSearchParams();
  selected = -1;
  editor = new ValueEditor('try', 'Value', () => this.update());
  /** What the editor was begun for, so that a change of the dialect leaves what was typed. */
  begun = '';
  /** The call that was sent last. @type {Call | null} */
  call = null;
  /** The task of the call that was sent last, and of the first call with its key. */
  task = '';
  earlier = '';
  times = 0;
  note = '';

  set search(search) {
    this.#search = search;
    this.query = new URLSearchParams(search);
    this.beginEditor();
  }

  get search() {
    return this.#search;
  }

  connected() {
    this.listenTo(context, 'settings', () => this.changed());
    void this.load();
  }

  async load() {
    try {
      Object.assign(this, { catalog: await loadCatalog(), error: null });
      this.beginEditor();
    } catch (error) {
      this.error = error;
    }
    this.changed();
  }

  /** @returns {'agent' | 'tool' | ''} */
  get kind() {
    return this.query.has('agent') ? 'agent' : this.query.has('tool') ? 'tool' : '';
  }

  get target() {
    const { kind } = this;
    return this.catalog?.targets.find((one) => one.kind === kind && one.name === this.query.get(kind)) ?? null;
  }

  /** The dialect and the way to answer that the address names, else the first. @param {Target} target */
  chosen(target) {
    const dialects = dialectsOf(target.kind);
    const dialect = dialects.find(({ as }) => as === this.query.get('as')) ?? dialects[0];
    return { dialects, dialect, how: dialect.hows.find((how) => how === this.query.get('how')) ?? dialect.hows[0] };
  }

  beginEditor() {
    const { target } = this;
    const begun = target ? `${target.kind} ${target.name} ${this.query.get('call') ?? ''}` : '';
    if (begun === this.begun) return;
    Object.assign(this, { begun, call: null, task: '', earlier: '', times: 0, note: '' });
    if (!target) return;
    this.editor.begin(target.schema);
    const name = this.query.get('call');
    const kept = name && namedCalls().find((call) => call.name === name && call.target === target.name && call.kind === target.kind);
    if (kept) this.editor.set(kept.value);
    else if (name) this.note = `This browser has no call named ${name}.`;
  }

  /** @param {{[name: string]: string}} changes */
  show(changes) {
    const query = new URLSearchParams(this.query);
    for (const [name, value] of Object.entries(changes)) value ? query.set(name, value) : query.delete(name);
    context.go(query.size > 0 ? `try?${query}` : 'try', { replace: true });
  }

  /** @param {Target} target */
  send(target) {
    this.note = '';
    const value = this.editor.read();
    if (value === null) {
      this.update();
      /** @type {HTMLElement | null} */ (this.querySelector('.try-form :is([aria-invalid=true], .problem)'))?.focus();
      return;
    }
    const { dialect, how } = this.chosen(target);
    const id = crypto.randomUUID();
    this.call = { kind: target.kind, name: target.name, as: dialect.as, how, value, id, key: target.takesKey ? `console-${id}` : '', client: context.me?.version ?? '0' };
    Object.assign(this, { task: '', earlier: '', times: 1 });
    this.update();
  }

  /** The same bytes once more: the server knows the key. */
  sendAgain() {
    if (!this.call) return;
    Object.assign(this, { call: { ...this.call }, earlier: this.earlier || this.task, times: this.times + 1 });
    this.update();
  }

  /** @param {Target} target */
  keep(target) {
    const input = this.querySelector('input[name=call-name]');
    const name = input instanceof HTMLInputElement ? input.value.trim() : '';
    const value = this.editor.read();
    const { dialect, how } = this.chosen(target);
    const why = name === '' ? 'give it a name' : value === null ? 'the value is not valid yet' : storeCall({ name, kind: target.kind, target: target.name, as: dialect.as, how, value });
    this.note = why ? `Not kept: ${why}.` : `Kept as ${name}, in this browser.`;
    announce(this.note);
    // The address names the call from now on; what was sent stays.
    if (!why) this.begun = `${target.kind} ${target.name} ${name}`;
    if (why) this.update();
    else context.go(callPath({ name, kind: target.kind, target: target.name, as: dialect.as, how, value: '' }), { replace: true });
  }

  /** @param {string} key */
  onKey(key) {
    const rows = [.../** @type {NodeListOf<HTMLElement>} */ (this.querySelectorAll('.target'))];
    if (key === '/') /** @type {HTMLElement | null} */ (this.querySelector('.try-form > label :is(input, textarea, select), .try-form button, input'))?.focus();
    else if (key === 'o' && this.task) context.go(`tasks/${segment(this.task)}`);
    else if ((key === 'j' || key === 'k') && rows.length > 0) {
      this.selected = Math.max(0, Math.min(rows.length - 1, this.selected + (key === 'j' ? 1 : -1)));
      rows[this.selected].focus();
    } else if (key === 'a') /** @type {HTMLElement | null} */ (this.querySelector('nuncio-question :is(input, textarea, select, button)'))?.focus();
    else if (key === 'Escape' && this.kind) context.go('try');
    else return false;
    return true;
  }

  view() {
    if (!this.catalog) return this.error ? problem(this.error, () => this.load()) : loading('agents and tools');
    const { target } = this;
    if (target) return this.caller(target);
    if (this.kind) return [h('h1', null, 'Try'), empty(`There is no ${this.kind} named ${this.query.get(this.kind)} here`, h('a', { href: link('try') }, 'All agents and tools'))];
    return this.picker(this.catalog);
  }

  /** @param {import('../ui/catalog.js').Catalog} catalog */
  picker({ targets, problem: refused }) {
    const words = this.query.get('q') ?? '';
    const wanted = words.trim().toLowerCase();
    const shown = targets.filter((one) => `${one.name} ${one.title} ${one.description}`.toLowerCase().includes(wanted));
    const calls = namedCalls().filter((call) => `${call.name} ${call.target}`.toLowerCase().includes(wanted));
    const group = (/** @type {string} */ name, /** @type {Node[]} */ rows) => (rows.length > 0 ? h('section', { key: name }, h('h2', null, `${name} `, h('span', { class: 'note' }, rows.length)), h('ul', { class: 'targets' }, ...rows)) : null);
    const row = (/** @type {Target} */ one) => h('li', { key: one.name }, h('a', { class: 'target', href: link(`try?${new URLSearchParams({ [one.kind]: one.name })}`) }, h('strong', null, one.name), h('span', { class: 'note' }, one.description)));
    const of = (/** @type {string} */ kind) => shown.filter((one) => one.kind === kind).map(row);
    return [
      h('h1', null, 'Try'),
      h('p', null, h('input', { type: 'search', 'aria-label': 'Filter agents and tools', placeholder: 'Agent or tool  /', prop: { value: words }, oninput: (/** @type {any} */ event) => this.show({ q: event.target.value }) })),
      refused ? problem(refused, () => this.load()) : null,
      group('Your calls', calls.map((call) => this.callRow(call))),
      group('Agents', of('agent')),
      group('Tools', of('tool')),
      shown.length + calls.length === 0 ? empty(wanted ? 'Nothing matches' : 'Nothing can be called', wanted ? 'Names, titles and descriptions are searched.' : 'This server has no agents, or you may not see them.') : null,
    ];
  }

  /** @param {import('../ui/named-calls.js').NamedCall} call */
  callRow(call) {
    const forget = () => ((this.note = deleteCall(call.name) ?? ''), this.update());
    return h('li', { key: `call ${call.name}` }, h('a', { class: 'target', href: link(callPath(call)) }, h('strong', null, call.name), h('span', { class: 'note' }, `${call.target} · ${call.as} · ${call.value.slice(0, 80)}`)), h('button', { type: 'button', class: 'quiet', 'aria-label': `Forget ${call.name}`, onclick: forget }, 'Forget'));
  }

  /** @param {Target} target */
  caller(target) {
    const { call } = this;
    return [
      h('p', { class: 'said-head' }, h('a', { href: link('try') }, '← All agents and tools')),
      h('h1', null, target.name, ' ', h('span', { class: 'note' }, target.kind)),
      h('p', { class: 'plain lead' }, target.description),
      target.kind === 'agent' && h('p', { class: 'bar' }, h('a', { href: link(`agents/${segment(target.name)}`) }, 'Its card'), h('a', { href: link(`tasks?agent=${segment(target.name)}`) }, 'Its tasks')),
      h('div', { class: 'try' }, this.form(target), call && h('nuncio-try-answer', { prop: { earlier: this.earlier, times: this.times, onTask: (/** @type {string} */ task) => (this.task = task), call } })),
    ];
  }

  /** @param {Target} target */
  form(target) {
    const { dialects, dialect, how } = this.chosen(target);
    const choice = (/** @type {string} */ label, /** @type {string} */ name, /** @type {string} */ value, /** @type {[string, string][]} */ options) =>
      h('label', null, label, h('select', { prop: { value }, onchange: (/** @type {any} */ event) => this.show({ [name]: event.target.value }) }, ...options.map(([one, text]) => h('option', { value: one, selected: one === value }, text))));
    const keys = (/** @type {KeyboardEvent} */ event) => event.key === 'Enter' && (event.ctrlKey || event.metaKey) && (event.preventDefault(), this.send(target));
    const fields = this.editor.view();
    return h(
      'form',
      { class: 'answer try-form', novalidate: true, 'aria-label': 'Call', onkeydown: keys, oninput: () => this.changed(), onsubmit: (/** @type {SubmitEvent} */ event) => (event.preventDefault(), this.send(target)) },
      h('div', { class: 'choices' }, choice('Speak', 'as', dialect.as, dialects.map(({ as, label }) => [as, label])), choice('Answer', 'how', how, dialect.hows.map((one) => [one, HOWS[one]]))),
      ...(this.editor.model.fields.length === 0 && this.editor.json === null ? [h('p', { class: 'note' }, 'It takes no arguments.')] : fields),
      h('p', { class: 'bar' }, h('button', { class: 'main', title: 'Ctrl Enter' }, 'Send'), this.again(target), this.editor.toggleButton()),
      this.note && h('p', { class: 'note', role: 'status' }, this.note),
      h('p', { class: 'bar' }, h('input', { name: 'call-name', 'aria-label': 'Name of this call', placeholder: 'Name of this call', prop: { value: this.query.get('call') ?? '' }, onkeydown: (/** @type {KeyboardEvent} */ event) => event.key === 'Enter' && !event.ctrlKey && (event.preventDefault(), this.keep(target)) }), h('button', { type: 'button', title: 'In this browser only', onclick: () => this.keep(target) }, 'Keep in this browser')),
      target.kind === 'agent' && commandLine(this.command(target)),
      h('p', { class: 'note' }, isMcp(dialect.as) ? 'A call of MCP is a request to /mcp.' : `A message of A2A is a request to /agents/${target.name}.`, ' Its bytes and a curl are shown with the answer.'),
    );
  }

  /** @param {Target} target */
  again(target) {
    if (!this.call) return null;
    if (!target.takesKey) return h('span', { class: 'note' }, 'This tool takes no Idempotency-Key: each send is a call.');
    return h('button', { type: 'button', title: this.call.key, onclick: () => this.sendAgain() }, 'Send again, same Idempotency-Key');
  }

  /** The same as a command. @param {Target} target */
  command(target) {
    let value;
    try {
      value = JSON.parse(this.editor.draft);
    } catch {
      value = null;
    }
    const words = Object.keys(value ?? {}).length === 1 && typeof value.text === 'string' ? quote(value.text) : `--data ${quote(indentJson(this.editor.draft).replaceAll(/\n\s*/g, ' '))}`;
    return `nuncio send -a ${serverRoot().replace(/\/$/, '')} --agent ${target.name} ${words}`;
  }
}

customElements.define('nuncio-try', NuncioTry);
