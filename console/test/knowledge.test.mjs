// The cores of the screens Memory and Workflows: JSON texts as written, differences by line, addresses, imports.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { indentJson, jsonProblem, memberText, offsetOf, RawJson, writeJson } from '../core/json-text.js';
import { foldSame, lineDiff } from '../core/line-diff.js';
import { dataUri, fileName, importParts, keysUri, readTtl, readView, remaining, scoreText, searchUri, takeKeys, viewPath } from '../core/memory.js';
import { earlierPhases, phaseStates, selectedVersions, tasksOf, versionsOf, workflowPath, workflowUri } from '../core/workflow.js';

test('a JSON text is indented and cut out with its numbers as written', () => {
  const text = '{"value":{"a":3.0,"b":[12345678901234567890,1e400,"x, {y} \\" : ["],"c":{},"d":[]},"n":[1,[2]]}';
  const indented = indentJson(memberText(text, 'value'));
  assert.equal(indented, '{\n  "a": 3.0,\n  "b": [\n    12345678901234567890,\n    1e400,\n    "x, {y} \\" : ["\n  ],\n  "c": {},\n  "d": []\n}');
  assert.deepEqual(JSON.parse(indentJson(text)), JSON.parse(text));
  assert.equal(indentJson(indented), indented);
  assert.equal(indentJson('{"a":'), '{"a":');
  assert.equal(indentJson(' "text" '), '"text"');
  assert.equal(memberText(text, 'none'), undefined);
  assert.match(jsonProblem('{a}'), /^not JSON/);
  assert.equal(jsonProblem('-1.50'), null);
});

test('a raw text goes into a larger one as it is', () => {
  const body = { name: 'memory_store', arguments: { key: '__proto__"', value: new RawJson('{"n":1.10}'), ttl: undefined, list: [new RawJson('2.0'), null] } };
  assert.equal(writeJson(body), '{"name":"memory_store","arguments":{"key":"__proto__\\"","value":{"n":1.10},"list":[2.0,null]}}');
});

test('a JSON pointer leads to a place in the text', () => {
  const text = '{"a/b": [10, {"~": "é", "": 7}], "x": null}';
  const bytes = new TextEncoder().encode(text);
  const at = (pointer) => new TextDecoder().decode(bytes.subarray(offsetOf(bytes, pointer))).slice(0, 3);
  assert.equal(offsetOf(bytes, ''), 0);
  assert.equal(at('/a~1b/0'), '10,');
  assert.equal(at('/a~1b/1/~0'), '"é"');
  assert.equal(at('/a~1b/1/'), '7}]');
  assert.equal(at('/x'), 'nul');
  for (const none of ['/y', '/x/0', '/a~1b/2', '/a~1b/__proto__', 'a']) assert.equal(offsetOf(bytes, none), -1, none);
  assert.equal(offsetOf(new TextEncoder().encode('<'), '/a'), -1);
});

/** The texts that a difference was made from. */
const sides = ({ rows }) => ['before', 'after'].map((side) => rows.map((row) => row[side]).filter((line) => line !== null).join('\n'));

test('a difference by line has both texts, and as few edits as there are', () => {
  const diff = lineDiff('a\nb\nc\nd', 'a\nx\nc\nd\ne');
  assert.deepEqual(diff.rows.map((row) => row.op), ['same', 'changed', 'same', 'same', 'added']);
  assert.deepEqual([diff.added, diff.removed, diff.exact], [2, 1, true]);
  assert.deepEqual([diff.rows[4].beforeLine, diff.rows[4].afterLine], [0, 5]);
  assert.deepEqual(lineDiff('same', 'same').rows.map((row) => row.op), ['same']);
  assert.equal(lineDiff('b\nc', 'a\nb\nc').added, 1);
  assert.equal(lineDiff('a\nb\nc', 'b').removed, 2);
});

test('differences of random texts give both texts back, and are no longer than they have to be', () => {
  let seed = 7;
  const random = (n) => ((seed = (seed * 1103515245 + 12345) % 2147483648), seed % n);
  for (let round = 0; round < 500; round += 1) {
    const make = () => Array.from({ length: random(12) }, () => 'abc'[random(3)]).join('\n');
    const [before, after] = [make(), make()];
    const diff = lineDiff(before, after);
    assert.deepEqual(sides(diff), [before, after]);
    const kept = diff.rows.filter((row) => row.op === 'same').length;
    assert.equal(kept, longestCommon(before.split('\n'), after.split('\n')), JSON.stringify([before, after]));
    for (const row of diff.rows) if (row.op === 'same') assert.equal(row.before, row.after);
  }
});

function longestCommon(a, b) {
  const table = Array.from({ length: a.length + 1 }, () => new Array(b.length + 1).fill(0));
  for (let i = 1; i <= a.length; i += 1) for (let j = 1; j <= b.length; j += 1) table[i][j] = a[i - 1] === b[j - 1] ? table[i - 1][j - 1] + 1 : Math.max(table[i - 1][j], table[i][j - 1]);
  return table[a.length][b.length];
}

test('unrelated texts are cut off at a number of edits, and say so', () => {
  const text = (mark) => Array.from({ length: 5000 }, (_, n) => `${mark}${n}`).join('\n');
  const diff = lineDiff(`same\n${text('a')}\nend`, `same\n${text('b')}\nend`, 50);
  assert.equal(diff.exact, false);
  assert.deepEqual([diff.rows[0].op, diff.rows[1].op, diff.rows.at(-1).op], ['same', 'changed', 'same']);
  assert.equal(diff.rows.length, 5002);
});

