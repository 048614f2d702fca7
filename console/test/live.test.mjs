// The live stream against a server that cuts it anywhere: no event is missing or doubled, and the cursor is always right.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { LiveStream } from '../ui/live.js';
import { event, rng } from './random-log.mjs';

/** A server of one task's log; each stream is cut after some bytes. */
function cuttingServer(log, random) {
  return async (body, signal) => {
    const [topic] = JSON.parse(body).topics;
    const after = Number(topic.after ?? 0);
    const frames = [`event: open\ndata: {}\n\n`];
    for (let at = after; at < log.length; ) {
      const end = Math.min(log.length, at + 1 + Math.floor(random() * 7));
      frames.push(`event: events\ndata: ${JSON.stringify({ key: topic.key, cursor: String(end), events: log.slice(at, end), last: log.length, ended: end === log.length })}\n\n`);
      at = end;
    }
    frames.push(`event: end\ndata: ${JSON.stringify({ key: topic.key, why: 'ended' })}\n\n`);
    const bytes = new TextEncoder().encode(frames.join(''));
    const reach = random() < 0.8 ? Math.floor(random() * 3000) : bytes.length;
    let sent = 0;
    return new Response(new ReadableStream({
      pull(controller) {
        if (signal.aborted) return controller.error(new Error('aborted'));
        if (sent >= bytes.length) return controller.close();
        if (sent >= reach) return controller.error(new Error('cut'));
        const size = 1 + Math.floor(random() * 400);
        controller.enqueue(bytes.slice(sent, Math.min(sent + size, reach)));
        sent += size;
      },
    }));
  };
}

test('cut anywhere, any number of times: every event once, in order', async () => {
  for (let seed = 1; seed <= 30; seed += 1) {
    const random = rng(seed);
    const log = [...Array(200).keys()].map((n) => event(n + 1, 'log', { level: 'info', text: `päť ${n}` }));
    const seen = [];
    const states = new Set();
    await new Promise((resolve) => {
      const live = new LiveStream({
        open: cuttingServer(log, random),
        later: (work, ms) => setTimeout(work, ms > 10_000 ? ms : 0),
        cancel: clearTimeout,
        now: () => 0,
        onState: () => {
          states.add(live.state);
          if (live.state === 'off') resolve();
        },
      });
      live.subscribe('task', { topic: 'task', id: 'x' }, '0', (kind, data) => {
        if (kind === 'events') seen.push(...data.events.map((one) => one.seq));
        if (kind === 'end') setImmediate(() => live.restart(0));
      });
    });
    assert.deepEqual(seen, log.map((one) => one.seq), `seed ${seed}`);
    assert.ok(states.has('live'));
  }
});

test('a handler that fails leaves the cursor where it was', async () => {
  const cursors = [];
  let failures = 2;
  await new Promise((resolve) => {
    const live = new LiveStream({
      open: async (body) => {
        cursors.push(JSON.parse(body).topics[0].after);
        return new Response('event: open\ndata: {}\n\nevent: rows\ndata: {"key":"k","cursor":"5"}\n\n');
      },
      later: (work) => setTimeout(work, 0),
      cancel: clearTimeout,
      now: () => 0,
    });
    live.subscribe('k', { topic: 'rows' }, '4', () => {
      if (failures-- > 0) throw new Error('not taken');
      live.pause(true);
      resolve();
    });
  });
  assert.deepEqual(cursors, ['4', '4', '4']);
});

/** Runs a stream to its end with these answers to its requests; gives the requests, the waits between them, and the frames. */
async function runWith(answers, topics) {
  const [requests, waits, frames] = [[], [], []];
  await new Promise((resolve) => {
    const live = new LiveStream({
      open: async (body) => {
        requests.push(JSON.parse(body).topics.map(({ key }) => key));
        return answers.shift() ?? (live.pause(true), resolve(), new Response('', { status: 503 }));
      },
      later: (work, ms) => (waits.push(ms), setTimeout(work, 0)),
      cancel: clearTimeout,
      now: () => 0,
    });
    for (const topic of topics) live.subscribe(topic, { topic }, '1', (kind, data) => frames.push([topic, kind, data.why]));
  });
  return { requests, waits, frames };
}

test('a topic that is refused ends, and the others continue', async () => {
  const refusal = new Response('{"error":{"code":"not_found","message":"no such task","field":"topics/1"}}', { status: 404 });
  const { requests, frames } = await runWith([refusal], ['rows', 'task', 'questions']);
  assert.deepEqual(requests, [['rows', 'task', 'questions'], ['rows', 'questions']]);
  assert.deepEqual(frames, [['task', 'end', 'not_found']]);
});

test('a server that is down for long is asked every two seconds: the page is live within three after it is up', async () => {
  const refusals = Array.from({ length: 12 }, () => new Response('', { status: 502, headers: { 'retry-after': '0' } }));
  const { waits } = await runWith(refusals, ['rows']);
  assert.ok(Math.max(...waits) <= 2000, String(waits));
  assert.ok(waits.at(-2) >= 1000, String(waits));
});
