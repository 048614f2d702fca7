/**
 * One plan while it runs and afterwards: its drawing, the list of its subtasks, its questions, what it came to and where
 * each part of that came from. All of it is folded from the log of the plan's task, which the page follows.
 */

import { isTerminal } from '../core/fold.js';
import { askingTask, isOver, PLAN_AGENT, planOf, runningTasks } from '../core/plan.js';
import { get, segment } from '../ui/api.js';
import { context, link } from '../ui/context.js';
import { h } from '../ui/dom.js';
import { announce, commandLine, copy, empty, loading, quote, stateMark } from '../ui/parts.js';
import { fact, TaskRecord } from '../ui/task-record.js';
import '../ui/json-view.js';
import '../ui/open-questions.js';
import '../ui/plan-graph.js';
import './plan-result.js';
import './plan-subtasks.js';

/** @typedef {import('../ui/task-log.js').TaskLog} TaskLog */
/** @typedef {import('../core/plan.js').PlanView} PlanView */

const TABS = [['graph', 'Subtasks'], ['result', 'Result'], ['file', 'File']];
/** The least time between two reads of the tasks that the plan called. */
const PAUSE = 1000;
const MAX_READS = 3;
const AT_WORK = ['working', 'asks', 'retrying'];

class NuncioPlan extends TaskRecord {
  path = 'plans';
  noun = 'plan';
  agent = PLAN_AGENT;
  tab = 'graph';
  /** @type {any[]} */
  called = [];
  calledAt = -1;
  calledReads = 0;
  nextRead = 0;
  /** @type {{seq: number, view: PlanView | null}} */
  #read = { seq: -1, view: null };
  hadResult = false;

