/**
 * Now: what a person on duty looks at first. Counts of tasks, questions, failures, deliveries, agents, batches and nodes, each
 * a link to its list. Tasks, questions, agents and the queue are followed live; the rest is read every 10 s, and says when.
 */

import { failuresQuery, figures, firstAgent, MOST, scopeOf, taskCounts } from '../core/now.js';
import { figuresOf, readPulse, withInterval } from '../core/pulse.js';
import { loadRegistry } from '../ui/agent-health.js';
import { readMark } from '../ui/agent-tasks.js';
import { clock, get, segment } from '../ui/api.js';
import { context, link } from '../ui/context.js';
import { h } from '../ui/dom.js';
import { ConsoleElement } from '../ui/element.js';
import { FollowedResource } from '../ui/followed-resource.js';
import { readResource } from '../ui/mcp.js';
import { moveByKey } from '../ui/operator-list.js';
import { announce, commandLine, curl, loading, problem, quote, stateMark } from '../ui/parts.js';
import { drawing } from '../ui/pulse-chart.js';
import { sendMessage } from '../ui/send-again.js';

/** @typedef {import('../core/now.js').Reading} Reading */

const POLL = 10_000;
/** A burst of changes is one reading. */
const PAUSE = 1000;
const TASKS = 'read:a2a:tasks';
const SERVER = 'read:admin:server';

/** What is read, and the scope without which it is not asked for. The server decides about the others.
 * @type {{[name: string]: {scope?: string, read: () => Promise<any>}}} */
const SOURCES = {
  tasks: { scope: TASKS, read: () => get('tasks?limit=1') },
  questions: { scope: TASKS, read: () => get('questions?limit=1') },
  failures: { scope: TASKS, read: () => get(`tasks?${failuresQuery(clock.now())}&limit=${MOST}`) },
  dead: { scope: TASKS, read: () => get(`deliveries?state=dead&limit=${MOST}`) },
  retrying: { scope: TASKS, read: () => get(`deliveries?state=retrying&limit=${MOST}`) },
  registry: { read: async () => (await loadRegistry()).entries },
  queue: { read: async () => (await readResource('batchtools://queue/status')).value },
  nodes: { scope: SERVER, read: () => get('nodes') },
  pulse: { scope: SERVER, read: () => get('pulse') },
};
/** What no topic of the live stream follows. */
const POLLED = ['failures', 'dead', 'retrying', 'nodes'];

class NuncioNow extends ConsoleElement {
  search = '';
  /** @type {{[name: string]: Reading | undefined}} */
  readings = {};
  /** @type {import('../core/pulse.js').Pulse | null} */
  pulse = null;
  polledAt = 0;
  /** Whether the server had no task when the page was opened: what helps to begin stays until the page is left. */
  isFresh = false;
  /** @type {{busy: boolean, taskId: string, error: unknown}} */
  first = { busy: false, taskId: '', error: null };
  /** @type {Set<string>} */
  due = new Set();
  /** @type {any} */
  timer = null;

  connected() {
    this.listenTo(context, 'settings', () => this.changed());
    const poll = () => document.visibilityState === 'visible' && void this.readAll(POLLED);
    const timer = setInterval(poll, POLL);
    this.onLeave(() => clearInterval(timer));
    this.onLeave(() => clearTimeout(this.timer));
    this.listenTo(document, 'visibilitychange', poll);
    void this.begin();
  }

  async begin() {
    await this.readAll(Object.keys(SOURCES));
    if (!this.isConnected) return;
    this.isFresh = this.readings.tasks?.answer?.total === 0;
    this.changed();
    this.follow('rows', this.readings.tasks?.answer, () => this.readSoon('tasks', 'failures'));
    this.follow('questions', this.readings.questions?.answer, () => this.readSoon('questions'));
    this.follow('pulse', this.readings.pulse?.answer, (data) => this.takePulse(data));
    for (const [name, uri] of [['registry', 'a2a://agents/registry'], ['queue', 'batchtools://queue/status']]) {
      if (this.readings[name]?.answer) new FollowedResource(`now ${name}`, () => void this.readAll([name]), this).follow(uri);
    }
  }

