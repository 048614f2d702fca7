// Plans and batches without a page: a plan read from the artifacts of its task, the layout of its graph, the check of a
// batch, the chart of its operations, its figures in words, a change of the settings.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { askedOf, chartOf, checkBatch, countsText, settingsChange, speedupText } from '../core/batch.js';
import { newTask } from '../core/fold.js';
import { BOX, layersOf, layoutPlan } from '../core/plan-layout.js';
import { askingTask, circlePath, outputOf, planOf, readPlan, runningTasks } from '../core/plan.js';
import { LiveStream } from '../ui/live.js';

const task = (artifacts) => ({ ...newTask({ id: 't', context: 'c', agent: 'orchestrator', owner: 'ada', dialect: 'a2a/1.0' }), artifacts });
const data = (...values) => values.map((value) => ({ data: value }));
const PLAN = { name: 'trip', tasks: [{ id: 'a', agent: 'echo' }, { id: 'b', skill: 'research', tags: ['x', 'y'], needs: ['a'], fallbacks: ['echo', { skill: 's' }], retry: { attempts: 3 }, optional: true }] };

test('a plan is read from its artifact, change by change', () => {
  const passed = [{ agent: 'first', why: 'it is down' }];
  const changes = [
    { task: 'a', state: 'working', agent: 'echo', attempts: 1, startedAt: 1000 },
    { task: 'a', state: 'retrying', agent: 'echo', taskId: 't1', attempts: 1, why: 'it failed' },
    { task: 'a', state: 'working', agent: 'other', attempts: 2, reroutedFrom: passed },
    { task: 'none', state: 'done' },
  ];
  const view = planOf(task([{ id: 'plan', parts: data({ plan: PLAN, startedAt: '2026-11-18T05:00:00.000Z' }, ...changes) }]));
  const [a, b] = view.parts;
  assert.deepEqual([a.state, a.agent, a.attempts, a.why, a.startedAt, a.rerouted], ['working', 'other', 2, '', 1000, passed]);
  assert.equal(a.taskId, '', 'the task of the attempt before is not that of this one');
  assert.equal(b.state, 'waiting');
  assert.equal(view.result, null);
  assert.deepEqual(view.plan.tasks[1], { id: 'b', needs: ['a'], target: 'skill research (x, y)', attempts: 3, timeout: '', fallbacks: ['echo', 'skill s'], optional: true, input: undefined });
});

test('the result says where each part came from', () => {
  const parts = [{ task: 'a', state: 'done', agent: 'echo', taskId: 't1', attempts: 2, why: null, reroutedFrom: [{ agent: 'x', why: 'down' }], durationMs: 12 }];
  const artifacts = [{ id: 'plan', parts: data({ plan: PLAN }) }, { id: 'task:a', parts: [{ text: 'made' }] }, { id: 'result', parts: [{ text: 'All of it' }, ...data({ synthesis: { by: 'parts', why: 'the agent is gone' }, parts })] }];
  const view = planOf(task(artifacts));
  assert.equal(view.result, 'All of it');
  assert.equal(view.by, 'every part under its heading, because: the agent is gone');
  assert.deepEqual(view.sources, [{ task: 'a', state: 'done', agent: 'echo', taskId: 't1', attempts: 2, why: '', rerouted: [{ agent: 'x', why: 'down' }], durationMs: 12 }]);
  assert.deepEqual(outputOf(task(artifacts), 'a'), [{ text: 'made' }]);
});

test('any shape is taken, none is believed', () => {
  const shapes = [null, 1, 'x', [], {}, { plan: null }, { plan: [] }, { plan: { tasks: 'x' } }, { plan: { tasks: [null, 1, { id: 1 }, { id: 'a', needs: [null, 'a', 'b', 'a'], fallbacks: [1, null, {}], retry: 1 }, { id: 'a' }] } }];
  for (const shape of shapes) {
    const view = planOf(task([{ id: 'plan', parts: data(shape, null, 7, { task: 'a', state: 5, reroutedFrom: 'x', attempts: -1 }, { task: '__proto__', state: 'done' }) }, { id: 'result', parts: data('x', { parts: [null, 1] }) }]));
    if (view) layoutPlan(view.plan.tasks);
  }
  assert.equal(planOf(task([])), null);
  assert.deepEqual(readPlan({ tasks: [{ id: 'a', needs: ['a', 'b', 'b'] }, { id: 'b' }] }).tasks[0].needs, ['b']);
});

