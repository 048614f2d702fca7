// A log as a file, without a page: what is written is read again, and what is no log is refused in words.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { canonicalLine, logFileName, readLogFile, writeLogFile } from '../core/log-file.js';
import { randomLog, rng } from './random-log.mjs';

const ORIGIN = { id: 't', context: 'c', agent: 'echo', owner: 'ada', dialect: 'a2a/1.0' };
const HEAD = { taskId: 't', origin: ORIGIN, agentVersion: '1', server: '0.1.0', exportedAt: '2026-11-18T12:00:00.000Z', digest: 'ab'.repeat(32) };
const one = { seq: 1, timestamp: '2026-11-18T12:00:00.000Z', type: 'message', data: { id: 'm', role: 'user', parts: [{ text: 'Hello' }] } };
const textOf = (events, head = HEAD) => writeLogFile(head, events.map((event) => JSON.stringify(event))).join('');

test('a file is read as it was written, and its numbers stay as the server wrote them', () => {
  const raw = '{"seq":1,"timestamp":"2026-11-18T12:00:00.000Z","type":"progress","data":{"done":3.0,"total":12345678901234567890}}';
  const text = writeLogFile(HEAD, [raw]).join('');
  assert.ok(text.includes(raw));
  const { events, ...head } = readLogFile(text);
  assert.deepEqual(head, HEAD);
  assert.equal(events.length, 1);
  assert.equal(readLogFile(textOf([one], { ...HEAD, digest: null })).digest, null);
});

test('every log that the engine could write is read', () => {
  for (let seed = 1; seed <= 50; seed += 1) {
    const events = randomLog(rng(seed), 60);
    assert.equal(readLogFile(textOf(events)).events.length, events.length, `seed ${seed}`);
  }
});

test('the canonical line of an event has its members by name, and none beside its content', () => {
  const event = { seq: 2, timestamp: 'T', type: 'log', size: 9, data: { z: 1, a: [3.0, { y: 'é\n', b: undefined, x: null }], 'é': true } };
  assert.equal(canonicalLine(event), '{"data":{"a":[3,{"x":null,"y":"é\\n"}],"z":1,"é":true},"seq":2,"timestamp":"T","type":"log"}\n');
});

test('what is no log is refused by what is wrong with it', () => {
  const file = JSON.parse(textOf([one]));
  const check = (value, why) => assert.throws(() => readLogFile(typeof value === 'string' ? value : JSON.stringify(value)), why);
  check('{', /not JSON/);
  for (const value of ['[]', 'null', '3', '{}', { ...file, format: 'x' }]) check(value, /not a log of a task/);
  check({ ...file, version: '1' }, /version "1" of the format/);
  check({ ...file, taskId: null }, /taskId/);
  check({ ...file, origin: { ...ORIGIN, agent: 3 } }, /origin.agent/);
  check({ ...file, events: {} }, /no events/);
  check({ ...file, events: [{ ...one, seq: 2 }] }, /gap/);
  check({ ...file, events: [null] }, /event 1 is not an object/);
  check({ ...file, events: [{ ...one, data: undefined, preview: '{' }] }, /not whole/);
  check({ ...file, events: [{ ...one, data: { role: 'user', parts: [{ bytes: '<>' }] } }] }, /data of message/);
  check({ ...file, events: [{ ...one, type: 'question', data: { id: 'q', text: 'x', ask: null } }] }, /data of question/);
  check(textOf([one]).replace('"Hello"', `${'['.repeat(500)}${']'.repeat(500)}`), /nested deeper/);
  // Names of members are no way to what an object inherits.
  assert.equal(readLogFile(textOf([{ ...one, type: 'constructor', data: 3 }])).events.length, 1);
});

test('a name of a file has nothing but letters', () => {
  assert.equal(logFileName('../a b<c>'), 'task-.._a_b_c_.log.json');
});