  /** Follows a topic whose list was read; what was refused is not asked for again. The pulse of a server that has just begun has
   * no cursor: it is followed from now on.
   * @param {string} topic @param {any} answer @param {(data: any) => void} take */
  follow(topic, answer, take) {
    if (!answer) return;
    const request = topic === 'rows' ? { topic, filter: { agent: [] } } : { topic };
    this.onLeave(context.live.subscribe(`now ${topic}`, request, answer.liveCursor ?? undefined, (kind, data) => (kind === topic || kind === 'gap') && take(kind === topic ? data : null)));
  }

  /** @param {any} frame null after a gap */
  takePulse(frame) {
    const next = frame && this.pulse && withInterval(this.pulse, frame);
    if (!next) return void this.readAll(['pulse']);
    this.pulse = next;
    this.changed();
  }

  /** @param {...string} names */
  readSoon(...names) {
    for (const name of names) this.due.add(name);
    this.timer ??= setTimeout(() => {
      this.timer = null;
      const due = [...this.due];
      this.due.clear();
      void this.readAll(due);
    }, PAUSE);
  }

  /** @param {string[]} names */
  async readAll(names) {
    await Promise.all(names.map((name) => this.read(name)));
    if (names.includes('dead')) this.polledAt = clock.now();
    this.changed();
  }

  /** What was read before stays where the next reading fails. @param {string} name */
  async read(name) {
    const { scope, read } = SOURCES[name];
    const before = this.readings[name]?.answer ?? null;
    const isForbidden = scope && context.me?.may?.[scope] === false;
    try {
      if (isForbidden) throw Object.assign(new Error(`this needs the scope ${scope}`), { details: { scope } });
      const answer = await read();
      this.readings[name] = { answer, error: null, readAt: clock.now() };
      if (name === 'pulse') this.pulse = readPulse(answer);
    } catch (error) {
      this.readings[name] = { answer: scopeOf(error) ? null : before, error, readAt: clock.now() };
    }
    this.changed();
  }

  /** @param {string} key */
  onKey(key) {
    if (key === 'r') void this.readAll(Object.keys(SOURCES));
    else return moveByKey(this, key, 'a.tile, a.tally');
    return true;
  }

  view() {
    const failed = Object.values(this.readings).find((reading) => reading?.error && !scopeOf(reading.error));
    return [
      h('div', { class: 'bar title' }, h('h1', null, 'Now'), readMark('deliveries and nodes', this.polledAt)),
      failed ? problem(failed.error, () => void this.readAll(Object.keys(SOURCES))) : null,
      this.isFresh && this.firstSteps(),
      h('section', { class: 'tiles', 'aria-label': 'Figures' }, ...figures(this.readings, clock.now()).map((figure) => tile(figure))),
      this.tasks(),
      this.sparklines(),
      commandLine(curl('tasks?limit=1')),
    ];
  }

  tasks() {
    const reading = this.readings.tasks;
    if (scopeOf(reading?.error)) return h('section', { class: 'off' }, h('h2', null, 'Tasks'), needs(scopeOf(reading?.error)));
    if (!reading?.answer) return reading?.error ? null : loading('counts of tasks');
    const { states, agents } = taskCounts(reading.answer.facets);
    const { total } = reading.answer;
    const tally = (/** @type {{name: string, count: number, path: string}} */ one, /** @type {import('../ui/dom.js').Child} */ label) => h('a', { class: 'tally', key: one.name, href: link(one.path) }, label, h('strong', null, ` ${one.count}`));
    return h(
      'section',
      { class: reading.error ? 'old' : '', 'aria-labelledby': 'now-tasks' },
      h('h2', { id: 'now-tasks' }, 'Your tasks ', h('a', { class: 'tally', href: link('tasks') }, h('strong', null, total))),
      states.length > 0 && h('p', { class: 'tallies', 'aria-label': 'By state', role: 'group' }, ...states.map((one) => tally(one, stateMark(one.name)))),
      agents.length > 0 && h('p', { class: 'tallies', 'aria-label': 'By agent', role: 'group' }, ...agents.slice(0, 30).map((one) => tally(one, one.name)), agents.length > 30 && h('a', { href: link('agents') }, `and ${agents.length - 30} more`)),
      total === 0 && !this.isFresh && h('p', { class: 'note' }, 'You have no tasks.'),
    );
  }

