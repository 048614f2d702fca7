// Which folds of a log are compared with the server, and what is said of a difference.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { firstGap, foldDifference, sampleNumbers } from '../core/proof.js';
import { rng } from './random-log.mjs';

test('samples: all of a short log, and of a long one its ends and one of each stretch', () => {
  assert.deepEqual(sampleNumbers(3, Math.random), [1, 2, 3]);
  assert.deepEqual(sampleNumbers(0, Math.random), []);
  assert.equal(sampleNumbers(200, Math.random).length, 200);
  for (let seed = 1; seed <= 100; seed += 1) {
    const last = seed <= 50 ? 200 + seed : 201 + seed * 997;
    const numbers = sampleNumbers(last, rng(seed));
    assert.equal(numbers.length, 200);
    assert.ok(numbers.every((seq, index) => index === 0 || seq > numbers[index - 1]), `seed ${seed} ascends`);
    assert.deepEqual([numbers[0], numbers.at(-1)], [1, last]);
    const widest = Math.max(...numbers.map((seq, index) => seq - (numbers[index - 1] ?? 0)));
    assert.ok(widest <= (2 * last) / 198 + 2, `no stretch is left out: ${widest} of ${last}`);
  }
});

test('a gap is the first number that is missing, or one too many', () => {
  const log = [1, 2, 3].map((seq) => ({ seq }));
  assert.equal(firstGap(log, 3), null);
  assert.equal(firstGap(log, 4), 4);
  assert.equal(firstGap(log, 2), 3);
  assert.equal(firstGap([{ seq: 1 }, { seq: 3 }], 3), 2);
});

test('a difference names its places', () => {
  assert.equal(foldDifference(7, { a: 1 }, { a: 1 }), '');
  assert.equal(foldDifference(7, { a: 1 }, { a: 2, b: 3 }), 'At event 7 they differ: /a, /b');
});
