/**
 * The answer to one call of the screen Try, as it streams in: what was said and made, questions with their forms, and the
 * bytes of every request and response. A task that waits is followed by its own dialect, from the cursor of the last frame.
 */

import { AnswerFold, responseTo } from '../core/answer.js';
import { followOf, isMcp, requestCurl, requestOf, requestText, retryOf } from '../core/dialects.js';
import { RawJson } from '../core/json-text.js';
import { duration } from '../core/time.js';
import { get, segment } from '../ui/api.js';
import { partView } from '../ui/content-view.js';
import { link } from '../ui/context.js';
import { h } from '../ui/dom.js';
import { ConsoleElement } from '../ui/element.js';
import { Exchange, serverRoot } from '../ui/exchange.js';
import { announce, bytes, commandLine, copyButton, stateMark } from '../ui/parts.js';
import '../ui/question-form.js';

/** @typedef {import('../core/dialects.js').Call} Call */

/** The characters of a response that are shown; Copy has up to a MiB. */
const SHOWN = 64 * 1024;

class NuncioTryAnswer extends ConsoleElement {
  /** @type {Call | null} */
  #call = null;
  fold = new AnswerFold();
  /** @type {Exchange[]} */
  exchanges = [];
  /** The exchanges whose bytes are shown. @type {Set<number>} */
  opened = new Set([0]);
  /** Open questions of the task, in the engine's form. @type {any[]} */
  questions = [];
  /** The question of MCP whose answer is on its way. */
  answering = '';
  /** @type {string | null} */
  trouble = null;
  /** The task that the same key gave before; '' if this is its first call. */
  earlier = '';
  times = 1;
  /** @type {(task: string) => void} */
  onTask = () => {};

