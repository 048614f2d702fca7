/**
 * The answer of an agent or a tool, folded from the messages of a response in any dialect that the screen Try speaks. Parts
 * come out in the engine's form, so that one view shows them all. Every message is hostile input. Pure.
 */

import { same } from './diff.js';

/**
 * @typedef {{key: string, kind: 'said' | 'artifact' | 'progress' | 'log' | 'result', name: string, parts: any[], done?: number, total?: number}} AnswerItem
 * @typedef {{id: string, text: string, ask: any, input: string}} AnswerQuestion `input`: the method of MCP that asks
 */

const INVALID_PARAMS = -32602;
const ENDED = ['completed', 'failed', 'canceled', 'rejected'];

export class AnswerFold {
  taskId = '';
  /** The state as the engine names it; '' while it is not known. */
  state = '';
  /** The id of the last frame of a stream. */
  cursor = '';
  messages = 0;
  /** @type {AnswerItem[]} */
  items = [];
  /** An error of the protocol, or of a tool. @type {string | null} */
  problem = null;
  /** The code of that error; 0 if it has none. */
  code = 0;
  /** Questions that the response itself asks (MCP). @type {AnswerQuestion[]} */
  questions = [];
  requestState = '';

  get ended() {
    return ENDED.includes(this.state) || this.problem !== null;
  }

  get waits() {
    return this.state === 'input-required' || this.state === 'auth-required';
  }

  /** @param {any} message @param {string} [id] of the frame */
  take(message, id = '') {
    this.messages += 1;
    if (id) this.cursor = id;
    if (!isObject(message)) return;
    if (message.error !== undefined) return this.fail(message.error);
    if (typeof message.method === 'string') return this.notification(message);
    const result = isObject(message.result) ? message.result : message;
    if (typeof result.resultType === 'string' || Array.isArray(result.content)) return this.mcpResult(result);
    const { task, statusUpdate, artifactUpdate } = result;
    const kind = result.kind;
    if (isObject(task) || kind === 'task') this.task(task ?? result);
    else if (isObject(statusUpdate) || kind === 'status-update') this.update(statusUpdate ?? result);
    else if (isObject(artifactUpdate) || kind === 'artifact-update') this.artifact((artifactUpdate ?? result).artifact, (artifactUpdate ?? result).append === true);
    else if (isObject(result.message) || kind === 'message') {
      this.said(kind === 'message' ? result : result.message);
      this.state = 'replied';
    }
  }

  /** @param {any} error */
  fail(error) {
    const code = isObject(error) && error.code !== undefined ? ` (${error.code})` : '';
    this.code = typeof error?.code === 'number' ? error.code : 0;
    this.problem = `${textOf(error?.message) || 'The request was refused'}${code}`;
  }

  /** Takes back the error of an answer that was refused: its question is still open. @returns {string | null} the error */
  reopen() {
    const { problem } = this;
    if (this.code !== INVALID_PARAMS || this.questions.length === 0) return null;
    Object.assign(this, { problem: null, code: 0, state: 'input-required' });
    return problem;
  }

  /** @param {any} task */
  task(task) {
    this.taskId = textOf(task.id);
    for (const message of list(task.history)) if (!String(message?.role).toLowerCase().includes('user')) this.said(message);
    for (const artifact of list(task.artifacts)) this.artifact(artifact, false);
    this.status(task.status);
  }

  /** @param {any} update */
  update(update) {
    this.taskId ||= textOf(update.taskId);
    this.status(update.status);
  }

  /** @param {any} status */
  status(status) {
    if (!isObject(status)) return;
    this.state = textOf(status.state).replace(/^TASK_STATE_/, '').toLowerCase().replaceAll('_', '-').replace('cancelled', 'canceled');
    // A question is shown by its form.
    if (isObject(status.message) && !this.waits) this.said(status.message);
  }

  /** @param {any} message */
  said(message) {
    if (!isObject(message)) return;
    const parts = list(message.parts).map(partOf);
    // A question that was asked before: its answer is in the task.
    if (parts.some((part) => typeof part.data?.questionId === 'string')) return;
    const figures = parts.find((part) => typeof part.data?.progress === 'number')?.data;
    if (figures) return this.progress(figures.progress, figures.total, parts.filter((part) => typeof part.text === 'string').map((part) => part.text).join(' '));
    if (parts.length > 0) this.put({ key: `m ${textOf(message.messageId)}`, kind: 'said', name: '', parts });
  }

  /** @param {any} artifact @param {boolean} append */
  artifact(artifact, append) {
    if (!isObject(artifact)) return;
    const key = `a ${textOf(artifact.artifactId)}`;
    const before = this.items.find((item) => item.key === key);
    const parts = list(artifact.parts).map(partOf);
    const name = textOf(artifact.name) || before?.name || textOf(artifact.artifactId);
    this.put({ key, kind: 'artifact', name, parts: append && before ? joined(before.parts, parts) : parts });
  }

  /** @param {any} done @param {any} total @param {string} text */
  progress(done, total, text) {
    this.put({ key: 'progress', kind: 'progress', name: text, parts: [], done: Number(done), ...(typeof total === 'number' ? { total } : {}) });
  }

