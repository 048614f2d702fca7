/**
 * A plan and where it stands, read from the artifacts of its task: the artifact `plan` begins with the plan, and each
 * change of a subtask is a further part. The same reading as `PlanStatus::of` of the server. Pure.
 *
 * Any task can be opened as a plan, and any agent can write such artifacts: every shape is checked, and names of subtasks
 * are only ever keys of a Map.
 */

/**
 * @typedef {import('./fold.js').Task} Task
 * @typedef {{agent: string, why: string}} PassedOver an agent that could not do it, and why
 * @typedef {{id: string, needs: string[], target: string, attempts: number, timeout: string, fallbacks: string[], optional: boolean, input: any}} PlanTask
 * @typedef {{id: string, state: string, agent: string, taskId: string, attempts: number, why: string, rerouted: PassedOver[], startedAt: number, durationMs: number}} Subtask
 * @typedef {{task: string, state: string, agent: string, taskId: string, attempts: number, why: string, rerouted: PassedOver[], durationMs: number}} Source
 * @typedef {{name: string, request: string, tasks: PlanTask[], file: any}} Plan
 * @typedef {{plan: Plan, parts: Subtask[], startedAt: number, result: string | null, by: string, sources: Source[]}} PlanView
 */

export const PLAN_AGENT = 'orchestrator';
export const SUBTASK_STATES = ['waiting', 'working', 'asks', 'retrying', 'done', 'failed', 'skipped'];
const OVER = new Set(['done', 'failed', 'skipped']);

/** @param {string} state */
export function isOver(state) {
  return OVER.has(state);
}

/** The plan of a task; null while it has none. @param {Task} task @returns {PlanView | null} */
export function planOf(task) {
  const [first, ...changes] = dataOf(task, 'plan');
  if (!isObject(first) || !isObject(first.plan)) return null;
  const plan = readPlan(first.plan);
  const parts = new Map(plan.tasks.map(({ id }) => [id, emptySubtask(id)]));
  for (const change of changes) {
    const part = isObject(change) ? parts.get(change.task) : undefined;
    if (part) applyChange(part, change);
  }
  const made = dataOf(task, 'result')[0];
  const provenance = isObject(made) ? made : null;
  const words = task.artifacts.find(({ id }) => id === 'result')?.parts.find(({ text }) => typeof text === 'string');
  return {
    plan,
    parts: [...parts.values()],
    startedAt: timeOf(first.startedAt),
    result: words?.text ?? null,
    by: synthesisText(provenance?.synthesis),
    sources: list(provenance?.parts).filter(isObject).map(sourceOf),
  };
}

/** What a subtask made, as parts of content. @param {Task} task @param {string} id @returns {any[]} */
export function outputOf(task, id) {
  return task.artifacts.find((artifact) => artifact.id === `task:${id}`)?.parts ?? [];
}

/** A plan from its JSON; what does not fit is left out. @param {any} file @returns {Plan} */
export function readPlan(file) {
  const seen = new Set();
  const tasks = list(file?.tasks).filter((one) => isObject(one) && typeof one.id === 'string' && !seen.has(one.id) && seen.add(one.id));
  const retry = isObject(file?.retry) ? file.retry : {};
  return {
    name: text(file?.name) || 'plan',
    request: text(file?.request),
    file,
    tasks: tasks.map((one) => ({
      id: one.id,
      needs: [...new Set(list(one.needs).filter((need) => seen.has(need) && need !== one.id))],
      target: targetOf(one),
      attempts: count(isObject(one.retry) ? one.retry.attempts : retry.attempts) || 1,
      timeout: one.timeout === undefined ? '' : typeof one.timeout === 'number' ? `${one.timeout} s` : text(one.timeout),
      fallbacks: list(one.fallbacks).map((other) => (typeof other === 'string' ? other : isObject(other) ? targetOf(other) : '')).filter(Boolean),
      optional: one.optional === true,
      input: one.input,
    })),
  };
}

/** Who does it: an agent by name, or any with a skill. @param {any} given */
function targetOf(given) {
  if (typeof given.agent === 'string') return given.agent;
  const tags = list(given.tags).filter((tag) => typeof tag === 'string');
  return text(given.skill) ? `skill ${given.skill}${tags.length > 0 ? ` (${tags.join(', ')})` : ''}` : '';
}

