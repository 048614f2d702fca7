// Compares the console's fold with the server's own at random events: node compare-folds.mjs {API} {task} {count}
import assert from 'node:assert/strict';

import { LogFold } from '../core/fold.js';
import { rng } from './random-log.mjs';

const [, , api, id, count] = process.argv;
const get = async (path) => {
  const response = await fetch(`${api}/${path}`);
  assert.equal(response.status, 200, path);
  return response.json();
};

const fold = new LogFold((await get(`tasks/${id}`)).origin);
for (let page = null; !page || page.after < page.last; ) {
  page = await get(`tasks/${id}/events?after=${fold.events.length}&limit=1000&preview=1048576`);
  fold.push(page.events);
}
const seed = Date.now() % 1_000_000;
const random = rng(seed);
const last = fold.events.length;
const numbers = [0, 1, last, ...Array.from({ length: Number(count) }, () => 1 + Math.floor(random() * last))];
for (const seq of numbers) {
  const { task } = await get(`tasks/${id}/at/${seq}`);
  assert.deepEqual(JSON.parse(JSON.stringify(fold.at(seq))), task, `event ${seq}, seed ${seed}`);
}
console.log(`${numbers.length} folds of ${last} events are the same, seed ${seed}`);
