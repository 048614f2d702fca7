// The timeline's spans, scale and thinning.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { idleGaps, readRange, scaleOf, thin, timelineSpans } from '../core/timeline.js';

const at = (ms) => new Date(1_700_000_000_000 + ms).toISOString();
const EVENTS = [
  { seq: 1, timestamp: at(0), type: 'message', data: { role: 'user', parts: [{ text: 'go' }] } },
  { seq: 2, timestamp: at(10), type: 'status', data: { state: 'working' } },
  { seq: 3, timestamp: at(500), type: 'question', data: { id: 'q1', text: 'Go on?', ask: { form: {} } } },
  { seq: 4, timestamp: at(9000), type: 'answer', data: { question: 'q1', answer: 'decline' } },
  { seq: 5, timestamp: at(9600), type: 'status', data: { state: 'completed' } },
];
const JOURNAL = {
  runs: [
    { epoch: 1, node: 'a', beganAt: at(0), endedAt: null, end: 'lost', attempts: 0 },
    { epoch: 2, node: 'b', beganAt: at(300), endedAt: at(520), end: 'parked', attempts: 1 },
    { epoch: 3, node: 'b', beganAt: at(9000), endedAt: at(9600), end: 'ended', attempts: 0 },
  ],
  effects: [
    { kind: 'step', name: 'look', position: '#1', beganAt: at(20), endedAt: at(200), ok: true },
    { kind: 'step', name: 'fail', position: '#2', beganAt: at(310), endedAt: at(400), ok: false, result: 'no' },
    { kind: 'step', name: 'old', position: '#3', beganAt: null, endedAt: null, ok: true },
    { kind: 'question', text: 'Go on?', position: '#4', beganAt: null, endedAt: null },
    { kind: 'call', agent: 'helper', taskId: 't-2', state: 'completed', position: '#5', beganAt: at(9100), endedAt: at(9500) },
  ],
};
const [FROM, TO] = [Date.parse(at(0)), Date.parse(at(9600))];

test('runs, steps and calls have lanes; a run that died ends with the last thing that is known of it', () => {
  const spans = timelineSpans(JOURNAL, EVENTS, TO);
  const of = (lane) => spans.filter((span) => span.lane === lane).map((span) => [span.label, span.from - FROM, span.to - FROM]);
  assert.deepEqual(of('run'), [['run 1: lost with its process', 0, 10], ['run 2: parked, nothing held', 300, 520], ['run 3: ended the task', 9000, 9600]]);
  assert.deepEqual(of('step'), [['look', 20, 200], ['fail', 310, 400]]);
  assert.deepEqual(of('call'), [['helper', 9100, 9500]]);
  assert.deepEqual(of('question'), [['Go on?', 500, 9000]]);
});

test('idle time is folded only on demand, and places stay in order', () => {
  const spans = timelineSpans(JOURNAL, EVENTS, TO);
  const plain = scaleOf(spans, FROM, TO, false);
  assert.equal(plain.gaps.length, 0);
  assert.ok(Math.abs(plain.at(FROM + 4800) - 0.5) < 1e-9);
  const gaps = idleGaps(spans, FROM, TO);
  assert.deepEqual(gaps.map((gap) => [gap.from - FROM, gap.to - FROM]), [[520, 9000]]);
  const folded = scaleOf(spans, FROM, TO, true);
  assert.ok(folded.at(FROM + 520) > 0.4, 'what ran has the room');
  assert.ok(Math.abs(folded.at(FROM + 9000) - folded.at(FROM + 520) - 0.02) < 1e-9);
  let before = -1;
  for (let ms = 0; ms <= 9600; ms += 100) {
    const place = folded.at(FROM + ms);
    assert.ok(place >= before && place <= 1, `${ms}`);
    before = place;
  }
  assert.equal(folded.at(TO), 1);
});

test('many points become few, and none is lost from the count', () => {
  const log = Array.from({ length: 50_000 }, (_, n) => ({ seq: n + 1, timestamp: at(n), type: 'log', data: { level: 'info', text: `${n}` } }));
  const spans = timelineSpans(null, log, Date.parse(at(50_000)));
  const scale = scaleOf(spans, Date.parse(at(0)), Date.parse(at(50_000)), false);
  const shown = thin(spans.filter((span) => span.lane === 'log'), scale);
  assert.ok(shown.length <= 121, `${shown.length}`);
  assert.equal(shown.reduce((sum, span) => sum + (span.count ?? 1), 0), 50_000);
});

test('a range is read from the address, and nonsense is the whole', () => {
  assert.deepEqual(readRange('?zoom=100-200', 1000, 5000), { from: 1100, to: 1200 });
  for (const search of ['', '?zoom=', '?zoom=5-5', '?zoom=9-3', '?zoom=x-y', '?zoom=-1-3']) assert.deepEqual(readRange(search, 1000, 5000), { from: 1000, to: 5000 }, search);
});
