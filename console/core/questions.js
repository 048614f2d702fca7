/**
 * The open questions of the inbox, and their change by frames of the live stream. A question that tasks pass on to their
 * callers is one question, at whichever of them it stands at the moment. Pure.
 */

/**
 * @typedef {{caller: string | null, dialect: string}} Sender
 * @typedef {{how: string | null, by: Sender | null}} Closed
 * @typedef {{taskId: string, questionId: string, path?: {taskId: string, agent: string}[], closed?: Closed, [name: string]: any}} InboxQuestion
 */

/** What the question is at the task that asks it: each task that passes it on puts the id of the task below before its id.
 * @param {InboxQuestion} question */
export function keyOf({ taskId, questionId, path }) {
  const passed = Math.max(0, (path?.length ?? 1) - 1);
  return `${path?.at(-1)?.taskId ?? taskId} ${questionId.split('.').slice(passed).join('.')}`;
}

/** The questions after a frame. Closed ones stay where they were; one that moved to another task is open there.
 * @param {InboxQuestion[]} questions @param {{asked: InboxQuestion[], closed: any[]}} frame @returns {InboxQuestion[]} */
export function takeFrame(questions, { asked, closed }) {
  const closedAt = new Map(closed.map((one) => [`${one.taskId} ${one.questionId}`, one]));
  const next = questions.map((one) => {
    const by = closedAt.get(`${one.taskId} ${one.questionId}`);
    return by ? { ...one, closed: by } : one;
  });
  for (const question of asked) {
    const at = next.findIndex((one) => keyOf(one) === keyOf(question));
    if (at >= 0) next[at] = question;
    else next.push(question);
  }
  return next;
}

/** The questions after the list was read again: those that are not open any more stay, marked as closed.
 * @param {InboxQuestion[]} questions @param {InboxQuestion[]} open @returns {InboxQuestion[]} */
export function takeList(questions, open) {
  const keys = new Set(open.map(keyOf));
  const closed = questions.filter((one) => !keys.has(keyOf(one))).map((one) => ({ ...one, closed: one.closed ?? { how: null, by: null } }));
  return [...closed, ...open];
}

/** How a question was closed, and by which caller, as far as the server knows. @param {Closed} closed */
export function closedText({ how, by }) {
  return `${how ? `Closed: ${how}` : 'Closed'}${senderText(by)}`;
}

/** Who sent something, and over which protocol; a caller of another tenant has no name here. @param {Sender | null | undefined} by */
export function senderText(by) {
  return by ? ` by ${by.caller ?? 'a caller of another tenant'} (${by.dialect})` : '';
}
