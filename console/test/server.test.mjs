// The pure parts of the operator's screens: the pulse and its charts, the filters of the audit.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { auditCommand, auditFilters, taskOfResource, freshLines, lineOfAct } from '../core/audit.js';
import { figuresOf, outlines, readPulse, withInterval } from '../core/pulse.js';

const NULL = [null, null, null, null];
const answer = () => ({
  node: 'n', intervalMs: 10_000, from: '2026-11-18T05:00:00.000Z', until: '2026-11-18T05:00:40.000Z', liveCursor: 'p-1',
  total: { sends: [null, 0, 2, 1], events: [null, 0, 8, 4], commits: [null, 0, 2, 1], ended: [null, 0, 2, 0], failed: [null, 0, 1, 0], p50Ms: [null, null, 5, null], p99Ms: [null, null, 9, null], queued: [null, 0, 3, 1], running: [null, 0, 1, 1], all: { sends: 3 } },
  agents: [{ agent: 'echo', sends: [null, 0, 2, 1], events: NULL, commits: NULL, ended: NULL, failed: NULL, p50Ms: NULL, p99Ms: NULL, all: {} }],
});
const frame = (at, more = {}) => ({ at, total: { sends: 7, events: 9, commits: 7, ended: 7, failed: 0, p50Ms: 4, p99Ms: 6, queued: 0, running: 2 }, agents: [], ...more });

test('an interval of the live stream follows the last one', () => {
  const pulse = readPulse(answer());
  const next = withInterval(pulse, frame('2026-11-18T05:00:40.000Z', { agents: [{ agent: '__proto__', sends: 7, p50Ms: 4 }] }));
  assert.deepEqual(next.total.sends, [0, 2, 1, 7]);
  assert.deepEqual(next.total.p50Ms, [null, 5, null, 4]);
  assert.equal(next.from, '2026-11-18T05:00:10.000Z');
  assert.equal(next.until, '2026-11-18T05:00:50.000Z');
  // An agent that the frame leaves out did nothing; one that is new did nothing while the node was measured.
  assert.deepEqual(next.agents.map(({ agent, series }) => [agent, series.sends]), [['echo', [0, 2, 1, 0]], ['__proto__', [0, 0, 0, 7]]]);
  assert.deepEqual(next.agents[0].series.p99Ms, [null, null, null, null]);
  assert.deepEqual(pulse.total.sends, [null, 0, 2, 1], 'the pulse before is unchanged');
});

test('an interval that is known changes nothing, and one after a gap is not taken', () => {
  const pulse = readPulse(answer());
  assert.equal(withInterval(pulse, frame('2026-11-18T05:00:30.000Z')), pulse);
  assert.equal(withInterval(pulse, frame('2026-11-18T05:00:50.000Z')), null);
});

test('figures leave out what was not measured', () => {
  assert.deepEqual(figuresOf([null, 0, 2, 1]), { sum: 3, most: 2, last: 1, latest: 1, intervals: 3 });
  assert.deepEqual(figuresOf([null, 4, null]), { sum: 4, most: 4, last: null, latest: 4, intervals: 1 });
  assert.deepEqual(figuresOf([null]), { sum: 0, most: null, last: null, latest: null, intervals: 0 });
});

test('bars are as high as their numbers, and a gap is no bar', () => {
  const size = { width: 40, height: 10, most: 2 };
  assert.deepEqual(outlines([null, 0, 2, 1], size), { gaps: 'M0 0H10V10H0Z', bars: 'M20 10V0H30V10ZM30 10V5H40V10Z' });
  // Adjacent gaps are one; a small bar is still seen.
  assert.deepEqual(outlines([null, null, 1, null], { ...size, most: 1000 }), { gaps: 'M0 0H20V10H0ZM30 0H40V10H30Z', bars: 'M20 10V8.5H30V10Z' });
  // Where no task ended there is no duration, but the node did measure.
  assert.deepEqual(outlines([null, null], { ...size, measured: [null, 0] }), { gaps: 'M0 0H20V10H0Z', bars: '' });
  assert.deepEqual(outlines([], size), { gaps: '', bars: '' });
  assert.deepEqual(outlines([0, 0], { ...size, most: 0 }), { gaps: '', bars: '' });
});

test('the filters of the audit are the same in the address, the API and the command', () => {
  const filters = auditFilters('?resource=a%26b&caller=acme%2Fada&type=&refused=true&since=2026-11-18T05:00:00Z&other=1');
  assert.deepEqual(Object.fromEntries(filters), { resource: 'a&b', caller: 'acme/ada', refused: 'true', since: '2026-11-18T05:00:00Z' });
  assert.equal(auditFilters(`?${filters}`).toString(), filters.toString());
  const now = Date.parse('2026-11-18T05:00:30.500Z');
  const command = (search) => auditCommand(auditFilters(search), now, (text) => `<${text}>`);
  assert.equal(command(`?${filters}`), 'nuncio audit --resource <a&b> --caller <acme/ada> --refused --since 31s');
  assert.equal(command(''), 'nuncio audit');
  assert.equal(command('?until=2026-11-18T05:00:00Z'), null);
  assert.equal(command('?since=yesterday'), null);
});

test('a line leads to the task that it is about', () => {
  const of = (resource, id) => assert.equal(taskOfResource(resource), id, resource);
  of('a2a://tasks/019a-1', '019a-1');
  of('admin://tasks/019a-1/webhooks/hook/3', '019a-1');
  of('a2a://tasks/a%2Fb', 'a/b');
  of('a2a://tasks/%E0', '%E0');
  of('a2a://tasks/', null);
  of('a2a://agents/echo', null);
  of('javascript:alert(1)//a2a://tasks/1', null);
  of(null, null);
});

test('new lines of the audit are counted, without the readings that count them', () => {
  const line = (number, operation = 'task.cancel') => ({ number, operation });
  const page = { entries: [line(9, 'audit.read'), line(8), line(7, 'audit.read'), line(6), line(5)], next: '5' };
  assert.deepEqual(freshLines([line(6), line(5)], page), { count: 1, isMore: false });
  assert.deepEqual(freshLines([line(9)], page), { count: 0, isMore: false });
  assert.deepEqual(freshLines([line(2)], page), { count: 3, isMore: true });
  assert.deepEqual(freshLines([line(2)], { ...page, next: null }), { count: 3, isMore: false });
  assert.deepEqual(freshLines([], { entries: [line(1)], next: null }), { count: 1, isMore: false });
});

test('the line of an act is the newest since it began that is no reading', () => {
  const line = (second, action) => ({ at: `2026-11-18T12:00:0${second}.000Z`, action });
  const lines = [line(5, 'read'), line(4, 'write'), line(3, 'execute')];
  const began = Date.parse('2026-11-18T12:00:03.500Z');
  assert.equal(lineOfAct(lines, began), lines[1]);
  assert.equal(lineOfAct(lines, began + 2000), null);
});