test('long equal parts are folded around the changes', () => {
  const lines = Array.from({ length: 50 }, (_, n) => `line ${n}`);
  const changed = lines.with(25, 'other');
  const folded = foldSame(lineDiff(lines.join('\n'), changed.join('\n')).rows, 2);
  assert.deepEqual(folded.map((row) => (typeof row === 'number' ? row : row.op)), [23, 'same', 'same', 'changed', 'same', 'same', 22]);
  assert.deepEqual(foldSame(lineDiff('a\nb', 'a\nb').rows), [2]);
});

test('the address of a view of the memory bank gives the view back', () => {
  for (const view of [{ namespace: '../x', key: '..', prefix: 'a&b=c#', pattern: '', text: '', page: 1 }, { namespace: 'n', key: '', prefix: '', pattern: 't:*', text: '', page: 3 }]) {
    assert.deepEqual(readView(new URL(`http://x/console/${viewPath(view)}`).search), view);
  }
  assert.equal(viewPath({}), 'memory');
  assert.equal(readView('?page=-2').page, 1);
  assert.equal(dataUri('a b', "k/1'*"), 'memory://data/a%20b/k%2F1%27%2A');
  assert.equal(keysUri('n', { prefix: 'a:', limit: 100 }), 'memory://namespace/n/keys?limit=100&prefix=a%3A');
  assert.equal(searchUri('n', { text: 'green tea', page: 2, limit: 20 }), 'memory://search/n?text=green%20tea&page=2&limit=20');
});

test('a TTL runs down from the last write, and is typed with a unit', () => {
  const updated = '2026-11-18T10:00:00.000Z';
  assert.equal(remaining({ ttl: 60, updated }, Date.parse(updated) + 59_500), 500);
  assert.equal(remaining({ ttl: 60, updated }, Date.parse(updated) + 61_000), 0);
  assert.equal(remaining({ ttl: null, updated }, 0), null);
  assert.deepEqual(['90', '15m', ' 2 h ', '7d', '0', '-1', '1.5h', 'x', ''].map(readTtl), [90, 900, 7200, 604_800, null, null, null, null, null]);
});

test('keys that were read again change in place, are marked as deleted, or are counted as new', () => {
  const row = (key, size) => ({ key, size, ttl: null, created: '', accessed: '' });
  const { rows, fresh } = takeKeys([row('a', 1), row('b', 1)], [row('a', 2), row('c', 1)]);
  assert.deepEqual(rows.map(({ key, size, gone }) => [key, size, gone ?? false]), [['a', 2, false], ['b', 1, true]]);
  assert.equal(fresh, 1);
});

test('an import is cut between lines, and every part knows the number of its first line', () => {
  const line = (n) => JSON.stringify({ key: `k${n}`, value: 'é'.repeat(10) });
  const file = `${line(1)}\n${line(2)}\n\n${line(4)}\r\n${line(5)}\n`;
  const parts = importParts(file, 2);
  assert.deepEqual(parts.map(({ first, count }) => [first, count]), [[1, 2], [4, 2]]);
  assert.deepEqual(parts.flatMap(({ lines }) => lines.trim().split('\n').map((text) => JSON.parse(text).key)), ['k1', 'k2', 'k4', 'k5']);
  assert.equal(importParts(file, 500, 60).length, 4);
  assert.deepEqual(importParts('\n \n'), []);
});

test('names of files and scores are plain', () => {
  assert.deepEqual(['notes', '../../etc', '<b>', '', 'ünï 1'].map(fileName), ['notes.jsonl', 'etc.jsonl', 'b_.jsonl', 'memory.jsonl', 'ünï_1.jsonl']);
  assert.deepEqual([0.86364, 0, 1, 8.8e-7].map(scoreText), ['0.8636', '0.0000', '1.0000', '8.8e-7']);
});

test('a workflow has its phases in order, its versions by phase, and an address for every name', () => {
  assert.deepEqual(phaseStates({ currentPhase: 'architecture', status: 'blocked' }).map(({ status }) => status), ['passed', 'passed', 'blocked', 'pending', 'pending']);
  assert.deepEqual(earlierPhases('pseudocode'), ['specification']);
  assert.deepEqual(earlierPhases('specification'), []);
  const note = (phase, version) => ({ phase, version });
  const versions = versionsOf([note('specification', 1), note('pseudocode', 1), note('specification', 2)], 'specification');
  assert.deepEqual(versions.map(({ version }) => version), [2, 1]);
  assert.deepEqual(selectedVersions('?version=1&compare=2', versions), { version: 1, compare: 2 });
  assert.deepEqual(selectedVersions('?version=9&compare=x', versions), { version: 2, compare: 0 });
  assert.deepEqual(selectedVersions('', []), { version: 0, compare: 0 });
  assert.deepEqual([...tasksOf([{ task: 'a' }, { task: null }, { task: 'a' }])], ['a']);
  assert.equal(workflowPath('a/b', 'history', { version: 2, compare: 0 }), 'sparc/a%2Fb/history?version=2');
  assert.equal(workflowPath('..', 'pseudocode'), 'sparc?id=..&tab=pseudocode');
  assert.equal(workflowUri("a b'"), 'sparc://workflow/a%20b%27');
});
