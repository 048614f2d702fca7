/**
 * The story of a task: what was said, done, asked, answered and made, in the order of the log, up to the event that is
 * shown. Artifacts stand where they began, with all that they have grown to.
 */

import { ConsoleElement } from '../ui/element.js';
import { h } from '../ui/dom.js';
import { partView } from '../ui/content-view.js';
import { senderText } from '../core/questions.js';
import { age } from '../core/time.js';
import { clock, postText, segment } from '../ui/api.js';
import { context, link } from '../ui/context.js';
import { empty, stateMark, time } from '../ui/parts.js';
import { membersOf } from '../ui/question-form.js';

/** @typedef {import('../core/fold.js').LogEvent} LogEvent */

const STEP = 200;

class NuncioTaskStory extends ConsoleElement {
  /** @type {import('../ui/task-log.js').TaskLog | null} */
  log = null;
  /** @type {number | null} */
  at = null;
  taskId = '';
  size = 0;
  read = 0;
  limit = STEP;
  /** @type {(seq: number, tab: string) => void} */
  goTo = () => {};
  /** The question at which a fork is being made. @type {number | null} */
  forking = null;
  /** The forks that were made here, by the question. @type {Map<number, string>} */
  forks = new Map();

  view() {
    const { log } = this;
    if (!log) return null;
    const end = this.at ?? log.fold.events.length;
    const task = this.at === null ? log.fold.task : log.fold.at(this.at);
    const open = new Map(task.questions.map(([seq, question]) => [seq, question]));
    const told = tell(log.fold.events, end);
    if (told.length === 0) return empty('Nothing said yet', log.last > 0 ? `${log.last} events are being read` : 'The log is empty');
    const hidden = Math.max(0, told.length - this.limit);
    const newest = log.fold.events[end - 1];
    return [
      hidden > 0 ? h('button', { type: 'button', onclick: () => ((this.limit += STEP), this.update()) }, `Show earlier (${hidden})`) : null,
      h('ol', { class: 'story' }, ...told.slice(hidden).map((item) => this.item(item, task, open))),
      this.at === null && !log.ended && newest ? h('p', { class: 'note' }, `Last event ${age(newest.timestamp, clock.now())}`) : null,
    ];
  }

  /** @param {LogEvent} event @param {import('../core/fold.js').Task} task @param {Map<number, any>} open */
  item(event, task, open) {
    const kind = event.type === 'message' ? event.data.role : event.type;
    const number = h('button', { type: 'button', class: 'seq', 'aria-label': `Event ${event.seq}`, onclick: () => this.goTo(event.seq, 'events') }, event.seq);
    return h('li', { key: event.seq, class: `said said-${kind === 'user' || kind === 'agent' ? kind : event.type}` }, h('p', { class: 'said-head' }, number, ' ', this.heading(event, task), ' ', time(event.timestamp)), this.body(event, task, open));
  }

  /** @param {LogEvent} event @param {import('../core/fold.js').Task} task */
  heading(event, task) {
    const { type, data } = event;
    if (type === 'message') return [h('strong', null, data.role === 'user' ? event.by?.caller ?? task.origin.owner : task.origin.agent), over(event)];
    if (type === 'status') return [stateMark(data.state), senderText(event.by)];
    if (type === 'artifact') return h('strong', null, `Artifact: ${task.artifacts[data.index]?.name ?? data.id}`);
    if (type === 'answer') return h('strong', null, `Answered ${data.question}`, senderText(event.by));
    if (type === 'question') return h('strong', null, 'Asks');
    if (type === 'withdrawn') return h('strong', null, `Question ${data.question} withdrawn`);
    return h('strong', null, 'Progress');
  }

  /** @param {LogEvent} event @param {import('../core/fold.js').Task} task @param {Map<number, any>} open */
  body(event, task, open) {
    const { type, data } = event;
    if (type === 'message') return parts(data.parts, data.role === 'user');
    if (type === 'status') return data.message ? parts(data.message.parts) : null;
    if (type === 'artifact') return parts(task.artifacts[data.index]?.parts ?? []);
    if (type === 'progress') return h('p', null, data.total === undefined ? `${data.done}` : h('progress', { max: data.total, value: data.done, 'aria-label': 'Progress' }), ' ', data.text ?? '');
    if (type === 'answer') return typeof data.answer === 'string' ? h('p', null, data.answer) : h('nuncio-json', { prop: { text: JSON.stringify(data.answer) } });
    if (type !== 'question') return null;
    // Only the caller whose task it is answers, also where others may read it.
    const asks = !this.log?.isFile && this.at === null && open.has(event.seq) && task.origin.owner === context.owner;
    return [asks ? h('nuncio-question', { prop: { taskId: this.taskId, question: data } }) : h('p', { class: 'plain' }, data.text), this.forkView(event, task, asks)];
  }

  /** The way to another answer: a new task with everything up to this question. @param {LogEvent} event @param {import('../core/fold.js').Task} task @param {boolean} asks */
  forkView({ seq, data }, task, asks) {
    if (asks || this.log?.isFile || task.origin.owner !== context.owner || data.ask === undefined) return null;
    const made = this.forks.get(seq);
    if (made) return h('p', { class: 'sent', role: 'status' }, 'Forked: ', h('a', { href: link(`tasks/${segment(made)}`) }, 'the new task'), ' · ', h('a', { href: link(`compare?a=${segment(this.taskId)}&b=${segment(made)}`) }, 'compare both'));
    if (this.forking !== seq) return h('p', null, h('button', { type: 'button', onclick: () => ((this.forking = seq), this.update()) }, 'Fork here with another answer'));
    return h('nuncio-question', { prop: { taskId: this.taskId, question: data, deliver: (/** @type {import('../ui/question-form.js').TypedAnswer} */ answer) => this.fork(seq, answer) } });
  }

  /** @param {number} seq @param {import('../ui/question-form.js').TypedAnswer} answer */
  async fork(seq, answer) {
    const made = await postText(`tasks/${segment(this.taskId)}/fork`, `{"at":${seq},"answer":{${membersOf(answer)}}}`);
    this.forks.set(seq, made.taskId);
    this.forking = null;
    this.update();
    return 'Forked.';
  }
}

/** @param {any[]} list @param {boolean} [plain] */
function parts(list, plain = false) {
  return h('div', { class: 'parts' }, ...list.map((part) => partView(part, plain)));
}

/** The protocol of a message, where the log has it. @param {LogEvent} event */
function over(event) {
  return event.by ? ` (${event.by.dialect})` : null;
}

/** The events that the story shows: no log lines, the first chunk of each artifact, the last of consecutive progress.
 * @param {LogEvent[]} events @param {number} end @returns {LogEvent[]} */
function tell(events, end) {
  /** @type {LogEvent[]} */
  const told = [];
  const begun = new Set();
  for (const event of events.slice(0, end)) {
    if (event.type === 'log' || event.data === undefined) continue;
    if (event.type === 'status' && !event.data.message && event.data.state === 'working') continue;
    if (event.type === 'artifact') {
      if (begun.has(event.data.index)) continue;
      begun.add(event.data.index);
    }
    if (event.type === 'progress' && told.at(-1)?.type === 'progress') told.pop();
    told.push(event);
  }
  return told;
}

customElements.define('nuncio-task-story', NuncioTaskStory);
