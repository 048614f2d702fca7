/**
 * The nodes of the server and the pulse of this one. The pulse is read once and continued by the live stream, an interval of
 * 10 s at a time; the nodes are read again with every interval, since they have no topic of their own.
 */

import { figuresOf, readPulse, withInterval } from '../core/pulse.js';
import { duration, format, millis } from '../core/time.js';
import { clock, get } from '../ui/api.js';
import { context } from '../ui/context.js';
import { h } from '../ui/dom.js';
import { ConsoleElement } from '../ui/element.js';
import { moveByKey, operatorProblem, readAt, verdict } from '../ui/operator-list.js';
import { announce, commandLine, curl, empty, loading, time } from '../ui/parts.js';
import { drawing, pulseCharts } from '../ui/pulse-chart.js';
import { fact } from '../ui/task-record.js';

/** In the address, the agents that are not counted by name. */
const OTHERS = '*';

class NuncioServerOverview extends ConsoleElement {
  search = '';
  /** @type {any} */
  nodes = null;
  /** @type {import('../core/pulse.js').Pulse | null} */
  pulse = null;
  /** @type {unknown} */
  error = null;
  /** Why nodes or pulse were not read again; what is shown is old then. @type {unknown} */
  stale = null;
  readAt = 0;
  isFollowed = false;
  /** @type {(() => void) | null} */
  unsubscribe = null;

  connected() {
    this.listenTo(context, 'settings', () => this.changed());
    this.listenTo(context, 'live', () => this.changed());
    this.onLeave(() => this.unsubscribe?.());
    void this.load();
  }

  async load() {
    try {
      const [nodes, pulse] = await Promise.all([get('nodes'), get('pulse')]);
      Object.assign(this, { nodes, pulse: readPulse(pulse), error: null, stale: null, readAt: clock.now() });
      if (this.isConnected) this.follow(pulse.liveCursor);
    } catch (error) {
      if (this.pulse) this.stale = error;
      else this.error = error;
    }
    this.changed();
  }

  /** @param {string} cursor */
  follow(cursor) {
    this.unsubscribe?.();
    this.unsubscribe = context.live.subscribe('server pulse', { topic: 'pulse' }, cursor, (kind, data) => {
      this.isFollowed = kind !== 'end';
      if (kind === 'gap') void this.load();
      else if (kind === 'pulse') this.take(data);
      this.changed();
    });
  }

  /** @param {any} frame */
  take(frame) {
    const next = this.pulse && withInterval(this.pulse, frame);
    // Intervals between were missed: the whole hour is read again.
    if (!next) return void this.load();
    this.pulse = next;
    announce(`${frame.total.sends} sends, ${frame.total.failed} failures in the last interval`, true);
    void this.readNodes();
  }

  async readNodes() {
    try {
      Object.assign(this, { nodes: await get('nodes'), stale: null, readAt: clock.now() });
    } catch (error) {
      this.stale = error;
    }
    this.changed();
  }

  get agent() {
    return new URLSearchParams(this.search).get('agent');
  }

  /** @param {string | null} agent */
  show(agent) {
    context.go(agent === null ? 'server' : `server?${new URLSearchParams({ agent })}`);
  }

  /** @param {string} key */
  onKey(key) {
    if (key === 'r') void this.load();
    else if (key === 'Escape' && this.agent !== null) this.show(null);
    else return moveByKey(this, key, 'button.pulse-agent');
    return true;
  }

  view() {
    const retry = () => void this.load();
    if (this.error) return operatorProblem(this.error, retry);
    const { nodes, pulse } = this;
    if (!nodes || !pulse) return loading('the nodes and the pulse');
    return [
      this.stale ? operatorProblem(this.stale, retry) : null,
      h('section', { class: this.stale ? 'old' : '', 'aria-labelledby': 'nodes' }, h('div', { class: 'bar' }, h('h2', { id: 'nodes' }, 'Nodes ', h('span', { class: 'note' }, nodes.nodes.length)), readAt(this)), h('ul', { class: 'records' }, ...nodes.nodes.map(node)), nodes.more && h('p', { class: 'note' }, 'There are more nodes; those that are alive and the newest are shown.'), h('p', { class: 'note' }, nodes.shared ? `The nodes share one store. A node without a heartbeat for ${duration(nodes.leaseMs)} is gone, and others take its tasks.` : 'The store belongs to this node alone.')),
      this.pulsePart(pulse),
      commandLine(curl('nodes')),
      commandLine(curl('pulse')),
    ];
  }

