/**
 * The open streams of this node, of every protocol, and the MCP sessions in use: who reads what, and how far. There is no
 * topic of streams, so the list is read every 10 s and says when.
 */

import { age } from '../core/time.js';
import { clock, segment } from '../ui/api.js';
import { context, link } from '../ui/context.js';
import { h } from '../ui/dom.js';
import { OperatorList } from '../ui/operator-list.js';
import { empty } from '../ui/parts.js';

const REREAD = 10_000;
const ADMIN = 'read:admin:tasks';

class NuncioServerStreams extends OperatorList {
  path = 'server/streams';
  noun = 'the streams';
  fields = 'caller, protocol, client or task';

  connected() {
    super.connected();
    const timer = setInterval(() => document.visibilityState === 'visible' && void this.load(), REREAD);
    this.onLeave(() => clearInterval(timer));
    // The console's own stream is among them once it is open.
    this.listenTo(context, 'live', () => context.live.state === 'live' && void this.load());
  }

  /** All that the caller may administer, if it may, or its own. */
  get request() {
    return context.may(ADMIN) && this.query.get('owner') !== 'own' ? 'streams?owner=all' : 'streams';
  }

  /** @param {any} answer */
  content({ streams, totalStreams, sessions, totalSessions }) {
    return [
      this.bar(this.chip('owner', 'own', 'only mine', !context.may(ADMIN)), !context.may(ADMIN) && h('span', { class: 'note' }, 'those of others need ', h('code', null, ADMIN))),
      ...this.list('Streams', streams, totalStreams, empty('No stream is open', 'A client that follows a task opens one, and so does a console while it is live.', 'nuncio send --stream "Hello"')),
      ...this.list('MCP sessions', sessions, totalSessions, empty('No MCP session is in use', 'Clients of MCP before 2026-07-28 have sessions; newer ones have none.')),
    ];
  }

  /** @param {string} name @param {any[]} all @param {number} total @param {Node} empty */
  list(name, all, total, empty) {
    const shown = all.filter((one) => this.isWanted([whose(one), one.protocol, one.client, one.streamId, one.sessionId, ...(one.tasks ?? []).map((/** @type {any} */ task) => task.taskId)]));
    return [h('h2', null, `${name} `, h('span', { class: 'note' }, `${shown.length} of ${total}`)), total === 0 ? empty : h('ul', { class: 'records' }, ...shown.map(row))];
  }
}

/** @param {any} one */
function whose({ caller }) {
  return `${caller.tenant}/${caller.name}`;
}

/** A stream or a session. @param {any} one */
function row(one) {
  const now = clock.now();
  const id = one.streamId ?? one.sessionId;
  const words = one.sessionId ? `${one.streams} streams, ${one.subscriptions} subscriptions` : `opened ${age(one.startedAt, now)}, ${one.events} events${one.lastEvent ? `, last ${one.lastEvent} ${age(one.lastEventAt, now)}` : ''}`;
  return h(
    'li',
    { key: id, tabindex: -1 },
    h('strong', null, one.protocol),
    h('span', null, whose(one)),
    h('span', { class: 'note' }, one.client),
    h('span', { class: 'note' }, words),
    ...(one.tasks ?? []).map((/** @type {any} */ { taskId, cursor }) => h('span', null, h('a', { href: link(`tasks/${segment(taskId)}`) }, taskId.slice(-12)), ` sent up to event ${cursor}`)),
    h('code', { class: 'note' }, id),
  );
}

customElements.define('nuncio-server-streams', NuncioServerStreams);
