/**
 * The fold from a task's log to the task: the same as `Task::fold` of the engine, member by member, at every event.
 *
 * The result has the shape of the engine's serde form (snake_case, absent members absent), so that it can be compared with
 * `GET /tasks/{id}/at/{seq}`. Events have the form of the tool `task_events`. Nothing here touches the DOM.
 */

import { same } from './diff.js';

/**
 * @typedef {{[key: string]: any}} Json
 * @typedef {{seq: number, timestamp: string, type: string, size?: number, by?: import('./questions.js').Sender, data?: any, preview?: string}} LogEvent
 * @typedef {{text?: string, bytes?: string, url?: string, data?: any, metadata?: Json, filename?: string, media_type?: string}} Part
 * @typedef {{id: string, role: string, parts: Part[], metadata?: Json, extensions?: string[], reference_task_ids?: string[]}} Message
 * @typedef {{id: string, name?: string, description?: string, parts: Part[], metadata?: Json, extensions?: string[], complete?: boolean}} Artifact
 * @typedef {{id: string, text: string, ask: any, callback?: string}} Question
 * @typedef {{done: number, total?: number, text?: string, data?: any}} Progress
 * @typedef {{id: string, client_id?: string, context: string, agent: string, owner: string, dialect: string, metadata?: Json, trace?: string, accepts_reply?: boolean}} Origin
 * @typedef {{origin: Origin, state: string, status_at: number, status_message: Message | null, progress: [number, Progress] | null,
 *   artifacts: Artifact[], history: Message[], questions: [number, Question][], seq: number, changed_at?: number}} Task
 */

const TERMINAL = new Set(['completed', 'failed', 'canceled', 'rejected', 'replied']);

/** @param {string} state */
export function isTerminal(state) {
  return TERMINAL.has(state);
}

/** The task before its first event.
 * @param {Origin} origin @returns {Task} */
export function newTask(origin) {
  return {
    origin,
    state: 'submitted',
    status_at: 0,
    status_message: null,
    progress: null,
    artifacts: [],
    history: [],
    questions: [],
    seq: 0,
  };
}

/** A copy that shares every value which `apply` never changes in place.
 * @param {Task} task @returns {Task} */
export function copyTask(task) {
  return {
    ...task,
    artifacts: task.artifacts.map((artifact) => ({ ...artifact, parts: artifact.parts.slice() })),
    history: task.history.slice(),
    questions: task.questions.slice(),
  };
}

/** Applies the next event of the log. An event without data (too large for its page) counts, and changes nothing else.
 * @param {Task} task @param {LogEvent} event */
export function apply(task, event) {
  if (event.seq !== task.seq + 1) throw new RangeError(`event ${event.seq} does not follow event ${task.seq}`);
  task.seq = event.seq;
  const at = Date.parse(event.timestamp);
  if (event.type !== 'log') task.changed_at = at;
  const data = event.data;
  if (data === undefined) return;
  switch (event.type) {
    case 'message':
      if (task.seq === 1) task.status_at = at;
      task.history.push(data);
      break;
    case 'status':
      enter(task, data.state, at, data.message ?? null);
      break;
    case 'artifact':
      takeChunk(task, data);
      break;
    case 'progress':
      if (task.state === 'working') task.status_at = at;
      task.progress = [task.seq, data];
      break;
    case 'question':
      task.questions.push([task.seq, data]);
      showOldestQuestion(task, at);
      break;
    case 'answer':
    case 'withdrawn':
      task.questions = task.questions.filter(([, open]) => open.id !== data.question);
      if (task.questions.length === 0) enter(task, 'working', at, null);
      break;
    default: // A log line, or a kind of a later release.
      break;
  }
}

/** @param {Task} task @param {Iterable<LogEvent>} events @returns {Task} */
export function fold(task, events) {
  for (const event of events) apply(task, event);
  return task;
}

/** @param {Task} task @param {string} state @param {number} at @param {Message | null} message */
function enter(task, state, at, message) {
  if (task.status_message) task.history.push(task.status_message);
  if (isTerminal(state)) task.questions = [];
  task.state = state;
  task.status_at = at;
  task.status_message = message;
  task.progress = null;
}

/** While questions are open, the oldest of them is the status.
 * @param {Task} task @param {number} at */
function showOldestQuestion(task, at) {
  const [seq, question] = task.questions[0];
  const message = questionMessage(question, task.origin.client_id ?? task.origin.id, seq);
  if (task.status_message?.id === message.id) return;
  enter(task, question.ask.authorization ? 'auth-required' : 'input-required', at, message);
}

/** `Question::message` of the engine.
 * @param {Question} question @param {string} task @param {number} seq @returns {Message} */