  /** @param {import('../core/pulse.js').Pulse} pulse */
  pulsePart(pulse) {
    const wanted = this.agent;
    const chosen = wanted === null ? null : pulse.agents.find(({ agent }) => (agent ?? OTHERS) === wanted);
    const series = wanted === null ? pulse.total : chosen?.series;
    const { intervals } = figuresOf(pulse.total.sends ?? []);
    const total = pulse.total.sends?.length ?? 0;
    return h(
      'section',
      { class: this.stale ? 'old' : '', 'aria-labelledby': 'pulse' },
      h('div', { class: 'bar' }, h('h2', { id: 'pulse' }, 'Pulse of this node', wanted !== null && `: ${nameOf(chosen ? chosen.agent : wanted)}`), wanted !== null && h('button', { type: 'button', onclick: () => this.show(null) }, 'All agents'), readAt(this, this.isFollowed && context.live.state === 'live')),
      h('p', { class: 'note' }, `The hour to ${format(pulse.until, context.timeMode, clock.now())}, in intervals of ${pulse.intervalMs / 1000} s. `, intervals < total ? `${duration((total - intervals) * pulse.intervalMs)} of it: not measured (dashed), since this node did not run.` : 'All of it was measured.'),
      series ? h('div', { class: 'pulse-charts' }, ...pulseCharts(series)) : empty('This agent did nothing in the last hour', h('button', { type: 'button', onclick: () => this.show(null) }, 'All agents')),
      h('h3', null, 'By agent'),
      pulse.agents.length === 0 ? h('p', { class: 'note' }, 'No agent was sent a message in the last hour: nuncio send "Hello"') : h('ul', { class: 'records' }, ...pulse.agents.map((one) => this.agentRow(one))),
    );
  }

  /** @param {{agent: string | null, series: import('../core/pulse.js').SeriesByName}} one */
  agentRow({ agent, series }) {
    const of = (/** @type {string} */ name) => figuresOf(series[name] ?? []);
    const p99 = of('p99Ms').most;
    const here = (agent ?? OTHERS) === this.agent;
    return h(
      'li',
      { key: agent ?? OTHERS, class: 'pulse-row' },
      h('button', { type: 'button', class: 'quiet pulse-agent', 'aria-pressed': here, onclick: () => this.show(here ? null : (agent ?? OTHERS)) }, nameOf(agent)),
      h('span', null, `${of('sends').sum} sends`),
      h('span', null, `${of('events').sum} events`),
      h('span', { class: of('failed').sum > 0 ? 'why' : '' }, `${of('failed').sum} failed`),
      h('span', null, p99 === null ? 'none ended' : `p99 up to ${duration(p99)}`),
      drawing([{ class: 'pulse-bar', values: series.sends ?? [] }], series.sends ?? [], 20),
    );
  }
}

/** @param {string | null} agent */
function nameOf(agent) {
  return agent === null ? 'other agents' : agent;
}

/** @param {any} one */
function node(one) {
  return h(
    'li',
    { key: one.node, class: 'node' },
    h('strong', null, one.address ?? 'no address'),
    verdict(!one.gone, one.gone ? 'gone' : 'alive'),
    one.this && h('span', { class: 'tag' }, 'this node'),
    h('span', { class: 'note' }, `Nuncio ${one.version}`),
    h('dl', { class: 'facts detail' }, fact('Running', one.running), fact('Queued', one.queued), fact('Started', time(one.startedAt)), fact('Heartbeat', time(one.heartbeatAt)), one.gone && fact('Gone since', time(one.goneSince), one.stopped ? ' (stopped)' : ' (lease expired)'), !one.gone && fact('Up for', duration(clock.now() - millis(one.startedAt))), fact('Node', h('code', null, one.node))),
  );
}

customElements.define('nuncio-server-overview', NuncioServerOverview);