  /** A new object is a new call, also with the same content. @param {Call | null} call */
  set call(call) {
    if (call === this.#call) return;
    this.stop();
    this.#call = call;
    Object.assign(this, { fold: new AnswerFold(), exchanges: [], questions: [], answering: '', trouble: null, opened: new Set([0]) });
    if (call && this.isConnected) void this.begin(call);
  }

  get call() {
    return this.#call;
  }

  connected() {
    this.onLeave(() => this.stop());
    if (this.#call && this.exchanges.length === 0) void this.begin(this.#call);
  }

  stop() {
    for (const exchange of this.exchanges) if (!exchange.done) exchange.stop();
  }

  get running() {
    return this.exchanges.some((exchange) => !exchange.done);
  }

  /** @param {Call} call */
  async begin(call) {
    await this.exchange(requestOf(call), call);
    if (!isMcp(call.as) && this.fold.waits) await this.follow(call);
  }

  /** Goes on with the task after the last frame that was received. A stream of A2A ends where a question is asked: the
   * subscription begins at once, so that an answer from elsewhere is seen, too. @param {Call} call */
  async follow(call) {
    const { fold } = this;
    for (let before = -1; before !== fold.messages && this.isCurrent(call, fold) && !fold.ended; ) {
      before = fold.messages;
      if (fold.waits) await this.askQuestions(fold.taskId);
      if (!this.isCurrent(call, fold)) return;
      await this.exchange(followOf(call, fold.taskId, fold.cursor), call);
      if (this.exchanges.at(-1)?.broken) return;
    }
  }

  /** @param {Call} call @param {AnswerFold} fold */
  isCurrent(call, fold) {
    return this.isConnected && this.#call === call && this.fold === fold && fold.taskId !== '';
  }

  /** @param {import('../core/dialects.js').WireRequest} request @param {Call} call */
  async exchange(request, call) {
    const exchange = new Exchange(request);
    const { fold } = this;
    this.exchanges.push(exchange);
    const take = (/** @type {any} */ message, /** @type {string} */ id) => {
      if (this.#call !== call || this.fold !== fold) return;
      const before = fold.waits;
      fold.take(message, id);
      if (fold.taskId) this.onTask(fold.taskId);
      if (before && !fold.waits) this.questions = [];
      // An authorization leaves the stream open.
      if (!before && fold.waits && fold.state === 'auth-required' && fold.taskId) void this.askQuestions(fold.taskId);
    };
    await exchange.run(take, () => this.changed());
    if (this.#call === call) announce(fold.problem ?? fold.state);
  }

  /** Reads the open questions of a task as they are now. @param {string} task */
  async askQuestions(task) {
    try {
      const { row } = await get(`tasks/${segment(task)}`);
      const { task: at } = await get(`tasks/${segment(task)}/at/${row.events}`);
      if (this.fold.taskId === task) Object.assign(this, { questions: at.questions.map((/** @type {any[]} */ [, question]) => question), trouble: null });
    } catch (error) {
      this.trouble = error instanceof Error ? error.message : String(error);
    }
    this.changed();
  }

  /** Answers a question of MCP by the call again, with its state.
   * @param {import('../core/answer.js').AnswerQuestion} question @param {import('../ui/question-form.js').TypedAnswer} answer */
  async retry(question, { action, content }) {
    const call = this.#call;
    if (!call) return '';
    if (action === 'unavailable') throw new Error('MCP has no such answer: decline or cancel');
    const sampled = question.input === 'sampling/createMessage';
    if (sampled && action !== 'accept') throw new Error('MCP has no refusal of a model request: answer it, or stop the call');
    const response = responseTo(question, action, content === null ? null : sampled ? JSON.parse(content) : new RawJson(content));
    const { fold } = this;
    const state = fold.requestState;
    fold.state = 'working';
    this.answering = question.id;
    await this.exchange(retryOf(call, state, { [question.id]: response }), call);
    this.answering = '';
    this.changed();
    // The form is still there, with what was typed.
    const refused = fold.reopen() ?? (fold.waits && fold.questions.some((asked) => asked.id === question.id) ? 'The server asks again: it did not take this answer.' : null);
    if (refused) throw new Error(refused);
    return `Sent: ${action}.`;
  }

  view() {
    const { call, fold } = this;
    if (!call) return null;
    const last = this.exchanges.at(-1);
    return h(
      'section',
      { class: 'answered', 'aria-label': 'Answer' },
      h('h2', null, 'Answer'),
      this.head(call, last),
      this.earlier && fold.taskId ? this.sameTask() : null,
      fold.problem !== null && h('p', { class: 'problem', role: 'alert' }, fold.problem),
      last?.broken && fold.problem === null ? h('p', { class: 'problem', role: 'alert' }, broken(last.broken, call)) : null,
      this.trouble && h('p', { class: 'problem', role: 'alert' }, `The question cannot be read: ${this.trouble}`),
      h('ol', { class: 'story' }, ...fold.items.map(item), ...this.asked()),
      fold.items.length === 0 && fold.problem === null && this.questions.length === 0 && fold.questions.length === 0 ? h('p', { class: 'note' }, last?.done ? (fold.taskId ? 'The task has said nothing yet.' : 'The response has no content.') : 'Waiting for the answer…') : null,
      h('h2', null, 'Bytes'),
      ...this.exchanges.map((exchange, at) => this.wire(exchange, at)),
    );
  }

  /** @param {Call} call @param {Exchange | undefined} last */
  head(call, last) {
    const { fold } = this;
    const state = fold.state || (fold.problem ? 'failed' : this.running ? 'working' : '');
    return h(
      'p',
      { class: 'bar' },
      state && stateMark(state),
      fold.taskId && h('a', { href: link(`tasks/${segment(fold.taskId)}`) }, 'Open the task'),
      fold.taskId && h('span', { class: 'id' }, fold.taskId.slice(-8)),
      last?.done && this.exchanges.length === 1 && h('span', { class: 'note' }, `took ${duration(last.took)}`),
      !this.running && fold.taskId && !fold.ended && !isMcp(call.as) && h('button', { type: 'button', onclick: () => this.follow(call) }, fold.cursor ? `Continue after event ${fold.cursor}` : 'Follow the task'),
      this.running && h('button', { type: 'button', title: isMcp(call.as) ? 'The server cancels a call of MCP whose stream is closed' : 'The task continues', onclick: () => this.stop() }, isMcp(call.as) ? 'Stop the call' : 'Stop reading'),
    );
  }

  sameTask() {
    const { taskId } = this.fold;
    const text = taskId === this.earlier ? `The same task came back: the server has seen this key ${this.times} times, and it is one task.` : `Another task came back: ${taskId}, not ${this.earlier}.`;
    return h('p', { class: taskId === this.earlier ? 'sent' : 'problem', role: 'status' }, text);
  }

  asked() {
    const { fold } = this;
    const shape = (/** @type {any} */ question, /** @type {any} */ prop) => h('li', { key: `q ${question.id}`, class: 'asked', hidden: question.id === this.answering }, h('nuncio-question', { prop: { question, ...prop } }));
    if (fold.questions.length > 0 && fold.problem === null) return fold.questions.map((question) => shape({ id: question.id, text: question.text, ask: question.ask }, { deliver: (/** @type {any} */ answer) => this.retry(question, answer) }));
    return this.questions.map((question) => shape(question, { taskId: fold.taskId }));
  }

  /** @param {Exchange} exchange @param {number} at */
  wire(exchange, at) {
    const { request } = exchange;
    const root = serverRoot();
    const sent = requestText(request, root, exchange.withToken);
    const head = [`HTTP ${exchange.status}`, ...exchange.headers.map(([name, value]) => `${name}: ${value}`)].join('\n');
    const summary = exchange.status === 0 ? (exchange.done ? 'no response' : 'sent') : `${exchange.status} · ${exchange.frames > 0 ? `${exchange.frames} ${exchange.frames === 1 ? 'frame' : 'frames'} · ` : ''}${bytes(exchange.size)}${exchange.done ? ` · ${duration(exchange.took)}` : ' · open'}`;
    const toggle = (/** @type {any} */ event) => (event.target.open ? this.opened.add(at) : this.opened.delete(at));
    return h(
      'details',
      { key: `exchange ${at}`, class: 'frame', open: this.opened.has(at), ontoggle: toggle },
      h('summary', null, h('code', null, `${request.method} /${request.path}`), ` → ${summary}`),
      h('h3', null, 'Request ', copyButton(sent, 'Copy the request')),
      h('pre', { tabindex: 0, class: 'sent-bytes' }, sent),
      h('p', { class: 'note' }, exchange.withToken ? 'The token is named, not shown. The browser adds headers of its own.' : 'The browser adds headers of its own.'),
      commandLine(requestCurl(request, root, exchange.withToken)),
      h('h3', null, 'Response ', exchange.text && copyButton(exchange.text, 'Copy the response')),
      exchange.status > 0 && h('pre', { tabindex: 0, class: 'received-bytes' }, `${head}\n\n${exchange.text.slice(0, SHOWN)}`),
      exchange.size > SHOWN && h('p', { class: 'note' }, `The first ${bytes(SHOWN)} of ${bytes(exchange.size)} are shown.`),
      exchange.broken && h('p', { class: 'note' }, exchange.broken),
    );
  }
}

/** @param {string} why @param {Call} call */
function broken(why, call) {
  if (why !== 'stopped here') return `${why[0].toUpperCase()}${why.slice(1)}. Send again with the same key: the task is made once.`;
  return isMcp(call.as) ? 'Stopped: the server cancels the call.' : 'Stopped reading: the task continues.';
}

/** @param {import('../core/answer.js').AnswerItem} item */
function item(item) {
  const parts = item.parts.map((part) => partView(part));
  if (item.kind === 'progress') return h('li', { key: item.key, class: 'said said-progress' }, item.total === undefined ? `${item.done} ` : h('progress', { max: item.total, value: item.done, 'aria-label': 'Progress' }), ' ', item.name);
  const head = item.kind === 'artifact' ? `Artifact: ${item.name}` : item.kind === 'log' ? `Log: ${item.name}` : item.name;
  return h('li', { key: item.key, class: 'said' }, head && h('p', { class: 'said-head' }, h('strong', null, head)), h('div', { class: 'parts' }, ...parts));
}

customElements.define('nuncio-try-answer', NuncioTryAnswer);
