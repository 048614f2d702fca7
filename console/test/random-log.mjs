// Random legal logs for tests: every kind of event, in orders that the engine allows.

export const ORIGIN = { id: '019a8f2e-7d11-7c3a-9b1e-000000000007', context: 'ctx-1', agent: 'echo', owner: 'local', dialect: 'a2a/1.0' };

const START = Date.UTC(2026, 10, 18, 5, 0, 0);

/** A small generator of numbers from 0 to 1, the same for the same seed. */
export function rng(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

export function event(seq, type, data) {
  const size = data === undefined ? 0 : JSON.stringify(data).length;
  return { seq, timestamp: new Date(START + seq * 37).toISOString(), type, size, data };
}

const message = (id, role, text) => ({ id, role, parts: [{ text }] });

/** A log of about `length` events; it ends in a terminal state unless `open`. */
export function randomLog(random, length, open = false) {
  const events = [];
  const add = (type, data) => events.push(event(events.length + 1, type, data));
  const pick = (list) => list[Math.floor(random() * list.length)];
  add('message', message('m-1', 'user', 'Translate this, please'));
  add('status', { state: 'working' });
  const asked = [];
  let artifacts = 0;
  while (events.length < length) {
    const kind = pick(['message', 'status', 'artifact', 'artifact', 'artifact', 'progress', 'log', 'log', 'question', 'answer', 'withdrawn']);
    const n = events.length;
    if (kind === 'message') add(kind, message(`m-${n}`, pick(['user', 'agent']), `said ${n}`));
    else if (kind === 'status' && asked.length === 0) add(kind, { state: 'working', ...(random() < 0.5 && { message: message(`s-${n}`, 'agent', `at ${n}`) }) });
    else if (kind === 'progress') add(kind, { done: n, ...(random() < 0.5 && { total: length, text: `step ${n}` }) });
    else if (kind === 'log') add(kind, { level: pick(['debug', 'info', 'warning', 'error']), text: `line ${n}` });
    else if (kind === 'artifact') {
      const fresh = artifacts === 0 || random() < 0.1;
      const index = fresh ? artifacts++ : Math.floor(random() * artifacts);
      const part = random() < 0.8 ? { text: `chunk ${n}. ` } : pick([{ data: { n } }, { text: 'x', media_type: 'text/html' }]);
      add(kind, {
        id: `a-${index}`, index, parts: [part], ...(!fresh && random() < 0.9 && { append: true }), ...(random() < 0.1 && { last: true }),
        ...((fresh || random() < 0.1) && { name: `Result ${index}` }), ...(random() < 0.1 && { metadata: { n: pick([1, 2]) } }),
      });
    } else if (kind === 'question' && asked.length < 3) {
      const id = `q-${n}`;
      asked.push(id);
      add(kind, { id, text: `Which ${n}?`, ask: pick([{ form: { schema: { type: 'object' } } }, { sample: { max_tokens: 5 } }, { authorization: { url: 'https://a.example' } }]) });
    } else if ((kind === 'answer' || kind === 'withdrawn') && asked.length > 0) {
      const question = asked.splice(Math.floor(random() * asked.length), 1)[0];
      const more = asked.length > 0 && { more: true };
      if (kind === 'withdrawn') add(kind, { question, ...more });
      else add(kind, { question, answer: pick([{ accept: { x: n } }, 'decline', { declined: { note: 'no' } }, 'cancel']), ...more });
    }
  }
  if (!open) add('status', { state: pick(['completed', 'failed']), message: message('end', 'agent', 'Done') });
  return events;
}