  /** @param {any} message a notification of MCP */
  notification({ method, params }) {
    if (method === 'notifications/progress') this.progress(params?.progress, params?.total, textOf(params?.message));
    else if (method === 'notifications/message') this.put({ key: `l ${this.messages}`, kind: 'log', name: textOf(params?.level), parts: [{ text: typeof params?.data === 'string' ? params.data : JSON.stringify(params?.data ?? null) }] });
  }

  /** @param {any} result */
  mcpResult(result) {
    const task = result._meta?.['nuncio/taskId'] ?? result.taskId;
    if (typeof task === 'string') this.taskId = task;
    if (result.resultType === 'input_required') {
      this.state = 'input-required';
      this.requestState = textOf(result.requestState);
      this.questions = Object.entries(isObject(result.inputRequests) ? result.inputRequests : {}).map(([id, request]) => questionOf(id, request));
      return;
    }
    this.questions = [];
    const parts = list(result.content).map(contentOf);
    if (result.isError === true) this.problem = parts.map((part) => part.text ?? '').join('\n') || 'the tool failed';
    const structured = result.structuredContent;
    const shown = structured === undefined ? parts : [...parts.filter((part) => !isTextOf(part, structured)), { data: structured }];
    const link = parts.length === 1 && parts[0].url?.startsWith('a2a://tasks/');
    if (!this.problem && shown.length > 0 && !link) this.put({ key: 'result', kind: 'result', name: 'Result', parts: shown });
    this.state = link ? 'submitted' : this.problem ? 'failed' : 'completed';
  }

  /** Puts an item in the place of the one with its key; progress moves to the end. @param {AnswerItem} item */
  put(item) {
    const at = this.items.findIndex((known) => known.key === item.key);
    if (at >= 0 && item.kind !== 'progress') this.items[at] = item;
    else {
      if (at >= 0) this.items.splice(at, 1);
      this.items.push(item);
    }
  }
}

/** Text that follows text is one part, as in a task. @param {any[]} before @param {any[]} more */
function joined(before, more) {
  const all = [...before];
  for (const part of more) {
    const last = all.at(-1);
    if (typeof part.text === 'string' && typeof last?.text === 'string') all[all.length - 1] = { text: last.text + part.text };
    else all.push(part);
  }
  return all;
}

/** A part of A2A 1.0 or 0.3. @param {any} part */
function partOf(part) {
  if (!isObject(part)) return { data: part };
  if (typeof part.text === 'string') return { text: part.text };
  const file = isObject(part.file) ? part.file : part;
  const about = { filename: file.filename ?? file.name, media_type: file.mediaType ?? file.mimeType };
  if (typeof (file.raw ?? file.bytes) === 'string') return { bytes: file.raw ?? file.bytes, ...about };
  if (typeof (file.url ?? file.uri) === 'string') return { url: file.url ?? file.uri, ...about };
  return { data: part.data };
}

/** A content block of MCP. @param {any} block */
function contentOf(block) {
  if (!isObject(block)) return { data: block };
  if (block.type === 'text') return { text: textOf(block.text) };
  if (block.type === 'resource_link') return { url: textOf(block.uri), filename: textOf(block.name) };
  if (typeof block.data === 'string') return { bytes: block.data, media_type: textOf(block.mimeType), filename: textOf(block.type) };
  const resource = isObject(block.resource) ? block.resource : {};
  if (typeof resource.text === 'string') return { text: resource.text };
  if (typeof resource.blob === 'string') return { bytes: resource.blob, media_type: textOf(resource.mimeType), filename: textOf(resource.uri) };
  return { data: block };
}

/** A question of MCP in the engine's form. @param {string} id @param {any} request @returns {AnswerQuestion} */
function questionOf(id, request) {
  const params = isObject(request?.params) ? request.params : {};
  const input = textOf(request?.method);
  if (input === 'sampling/createMessage') {
    const text = list(params.messages).flatMap((message) => [message?.content].flat()).map((content) => textOf(content?.text)).join('\n');
    return { id, input, text, ask: { sample: { system: textOf(params.systemPrompt), max_tokens: params.maxTokens } } };
  }
  if (typeof params.url === 'string') return { id, input, text: textOf(params.message), ask: { authorization: { url: params.url } } };
  return { id, input, text: textOf(params.message), ask: { form: { schema: params.requestedSchema ?? {} } } };
}

/** The answer to a question of MCP. @param {AnswerQuestion} question @param {string} action @param {any} content */
export function responseTo(question, action, content) {
  if (question.input === 'sampling/createMessage') return { role: 'assistant', content: { type: 'text', text: content?.text ?? '' }, model: 'person', stopReason: 'endTurn' };
  return { action, ...(action === 'accept' && content !== null ? { content } : {}) };
}

/** Whether a part is only the text of a value that is shown as such. @param {any} part @param {any} value */
function isTextOf(part, value) {
  if (typeof part.text !== 'string' || !/^\s*[[{]/.test(part.text)) return false;
  try {
    return same(JSON.parse(part.text), value);
  } catch {
    return false;
  }
}

/** @param {any} value @returns {value is {[key: string]: any}} */
function isObject(value) {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
/** @param {any} value @returns {any[]} */
const list = (value) => (Array.isArray(value) ? value : []);
/** @param {any} value */
const textOf = (value) => (typeof value === 'string' ? value : '');