  /** The pulse of this node, in bars of 10 s. */
  sparklines() {
    const scope = scopeOf(this.readings.pulse?.error);
    if (scope) return h('section', { class: 'off', 'aria-labelledby': 'now-pulse' }, h('h2', { id: 'now-pulse' }, 'Pulse'), needs(scope));
    const { pulse } = this;
    if (!pulse) return this.readings.pulse?.error ? null : loading('the pulse');
    const ran = pulse.total.sends ?? [];
    const charts = [['Sends', 'sends', 'pulse-bar'], ['Ended', 'ended', 'pulse-bar'], ['Failures', 'failed', 'pulse-bad'], ['Events', 'events', 'pulse-bar']];
    return h(
      'section',
      { 'aria-labelledby': 'now-pulse' },
      h('h2', { id: 'now-pulse' }, 'This node in the last hour'),
      h('div', { class: 'tiles' }, ...charts.map(([name, field, kind]) => {
        const values = pulse.total[field] ?? [];
        const { sum, last, intervals } = figuresOf(values);
        return h('a', { class: 'tile', key: name, href: link('server') }, h('span', { class: 'tile-name' }, name), h('strong', null, intervals > 0 ? sum : '–'), h('span', { class: 'note' }, last === null ? 'not measured' : `${last} in the last 10 s`), drawing([{ class: kind, values }], ran, 28));
      })),
    );
  }

  /** What helps to begin on a server without tasks. */
  firstSteps() {
    const agent = firstAgent(context.me?.may ?? {});
    const server = quote(context.me?.publicUrl ?? location.origin);
    const { busy, taskId, error } = this.first;
    const commands = [`nuncio send -a ${server} --agent ${agent ?? 'echo'} "Hello"`, `nuncio task list -a ${server}`, `nuncio chat -a ${server}`];
    const submit = (/** @type {SubmitEvent} */ event) => {
      event.preventDefault();
      if (agent) void this.send(agent, this.querySelector('input')?.value.trim() || 'Hello');
    };
    return h(
      'section',
      { class: 'panel', key: 'first steps', 'aria-labelledby': 'now-first' },
      h('h2', { id: 'now-first' }, 'No task yet'),
      agent
        ? h('form', { class: 'bar', onsubmit: submit }, h('input', { 'aria-label': `Message to ${agent}`, placeholder: 'Hello', maxlength: 1000 }), h('button', { class: 'main', disabled: busy }, `Send to ${agent}`), taskId && h('a', { href: link(`tasks/${segment(taskId)}`) }, 'Sent: open the task'))
        : h('p', { class: 'note' }, 'There is no agent that you may send to.'),
      error ? problem(error, () => agent && void this.send(agent, 'Hello')) : null,
      h('p', null, 'Or from a terminal:'),
      ...commands.map((command) => commandLine(command)),
    );
  }

  /** @param {string} agent @param {string} text */
  async send(agent, text) {
    if (this.first.busy) return;
    this.first = { busy: true, taskId: '', error: null };
    this.update();
    try {
      this.first = { busy: false, taskId: await sendMessage(agent, { parts: [{ text }] }), error: null };
      announce('Sent');
    } catch (error) {
      this.first = { busy: false, taskId: '', error };
    }
    this.changed();
  }
}

/** @param {string} scope */
function needs(scope) {
  return h('p', { class: 'note' }, 'Needs the scope ', h('code', null, scope), '.');
}

/** @param {import('../core/now.js').Figure} figure */
function tile({ name, path, count, note, tone, scope, error, isRead }) {
  const head = h('span', { class: 'tile-name' }, name);
  if (scope) return h('div', { class: 'tile off', key: name }, head, h('strong', null, '–'), needs(scope));
  if (!isRead && !error) return h('div', { class: 'tile', key: name }, head, loading(name));
  // A figure that could not be read is no zero.
  const figure = h('strong', null, isRead && SHAPES[tone] && h('span', { class: 'shape', 'aria-hidden': 'true' }, SHAPES[tone]), isRead ? count : '?');
  return h('a', { class: `tile ${tone && `tone-${tone}`} ${error ? 'old' : ''}`, key: name, href: link(path) }, head, figure, h('span', { class: 'note' }, isRead ? note : 'could not be read'));
}

/** By shape as well as by colour. @type {{[tone: string]: string}} */
const SHAPES = { good: '✓', bad: '✕', wait: '?' };

customElements.define('nuncio-now', NuncioNow);
