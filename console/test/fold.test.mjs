// The fold of the browser against rules of the engine's fold, and against itself in any split.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { LogFold, copyTask, fold, newTask } from '../core/fold.js';
import { randomLog, rng, ORIGIN, event } from './random-log.mjs';

const golden = JSON.parse(readFileSync(new URL('../../crates/engine/tests/it/golden/events-1.json', import.meta.url), 'utf8'));

test('every kind of the engine’s golden file is folded', () => {
  const kinds = new Set();
  const events = golden.map(([at, stored], index) => {
    const [type] = Object.keys(stored);
    kinds.add(type);
    return { seq: index + 1, timestamp: new Date(at).toISOString(), type, data: stored[type] };
  });
  assert.equal(kinds.size, 8);
  const task = fold(newTask(ORIGIN), events);
  assert.equal(task.seq, golden.length);
  assert.equal(task.artifacts.length, 2);
});

test('a folded task has the members of the engine’s golden snapshot', () => {
  const [outline] = readFileSync(new URL('../../crates/engine/tests/it/golden/snapshot-2.json', import.meta.url), 'utf8').split('\n');
  const wanted = Object.keys(JSON.parse(outline)).sort();
  assert.deepEqual(Object.keys(newTask(ORIGIN)).sort(), wanted);
});

test('a question is the status until it is answered, and its message moves to the history', () => {
  const ask = { form: { schema: { type: 'object' } } };
  const task = fold(newTask(ORIGIN), [
    event(1, 'message', { id: 'm', role: 'user', parts: [{ text: 'go' }] }),
    event(2, 'status', { state: 'working' }),
    event(3, 'question', { id: 'q1', text: 'which?', ask }),
    event(4, 'question', { id: 'q2', text: 'log in', ask: { authorization: { url: 'https://a.example' } } }),
  ]);
  assert.equal(task.state, 'input-required');
  assert.deepEqual(task.status_message, {
    id: `${ORIGIN.id}-3`, role: 'agent', parts: [{ text: 'which?' }, { data: { questionId: 'q1', schema: { type: 'object' } } }],
  });
  fold(task, [event(5, 'answer', { question: 'q1', answer: { accept: {} }, more: true })]);
  assert.equal(task.state, 'input-required', 'a status for the next question follows in the log');
  fold(task, [event(6, 'withdrawn', { question: 'q2' })]);
  assert.equal(task.state, 'working');
  assert.deepEqual(task.history.map((message) => message.id), ['m', `${ORIGIN.id}-3`]);
});

test('bare text is joined; anything else stays a part', () => {
  const chunk = (seq, more) => event(seq, 'artifact', { id: 'a', index: 0, append: true, ...more });
  const task = fold(newTask(ORIGIN), [
    event(1, 'artifact', { id: 'a', index: 0, parts: [{ text: 'x' }], name: 'A', metadata: { b: 1, a: 2 } }),
    chunk(2, { parts: [{ text: 'y' }], metadata: { a: 2, b: 1 } }),
    chunk(3, { parts: [{ text: 'z', media_type: 'text/plain' }] }),
    chunk(4, { parts: [{ text: 'w' }] }),
    chunk(5, { parts: [{ text: 'v' }], name: 'B', last: true }),
  ]);
  assert.deepEqual(task.artifacts, [{
    id: 'a', name: 'B', metadata: { a: 2, b: 1 }, complete: true,
    parts: [{ text: 'xy' }, { text: 'z', media_type: 'text/plain' }, { text: 'w' }, { text: 'v' }],
  }]);
});

test('in any split, and from any checkpoint, the fold is the same', () => {
  for (let seed = 1; seed <= 60; seed += 1) {
    const random = rng(seed);
    const log = randomLog(random, 5 + Math.floor(random() * 400));
    const steps = [copyTask(newTask(ORIGIN))];
    const straight = newTask(ORIGIN);
    for (const one of log) {
      fold(straight, [one]);
      steps.push(structuredClone(straight));
    }
    const split = new LogFold(ORIGIN);
    for (let at = 0; at < log.length; ) {
      // Overlap: what is known already may come again.
      const size = 1 + Math.floor(random() * 50);
      split.push(log.slice(Math.max(0, at - 3), at + size));
      at += size;
    }
    assert.ok(split.isComplete);
    for (let n = 0; n <= log.length; n += 1) assert.deepEqual(split.at(n), steps[n], `seed ${seed}, event ${n}`);
  }
});

test('a gap is an error', () => {
  const log = new LogFold(ORIGIN);
  assert.throws(() => log.push([event(2, 'log', { level: 'info', text: 'x' })]), RangeError);
});

test('an event without data is counted, and named as the end of exactness', () => {
  const log = new LogFold(ORIGIN);
  log.push([event(1, 'message', { id: 'm', role: 'user', parts: [] }), { ...event(2, 'artifact'), data: undefined, preview: '{"id"' }]);
  assert.equal(log.cutAt, 2);
  assert.equal(log.task.seq, 2);
});

test('100,000 events: any event within 100 ms', () => {
  const log = new LogFold(ORIGIN);
  const events = [event(1, 'message', { id: 'm', role: 'user', parts: [{ text: 'go' }] })];
  for (let seq = 2; seq <= 100_000; seq += 1) {
    events.push(event(seq, 'artifact', { id: 'a', index: 0, append: seq > 2, parts: [{ text: `word ${seq} ` }] }));
  }
  log.push(events);
  const times = [];
  for (let n = 1; n <= 200; n += 1) {
    const began = performance.now();
    assert.equal(log.at(n * 499).seq, n * 499);
    times.push(performance.now() - began);
  }
  times.sort((a, b) => a - b);
  console.log(`scrub of 100,000 events: p50 ${times[100].toFixed(2)} ms, p95 ${times[190].toFixed(2)} ms`);
  assert.ok(times[190] < 100);
});