test('a running task belongs to a subtask only where nothing else could be meant', () => {
  const part = (id, agent) => ({ id, agent, state: 'working', taskId: '' });
  const row = (taskId, agent, state = 'working') => ({ taskId, agent, state });
  const ended = (state) => state === 'completed';
  assert.deepEqual([...runningTasks([part('a', 'x'), part('b', 'y')], [row('1', 'x'), row('2', 'y'), row('0', 'x', 'completed')], ended)], [['a', '1'], ['b', '2']]);
  assert.deepEqual([...runningTasks([part('a', 'x'), part('b', 'x')], [row('1', 'x'), row('2', 'x')], ended)], []);
  assert.deepEqual([...runningTasks([part('a', 'x'), part('b', 'x')], [row('1', 'x')], ended)], []);
  assert.equal(askingTask('01a1.02b2.q4'), '01a1');
  assert.equal(askingTask('q4'), '');
});

test('a circle is its path', () => {
  assert.deepEqual(circlePath('these need each other: a -> c -> b -> a'), ['a', 'c', 'b', 'a']);
  assert.deepEqual(circlePath('there is no task "a -> b"'), []);
});

test('layers follow the needs, and boxes do not overlap', () => {
  const tasks = [{ id: 'd', needs: ['b', 'c', 'a'] }, { id: 'b', needs: ['a'] }, { id: 'a', needs: [] }, { id: 'c', needs: ['a'] }, { id: 'e', needs: [] }];
  assert.deepEqual(layersOf(tasks), [['a', 'e'], ['b', 'c'], ['d']]);
  assert.deepEqual(layersOf([{ id: 'x', needs: ['y'] }, { id: 'y', needs: ['x'] }, { id: 'z', needs: [] }]), [['z'], ['x', 'y']]);
  assert.deepEqual(layersOf([]), []);
  const { nodes, edges, width, height } = layoutPlan(tasks);
  assert.equal(edges.length, 5);
  for (const { path } of edges) assert.match(path, /^M [\d. ]+( C [\d. ]+| H [\d.]+)+$/);
  for (const one of nodes) {
    assert.ok(one.x >= 0 && one.y >= 0 && one.x + BOX.width <= width && one.y + BOX.height <= height, JSON.stringify(one));
    for (const other of nodes) if (one !== other && one.layer === other.layer) assert.ok(Math.abs(one.y - other.y) >= BOX.height, `${one.id} ${other.id}`);
  }
});

test('random graphs are laid out without overlap, large ones not at all', () => {
  let seed = 7;
  const random = (n) => (seed = (seed * 48271) % 2147483647) % n;
  for (let round = 0; round < 60; round += 1) {
    const count = 1 + random(40);
    const tasks = Array.from({ length: count }, (_, n) => ({ id: `t${n}`, needs: [...new Set(Array.from({ length: random(4) }, () => random(n + 1)).filter((m) => m < n).map((m) => `t${m}`))] }));
    const { nodes, edges } = layoutPlan(tasks);
    assert.equal(edges.length, tasks.reduce((sum, { needs }) => sum + needs.length, 0));
    const layer = new Map(nodes.map((node) => [node.id, node.layer]));
    for (const { id, needs } of tasks) for (const need of needs) assert.ok(layer.get(need) < layer.get(id));
    for (const [at, one] of nodes.entries()) for (const other of nodes.slice(at + 1)) assert.ok(one.x !== other.x || Math.abs(one.y - other.y) >= BOX.height);
  }
  assert.equal(layoutPlan(Array.from({ length: 301 }, (_, n) => ({ id: `t${n}`, needs: [] }))), null);
  const chain = Array.from({ length: 200 }, (_, n) => ({ id: `t${n}`, needs: n > 1 ? [`t${n - 1}`, 't0'] : n === 1 ? ['t0'] : [] }));
  assert.equal(layoutPlan(chain), null, 'too many way points');
});

test('a batch is checked before it is sent', () => {
  const problems = (value) => checkBatch(typeof value === 'string' ? value : JSON.stringify(value)).problems.join('; ');
  assert.match(problems('{'), /^not JSON/);
  assert.match(problems('7'), /an object, or a list/);
  assert.match(problems('null'), /an object, or a list/);
  assert.match(problems({}), /at least one operation/);
  assert.match(problems([]), /at least one operation/);
  assert.match(problems([null, { id: 'a b', type: 'wait' }, { id: 'a' }, { id: 'a', type: 'wait' }]), /\[0\].*\[1\]\.id.*\[2\]\.type.*\[3\]\.id: "a" is there twice/);
  assert.match(problems([{ id: 'a', type: 'wait', needs: ['z'] }]), /there is no operation "z"/);
  assert.match(problems([{ id: 'a', type: 'wait', needs: 'z' }]), /a list of ids/);
  assert.equal(problems([{ id: 'a', type: 'w', needs: ['b'] }, { id: 'b', type: 'w', needs: ['c'] }, { id: 'c', type: 'w', needs: ['b'] }]), 'needs: these wait for each other: b → c → b');
  assert.equal(problems({ process: { content: 'x', operation: 'hash' } }), '');
  assert.equal(checkBatch('[{"id":"a","type":"wait","args":{"ms":3.0}}]').text, '{"operations":[{"id":"a","type":"wait","args":{"ms":3.0}}]}');
  const deep = Array.from({ length: 10_000 }, (_, n) => ({ id: `o${n}`, type: 'wait', needs: n > 0 ? [`o${n - 1}`] : [] }));
  assert.equal(problems(deep), '', 'a long chain is no circle');
});

