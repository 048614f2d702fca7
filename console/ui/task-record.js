/**
 * The base of a screen about one task of a known agent, such as a plan: it follows the task's log, keeps the view in the
 * address, and asks once more before the task is canceled.
 */

import { isTerminal } from '../core/fold.js';
import { duration, millis } from '../core/time.js';
import { clock, get, segment } from './api.js';
import { context, link } from './context.js';
import { h } from './dom.js';
import { ConsoleElement } from './element.js';
import { callTool } from './mcp.js';
import { announce, copyButton, empty, loading, problem, time } from './parts.js';
import { TaskLog } from './task-log.js';

/** @typedef {import('./dom.js').Child} Child */

const POLL = 5000;

export class TaskRecord extends ConsoleElement {
  recordId = '';
  tab = '';
  search = '';
  /** The screen's path, the word for one, and the agent whose tasks it shows. */
  path = '';
  noun = '';
  agent = '';
  /** @type {TaskLog | null} */
  log = null;
  /** @type {unknown} */
  error = null;
  /** What was refused, and the act once more. @type {{error: unknown, again: () => void} | null} */
  refused = null;
  /** Whether the cancel is to be confirmed. */
  confirming = false;
  busy = false;

  connected() {
    this.listenTo(context, 'settings', () => this.changed());
    const timer = setInterval(() => (this.poll(), this.changed()), POLL);
    this.onLeave(() => clearInterval(timer));
    this.onLeave(() => this.close());
    void this.load();
  }

  /** Runs every 5 s. */
  poll() {}

  close() {
    this.log?.close();
  }

  async load() {
    this.error = null;
    this.close();
    try {
      const tail = TaskLog.requestTail(this.recordId);
      tail.catch(() => null); // Handled where it is awaited; the head's refusal comes first.
      const head = await get(`tasks/${segment(this.recordId)}`);
      if (!this.isConnected) return;
      this.log = new TaskLog(this.recordId, head, (added) => (this.grown(added), this.changed()));
      if (head.row.agent === this.agent) this.begun();
      void this.log.load(tail);
    } catch (error) {
      this.error = error;
    }
    this.changed();
  }

  /** Runs when the task is there, and is one of this screen's. */
  begun() {}

  /** Runs when the log has grown. @param {number} _added */
  grown(_added) {}

  /** The state of the task: by the log once it is whole. */
  get state() {
    const { log } = this;
    return log ? (log.isWhole ? log.fold.task.state : log.head.row.state) : '';
  }

  get ended() {
    return isTerminal(this.state);
  }

  get query() {
    return new URLSearchParams(this.search);
  }

  /** Changes the address; an empty value goes out. @param {{[name: string]: string}} values @param {string} [tab] */
  goTo(values, tab = this.tab) {
    const query = this.query;
    for (const [name, value] of Object.entries(values)) {
      if (value) query.set(name, value);
      else query.delete(name);
    }
    const text = query.toString();
    context.go(`${this.path}/${segment(this.recordId)}/${tab}${text ? `?${text}` : ''}`, { replace: true });
  }

  /** Calls a tool on this record. @param {string} tool @param {string} said @param {(answer: any) => void} [then] */
  async act(tool, said, then) {
    if (this.busy) return;
    Object.assign(this, { refused: null, confirming: false, busy: true });
    this.update();
    try {
      const answer = await callTool(tool, { [`${this.noun}Id`]: this.recordId });
      announce(said);
      then?.(answer);
    } catch (error) {
      this.refused = { error, again: () => void this.act(tool, said, then) };
    }
    this.busy = false;
    this.changed();
  }

  /** A button for an act that needs a scope. @param {string} label @param {string} scope @param {() => void} act */
  button(label, scope, act) {
    const may = context.may(scope);
    return h('button', { key: label, type: 'button', disabled: this.busy || !may, title: may ? null : `needs the scope ${scope}`, onclick: act }, label);
  }

  /** The cancel: a button first, then what it ends, and a button that does it. @param {string} scope @param {string} what */
  cancelButton(scope, what) {
    if (!this.confirming) return this.button(`Cancel ${this.noun}`, scope, () => ((this.confirming = true), this.changed()));
    return h('span', { class: 'bar as-of', role: 'alert' }, what, h('button', { type: 'button', class: 'main', onclick: () => this.act(`${this.noun}_cancel`, `The ${this.noun} is canceled`) }, `Cancel the ${this.noun}`), h('button', { type: 'button', onclick: () => ((this.confirming = false), this.changed()) }, 'Let it run'));
  }

  /** What the task said last. */
  get lastWords() {
    return (this.log?.fold.task.status_message?.parts ?? []).map((part) => part.text ?? '').join('\n').trim();
  }

  /** Why it failed, if it did. */
  reason() {
    return this.state === 'failed' || this.state === 'rejected' ? h('p', { class: 'reason' }, this.lastWords || this.log?.head.row.why || '') : null;
  }

  /** The facts that every record has. @param {TaskLog} log @returns {Child[]} */
  facts({ head: { row }, fold: { task } }) {
    const until = this.ended ? task.status_at || millis(row.statusAt) : clock.now();
    return [
      fact('Task', h('a', { href: link(`tasks/${segment(row.taskId)}`) }, h('code', null, row.taskId)), copyButton(row.taskId, 'Copy id')),
      fact('Began', time(row.createdAt)),
      fact(this.ended ? 'Took' : 'Runs for', duration(until - millis(row.createdAt))),
      row.parentId && fact('Called by', h('a', { href: link(`tasks/${segment(row.parentId)}`) }, row.parentId.slice(-8))),
    ];
  }

  /** @param {TaskLog} _log @returns {Child[]} */
  record(_log) {
    return [];
  }

  view() {
    if (this.error) return problem(this.error, () => this.load());
    const { log } = this;
    if (!log) return loading(`the ${this.noun}`);
    const { row } = log.head;
    if (row.agent !== this.agent) return empty(`This task is not a ${this.noun}`, h('a', { href: link(`tasks/${segment(row.taskId)}`) }, `It is a task of ${row.agent}`));
    const [head, ...rest] = this.record(log);
    return [head, this.refused ? problem(this.refused.error, this.refused.again) : null, log.error ? problem(log.error, () => this.load()) : null, ...rest];
  }
}

/** @param {string} name @param {...Child} value */
export function fact(name, ...value) {
  return h('div', null, h('dt', null, name), h('dd', null, ...value));
}
