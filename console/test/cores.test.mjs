// diff, sse, time, filter, layout.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { firstDifference, jsonDiff, same } from '../core/diff.js';
import { STATES, emptyFilter, isEmpty, matches, readFilter, search, toggle, writeFilter } from '../core/filter.js';
import { RowHeights, lanes, place, scrollTo, ticks, visibleRows } from '../core/layout.js';
import { SseParser } from '../core/sse.js';
import { ServerClock, age, duration, format, zoneName } from '../core/time.js';
import { event, randomLog, rng } from './random-log.mjs';

test('values: equality and differences', () => {
  assert.ok(same({ a: [1, { b: null }], c: 2 }, { c: 2, a: [1, { b: null }] }));
  assert.ok(!same([1], { 0: 1 }));
  const { changes } = jsonDiff({ a: 1, 'x/y': [1, 2, 3], gone: 1 }, { a: 2, 'x/y': [1, 9, 2, 3], new: 1 });
  assert.deepEqual(changes, [
    { path: '/a', op: 'changed', before: 1, after: 2 },
    { path: '/x~1y/1', op: 'added', after: 9 },
    { path: '/gone', op: 'removed', before: 1 },
    { path: '/new', op: 'added', after: 1 },
  ]);
  const many = jsonDiff({}, Object.fromEntries([...Array(1000).keys()].map((n) => [n, n])), 10);
  assert.equal(many.changes.length, 10);
  assert.ok(many.more);
});

test('logs: the first difference, whatever times and ids of messages are', () => {
  const a = randomLog(rng(3), 50);
  const b = structuredClone(a).map((one) => ({ ...one, timestamp: '2030-01-01T00:00:00.000Z' }));
  b[0].data.id = 'another';
  assert.equal(firstDifference(a, b), null);
  b[20] = { ...b[20], type: 'log', data: { level: 'info', text: 'else' } };
  assert.equal(firstDifference(a, b)?.index, 20);
  assert.deepEqual(firstDifference(a, a.slice(0, 9)), { index: 9, why: 'shorter', changes: [] });
});

test('a stream of events is read the same in any chunking', () => {
  const text = '\ufeff: hello\r\ndata: {"a":"päť 😀"}\r\nevent: rows\r\n\r\ndata:one\rdata: two\rid: 7\r\rretry: 1500\n\ndata\n\nevent: x\n\ndata: last\n\n';
  const bytes = new TextEncoder().encode(text);
  const wanted = [
    { event: 'rows', data: '{"a":"päť 😀"}', id: '' },
    { event: 'message', data: 'one\ntwo', id: '7' },
    { event: 'message', data: '', id: '7' },
    { event: 'message', data: 'last', id: '7' },
  ];
  const read = (cuts) => {
    const parser = new SseParser();
    const frames = [];
    let at = 0;
    for (const cut of [...cuts, bytes.length]) {
      frames.push(...parser.push(bytes.subarray(at, cut)));
      at = cut;
    }
    assert.equal(parser.retry, 1500);
    return frames;
  };
  assert.deepEqual(read([]), wanted);
  assert.deepEqual(read([...bytes.keys()].slice(1)), wanted, 'byte by byte');
  for (let cut = 1; cut < bytes.length; cut += 1) assert.deepEqual(read([cut]), wanted, `cut at ${cut}`);
  const random = rng(9);
  for (let round = 0; round < 200; round += 1) {
    assert.deepEqual(read([...bytes.keys()].filter((n) => n > 0 && random() < 0.3)), wanted);
  }
});

test('times name their zone, and ages follow the server', () => {
  const at = '2026-11-18T05:14:00.123Z';
  const now = Date.parse('2026-11-18T05:15:04.000Z');
  assert.equal(format(at, 'utc', now), '2026-11-18 05:14:00.123 UTC');
  assert.equal(format(at, 'local', now, () => -210), '2026-11-18 01:44:00.123 UTC-03:30');
  assert.equal(format(at, 'relative', now), '1 min 3 s ago');
  assert.equal(format('nonsense', 'utc', now), '–');
  assert.equal(zoneName(120), 'UTC+02:00');
  assert.deepEqual([0, 999, 1234, 59_949, 59_999, 60_000, 7_260_000, 180_000_000].map(duration),
    ['0 ms', '999 ms', '1.2 s', '59.9 s', '1 min', '1 min', '2 h 1 min', '2 d 2 h']);
  assert.equal(age(now + 5000, now), 'in 5.0 s');
  let ticking = 100;
  const clock = new ServerClock(() => ticking);
  clock.set(at);
  ticking += 50;
  assert.equal(clock.now(), Date.parse(at) + 50);
});

