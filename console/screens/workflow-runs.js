/**
 * The runs of the coordinator on a workflow, and the open questions of its agents, answered in place. Both are live: rows
 * of tasks in the conversation of the workflow's name, and the caller's questions.
 */

import { closedText, keyOf, takeFrame, takeList } from '../core/questions.js';
import { tasksOf } from '../core/workflow.js';
import { ApiError, get, segment } from '../ui/api.js';
import { context, link } from '../ui/context.js';
import { h } from '../ui/dom.js';
import { ConsoleElement } from '../ui/element.js';
import { problem, stateMark, time } from '../ui/parts.js';
import '../ui/question-form.js';

const SHOWN = 5;

class NuncioWorkflowRuns extends ConsoleElement {
  workflowId = '';
  /** @type {import('../core/workflow.js').ArtifactNote[]} */
  artifacts = [];
  onChanged = () => {};
  /** @type {any[]} */
  runs = [];
  /** @type {any[]} All questions of the caller. */
  questions = [];
  /** Questions that were answered here; others stay when they are closed, with what was typed. @type {Set<string>} */
  answered = new Set();
  /** @type {unknown} */
  error = null;
  /** @type {(() => void)[]} */
  topics = [];

  connected() {
    this.onLeave(() => this.topics.forEach((stop) => stop()));
    void this.load();
  }

  async load() {
    try {
      const [tasks, page] = await Promise.all([get(`tasks?context=${segment(this.workflowId)}&agent=coordinator&limit=${SHOWN}`), get('questions?limit=100')]);
      if (!this.isConnected) return;
      Object.assign(this, { runs: tasks.rows, questions: takeList(this.questions, page.questions), error: null });
      this.topics.forEach((stop) => stop());
      this.topics = [
        context.live.subscribe('workflow-runs', { topic: 'rows', filter: { agent: ['coordinator'], context: this.workflowId } }, tasks.liveCursor, (kind, data) => {
          if (kind === 'gap') void this.load();
          if (kind === 'rows') this.takeRows(data.rows);
        }),
        context.live.subscribe('workflow-asks', { topic: 'questions' }, page.liveCursor, (kind, data) => {
          if (kind === 'gap') void this.load();
          if (kind !== 'questions') return;
          this.questions = takeFrame(this.questions, data);
          this.changed();
        }),
      ];
    } catch (error) {
      this.error = error;
    }
    this.changed();
  }

  /** @param {any[]} rows */
  takeRows(rows) {
    const mine = rows.filter((row) => row.contextId === this.workflowId && row.agent === 'coordinator');
    if (mine.length === 0) return;
    const changed = new Set(mine.map((row) => row.taskId));
    this.runs = [...mine, ...this.runs.filter((row) => !changed.has(row.taskId))].sort((a, b) => (a.taskId < b.taskId ? 1 : -1)).slice(0, SHOWN);
    this.changed();
    // What a run changes in the workflow is not in its row.
    this.onChanged();
  }

  view() {
    const tasks = tasksOf(this.artifacts.map(({ by }) => by));
    const asked = this.questions.filter((one) => one.contextId === this.workflowId || one.path?.some((/** @type {any} */ step) => tasks.has(step.taskId))).filter((one) => !one.closed || !this.answered.has(keyOf(one)));
    return [
      h('div', { key: 'error' }, this.error ? this.problem() : null),
      h('div', { key: 'runs' }, this.runs.length > 0 && h('p', { class: 'bar' }, 'Runs: ', ...this.runs.map((row) => h('span', { key: row.taskId }, h('a', { href: link(`tasks/${segment(row.taskId)}`) }, row.taskId.slice(-8)), ' ', stateMark(row.state), row.why && h('span', { class: 'why' }, ` ${row.why}`), ' ', time(row.statusAt))))),
      asked.length > 0 ? h('ol', { class: 'inbox' }, ...asked.map((question) => this.question(question))) : null,
    ];
  }

  /** A caller of the workflow alone still sees the workflow. */
  problem() {
    if (this.error instanceof ApiError && this.error.status === 403) return h('p', { class: 'note' }, `Runs and questions are not shown: ${this.error.message}.`);
    return problem(this.error, () => void this.load());
  }

  /** @param {any} question */
  question(question) {
    const { closed } = question;
    const answered = () => {
      this.answered.add(keyOf(question));
      this.onChanged();
    };
    return h(
      'li',
      { key: keyOf(question), class: `asked ${closed ? 'closed' : ''}`, tabindex: -1 },
      h('p', { class: 'said-head' }, `${question.path?.at(-1)?.agent ?? question.agent} asks `, time(question.askedAt)),
      closed && h('p', { class: 'sent', role: 'status' }, closedText(closed)),
      h('nuncio-question', { prop: { taskId: question.taskId, question: { id: question.questionId, text: question.text, ask: question.ask }, onAnswered: answered } }),
    );
  }
}

customElements.define('nuncio-workflow-runs', NuncioWorkflowRuns);
