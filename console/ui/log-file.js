/**
 * A task's log as a file: read whole from the server for the export, and opened again without a server. The digest needs a
 * secure context, which loopback is; elsewhere there is none, and that is said.
 */

import { isTerminal } from '../core/fold.js';
import { JsonIndex } from '../core/json-index.js';
import { canonicalLine, logFileName, MAX_FILE, readLogFile, writeLogFile } from '../core/log-file.js';
import { clock, getBytes, segment } from './api.js';
import { context } from './context.js';
import { download } from './download.js';
import { bytes as size } from './parts.js';
import { TaskLog } from './task-log.js';

/** @typedef {import('../core/fold.js').LogEvent} LogEvent */

const PAGE = 1000;
const WHOLE = 1024 * 1024;
/** Events whose lines are written between two turns of the page. */
const SLICE = 2000;

/** The events of a log with their data, each also as the server wrote it; those that are too large for a page one by one.
 * @param {string} id @param {AbortSignal} signal @param {(done: number, last: number) => void} onProgress */
export async function readWhole(id, signal, onProgress) {
  const path = `tasks/${segment(id)}/events`;
  /** @type {{events: LogEvent[], texts: string[]}} */
  const whole = { events: [], texts: [] };
  let [last, length] = [Infinity, 0];
  while (whole.events.length < last) {
    const bytes = await getBytes(`${path}?after=${whole.events.length}&limit=${PAGE}&preview=${WHOLE}`, { signal });
    const page = JSON.parse(new TextDecoder().decode(bytes));
    // A log that grows is read as it was when the reading began.
    last = Math.min(last, page.last);
    if (page.events.length === 0) throw new Error(`the server sent no event after ${whole.events.length}`);
    const texts = elementTexts(bytes);
    for (const [index, event] of page.events.entries()) {
      if (event.seq > last) break;
      const alone = event.data === undefined ? new TextDecoder().decode(await getBytes(`${path}/${event.seq}`, { signal })) : null;
      whole.events.push(alone ? JSON.parse(alone) : event);
      whole.texts.push(alone ?? texts[index]);
      length += whole.texts[whole.texts.length - 1].length;
      if (length > MAX_FILE) throw new Error(`the log is larger than ${size(MAX_FILE)}: read it in pages of the API`);
    }
    onProgress(whole.events.length, last);
  }
  return whole;
}

/** The texts of the elements of `events`, as written. @param {Uint8Array} bytes */
function elementTexts(bytes) {
  const index = new JsonIndex(bytes);
  const events = index.children(index.root(), 0, Infinity).find((child) => index.key(child) === 'events');
  return events ? index.children(events, 0, Infinity).map((child) => index.text(child)) : [];
}

/** SHA-256 over the canonical lines of events, in hexadecimal; null without a secure context.
 * @param {LogEvent[]} events @param {AbortSignal} [signal] @returns {Promise<string | null>} */
export async function digestOf(events, signal) {
  if (!globalThis.crypto?.subtle) return null;
  /** @type {string[]} */
  const parts = [];
  for (let from = 0; from < events.length; from += SLICE) {
    parts.push(events.slice(from, from + SLICE).map(canonicalLine).join(''));
    await new Promise((resolve) => setTimeout(resolve));
    signal?.throwIfAborted();
  }
  const digest = await crypto.subtle.digest('SHA-256', await new Blob(parts).arrayBuffer());
  return [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** Saves the log of a task as a file. @param {TaskLog} log @param {AbortSignal} signal @param {(text: string) => void} onProgress @returns {Promise<string>} what was saved */
export async function exportLog(log, signal, onProgress) {
  const { events, texts } = await readWhole(log.id, signal, (done, last) => onProgress(`${done} of ${last} events`));
  const digest = await digestOf(events, signal);
  const { row, origin, agentVersion } = log.head;
  const file = { taskId: row.taskId, origin, agentVersion: agentVersion ?? null, server: String(context.me?.version ?? ''), exportedAt: new Date(clock.now()).toISOString(), digest };
  download(writeLogFile(file, texts), logFileName(row.taskId), 'application/json');
  return `${events.length} events saved as ${logFileName(row.taskId)}, ${digest ? `SHA-256 ${digest}` : 'without a digest: this page is not in a secure context'}.`;
}

/** The log of a file, for the readings that show a task's log. */
export class FileLog extends TaskLog {
  /** @param {import('../core/log-file.js').LogFile} file @param {string} name @param {string} verdict what the digest says */
  constructor({ taskId, origin, agentVersion, server, exportedAt, events }, name, verdict) {
    const first = events[0].timestamp;
    super(taskId, { row: { taskId, state: 'unknown', createdAt: first, statusAt: first, events: events.length }, origin, agentVersion }, () => {});
    Object.assign(this, { isFile: true, name, verdict, server, exportedAt });
    this.take({ events, last: events.length, ended: true });
    Object.assign(this.head.row, { state: this.fold.task.state, statusAt: events[events.length - 1].timestamp });
  }

  name = '';
  verdict = '';
  server = '';
  exportedAt = '';

  /** Whether the task had ended when it was exported. */
  get isOver() {
    return isTerminal(this.fold.task.state);
  }
}

/** @param {File} file @returns {Promise<FileLog>} */
export async function openLogFile(file) {
  if (file.size > MAX_FILE) throw new Error(`the file has ${size(file.size)}; at most ${size(MAX_FILE)} are opened`);
  const read = readLogFile(await file.text());
  const digest = await digestOf(read.events);
  const verdict = !digest ? 'The digest was not checked: this page is not in a secure context.' : !read.digest ? 'The file has no digest.' : digest === read.digest ? `The digest fits: SHA-256 ${digest}.` : 'The digest does not fit: the file was changed after its export.';
  return new FileLog(read, file.name, verdict);
}
