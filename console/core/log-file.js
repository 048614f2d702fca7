/**
 * The log of a task as a file that any console opens: its members, the text that its digest is over, and the reading of a file
 * that somebody gives, of which nothing is believed. Pure.
 */

/**
 * @typedef {import('./fold.js').LogEvent} LogEvent
 * @typedef {import('./fold.js').Origin} Origin
 * @typedef {{taskId: string, origin: Origin, agentVersion: string | null, server: string, exportedAt: string, digest: string | null, events: LogEvent[]}} LogFile
 */

const FORMAT = 'nuncio-task-log';
const VERSION = 1;
/** Of a file that is written or read: twice what a task holds by default. */
export const MAX_FILE = 64 * 1024 * 1024;
/** The server's own parser reads 128 levels; an event stands at the third. */
const MAX_DEPTH = 140;

/** One event in the canonical form of RFC 8785 (members by name, numbers as a double is written), with the members that are
 * its content. The digest is over these lines, each with a line feed at its end. @param {LogEvent} event */
export function canonicalLine({ seq, timestamp, type, data }) {
  return `${canonical({ seq, timestamp, type, data })}\n`;
}

/** @param {any} value @returns {string} */
function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const names = Object.keys(value).filter((name) => value[name] !== undefined).sort();
  return `{${names.map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`).join(',')}}`;
}

/** The parts of the file. The events are texts as the server wrote them, so that no number passes through a double.
 * @param {Omit<LogFile, 'events'>} file @param {string[]} events @returns {string[]} */
export function writeLogFile({ taskId, origin, agentVersion, server, exportedAt, digest }, events) {
  const head = { format: FORMAT, version: VERSION, taskId, agent: origin.agent, agentVersion, serverVersion: server, exportedAt, origin, count: events.length, digest: digest && { algorithm: 'SHA-256', over: 'the events as RFC 8785 lines of data, seq, timestamp and type', value: digest } };
  return [`${JSON.stringify(head).slice(0, -1)},"events":[`, ...events.map((event, index) => `${index > 0 ? ',' : ''}\n${event}`), '\n]}\n'];
}

/** @param {string} taskId */
export function logFileName(taskId) {
  return `task-${taskId.replaceAll(/[^\w.-]/g, '_').slice(0, 80)}.log.json`;
}

/** Reads a file; what is wrong with it is thrown, in words for the person who chose it. @param {string} text @returns {LogFile} */
export function readLogFile(text) {
  let file;
  try {
    file = JSON.parse(text);
  } catch (error) {
    throw new Error(`this is not JSON: ${error instanceof Error ? error.message : error}`);
  }
  if (!isObject(file) || file.format !== FORMAT) throw new Error(`this is not a log of a task: "format" is not "${FORMAT}"`);
  if (file.version !== VERSION) throw new Error(`the file has version ${JSON.stringify(file.version)?.slice(0, 20)} of the format; this console reads version ${VERSION}`);
  checkDepth(file);
  const origin = file.origin;
  for (const name of ['id', 'context', 'agent', 'owner', 'dialect']) if (typeof origin?.[name] !== 'string') throw new Error(`origin.${name} is not a text`);
  if (typeof file.taskId !== 'string') throw new Error('taskId is not a text');
  if (!Array.isArray(file.events) || file.events.length === 0) throw new Error('the file has no events');
  for (const [index, event] of file.events.entries()) checkEvent(event, index + 1);
  const textOf = (/** @type {any} */ value) => (typeof value === 'string' ? value : '');
  const digest = file.digest?.algorithm === 'SHA-256' && /^[0-9a-f]{64}$/.test(file.digest.value) ? file.digest.value : null;
  return { taskId: file.taskId, origin, agentVersion: textOf(file.agentVersion) || null, server: textOf(file.serverVersion), exportedAt: textOf(file.exportedAt), digest, events: file.events };
}

/** Deep values would end the stack of what reads them later. @param {any} file */
function checkDepth(file) {
  /** @type {[any, number][]} */
  const open = [[file, 1]];
  for (let next = open.pop(); next; next = open.pop()) {
    const [value, depth] = next;
    if (depth > MAX_DEPTH) throw new Error(`a value is nested deeper than ${MAX_DEPTH} levels`);
    for (const member of Object.values(value)) if (typeof member === 'object' && member !== null) open.push([member, depth + 1]);
  }
}

/** @param {any} event @param {number} seq */
function checkEvent(event, seq) {
  if (!isObject(event)) throw new Error(`event ${seq} is not an object`);
  if (event.seq !== seq) throw new Error(`the log has a gap: event ${JSON.stringify(event.seq)?.slice(0, 20)} stands in the place of event ${seq}`);
  if (typeof event.type !== 'string' || event.type.length > 64) throw new Error(`event ${seq} has no type`);
  if (typeof event.timestamp !== 'string' || event.timestamp.length > 40 || !Number.isFinite(Date.parse(event.timestamp))) throw new Error(`event ${seq} has no time`);
  if (event.data === undefined) throw new Error(`event ${seq} is not whole: its data is missing`);
  // A kind of a later release is shown as it is.
  if (Object.hasOwn(SHAPES, event.type) && !(isObject(event.data) && SHAPES[event.type](event.data))) throw new Error(`event ${seq} does not have the data of ${event.type}`);
}

/** What the fold and the readings rely on. @type {{[type: string]: (data: any) => boolean}} */
const SHAPES = {
  message: (data) => typeof data.role === 'string' && areParts(data.parts),
  status: (data) => typeof data.state === 'string' && (data.message === undefined || data.message === null || areParts(data.message.parts)),
  artifact: (data) => Number.isInteger(data.index) && data.index >= 0 && typeof data.id === 'string' && areParts(data.parts),
  progress: (data) => typeof data.done === 'number',
  log: (data) => typeof data.text === 'string',
  question: (data) => typeof data.id === 'string' && typeof data.text === 'string' && isObject(data.ask),
  answer: (data) => typeof data.question === 'string',
  withdrawn: (data) => typeof data.question === 'string',
};

/** @param {any} parts */
function areParts(parts) {
  return Array.isArray(parts) && parts.every((part) => isObject(part) && ['text', 'url', 'bytes'].every((name) => part[name] === undefined || typeof part[name] === 'string') && (part.bytes === undefined || /^[A-Za-z0-9+/]*={0,2}$/.test(part.bytes)));
}

/** @param {any} value @returns {value is {[name: string]: any}} */
function isObject(value) {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
