// Two logs aligned by what happened.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { compareLogs } from '../core/compare.js';

const log = (...events) => events.map(([type, data], index) => ({ seq: index + 1, timestamp: new Date(1_700_000_000_000 + index * 10).toISOString(), type, data }));
const begin = ['message', { id: 'm', role: 'user', parts: [{ text: 'go' }] }];
const working = ['status', { state: 'working' }];
const line = (text) => ['log', { level: 'info', text }];
const end = (state) => ['status', { state }];

test('equal logs have no difference, whatever their times and message ids are', () => {
  const other = log(begin, working, end('completed')).map((event) => ({ ...event, timestamp: new Date(0).toISOString() }));
  other[0].data = { ...other[0].data, id: 'another' };
  const { first, rows } = compareLogs(log(begin, working, end('completed')), other);
  assert.equal(first, null);
  assert.deepEqual(rows.map((row) => row.op), ['same', 'same', 'same']);
});

test('one event more does not shift the rest', () => {
  const { rows, first } = compareLogs(log(begin, working, end('completed')), log(begin, working, line('hello'), end('completed')));
  assert.deepEqual(rows.map((row) => row.op), ['same', 'same', 'only-b', 'same']);
  assert.equal(first, 2);
});

test('events of one kind with another content differ, and it says where', () => {
  const { rows, first } = compareLogs(log(begin, line('one'), end('completed')), log(begin, line('two'), end('failed')));
  assert.equal(first, 1);
  assert.deepEqual(rows[1].changes.map((change) => [change.path, change.before, change.after]), [['/text', 'one', 'two']]);
  assert.deepEqual(rows.slice(2).map((row) => row.op), ['only-a', 'only-b']);
});

test('an empty log differs in everything', () => {
  const { rows, first } = compareLogs([], log(begin, working));
  assert.deepEqual([rows.map((row) => row.op), first], [['only-b', 'only-b'], 0]);
});
