/**
 * One task: its head, and its log in several readings. The scrubber shows the task as of any event; `?at=N` is a link to
 * that. The fold runs here, from the same log that the server folds.
 */

import { isTerminal } from '../core/fold.js';
import { duration, millis } from '../core/time.js';
import { clock, get, post, segment } from '../ui/api.js';
import { auditNote, noteAct } from '../ui/audit-note.js';
import { context, link } from '../ui/context.js';
import { h } from '../ui/dom.js';
import { exportLog } from '../ui/log-file.js';
import { copyButton, loading, problem, stateMark, time } from '../ui/parts.js';
import { sendAgain } from '../ui/send-again.js';
import { TaskLog } from '../ui/task-log.js';
import { LogScreen } from './log-screen.js';
import './task-family.js';
import './task-wire.js';

class NuncioTask extends LogScreen {
  tabNames = ['story', 'timeline', 'events', 'wire', 'family', 'raw'];
  /** @type {unknown} */
  error = null;
  /** @type {unknown} */
  actError = null;

  get taskId() {
    return this.recordId;
  }

  get path() {
    return `tasks/${segment(this.taskId)}`;
  }

  connected() {
    for (const what of ['settings', 'act']) this.listenTo(context, what, () => this.changed());
    this.onLeave(() => this.log?.close());
    const ages = setInterval(() => this.changed(), 5000);
    this.onLeave(() => clearInterval(ages));
    void this.load();
  }

  async load() {
    this.error = null;
    this.log?.close();
    try {
      const tail = TaskLog.requestTail(this.taskId);
      tail.catch(() => null); // Handled where it is awaited; the head's refusal comes first.
      const head = await get(`tasks/${segment(this.taskId)}`);
      if (!this.isConnected) return;
      this.log = new TaskLog(this.taskId, head, () => this.changed());
      void this.log.load(tail);
    } catch (error) {
      this.error = error;
    }
    this.changed();
  }

  cancel() {
    return this.act(async () => {
      const began = clock.now();
      await post(`tasks/${segment(this.taskId)}/cancel`, {});
      noteAct(this.taskId, began);
    });
  }

  /** The same message again, as a new task. */
  sendAgain() {
    const first = this.log?.fold.events[0];
    return this.act(async () => {
      const { agent } = this.log?.head.origin ?? {};
      const began = clock.now();
      const id = await sendAgain(agent, first?.data);
      // The audit's line of a send is about the agent.
      noteAct(id, began, `a2a://agents/${agent}`);
      context.go(`tasks/${segment(id)}`);
    });
  }

  /** Saves the log as a file; a second press stops it. */
  async export() {
    if (this.exporting) return this.exporting.abort();
    const { log } = this;
    if (!log) return;
    const controller = (this.exporting = new AbortController());
    const say = (/** @type {string} */ text) => ((this.exported = text), this.changed());
    this.onLeave(() => controller.abort());
    await this.act(async () => {
      say('Reading the log');
      try {
        say(await exportLog(log, controller.signal, (progress) => say(`Reading ${progress}`)));
      } catch (error) {
        say(controller.signal.aborted ? 'Stopped: nothing was saved.' : '');
        if (!controller.signal.aborted) throw error;
      } finally {
        this.exporting = null;
      }
    });
  }

  /** @type {AbortController | null} */
  exporting = null;
  /** What came of the export, or how far it is. */
  exported = '';

  /** @param {() => Promise<any>} work */
  async act(work) {
    this.actError = null;
    this.lastAct = work;
    try {
      await work();
    } catch (error) {
      this.actError = error;
    }
    this.changed();
  }

  /** @type {() => Promise<any>} */
  lastAct = async () => {};

  view() {
    if (this.error) return problem(this.error, () => this.load());
    const { log } = this;
    if (!log) return loading('the task');
    return [
      this.head(log),
      this.actError ? problem(this.actError, () => this.act(this.lastAct)) : null,
      auditNote(this.taskId),
      log.error ? problem(log.error, () => this.load()) : null,
      this.tabs(),
      this.scrubber(log),
      h('div', { class: 'reading', key: `reading ${this.tab}` }, this.reading(log)),
    ];
  }

