// The inbox's list of questions: one question is one entry, wherever it stands.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { closedText, keyOf, takeFrame, takeList } from '../core/questions.js';

const step = (taskId) => ({ taskId, agent: `agent of ${taskId}` });
const AT_TASK = { taskId: 't', questionId: 'q.1', path: [step('t')] };
const AT_PLAN = { taskId: 'p', questionId: 't.q.1', path: [step('p'), step('t')] };
const AT_OUTER = { taskId: 'o', questionId: 'p.t.q.1', path: [step('o'), step('p'), step('t')] };
const OTHER = { taskId: 't', questionId: 'q.2', path: [step('t')] };
const address = ({ taskId, questionId }) => ({ taskId, questionId, how: null, by: null });

test('a question has one key at every task that passes it on', () => {
  assert.equal(keyOf(AT_PLAN), keyOf(AT_TASK));
  assert.equal(keyOf(AT_OUTER), keyOf(AT_TASK));
  assert.notEqual(keyOf(OTHER), keyOf(AT_TASK));
});

test('a question that moves up is one entry, open at the outermost task', () => {
  let questions = takeFrame([], { asked: [AT_TASK], closed: [] });
  questions = takeFrame(questions, { asked: [AT_PLAN], closed: [address(AT_TASK)] });
  questions = takeFrame(questions, { asked: [], closed: [address(AT_PLAN)] });
  questions = takeFrame(questions, { asked: [AT_OUTER, OTHER], closed: [] });
  assert.deepEqual(questions, [AT_OUTER, OTHER]);
});

test('its answer moves down: one entry, closed at the end', () => {
  let questions = takeFrame([AT_OUTER], { asked: [AT_PLAN], closed: [address(AT_OUTER)] });
  questions = takeFrame(questions, { asked: [AT_TASK], closed: [address(AT_PLAN)] });
  questions = takeFrame(questions, { asked: [], closed: [address(AT_TASK)] });
  assert.deepEqual(questions, [{ ...AT_TASK, closed: address(AT_TASK) }]);
});

test('after a gap, questions that were closed meanwhile stay, marked', () => {
  const questions = takeList([AT_TASK, OTHER], [AT_OUTER]);
  assert.deepEqual(questions.map((one) => [one.questionId, Boolean(one.closed)]), [['q.2', true], ['p.t.q.1', false]]);
});

test('how a question was closed is said as far as it is known', () => {
  assert.equal(closedText({ how: null, by: null }), 'Closed');
  assert.equal(closedText({ how: 'ended', by: { caller: null, dialect: 'console' } }), 'Closed: ended by a caller of another tenant (console)');
  assert.equal(closedText({ how: 'declined', by: { caller: 'ada', dialect: 'a2a/1.0' } }), 'Closed: declined by ada (a2a/1.0)');
});
