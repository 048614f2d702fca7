// The figures of the screen Now, without a page.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { failuresQuery, figures, firstAgent, scopeOf, taskCounts } from '../core/now.js';

const NOW = Date.parse('2026-11-18T12:00:00.000Z');
const read = (answer) => ({ answer, error: null, readAt: NOW });
const of = (readings, name) => figures(readings, NOW).find((one) => one.name === name);

test('a figure is a number with its list, and what it means', () => {
  const questions = read({ total: 3, more: false, questions: [{ askedAt: '2026-11-18T11:58:00.000Z' }] });
  const { count, note, tone, path } = of({ questions }, 'Questions');
  assert.deepEqual([count, note, tone, path], ['3', 'the oldest asked 2 min ago', 'wait', 'inbox']);
  assert.equal(of({ questions: read({ total: 500, more: true, questions: [] }) }, 'Questions').count, '500 or more');
  assert.equal(of({ questions: read({ total: 0, more: false, questions: [] }) }, 'Questions').tone, 'good');
  const failures = of({ failures: read({ rows: Array(100).fill({}), next: 'x' }) }, 'Failures');
  assert.deepEqual([failures.count, failures.tone, failures.path], ['100 or more', 'bad', 'tasks?state=failed&state=rejected&since=2026-11-18T11%3A00%3A00.000Z']);
  assert.equal(`tasks?${failuresQuery(NOW)}`, failures.path);
});

test('what was not read is no zero: it is being read, refused by a scope, or an error', () => {
  for (const figure of figures({}, NOW)) assert.deepEqual([figure.isRead, figure.count, figure.error, figure.scope], [false, '', '', ''], figure.name);
  const refused = { answer: null, error: Object.assign(new Error('no'), { details: { scope: 'read:admin:server' } }), readAt: NOW };
  assert.equal(of({ nodes: refused }, 'Nodes').scope, 'read:admin:server');
  const failed = { answer: { deliveries: [], next: null }, error: new Error('unreachable'), readAt: NOW };
  assert.deepEqual([of({ dead: failed }, 'Dead letters').isRead, of({ dead: failed }, 'Dead letters').error], [true, 'unreachable']);
  assert.equal(scopeOf(new Error('x')), '');
});

test('agents that are unhealthy are named, and a lost node is no stopped one', () => {
  const entries = ['a', 'b', 'c', 'd'].map((name) => ({ name, kind: 'a2a', status: 'unhealthy' }));
  assert.deepEqual([of({ registry: read(entries) }, 'Remote agents').count, of({ registry: read(entries) }, 'Remote agents').note], ['4', 'unhealthy: a, b, c …']);
  assert.equal(of({ registry: read([{ name: 'echo', kind: 'local', status: 'healthy' }]) }, 'Remote agents').note, 'none is configured');
  const node = (gone, stopped) => ({ gone, stopped, startedAt: '2026-11-18T11:00:00.000Z' });
  assert.deepEqual([of({ nodes: read({ nodes: [node(false), node(true, true)] }) }, 'Nodes').tone, of({ nodes: read({ nodes: [node(false), node(true, false)] }) }, 'Nodes').note], ['good', 'alive, for up to 1 h; 1 lost']);
});

test('counts have their lists: states in the order of a life, agents by number', () => {
  const { states, agents } = taskCounts({ state: { failed: 2, working: 1, completed: 0 }, agent: { b: 1, 'a&c': 1, z: 9 } });
  assert.deepEqual(states.map(({ name }) => name), ['working', 'failed']);
  assert.deepEqual(agents.map(({ name, path }) => [name, path]), [['z', 'tasks?agent=z'], ['a&c', 'tasks?agent=a%26c'], ['b', 'tasks?agent=b']]);
  assert.deepEqual(taskCounts(null), { states: [], agents: [] });
});

test('the first message goes to echo, or to an agent that the caller may send to', () => {
  assert.equal(firstAgent({ 'execute:a2a:coder': true, 'execute:a2a:echo': true }), 'echo');
  assert.equal(firstAgent({ 'execute:a2a:echo': false, 'execute:a2a:coder': true, 'read:a2a:tasks': true }), 'coder');
  assert.equal(firstAgent({}), null);
});