test('operations that ran beside each other are in lanes of their own', () => {
  const at = (ms) => new Date(1_000_000 + ms).toISOString();
  const one = (id, from, ms, status = 'succeeded') => ({ id, type: 'wait', status, attempts: 1, startTime: at(from), durationMs: ms });
  const chart = chartOf([one('a', 0, 100), one('b', 10, 50), one('c', 60, 40, 'failed'), { id: 'd', type: 'wait', status: 'pending', attempts: 0 }]);
  assert.deepEqual(chart.bars.map(({ id, lane }) => [id, lane]), [['a', 0], ['b', 1], ['c', 1]]);
  assert.deepEqual([chart.lanes, chart.left, chart.bars[2].left, chart.bars[2].width], [2, 1, 0.6, 0.4]);
  assert.deepEqual([chartOf([]).bars, chartOf([]).lanes], [[], 0]);
});

test('figures are measured, or said not to be', () => {
  assert.equal(speedupText(null).value, 'not measured');
  assert.equal(speedupText({ speedup: null }).value, 'not measured');
  const basis = { sampleOperations: 2, sampleShare: 0.1, calibrations: [{ type: 'wait', operations: 4, ageSeconds: 7200 }] };
  assert.deepEqual(speedupText({ speedup: 3.456, speedupBasis: basis }), { value: '3.46×', basis: 'against 2 operations that ran alone first, 10 % of the batch; wait of earlier batches, 4 measured, 2 h old' });
  assert.equal(countsText({ total: 3, succeeded: 1, failed: 1, skipped: 1 }), '1 of 3 succeeded, 1 failed, 1 skipped');
  assert.equal(countsText({ total: null, succeeded: null }), 'not known yet');
});

test('only what differs is sent as a change of the settings', () => {
  const known = { enabled: true, maxConcurrency: 5, thresholds: { memoryUsage: 0.8, cpuUsage: 0.8, queueSize: 100 }, optimizationStrategies: ['a', 'b'] };
  assert.deepEqual(settingsChange(known, { enabled: true, maxConcurrency: 5, memoryUsage: 0.8, cpuUsage: 0.8, queueSize: 100, optimizationStrategies: ['b', 'a'] }), {});
  assert.deepEqual(settingsChange(known, { enabled: false, maxConcurrency: 7, memoryUsage: 0.5, cpuUsage: 0.8, queueSize: 9, optimizationStrategies: ['a'] }), { enabled: false, maxConcurrency: 7, thresholds: { memoryUsage: 0.5, queueSize: 9 }, optimizationStrategies: ['a'] });
});

test('what was asked of a batch is in its first message', () => {
  const asked = { maxConcurrency: 2, operations: [{ id: 'a', type: 'wait', needs: ['b', 1], retries: 2, args: { ms: 1 } }, null, { id: 7 }] };
  const { operations, cap } = askedOf({ ...task([]), history: [{ id: 'm', role: 'user', parts: data(asked) }] });
  assert.deepEqual([...operations], [['a', { needs: ['b'], retries: 2, priority: '', args: { ms: 1 } }]]);
  assert.equal(cap, 2);
  assert.equal(askedOf(task([])).data, null);
});

test('a kind of topic that the server does not know ends, and the others go on', async () => {
  const sent = [];
  const answers = [new Response(JSON.stringify({ error: { code: 'bad_request', message: 'the body cannot be read: unknown variant `resource`, expected one of `rows`', field: '' } }), { status: 400 }), new Promise(() => {})];
  const stream = new LiveStream({ open: async (body) => (sent.push(JSON.parse(body).topics.map(({ key }) => key)), answers.shift()), later: (work, ms) => (ms < 10_000 ? setTimeout(work, 0) : null), cancel: clearTimeout, now: () => 0 });
  const ended = [];
  stream.subscribe('queue', { topic: 'resource', uri: 'x' }, undefined, (kind) => ended.push(kind));
  stream.subscribe('list', { topic: 'rows' }, undefined, () => ended.push('list'));
  while (sent.length < 2) await new Promise((resolve) => setTimeout(resolve, 1));
  assert.deepEqual([sent, ended], [[['queue', 'list'], ['list']], ['end']]);
});