function questionMessage(question, task, seq) {
  const { form, sample, authorization } = question.ask;
  /** @type {Json} */
  const data = { questionId: question.id };
  if (form) data.schema = form.schema ?? null;
  else if (sample) data.maxTokens = sample.max_tokens;
  else if (authorization) data.url = authorization.url;
  if (question.callback !== undefined) data.callbackUrl = question.callback;
  return { id: `${task}-${seq}`, role: 'agent', parts: [{ text: question.text }, { data }] };
}

/** @param {Task} task @param {any} chunk */
function takeChunk(task, chunk) {
  if (task.artifacts.length <= chunk.index) task.artifacts.push({ id: chunk.id, parts: [] });
  const artifact = task.artifacts[chunk.index];
  if (!artifact) return;
  if (!chunk.append) artifact.parts = [];
  const last = artifact.parts.length - 1;
  const more = plainText(chunk, artifact);
  if (more !== null && last >= 0 && isBareText(artifact.parts[last])) {
    // A new object: copies made before share the old one.
    artifact.parts[last] = { text: artifact.parts[last].text + more };
  } else {
    artifact.parts.push(...chunk.parts);
  }
  if (chunk.last) artifact.complete = true;
  else delete artifact.complete;
  for (const name of /** @type {const} */ (['name', 'description', 'metadata'])) {
    if (chunk[name] !== undefined) artifact[name] = chunk[name];
  }
  if (chunk.extensions?.length) artifact.extensions = chunk.extensions;
}

/** The text of a chunk that is nothing but more text of the artifact; it is joined with the text before it.
 * @param {any} chunk @param {Artifact} artifact @returns {string | null} */
function plainText(chunk, artifact) {
  if (!chunk.append || chunk.parts.length !== 1 || !isBareText(chunk.parts[0])) return null;
  /** @param {any} next @param {any} known */
  const adds = (next, known) => next !== undefined && !same(next, known);
  const extensions = chunk.extensions ?? [];
  const changed =
    adds(chunk.name, artifact.name) ||
    adds(chunk.description, artifact.description) ||
    adds(chunk.metadata, artifact.metadata) ||
    (extensions.length > 0 && !same(extensions, artifact.extensions ?? []));
  return changed ? null : chunk.parts[0].text;
}

/** @param {Part} part */
function isBareText(part) {
  return (
    part.text !== undefined &&
    part.metadata === undefined &&
    part.filename === undefined &&
    part.media_type === undefined
  );
}

const CHECKPOINTS = 64;

/** A log from its first event, and the task as of any event of it. At most 64 checkpoints, evenly spaced, bound both the
 * memory and the events that `at` folds again. */
export class LogFold {
  /** @param {Origin} origin */
  constructor(origin) {
    /** @type {LogEvent[]} The event with number n is at n - 1: numbers have no gaps. */
    this.events = [];
    this.task = newTask(origin);
    /** The first event whose data is not here; the fold is exact before it. @type {number | null} */
    this.cutAt = null;
    this.spacing = 64;
    /** @type {Task[]} */
    this.checkpoints = [newTask(origin)];
  }

  /** Takes events that continue the log. Events that are known already are left out; a gap is an error.
   * @param {LogEvent[]} events @returns {number} how many were new */
  push(events) {
    let taken = 0;
    for (const event of events) {
      if (event.seq <= this.task.seq) continue;
      apply(this.task, event);
      this.events.push(event);
      taken += 1;
      if (event.data === undefined) this.cutAt ??= event.seq;
      if (event.seq % this.spacing === 0) this.remember();
    }
    return taken;
  }

  remember() {
    this.checkpoints.push(copyTask(this.task));
    if (this.checkpoints.length <= CHECKPOINTS) return;
    this.spacing *= 2;
    this.checkpoints = this.checkpoints.filter((task) => task.seq % this.spacing === 0);
  }

  /** The task as of event `n`.
   * @param {number} n @returns {Task} */
  at(n) {
    const end = Math.max(0, Math.min(n, this.events.length));
    if (end === this.task.seq) return this.task;
    let low = 0;
    for (let high = this.checkpoints.length; high - low > 1; ) {
      const middle = (low + high) >> 1;
      if (this.checkpoints[middle].seq <= end) low = middle;
      else high = middle;
    }
    const task = copyTask(this.checkpoints[low]);
    for (let index = task.seq; index < end; index += 1) apply(task, this.events[index]);
    return task;
  }

  /** Whether every event from 1 to the last is here. */
  get isComplete() {
    return this.events.every((event, index) => event.seq === index + 1);
  }
}