test('a filter in the URL is read, written and read as the same', () => {
  const random = rng(5);
  const maybe = (value, otherwise) => (random() < 0.5 ? value : otherwise);
  for (let round = 0; round < 500; round += 1) {
    const filter = {
      state: STATES.filter(() => random() < 0.3), agent: maybe(['a&b=c', 'ä ö', '<script>'], []), owner: maybe('all', ''),
      context: maybe('ctx-#?+%', ''), roots: random() < 0.5, since: maybe('2026-11-18T05:00:00.000Z', ''), before: maybe('2026-11-19', ''), id: maybe('019a-', ''),
    };
    assert.deepEqual(readFilter('?' + writeFilter(filter)), { filter, ignored: [] });
  }
  assert.ok(isEmpty(emptyFilter()));
  const odd = readFilter('?state=asleep&id=zz&other=1&state=failed&state=failed&__proto__=x&since=2026-99-99');
  assert.deepEqual(odd.filter.state, ['failed']);
  assert.deepEqual(odd.ignored, ['state=asleep', 'id=zz', 'since=2026-99-99']);
  const row = { state: 'failed', agent: 'echo', taskId: '019a', contextId: 'c', parentId: null, statusAt: '2026-11-18T05:00:00.000Z' };
  assert.ok(matches(toggle(emptyFilter(), 'state', 'failed'), row));
  assert.ok(!matches({ ...emptyFilter(), before: row.statusAt }, row));
  assert.deepEqual(search('echo', ['echo'], emptyFilter()).agent, ['echo']);
  assert.equal(search(' 019A8F ', [], emptyFilter()).id, '019a8f');
  assert.equal(search('holiday', [], emptyFilter()).context, 'holiday');
});

test('rows of different heights: place and row agree', () => {
  const heights = new RowHeights(30);
  const random = rng(7);
  const own = new Map();
  for (let round = 0; round < 40; round += 1) {
    const index = Math.floor(random() * 200);
    const height = random() < 0.2 ? null : 31 + Math.floor(random() * 300);
    heights.set(index, height);
    if (height === null) own.delete(index);
    else own.set(index, height);
  }
  let top = 0;
  for (let index = 0; index < 300; index += 1) {
    assert.equal(heights.top(index), top);
    const height = own.get(index) ?? 30;
    assert.equal(heights.indexAt(top), index);
    assert.equal(heights.indexAt(top + height - 1), index);
    top += height;
  }
  const seen = visibleRows(new RowHeights(30), 100_000, 1_500_000, 900);
  assert.deepEqual(seen, { first: 49_992, end: 50_039, total: 3_000_000 });
  assert.ok(visibleRows(heights, 0, 500, 900).end === 0);
  assert.equal(scrollTo(new RowHeights(30), 100, 0, 300), 2730);
  assert.equal(scrollTo(new RowHeights(30), 5, 600, 300), 150);
});

test('lanes: every span has an end, open ones last until now', () => {
  const now = Date.UTC(2026, 10, 18, 6);
  for (let seed = 1; seed < 40; seed += 1) {
    const log = randomLog(rng(seed), 120, seed % 2 === 0);
    for (const span of lanes(log, now)) {
      assert.ok(span.from <= span.to);
      assert.ok(seed % 2 === 0 || !span.open, 'an ended task has no open span');
      assert.ok(!span.open || span.to === now);
    }
  }
  const spans = lanes([event(1, 'message', {}), event(2, 'question', { id: 'a', text: 'A', ask: {} }), event(3, 'question', { id: 'b', text: 'B', ask: {} })], now);
  assert.deepEqual(spans.filter((span) => span.lane === 'question').map((span) => span.row), [0, 1]);
  assert.deepEqual(place({ from: 10, to: 30 }, 20, 40), { left: 0, width: 0.5 });
  assert.equal(place({ from: 10, to: 15 }, 20, 40), null);
  assert.deepEqual(ticks(0, 1000, 5), [0, 200, 400, 600, 800, 1000]);
});
