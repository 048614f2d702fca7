/**
 * Who has seen what of a log: the cursor of every stream that follows it and of every webhook, and the deliveries that were
 * given up, each at its event. Pure; marks become spans of the timeline and lines of text.
 */

/**
 * @typedef {{lane: 'follower' | 'webhook', kind: string, seq: number, label: string, detail: string}} Mark
 *   `seq`: the last event that was sent, or the one that was not; 0: none yet
 * @typedef {import('./timeline.js').TimelineSpan} TimelineSpan
 */

/** @param {any[]} followers @param {any[]} webhooks @param {any[]} dead the deliveries of this task that were given up @returns {Mark[]} */
export function seenMarks(followers, webhooks, dead) {
  return [
    ...followers.map((one) => follower(one)),
    ...webhooks.flatMap((one) => webhook(one)),
    ...dead.map((one) => mark('webhook', 'seen-dead', one.seq, `dead letter of ${one.webhookId}`, one.reason ?? 'no reason was recorded')),
  ];
}

/** @param {any} one @returns {Mark} */
function follower({ protocol, client, caller, cursor, behind }) {
  const who = [protocol, client, caller && `of ${caller.tenant === 'home' ? caller.name : `${caller.tenant}/${caller.name}`}`].filter(Boolean).join(' ');
  return mark('follower', behind > 0 ? 'seen-behind' : 'seen-all', cursor, who, behind > 0 ? `${behind} behind` : 'has all');
}

/** A webhook stands at what it was sent; what is being retried stands at the event that does not arrive. @param {any} one @returns {Mark[]} */
function webhook({ webhookId, cursor, last, state, attempts, reason }) {
  const sent = mark('webhook', cursor < last ? 'seen-behind' : 'seen-all', cursor, webhookId, cursor < last ? `${last - cursor} behind` : 'has all');
  if (state !== 'retrying' && state !== 'sending' && state !== 'due') return [sent];
  const failing = state === 'retrying';
  return [sent, mark('webhook', failing ? 'seen-retrying' : 'seen-due', cursor + 1, `${webhookId}, ${state}`, [failing && `${attempts} ${attempts === 1 ? 'attempt' : 'attempts'}`, failing && reason].filter(Boolean).join('; ') || 'on its way')];
}

/** @param {'follower' | 'webhook'} lane @param {string} kind @param {unknown} seq @param {unknown} label @param {string} detail @returns {Mark} */
function mark(lane, kind, seq, label, detail) {
  return { lane, kind, seq: Number.isInteger(seq) ? Number(seq) : 0, label: String(label), detail };
}

/** Marks as points of the timeline, at the times of their events. One that was sent nothing yet stands at the beginning; one
 * whose event is not here is left out. @param {Mark[]} marks @param {(seq: number) => {timestamp: string} | undefined} eventAt @returns {TimelineSpan[]} */
export function markSpans(marks, eventAt) {
  /** @type {TimelineSpan[]} */
  const spans = [];
  for (const { lane, kind, seq, label, detail } of marks) {
    const at = Date.parse(eventAt(Math.max(1, seq))?.timestamp ?? '');
    if (Number.isNaN(at)) continue;
    spans.push({ lane, kind, label: `${label}: ${seq > 0 ? `event ${seq}` : 'nothing yet'}`, detail, from: at, to: at, seq, endSeq: seq, row: 0, open: false });
  }
  return spans;
}
