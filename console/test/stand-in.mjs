// A STAND-IN of the console's API with what a real server refuses to hold: hostile texts as names of agents, owners,
// contexts, ids, links of authorizations, members of schemas, and as frames of the wire. Everything else is tested with the
// real server (real.py). It reads only, and its data never changes. Run it: node test/stand-in.mjs [port]
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { extname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';

import { fold, newTask } from '../core/fold.js';
import { PAYLOADS } from './payloads.mjs';
import { event } from './random-log.mjs';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const HEADERS = {
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; frame-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
};
const TYPES = { '.js': 'text/javascript; charset=utf-8', '.css': 'text/css; charset=utf-8', '.svg': 'image/svg+xml', '.html': 'text/html; charset=utf-8' };

const text = (message) => (message?.parts ?? []).map((part) => part.text ?? '').join(' ').trim();
const now = () => new Date().toISOString();

/** A log with one text in every field that an agent or a caller sets. */
function hostileLog(x) {
  const part = { text: x };
  const message = (role) => ({ id: x, role, parts: [part, { data: { [x]: x } }, { url: x }, { bytes: 'PHN2Zz4=', filename: x, media_type: x }], metadata: { [x]: x } });
  const property = { type: 'string', title: x, description: x, pattern: x, format: x, default: x, enumNames: [x] };
  const schema = { type: 'object', properties: { [x]: property, b: { enum: [x], enumNames: [x] }, c: { type: 'array', items: { enum: [x] } } } };
  return [
    event(1, 'message', message('user')),
    event(2, 'status', { state: 'working', message: message('agent') }),
    event(3, 'log', { level: 'error', text: x }),
    event(4, 'progress', { done: 1, total: 2, text: x }),
    event(5, 'artifact', { id: x, index: 0, parts: message('agent').parts, name: x, description: x, metadata: { [x]: x }, extensions: [x] }),
    event(6, 'question', { id: 'q0', text: x, ask: { authorization: { url: x } } }),
    event(7, 'answer', { question: 'q0', answer: { declined: { note: x } } }),
    event(8, 'question', { id: 'q1', text: x, ask: { sample: { system: x, max_tokens: 5 } } }),
    event(9, 'question', { id: x, text: x, ask: { form: { schema } } }),
    event(10, 'question', { id: 'q2', text: x, ask: { authorization: { url: x } } }),
  ];
}

/** Tasks by their ids, one for each payload. */
const TASKS = new Map(
  PAYLOADS.map((payload, n) => {
    const id = `019a8f2e-7d11-7c3a-9b1e-${String(n + 1).padStart(12, '0')}`;
    const events = hostileLog(payload).map((one) => ({ ...one, size: JSON.stringify(one.data).length }));
    return [id, { payload, origin: { id, context: payload, agent: payload, owner: payload, dialect: payload, trace: payload }, events }];
  }),
);

function row({ origin, events }) {
  return { taskId: origin.id, contextId: origin.context, agent: origin.agent, owner: origin.owner, state: 'input-required', statusAt: events.at(-1).timestamp, createdAt: events[0].timestamp, events: events.length, attempts: 1, parentId: null, cancelRequested: false, firstText: text(events[0].data), why: origin.agent };
}

function questionsOf(task) {
  const { origin, events, payload } = task;
  return fold(newTask(origin), events).questions.map(([seq, question]) => ({ taskId: origin.id, questionId: question.id, seq, askedAt: events[seq - 1].timestamp, agent: payload, owner: payload, contextId: payload, text: question.text, ask: question.ask, path: [{ taskId: payload, agent: payload }, { taskId: origin.id, agent: payload }], mayAnswer: true }));
}

function listTasks() {
  const rows = [...TASKS.values()].map(row);
  return { rows, next: null, total: rows.length, facets: { state: { 'input-required': rows.length }, agent: Object.fromEntries(PAYLOADS.map((payload) => [payload, 1])) }, liveCursor: 'r-0', now: now() };
}

function wire({ payload }, seq) {
  const frames = [
    { as: payload, text: JSON.stringify({ [payload]: payload }), why: null, headers: { [payload]: payload } },
    { as: 'not JSON', text: payload, why: null, headers: null },
    { as: 'none', text: null, why: payload, headers: null },
  ];
  return { seq, type: payload, createdIn: payload, frames };
}

/** A stream that is live, and has closed every question of the first task. */
function live({ topics }, response) {
  const send = (kind, data) => response.write(`event: ${kind}\ndata: ${JSON.stringify(data)}\n\n`);
  response.writeHead(200, { ...HEADERS, 'content-type': 'text/event-stream', 'cache-control': 'no-store' });
  send('open', { now: now(), node: 'stand-in' });
  const [first] = TASKS.values();
  const closed = questionsOf(first).map(({ taskId, questionId }) => ({ taskId, questionId, how: first.payload, by: { caller: first.payload, dialect: first.payload } }));
  for (const { key, topic, after } of topics) {
    if (topic === 'questions' && after === 'q-0') send('questions', { key, cursor: 'q-1', asked: [], closed });
    send('caught-up', { key, cursor: topic === 'questions' ? 'q-1' : (after ?? '0') });
  }
}

/** The answer to a request, undefined where there is none. */
function api(path, query) {
  const [name, id, part, seq] = path.map(decodeURIComponent);
  if (name === 'me') return { caller: { name: PAYLOADS[0], tenant: PAYLOADS[1] }, by: 'local', scopes: [], may: { 'read:admin:server': false }, expires: null, node: 'stand-in', version: '0', now: now(), publicUrl: PAYLOADS[0], limits: {} };
  if (name === 'questions') {
    const questions = [...TASKS.values()].flatMap(questionsOf);
    return { questions: questions.slice(0, Number(query.get('limit'))), next: null, total: questions.length, more: false, liveCursor: 'q-0', now: now(), lastClosed: null };
  }
  if (name === 'deliveries') return { deliveries: [...TASKS.values()].map(({ origin, payload }) => ({ id: payload, taskId: origin.id, agent: payload, owner: payload, webhookId: payload, seq: 1, state: 'dead', address: payload, attempts: 1, reason: payload, payload })), next: null, own: true, now: now() };
  if (name !== 'tasks') return undefined;
  if (!id) return listTasks();
  const task = TASKS.get(id);
  if (!task) return undefined;
  const { origin, events, payload } = task;
  if (!part) return { row: row(task), origin, agentVersion: payload, epoch: 1, node: payload, ranMs: 5, bytes: 100, traceUrl: payload, expires: null, now: now() };
  if (part === 'events') return { taskId: id, events, after: events.length, before: 1, last: events.length, ended: false };
  if (part === 'at') return { at: Number(seq), last: events.length, task: fold(newTask(origin), events.slice(0, Number(seq))) };
  if (part === 'journal') return { runs: [], effects: [{ kind: 'step', position: payload, name: payload, ok: false, result: payload, beganAt: events[0].timestamp, endedAt: now() }], moreRuns: false, total: 1, next: null, results: true, last: events.length, now: now() };
  if (part === 'followers') return { taskId: id, followers: [{ protocol: payload, client: payload, caller: { name: payload, tenant: payload }, cursor: 1, behind: 2 }], last: events.length, now: now() };
  if (part === 'webhooks') return { webhooks: [{ webhookId: payload, address: payload, cursor: 1, last: events.length, state: 'retrying', attempts: 2, reason: payload, dead: 1 }], now: now() };
  return part === 'wire' ? wire(task, Number(seq)) : undefined;
}

function file(path) {
  const name = path.startsWith('/console/a/dev/') ? normalize(path.slice('/console/a/dev/'.length)) : 'index.html';
  if (name.startsWith('..')) return null;
  try {
    return { type: TYPES[extname(name)] ?? 'application/octet-stream', bytes: readFileSync(join(ROOT, name)) };
  } catch {
    return null;
  }
}

const server = createServer(async (request, response) => {
  const { pathname, searchParams } = new URL(request.url, 'http://localhost');
  let body = '';
  for await (const chunk of request) body += chunk;
  if (pathname === '/console/api/live') return live(JSON.parse(body), response);
  if (pathname.startsWith('/console/api/')) {
    const found = api(pathname.slice('/console/api/'.length).split('/'), searchParams);
    const answer = found ?? { error: { code: 'not_found', message: 'there is no such address' } };
    return response.writeHead(found ? 200 : 404, { ...HEADERS, 'content-type': 'application/json', 'cache-control': 'no-store' }).end(JSON.stringify(answer));
  }
  const found = file(pathname);
  response.writeHead(found ? 200 : 404, { ...HEADERS, 'content-type': found?.type ?? 'text/plain', 'cache-control': 'no-cache' }).end(found?.bytes);
});
server.listen(Number(process.argv[2] ?? 0), '127.0.0.1', () => console.log(`stand-in of the console's API, for tests only: http://127.0.0.1:${server.address().port}/console/`));