  /** @param {TaskLog} log */
  head(log) {
    const { row, origin, agentVersion, node } = log.head;
    const task = this.shown(log);
    const state = log.isWhole || this.at !== null ? task.state : row.state;
    const ended = isTerminal(state);
    const first = log.fold.events[0];
    const began = millis(first?.timestamp ?? row.createdAt);
    const until = ended ? task.status_at || millis(row.statusAt) : this.at === null ? clock.now() : millis(log.eventAt(this.at)?.timestamp);
    return h(
      'section',
      { class: 'task-head' },
      h('h1', null, stateMark(state), ' ', h('span', { class: 'agent' }, origin.agent), agentVersion && h('span', { class: 'note' }, ` version ${agentVersion}`)),
      this.at !== null && this.at < log.last && h('p', { class: 'as-of' }, `As of event ${this.at} of ${log.last}. `, h('button', { type: 'button', onclick: () => this.goTo(null) }, 'Show the newest')),
      state === 'failed' || state === 'rejected' ? h('p', { class: 'reason' }, reason(task) || row.why || '') : null,
      h(
        'dl',
        { class: 'facts' },
        ...fact('Task', h('code', null, row.taskId), copyButton(row.taskId, 'Copy id')),
        ...fact('Context', h('a', { href: link(`tasks?context=${segment(origin.context)}`) }, origin.context)),
        ...fact('Owner', origin.owner),
        ...fact('Created in', origin.dialect),
        ...fact('Began', time(row.createdAt)),
        ...fact(ended ? 'Took' : this.at === null ? 'Runs for' : 'Ran for', duration(until - began)),
        ...(row.attempts ? fact('Attempts', row.attempts) : []),
        ...(node ? fact('Node', h('code', { title: node }, node.slice(-8))) : []),
        ...(row.parentId ? fact('Called by', h('a', { href: link(`tasks/${segment(row.parentId)}`) }, row.parentId.slice(-8))) : []),
        ...(origin.trace ? fact('Trace', log.head.traceUrl && /^https?:\/\//.test(log.head.traceUrl) ? h('a', { href: log.head.traceUrl, rel: 'noopener noreferrer', target: '_blank' }, origin.trace) : h('code', null, origin.trace)) : []),
        ...fact('Log', log.completeness, log.fold.cutAt !== null && ` (exact before event ${log.fold.cutAt}, which is too large)`),
      ),
      this.acts(log, ended),
    );
  }

  /** @param {TaskLog} log @param {boolean} ended */
  acts(log, ended) {
    const button = (/** @type {string} */ label, /** @type {string} */ scope, /** @type {() => void} */ act) => h('button', { type: 'button', disabled: !context.may(scope), title: context.may(scope) ? null : `needs the scope ${scope}`, onclick: act }, label);
    const first = log.fold.events[0];
    return h(
      'p',
      { class: 'bar' },
      !log.ended && !isTerminal(log.isWhole ? log.fold.task.state : log.head.row.state) && button('Cancel task', 'write:a2a:tasks', () => void this.cancel()),
      ended && log.head.origin.owner === context.owner && first?.type === 'message' && first.data && button('Send again', 'write:a2a:tasks', () => void this.sendAgain()),
      h('button', { type: 'button', onclick: () => void this.export() }, this.exporting ? 'Stop the export' : 'Export'),
      ended && h('a', { href: link(`compare?a=${segment(this.taskId)}`) }, 'Compare with …'),
      h('span', { class: 'note', role: 'status' }, this.exported),
    );
  }

}

/** @param {import('../core/fold.js').Task} task */
function reason(task) {
  return (task.status_message?.parts ?? []).map((part) => part.text ?? '').join('\n').trim();
}

/** @param {string} name @param {...import('../ui/dom.js').Child} value */
function fact(name, ...value) {
  return [h('div', null, h('dt', null, name), h('dd', null, ...value))];
}

customElements.define('nuncio-task', NuncioTask);
