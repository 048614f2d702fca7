/**
 * One batch: its state and progress from the log of its task, which the page follows; its operations with their needs,
 * tries and times as the server answers them, read again when the log grows and every 5 s while it runs.
 */

import { askedOf, BATCH_AGENT, countsText, speedupText } from '../core/batch.js';
import { askingTask } from '../core/plan.js';
import { duration } from '../core/time.js';
import { readMark } from '../ui/agent-tasks.js';
import { segment } from '../ui/api.js';
import { context, link } from '../ui/context.js';
import { h } from '../ui/dom.js';
import { readResource } from '../ui/mcp.js';
import { OperationPages } from '../ui/operation-pages.js';
import { bytes, commandLine, problem, quote, stateMark } from '../ui/parts.js';
import { fact, TaskRecord } from '../ui/task-record.js';
import '../ui/batch-chart.js';
import '../ui/json-view.js';
import '../ui/open-questions.js';
import './batch-operations.js';

/** @typedef {import('../ui/task-log.js').TaskLog} TaskLog */

const SCOPE = 'write:batchtools:batchtools';

class NuncioBatch extends TaskRecord {
  path = 'batches';
  noun = 'batch';
  agent = BATCH_AGENT;
  tab = 'operations';
  pages = new OperationPages('', () => this.changed());
  /** How many operations may run at once on a node; 0: not known. */
  cap = 0;

  poll() {
    if (document.visibilityState === 'visible' && this.log && !this.ended) this.pages.refreshSoon();
  }

  close() {
    super.close();
    this.pages.close();
  }

  begun() {
    this.pages = new OperationPages(this.recordId, () => this.changed());
    this.pages.refreshSoon();
    void readResource('batchtools://config/settings').then(
      ({ value }) => ((this.cap = value.maxConcurrency), this.changed()),
      () => null, // The chart has no line then.
    );
  }

  /** @param {number} added */
  grown(added) {
    if (added > 0) this.pages.refreshSoon();
  }

  /** @param {string} key */
  onKey(key) {
    const form = this.querySelector('nuncio-question :is(input, textarea, select, button)');
    if (key === 'a' && form instanceof HTMLElement) form.focus();
    else if (key === 'Escape' && !this.query.has('operation')) context.go('batches');
    else return /** @type {any} */ (this.querySelector('nuncio-batch-operations'))?.onKey(key) ?? false;
    return true;
  }

  /** @param {TaskLog} log */
  record(log) {
    const { pages, query } = this;
    const { task } = log.fold;
    const asked = askedOf(task);
    const cap = Math.min(this.cap || Infinity, asked.cap || Infinity);
    const common = { selected: query.get('operation') ?? '', size: pages.readAt };
    return [
      this.head(log),
      pages.error ? problem(pages.error, () => pages.refreshSoon()) : null,
      h('nuncio-open-questions', { prop: { taskId: this.recordId, owner: task.origin.owner, questions: task.questions, about: (/** @type {{id: string}} */ { id }) => ({ who: 'A called agent', taskId: askingTask(id) }) } }),
      pages.status ? h('nuncio-batch-chart', { prop: { ...common, operations: pages.operations, isPart: pages.hasMore, cap: Number.isFinite(cap) ? cap : 0, onSelect: (/** @type {string} */ id) => this.goTo({ operation: id, status: '' }) } }) : null,
      h('nuncio-batch-operations', { prop: { ...common, pages, asked: asked.operations, filter: query.get('status') ?? '', goTo: (/** @type {{[name: string]: string}} */ values) => this.goTo(values) } }),
      pages.status?.content !== undefined ? h('section', null, h('h2', null, 'Content'), h('nuncio-json', { prop: { text: JSON.stringify(pages.status.content) } })) : null,
    ];
  }

  /** @param {TaskLog} log */
  head(log) {
    const { ended } = this;
    const { status } = this.pages;
    const progress = log.fold.task.progress?.[1];
    const paused = status?.paused && !ended;
    const left = (status?.counts.failed ?? 0) + (status?.counts.skipped ?? 0);
    return h(
      'section',
      { class: 'task-head' },
      h('h1', { tabindex: -1 }, stateMark(this.state), ' Batch', paused ? h('span', { class: 'paused' }, ' ', stateMark('paused')) : null),
      this.reason() ?? (ended && h('p', null, this.lastWords)),
      status?.waiting && h('p', { class: 'as-of' }, `It waits: ${status.waiting}`),
      paused && h('p', { class: 'as-of' }, 'Paused: no further operation begins; those that run go on.'),
      !ended && progress?.total ? h('p', null, h('progress', { max: progress.total, value: progress.done, 'aria-label': 'Operations' }), ` ${progress.text ?? ''}`) : null,
      h(
        'dl',
        { class: 'facts' },
        fact('Operations', countsText(status?.counts)),
        status?.type && fact('Type', `${status.type.replaceAll('_', ' ')}, ${status.priority} priority`),
        ...this.facts(log),
        !ended && typeof status?.estimatedDuration === 'number' && fact('Left, estimated', duration(status.estimatedDuration)),
        ...figures(status?.metrics),
      ),
      h(
        'p',
        { class: 'bar' },
        !ended && (paused ? this.button('Resume', SCOPE, () => this.change('batch_resume', 'The batch goes on')) : this.button('Pause', SCOPE, () => this.change('batch_pause', 'The batch is paused'))),
        !ended && this.cancelButton(SCOPE, 'This ends the batch: what is finished stays done, the rest is skipped.'),
        ended && left > 0 && this.button(`Retry ${left} failed or skipped`, 'execute:batchtools:batchtools', () => void this.act('batch_retry', 'A new batch has begun', ({ batchId }) => context.go(`batches/${segment(batchId)}`))),
        h('a', { href: link(`batches?new=${segment(this.recordId)}`) }, 'Edit and submit again'),
      ),
      commandLine(`nuncio batch ${ended ? 'status' : 'watch'} ${quote(this.recordId)}`),
      h('p', { class: 'list-head' }, readMark('Operations', this.pages.readAt)),
    );
  }

  /** @param {string} tool @param {string} said */
  change(tool, said) {
    void this.act(tool, said, () => this.pages.refreshSoon());
  }
}

/** What was measured; a figure that was not is left out, except for the speedup. @param {any} metrics */
function figures(metrics) {
  const { value, basis } = speedupText(metrics);
  const number = (/** @type {any} */ figure, /** @type {(n: number) => string} */ text) => (typeof figure === 'number' ? text(figure) : '');
  const rows = [
    ['Side by side', number(metrics?.concurrency, (n) => `${Number(n.toFixed(2))} on average`) + number(metrics?.peakConcurrency, (n) => `, at most ${n}`)],
    ['Worked for', number(metrics?.wallMs, duration)],
    ['Bytes', typeof metrics?.bytesBefore === 'number' ? `${bytes(metrics.bytesBefore)} to ${bytes(metrics.bytesAfter)}` : ''],
  ];
  return [fact('Speedup', value, basis && h('span', { class: 'note' }, ` (${basis})`)), ...rows.filter(([, text]) => text).map(([name, text]) => fact(name, text.replace(/^, /, '')))];
}

customElements.define('nuncio-batch', NuncioBatch);