/** @param {string} id @returns {Subtask} */
function emptySubtask(id) {
  return { id, state: 'waiting', agent: '', taskId: '', attempts: 0, why: '', rerouted: [], startedAt: NaN, durationMs: NaN };
}

/** @param {Subtask} part @param {any} change */
function applyChange(part, change) {
  part.state = text(change.state) || part.state;
  part.why = text(change.why);
  part.attempts = Math.max(part.attempts, count(change.attempts));
  part.agent = text(change.agent) || part.agent;
  // The task of an attempt is named when it has ended: that of the attempt before is not this one's.
  part.taskId = text(change.taskId) || (part.state === 'working' ? '' : part.taskId);
  if (Number.isNaN(part.startedAt)) part.startedAt = timeOf(change.startedAt);
  if (typeof change.durationMs === 'number') part.durationMs = change.durationMs;
  part.rerouted = passedOver(change.reroutedFrom);
}

/** @param {any} given @returns {Source} */
function sourceOf(given) {
  return {
    task: text(given.task), state: text(given.state), agent: text(given.agent), taskId: text(given.taskId), why: text(given.why),
    attempts: count(given.attempts), rerouted: passedOver(given.reroutedFrom), durationMs: typeof given.durationMs === 'number' ? given.durationMs : NaN,
  };
}

/** @param {any} given @returns {PassedOver[]} */
function passedOver(given) {
  return list(given).filter(isObject).map((one) => ({ agent: text(one.agent), why: text(one.why) }));
}

/** How the parts were put together. @param {any} synthesis */
function synthesisText(synthesis) {
  if (!isObject(synthesis)) return '';
  const by = { parts: 'every part under its heading', template: 'by the template of the plan', agent: `by agent ${text(synthesis.agent)}`, model: `by model ${text(synthesis.model)}` };
  const words = by[/** @type {keyof typeof by} */ (synthesis.by)] ?? text(synthesis.by);
  return synthesis.why ? `${words}, because: ${text(synthesis.why)}` : words;
}

/** The running subtasks' tasks: the plan names a task when it has ended; until then it is that running task of the plan
 * which alone has the agent of the one running subtask. Where two have the same agent, none is guessed.
 * @param {Subtask[]} parts @param {{taskId: string, agent: string, state: string}[]} called @param {(state: string) => boolean} isTerminal
 * @returns {Map<string, string>} subtask to task */
export function runningTasks(parts, called, isTerminal) {
  const found = new Map();
  const running = parts.filter((part) => part.state === 'working' && !part.taskId);
  for (const part of running) {
    const alike = called.filter((row) => row.agent === part.agent && !isTerminal(row.state));
    if (alike.length === 1 && running.filter((other) => other.agent === part.agent).length === 1) found.set(part.id, alike[0].taskId);
  }
  return found;
}

/** The task below the plan that asked a question: each task that passes a question on puts the id of the task below first.
 * @param {string} questionId */
export function askingTask(questionId) {
  const at = questionId.indexOf('.');
  return at > 0 ? questionId.slice(0, at) : '';
}

/** The path of a circle, from the words of a problem that names one; empty for other problems. @param {string} why @returns {string[]} */
export function circlePath(why) {
  const [, path] = /^these need each other: ([\w-]+(?: -> [\w-]+)+)$/.exec(why) ?? [];
  return path ? path.split(' -> ') : [];
}

/** @param {Task} task @param {string} id @returns {any[]} */
function dataOf(task, id) {
  const artifact = task.artifacts.find((one) => one.id === id);
  return (artifact?.parts ?? []).filter((part) => part.data !== undefined).map((part) => part.data);
}

/** Milliseconds of a time, which changes have as a number and results as text. @param {any} at */
function timeOf(at) {
  return typeof at === 'number' ? at : typeof at === 'string' ? Date.parse(at) : NaN;
}

/** @param {any} value @returns {any[]} */
const list = (value) => (Array.isArray(value) ? value : []);
/** @param {any} value @returns {string} */
const text = (value) => (typeof value === 'string' ? value : '');
/** @param {any} value @returns {number} */
const count = (value) => (Number.isSafeInteger(value) && value > 0 ? value : 0);
/** @param {any} value @returns {value is {[key: string]: any}} */
const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value);
