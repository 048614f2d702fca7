// The cores of acts on many tasks and of failed deliveries.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ACTS, actsOn, filterText, isConfirmed, selectionFilter } from '../core/bulk.js';
import { mergeDeliveries, missingScope, outcomeText, readView, writeView } from '../core/deliveries.js';
import { emptyFilter, readFilter } from '../core/filter.js';

test('a selection is asked for with the filter of the address, and nothing else', () => {
  const { filter } = readFilter('state=working&state=failed&agent=a&owner=all&roots=true&since=2026-11-18&id=01a&act=all&unknown=1');
  assert.deepEqual(selectionFilter(filter), { state: ['working', 'failed'], agent: ['a'], owner: 'all', roots: true, since: '2026-11-18', id: '01a' });
  assert.deepEqual(selectionFilter(emptyFilter()), {});
  assert.equal(filterText(filter), 'state working or failed · agent a · of all callers · called by no task · since 2026-11-18 · id begins with 01a');
  assert.match(filterText(emptyFilter()), /every task of yours/);
});

test('above 20 the count is typed', () => {
  const check = (count, typed, expected) => assert.equal(isConfirmed(count, typed), expected, `${count} ${typed}`);
  check(0, '', false);
  check(0, '0', false);
  check(1, '', true);
  check(20, '', true);
  check(21, '', false);
  check(21, '21', true);
  check(1234, ' 1,234 ', true);
  check(1234, '123', false);
  check(1234, '12345', false);
  check(21, 'yes', false);
});

test('tasks of others are canceled with another scope', () => {
  const [cancel, rerun] = ACTS;
  assert.deepEqual(cancel.scopes(emptyFilter()), ['write:a2a:tasks', 'execute:batchtools:batchtools']);
  assert.deepEqual(cancel.scopes({ ...emptyFilter(), owner: 'all' }), ['write:admin:tasks', 'execute:batchtools:batchtools']);
  assert.deepEqual(rerun.scopes(emptyFilter()), ['execute:batchtools:batchtools']);
  assert.deepEqual(actsOn(emptyFilter()), ACTS);
  assert.deepEqual(actsOn({ ...emptyFilter(), owner: 'all' }), [cancel], 'a message of another caller does not run with these rights');
  assert.equal(cancel.label(1), 'Cancel 1 task');
  assert.equal(rerun.label(3), 'Run 3 tasks again');
});

test('the view of deliveries is its address', () => {
  for (const view of [{ state: 'retrying', cursor: '', open: '' }, { state: 'dead', cursor: 'dead.1.2.3.a&b', open: '01a.h"<.4' }]) assert.deepEqual(readView(writeView(view)), view);
  assert.deepEqual(readView('state=alive'), { state: 'retrying', cursor: '', open: '' });
});

test('rows stay in their places when the list is read again', () => {
  const view = readView('state=dead');
  const one = (id, attempts = 1) => ({ id, attempts });
  const { rows, fresh } = mergeDeliveries([one('a'), one('b'), one('c')], { deliveries: [one('new'), one('c', 2), one('a')], next: null }, view);
  assert.deepEqual(rows, [one('a'), { ...one('b'), left: 'delivered or discarded' }, one('c', 2)]);
  assert.equal(fresh, 1);
  // It comes back: a replay that failed.
  assert.deepEqual(mergeDeliveries(rows, { deliveries: [one('b', 2)], next: null }, view).rows[1], one('b', 2));
  assert.equal(mergeDeliveries([one('a')], { deliveries: [], next: null }, readView('')).rows[0].left, 'delivered, discarded or given up');
  for (const [page, at] of [[{ deliveries: [], next: 'x' }, view], [{ deliveries: [], next: null }, { ...view, cursor: 'x' }]]) {
    assert.equal(mergeDeliveries([one('a')], page, at).rows[0].left, 'no longer in this page');
  }
});

test('the scope that is missing is named', () => {
  const check = (owner, granted, expected) => assert.equal(missingScope({ owner }, 'ada', (scope) => granted.includes(scope)), expected);
  check('ada', [], 'write:a2a:tasks');
  check('ada', ['write:a2a:tasks'], null);
  check('bob', ['write:a2a:tasks'], 'write:admin:webhooks');
  check('bob', ['write:admin:webhooks'], null);
  check('ada', ['write:admin:webhooks'], null);
});

test('what came of an act is counted by result', () => {
  const results = (...names) => names.map((result) => ({ result }));
  assert.equal(outcomeText('replay', results('done', 'done')), '2 sent again now');
  assert.match(outcomeText('replay', results('done', 'unchanged')), /^1 sent again now · 1 unchanged: /);
  assert.match(outcomeText('discard', results('not_found')), /^0 discarded: never sent · 1 not found$/);
});
