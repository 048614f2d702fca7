/**
 * One task: its head, and its log in several readings. The scrubber shows the task as of any event; `?at=N` is a link to
 * that. The fold runs here, from the same log that the server folds.
 */

import { isTerminal } from '../core/fold.js';
import { duration, millis } from '../core/time.js';
import { clock, get, post, segment } from '../ui/api.js';
import { context, link } from '../ui/context.js';
import { h } from '../ui/dom.js';
import { ConsoleElement } from '../ui/element.js';
import { copyButton, loading, problem, stateMark, time } from '../ui/parts.js';
import { sendAgain } from '../ui/send-again.js';
import { TaskLog } from '../ui/task-log.js';
import './task-events.js';
import './task-family.js';
import './task-raw.js';
import './task-story.js';
import './task-timeline.js';
import './task-wire.js';

const TABS = ['story', 'timeline', 'events', 'wire', 'family', 'raw'];

class NuncioTask extends ConsoleElement {
  recordId = '';
  tab = 'story';
  search = '';
  /** @type {TaskLog | null} */
  log = null;
  /** @type {unknown} */
  error = null;
  /** @type {unknown} */
  actError = null;

  get taskId() {
    return this.recordId;
  }

  connected() {
    this.listenTo(context, 'settings', () => this.changed());
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

  /** The event as of which the task is shown; null: the newest. */
  get at() {
    const at = Number(new URLSearchParams(this.search).get('at'));
    return Number.isInteger(at) && at > 0 && this.log ? Math.min(at, this.log.last) : null;
  }

  /** @param {number | null} at @param {string} [tab] @param {boolean} [replace] */
  goTo(at, tab = this.tab, replace = true) {
    const query = new URLSearchParams(this.search);
    if (at === null) query.delete('at');
    else query.set('at', String(at));
    const text = query.toString();
    context.go(`tasks/${segment(this.taskId)}/${tab}${text ? `?${text}` : ''}`, { replace });
  }

  /** @param {string} key */
  onKey(key) {
    const last = this.log?.last ?? 0;
    const at = this.at ?? last;
    if (key === '[') this.goTo(Math.max(1, at - 1));
    else if (key === ']') this.goTo(at + 1 >= last ? null : at + 1);
    else if (key === 'Escape') context.go('tasks');
    else if (key === 'a') /** @type {HTMLElement | null} */ (this.querySelector('nuncio-question :is(input, textarea, select, button)'))?.focus();
    else if (key === '.') this.goToFailure(at);
    else return /** @type {any} */ (this.querySelector('.reading > *'))?.onKey?.(key) ?? false;
    return true;
  }

  /** The next event after `at` that tells of a failure. From the newest event it is the last one, which is why the task
   * failed; after that they come from the first on. @param {number} at */
  goToFailure(at) {
    const events = this.log?.fold.events ?? [];
    const failed = events.filter(({ type, data }) => (type === 'status' && (data?.state === 'failed' || data?.state === 'rejected')) || (type === 'log' && ['error', 'critical', 'alert', 'emergency'].includes(data?.level)));
    const next = this.at === null ? failed.at(-1) : (failed.find((event) => event.seq > at) ?? failed[0]);
    if (next) this.goTo(next.seq, 'events', false);
  }

  cancel() {
    return this.act(() => post(`tasks/${segment(this.taskId)}/cancel`, {}));
  }

  /** The same message again, as a new task. */
  sendAgain() {
    const first = this.log?.fold.events[0];
    return this.act(async () => {
      const id = await sendAgain(this.log?.head.origin.agent, first?.data);
      context.go(`tasks/${segment(id)}`);
    });
  }

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
      log.error ? problem(log.error, () => this.load()) : null,
      this.tabs(),
      this.scrubber(log),
      h('div', { class: 'reading', key: `reading ${this.tab}` }, this.reading(log)),
    ];
  }

  /** The task as it is shown: of an event, or the newest that is known. @param {TaskLog} log */
  shown(log) {
    const at = this.at;
    return at === null ? log.fold.task : log.fold.at(at);
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
      ended && first?.type === 'message' && first.data && button('Send again', 'write:a2a:tasks', () => void this.sendAgain()),
      ended && h('a', { href: link(`compare?a=${segment(this.taskId)}`) }, 'Compare with …'),
    );
  }

  tabs() {
    return h('nav', { class: 'tabs', 'aria-label': 'Readings of the log' }, ...TABS.map((tab) => h('a', { href: link(`tasks/${segment(this.taskId)}/${tab}${this.search}`), 'aria-current': tab === this.tab ? 'page' : null }, tab[0].toUpperCase() + tab.slice(1))));
  }

  /** @param {TaskLog} log */
  scrubber(log) {
    const at = this.at ?? log.last;
    const move = (/** @type {any} */ event) => this.goTo(Number(event.target.value) >= log.last ? null : Number(event.target.value));
    return h(
      'div',
      { class: 'scrubber' },
      h('button', { type: 'button', class: 'quiet', 'aria-label': 'Previous event', onclick: () => this.onKey('[') }, '['),
      h('input', { type: 'range', min: 1, max: Math.max(1, log.last), 'aria-label': 'Task as of event', 'aria-valuetext': `event ${at} of ${log.last}`, oninput: move, prop: { value: String(at) } }),
      h('button', { type: 'button', class: 'quiet', 'aria-label': 'Next event', onclick: () => this.onKey(']') }, ']'),
      h('span', { class: 'note' }, `${at} / ${log.last}`),
    );
  }

  /** @param {TaskLog} log */
  reading(log) {
    const at = this.at;
    const common = { log, at, size: log.last, read: log.fold.events.length };
    const goTo = (/** @type {number} */ seq, /** @type {string} */ tab) => this.goTo(seq, tab, false);
    if (this.tab === 'events') return h('nuncio-task-events', { prop: { ...common, goTo } });
    if (this.tab === 'timeline') return h('nuncio-task-timeline', { prop: { ...common, taskId: this.taskId, search: this.search, goTo } });
    if (this.tab === 'wire') return h('nuncio-task-wire', { prop: { ...common, taskId: this.taskId } });
    if (this.tab === 'family') return h('nuncio-task-family', { prop: { taskId: this.taskId, size: log.last } });
    if (this.tab === 'raw') return h('nuncio-task-raw', { prop: { ...common, taskId: this.taskId } });
    return h('nuncio-task-story', { prop: { ...common, taskId: this.taskId, goTo } });
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
