/**
 * Who has seen what of a task's log, read while the timeline is looked at: the streams of this node and the webhooks have no
 * topic of their own. What is refused is said, and the rest is shown.
 */

import { seenMarks } from '../core/seen.js';
import { clock, get, segment } from './api.js';
import { context, link } from './context.js';
import { h } from './dom.js';
import { readMark } from './agent-tasks.js';

/** @typedef {import('../core/seen.js').Mark} Mark */

const POLL = 3000;
const PAGE = 100;
/** Pages of dead letters that are looked through for those of the task: the API lists them by caller. */
const MOST_PAGES = 10;

export class SeenBy {
  /** @type {Mark[]} */
  marks = [];
  /** @type {string[]} */
  refused = [];
  readAt = NaN;

  /** @param {string} taskId @param {string} owner of the task @param {import('./element.js').ConsoleElement} screen */
  constructor(taskId, owner, screen) {
    Object.assign(this, { taskId, owner });
    const read = () => document.visibilityState === 'visible' && void this.read().then(() => screen.changed());
    const timer = setInterval(read, POLL);
    screen.onLeave(() => clearInterval(timer));
    read();
  }

  taskId = '';
  owner = '';

  async read() {
    /** @type {string[]} */
    const refused = [];
    const or = (/** @type {string} */ what) => (/** @type {any} */ error) => {
      refused.push(`${what} cannot be read: ${error?.message ?? error}`);
      return null;
    };
    const path = `tasks/${segment(this.taskId)}`;
    const [followers, webhooks] = await Promise.all([get(`${path}/followers`).catch(or('Followers')), get(`${path}/webhooks`).catch(or('Webhooks'))]);
    const hooks = webhooks?.webhooks ?? [];
    const dead = hooks.some((/** @type {any} */ one) => one.dead > 0) ? await this.deadLetters().catch(or('Dead letters')) : [];
    Object.assign(this, { marks: seenMarks(followers?.followers ?? [], hooks, dead ?? []), refused, readAt: clock.now() });
  }

  async deadLetters() {
    const owner = context.me?.may?.['read:admin:webhooks'] === true ? `&owner=${segment(this.owner)}` : '';
    const found = [];
    let cursor = '';
    for (let page = 0; page < MOST_PAGES; page += 1) {
      const { deliveries, next } = await get(`deliveries?state=dead&limit=${PAGE}${owner}${cursor}`);
      found.push(...deliveries.filter((/** @type {any} */ one) => one.taskId === this.taskId));
      if (!next) break;
      cursor = `&cursor=${segment(next)}`;
    }
    return found;
  }

  /** The same as text: points are small, and a screen reader has no places. @param {string} path of the task @param {number} last */
  view(path, last) {
    const { marks, refused } = this;
    if (Number.isNaN(this.readAt)) return null;
    return h(
      'section',
      { key: 'seen', class: 'seen', 'aria-label': 'Who has seen what' },
      h('div', { class: 'bar title' }, h('h2', null, 'Who has seen what'), readMark('', this.readAt)),
      marks.length === 0 && h('p', { class: 'note' }, 'No stream of this node follows the task, and it has no webhook.'),
      marks.length > 0 && h('ul', { class: 'records' }, ...marks.map(({ lane, kind, seq, label, detail }) => h('li', null, h('span', { class: `state ${kind}` }, h('span', { class: 'shape', 'aria-hidden': 'true' }, SHAPES.get(kind) ?? '•'), ` ${lane === 'webhook' ? 'webhook' : 'stream'}`), h('span', null, label), seq > 0 && seq <= last ? h('a', { href: link(`${path}/events?at=${seq}`) }, `event ${seq} of ${last}`) : h('span', null, 'nothing yet'), h('span', { class: kind === 'seen-dead' || kind === 'seen-retrying' ? 'why' : 'note' }, detail)))),
      ...refused.map((why) => h('p', { class: 'note' }, why)),
    );
  }
}

const SHAPES = new Map([['seen-all', '✓'], ['seen-behind', '◐'], ['seen-due', '○'], ['seen-retrying', '↻'], ['seen-dead', '✕']]);
