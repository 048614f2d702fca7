// Lists of named things in a browser's storage, without a browser.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { putNamed, readNamed, renameNamed } from '../core/named-list.js';

const fits = (one) => typeof one.query === 'string';
const view = (name, query = '') => ({ name, query });

test('whatever is stored, a list comes of it: by name, each once, no more than the most', () => {
  for (const text of [null, '', '{', '3', 'null', '{"name":"a"}', '[null,1,{"name":3,"query":""},{"name":"","query":""},{"name":"a"}]']) assert.deepEqual(readNamed(text, fits, 5), [], String(text));
  assert.deepEqual(readNamed(JSON.stringify([view('b'), view('a', 'x'), view('a', 'y')]), fits, 5), [view('a', 'x'), view('b')]);
  assert.equal(readNamed(JSON.stringify(Array.from({ length: 60 }, (_, n) => view(`${n}`))), fits, 50).length, 50);
  assert.equal(readNamed(JSON.stringify([view('x'.repeat(1001))]), fits, 5).length, 0);
});

test('one takes the place of that with its name, and a full list takes no other', () => {
  const list = putNamed([view('b')], view('a'), 2);
  assert.deepEqual(list, [view('a'), view('b')]);
  assert.deepEqual(putNamed(list, view('b', 'new'), 2), [view('a'), view('b', 'new')]);
  assert.equal(putNamed(list, view('c'), 2), null);
});

test('a name that is taken is not given twice', () => {
  assert.equal(renameNamed([view('a'), view('b')], 'a', 'b'), null);
  assert.deepEqual(renameNamed([view('a'), view('b', 'q')], 'b', '0'), [view('0', 'q'), view('a')]);
  assert.deepEqual(renameNamed([view('a')], 'a', 'a'), [view('a')]);
});
