/**
 * Batches: the queue with its cap, throughput and thresholds, the list of batches, and the places where one is submitted
 * and where the settings are changed. The queue is followed live where the server has that topic, else read every 5 s.
 */

import { BATCH_AGENT, countsText, many, percent } from '../core/batch.js';
import { isTerminal } from '../core/fold.js';
import { duration } from '../core/time.js';
import { AgentListScreen } from '../ui/agent-list.js';
import { h } from '../ui/dom.js';
import { FollowedResource } from '../ui/followed-resource.js';
import { readResource } from '../ui/mcp.js';
import { empty, loading, problem } from '../ui/parts.js';
import { fact } from '../ui/task-record.js';
import './batch-form.js';
import './batch-settings.js';

class NuncioBatches extends AgentListScreen {
  path = 'batches';
  noun = 'batch';
  agent = BATCH_AGENT;
  tool = 'batch_list';
  command = 'nuncio batch list';
  /** @type {[string, string]} */
  heads = ['Operations', 'Ended'];
  /** The queue, the settings and what was measured, as they were read together. @type {{queue: any, settings: any, performance: any} | null} */
  engine = null;
  /** @type {unknown} */
  queueError = null;
  /** @type {FollowedResource | null} */
  followed = null;
  polls = 0;

  connected() {
    this.followed = new FollowedResource('batch queue', () => void this.readQueue(), this);
    this.followed.follow('batchtools://queue/status');
    super.connected();
  }

  /** Also while the queue is live, though less often: settings and figures have no topic, and a throughput is of the last minute. */
  poll() {
    this.polls += 1;
    if (document.visibilityState === 'visible' && (!this.followed?.isLive || this.polls % 6 === 0)) void this.readQueue();
  }

  changes() {
    if (!this.followed?.isLive) void this.readQueue();
  }

  async readQueue() {
    try {
      const [queue, settings, performance] = await Promise.all(['queue/status', 'config/settings', 'metrics/performance'].map((name) => readResource(`batchtools://${name}`)));
      Object.assign(this, { engine: { queue: queue.value, settings: settings.value, performance: performance.value }, queueError: null });
      this.followed?.wasRead();
    } catch (error) {
      this.queueError = error;
    }
    this.changed();
  }

  top() {
    const from = this.query.get('new');
    const open = this.query.has('settings');
    return [
      h('div', { class: 'bar' }, h('h1', null, 'Batches'), !open && h('button', { type: 'button', onclick: () => this.show({ settings: 'open', new: null }) }, 'Settings'), from === null && h('button', { type: 'button', class: 'main', onclick: () => this.show({ new: '', settings: null }) }, 'New batch')),
      from !== null && h('nuncio-batch-form', { key: `form ${from}`, prop: { from, onClose: () => this.show({ new: null }) } }),
      open && this.engine && h('nuncio-batch-settings', { key: 'settings', prop: { settings: this.engine.settings, onClose: () => this.show({ settings: null }), onChanged: () => void this.readQueue() } }),
      this.queuePanel(),
    ];
  }

  queuePanel() {
    const retry = () => void this.readQueue();
    // The list says what was refused; the same words once are enough.
    if (!this.engine) return this.list?.error ? null : this.queueError ? problem(this.queueError, retry) : loading('the queue');
    const { queue, settings, performance } = this.engine;
    const { memoryUsage, cpuUsage, queueSize } = settings.thresholds;
    const { operationsPerSecond, averageLatency } = queue.throughput;
    const waiting = queue.operations.find((/** @type {any} */ one) => one.waiting)?.waiting;
    const measured = (/** @type {number | null} */ figure, /** @type {(n: number) => string} */ text) => (figure === null ? 'not measured' : text(figure));
    return h(
      'section',
      { class: `panel ${this.queueError ? 'old' : ''}`, 'aria-label': 'Queue' },
      this.queueError ? problem(this.queueError, retry) : null,
      !settings.enabled && h('p', { class: 'why' }, 'No batch is taken: the settings say so.'),
      h(
        'dl',
        { class: 'facts' },
        fact('Running', many(queue.activeBatches, 'batch', 'batches')),
        fact('Waiting or paused', `${queue.queueSize} of at most ${queueSize}`),
        fact('Operations at once', `${queue.maxConcurrency} on each node`),
        fact('Throughput', measured(operationsPerSecond, (n) => `${Number(n.toFixed(2))}/s`)),
        fact('Mean time', measured(averageLatency, duration)),
        fact('Load', settings.resourceMonitoring ? (waiting ?? `batches wait above ${percent(memoryUsage)} of memory or ${percent(cpuUsage)} of CPU; none does`) : 'not watched'),
        fact('Mean speedup', measured(performance.overall.averageSpeedup, (n) => `${Number(n.toFixed(2))}×, of the batches that measured one`)),
      ),
      h('p', { class: 'list-head' }, this.followed?.label() ?? null),
    );
  }

  none() {
    return empty('No batch yet', 'A batch is a list of operations that run as one task: files, memory and calls of agents, with needs and retries. "New batch" begins with an example; the command:', 'nuncio batch submit batch.json --watch');
  }

  /** A batch in the queue. @param {any} row */
  queued(row) {
    return isTerminal(row.state) ? null : this.engine?.queue.operations.find((/** @type {any} */ one) => one.id === row.taskId);
  }

  /** @param {any} row */
  wordsOf(row) {
    const batch = this.list?.details.get(row.taskId);
    const queued = this.queued(row);
    return [batch && countsText(batch.counts), queued && `${queued.type.replaceAll('_', ' ')}, ${queued.priority}`, queued && (batch?.waiting ?? queued.waiting)].filter(Boolean).join(' · ');
  }

  /** @param {any} row */
  stateOf(row) {
    const queued = row.state === 'working' && this.queued(row);
    return queued && queued.status !== 'running' ? queued.status : row.state;
  }

  /** @param {any} batch @returns {[number | undefined, number | undefined]} */
  countOf(batch) {
    const { succeeded, failed, skipped, total } = batch?.counts ?? {};
    return [typeof succeeded === 'number' ? succeeded + failed + skipped : batch?.done, total ?? batch?.total];
  }
}

customElements.define('nuncio-batches', NuncioBatches);