  /** The plan as of the newest event; read again only when there is one. @param {TaskLog} log */
  planView(log) {
    const { task } = log.fold;
    if (this.#read.seq === task.seq) return this.#read.view;
    const view = planOf(task);
    if (view) {
      const running = runningTasks(view.parts, this.called, isTerminal);
      const asking = new Set(task.questions.map(([, question]) => askingTask(question.id)));
      for (const part of view.parts) {
        part.taskId ||= running.get(part.id) ?? '';
        if (part.state === 'working' && asking.has(part.taskId)) part.state = 'asks';
      }
      if (view.result !== null && !this.hadResult && log.isWhole) {
        this.hadResult = true;
        if (!isTerminal(log.head.row.state)) announce('The result is there');
      }
    }
    this.#read = { seq: task.seq, view };
    return view;
  }

  /** The tasks of running subtasks: the plan's log names a task only when it has ended. A task begins just after the log
   * says that its subtask works, so a read that misses one is repeated a few times. @param {TaskLog} log */
  followCalled(log) {
    const { seq } = log.fold.task;
    const missing = this.#read.view?.parts.some((part) => part.state === 'working' && !part.taskId);
    if (this.calledAt !== seq) this.calledReads = 0;
    if (!log.isWhole || !missing || this.calledReads > MAX_READS) return;
    const wait = this.nextRead - performance.now();
    if (wait > 0) return void setTimeout(() => this.isConnected && this.changed(), wait);
    this.calledAt = seq;
    this.calledReads += 1;
    this.nextRead = performance.now() + PAUSE;
    void get(`tasks/${segment(this.recordId)}/family`).then(
      ({ called }) => {
        this.called = called;
        this.#read.seq = -1;
        this.changed();
      },
      () => null, // Without it a running subtask has no link, and nothing else is lost.
    );
  }

  get selected() {
    return this.query.get('task') ?? '';
  }

  /** @param {string} key */
  onKey(key) {
    const parts = this.#read.view?.parts ?? [];
    const ids = /** @type {any} */ (this.querySelector('nuncio-plan-subtasks'))?.shownIds ?? parts.map(({ id }) => id);
    const at = ids.indexOf(this.selected);
    if (key === 'j' || key === 'k') this.goTo({ task: ids[Math.max(0, Math.min(ids.length - 1, at + (key === 'j' ? 1 : -1)))] ?? '' }, 'graph');
    else if (key === 'Enter' && parts.find(({ id }) => id === this.selected)?.taskId) context.go(`tasks/${segment(parts.find(({ id }) => id === this.selected)?.taskId ?? '')}`);
    else if (key === '.') {
      const failed = ids.filter((/** @type {string} */ id) => parts.find((part) => part.id === id)?.state === 'failed');
      const next = failed.find((/** @type {string} */ id) => ids.indexOf(id) > at) ?? failed[0];
      if (next) this.goTo({ task: next }, 'graph');
    } else if (key === 'a') /** @type {HTMLElement | null} */ (this.querySelector('nuncio-question :is(input, textarea, select, button)'))?.focus();
    else if (key === 'Escape' && this.selected) this.goTo({ task: '' });
    else if (key === 'Escape') context.go('plans');
    else return false;
    return true;
  }

  /** @param {TaskLog} log */
  record(log) {
    const view = this.planView(log);
    this.followCalled(log);
    return [this.head(log, view), this.questions(log, view), this.tabs(view), h('div', { class: 'reading', key: `reading ${this.tab}` }, ...[this.reading(log, view)].flat())];
  }

  /** @param {TaskLog} log @param {PlanView | null} view */
  head(log, view) {
    const over = view?.parts.filter((part) => isOver(part.state)).length ?? 0;
    const running = view?.parts.filter((part) => AT_WORK.includes(part.state)).length ?? 0;
    return h(
      'section',
      { class: 'task-head' },
      h('h1', { tabindex: -1 }, stateMark(this.state), ' ', view?.plan.name ?? 'Plan'),
      view?.plan.request && h('p', { class: 'plain' }, view.plan.request),
      this.reason(),
      h('dl', { class: 'facts' }, fact('Subtasks', view ? `${over} of ${view.parts.length} over` : '–'), ...this.facts(log), fact('Log', log.completeness)),
      h(
        'p',
        { class: 'bar' },
        !this.ended && this.cancelButton('write:a2a:orchestrator', `This ends the plan, and the ${running === 1 ? 'subtask' : `${running} subtasks`} at work.`),
        view && h('button', { type: 'button', onclick: () => copy(fileOf(view)) }, 'Copy plan file'),
        view && h('a', { href: link(`plans?new=${segment(this.recordId)}`) }, 'Edit and run again'),
      ),
      commandLine(`nuncio plan run --attach ${quote(this.recordId)}`),
    );
  }

  /** @param {TaskLog} log @param {PlanView | null} view */
  questions(log, view) {
    const { questions, origin } = log.fold.task;
    const about = (/** @type {{id: string}} */ question) => {
      const taskId = askingTask(question.id);
      const part = view?.parts.find((one) => taskId && one.taskId === taskId);
      const agent = part?.agent || this.called.find((row) => row.taskId === taskId)?.agent;
      return { who: `${part ? part.id : 'A subtask'}${agent ? ` · ${agent}` : ''}`, taskId };
    };
    return h('nuncio-open-questions', { prop: { taskId: this.recordId, owner: origin.owner, questions, about } });
  }

  /** @param {PlanView | null} view */
  tabs(view) {
    const name = (/** @type {string[]} */ [tab, text]) => (tab === 'result' && view && view.result !== null ? `${text} ✓` : text);
    return h('nav', { class: 'tabs', 'aria-label': 'Views of the plan' }, ...TABS.map((tab) => h('a', { href: link(`plans/${segment(this.recordId)}/${tab[0]}${this.search}`), 'aria-current': tab[0] === this.tab ? 'page' : null }, name(tab))));
  }

  /** @param {TaskLog} log @param {PlanView | null} view @returns {import('../ui/dom.js').Child | import('../ui/dom.js').Child[]} */
  reading(log, view) {
    if (!view) {
      if (!log.isWhole) return loading('the plan');
      if (log.fold.cutAt !== null) return empty('The plan is too large to be shown here', `Event ${log.fold.cutAt} is above 1 MiB; the command shows it.`, `nuncio plan show ${quote(this.recordId)}`);
      return empty(isTerminal(log.fold.task.state) ? 'The task ended without a plan' : 'No plan yet', isTerminal(log.fold.task.state) ? 'Its reason stands above.' : 'It is being made; this page follows.');
    }
    const parts = new Map(view.parts.map((part) => [part.id, part]));
    if (this.tab === 'result') return h('nuncio-plan-result', { prop: { planView: view, ended: isTerminal(log.fold.task.state) } });
    if (this.tab === 'file') return [h('p', { class: 'note' }, 'As JSON; TOML has the same keys.'), h('nuncio-json', { prop: { text: fileOf(view) } }), commandLine('nuncio plan run my.json')];
    return [
      h('nuncio-plan-graph', { prop: { tasks: view.plan.tasks, parts, selected: this.selected, onSelect: (/** @type {string} */ id) => this.goTo({ task: id === this.selected ? '' : id }), size: log.fold.task.seq } }),
      h('nuncio-plan-subtasks', { prop: { planView: view, task: log.fold.task, selected: this.selected, filter: this.query.get('state') ?? '', goTo: (/** @type {{[name: string]: string}} */ values) => this.goTo(values), size: log.fold.task.seq } }),
    ];
  }
}

/** @param {PlanView} view */
function fileOf(view) {
  return JSON.stringify(view.plan.file, null, 2);
}

customElements.define('nuncio-plan', NuncioPlan);
