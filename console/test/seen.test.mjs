// Who has seen what of a log: marks and their places on the timeline.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { markSpans, seenMarks } from '../core/seen.js';
import { idleGaps, timelineSpans } from '../core/timeline.js';

const caller = { name: 'ada', tenant: 'acme' };
const at = (seq) => ({ timestamp: new Date(1000 * seq).toISOString() });

test('every stream and webhook stands at its cursor, a retry and a dead letter at the event that did not arrive', () => {
  const followers = [{ protocol: 'a2a', client: 'probe/1', caller, cursor: 12, behind: 0 }, { protocol: 'console', client: null, caller: { name: 'local', tenant: 'home' }, cursor: 0, behind: 12 }];
  const webhooks = [{ webhookId: 'h', cursor: 10, last: 12, state: 'retrying', attempts: 1, reason: 'it answered 500' }, { webhookId: 'i', cursor: 12, last: 12, state: 'idle' }];
  const dead = [{ webhookId: 'i', seq: 4, reason: null }];
  const marks = seenMarks(followers, webhooks, dead);
  assert.deepEqual(marks.map(({ kind, seq, label, detail }) => `${kind} ${seq} ${label}: ${detail}`), [
    'seen-all 12 a2a probe/1 of acme/ada: has all', 'seen-behind 0 console of local: 12 behind', 'seen-behind 10 h: 2 behind',
    'seen-retrying 11 h, retrying: 1 attempt; it answered 500', 'seen-all 12 i: has all', 'seen-dead 4 dead letter of i: no reason was recorded',
  ]);
});

test('marks are points at the times of their events; those of unknown events are left out, and none makes idle time busy', () => {
  const marks = seenMarks([{ protocol: 'a2a', caller, cursor: 3, behind: 0 }, { protocol: 'a2a', caller, cursor: 0, behind: 3 }, { protocol: 'a2a', caller, cursor: 99, behind: 0 }], [], []);
  const spans = markSpans(marks, (seq) => (seq <= 3 ? at(seq) : undefined));
  assert.deepEqual(spans.map(({ from, to, label }) => [from, to, label]), [[3000, 3000, 'a2a of acme/ada: event 3'], [1000, 1000, 'a2a of acme/ada: nothing yet']]);
  const events = [{ seq: 1, ...at(1), type: 'message', data: { id: 'm', role: 'user', parts: [] } }, { seq: 2, ...at(500), type: 'log', data: {} }];
  const [without, marked] = [timelineSpans(null, events, 500_000), timelineSpans(null, events, 500_000, spans)];
  assert.equal(marked.length, without.length + 2);
  assert.deepEqual(idleGaps(marked, 1000, 500_000), idleGaps(without, 1000, 500_000));
});
