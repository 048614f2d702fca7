/**
 * The inbox: every open question that the caller may answer, oldest first. A question that was closed elsewhere is greyed,
 * with who closed it, and never disappears under the hands of a person who types.
 */

import { closedText, keyOf, takeFrame, takeList } from '../core/questions.js';
import { age } from '../core/time.js';
import { clock, get, segment } from '../ui/api.js';
import { context, link } from '../ui/context.js';
import { h } from '../ui/dom.js';
import { ConsoleElement } from '../ui/element.js';
import { announce, empty, loading, problem, time } from '../ui/parts.js';
import '../ui/question-form.js';

class NuncioInbox extends ConsoleElement {
  search = '';
  /** @type {any[] | null} */
  questions = null;
  /** @type {any} */
  page = null;
  /** @type {unknown} */
  error = null;
  selected = 0;

  connected() {
    this.listenTo(context, 'settings', () => this.changed());
    const ages = setInterval(() => this.changed(), 5000);
    this.onLeave(() => clearInterval(ages));
    this.onLeave(() => this.unsubscribe?.());
    void this.load();
  }

  /** @type {(() => void) | null} */
  unsubscribe = null;

  async load() {
    try {
      const page = await get('questions?limit=100');
      // The server reads at most 500 waiting tasks, so these are few pages.
      for (let { next } = page; next; ) {
        const further = await get(`questions?limit=100&cursor=${segment(next)}`);
        page.questions.push(...further.questions);
        next = further.next;
      }
      if (!this.isConnected) return;
      Object.assign(this, { page, questions: takeList(this.questions ?? [], page.questions), error: null });
      this.unsubscribe?.();
      this.unsubscribe = context.live.subscribe('inbox', { topic: 'questions' }, page.liveCursor, (kind, data) => this.take(kind, data));
    } catch (error) {
      this.error = error;
    }
    this.changed();
  }

  /** @param {string} kind @param {any} data */
  take(kind, data) {
    if (kind === 'gap') void this.load();
    if (kind !== 'questions' || !this.questions) return;
    this.questions = takeFrame(this.questions, data);
    if (data.asked.length > 0) announce(`${data.asked.length} new questions`, true);
    this.changed();
  }

  /** @param {string} key */
  onKey(key) {
    const items = [.../** @type {NodeListOf<HTMLElement>} */ (this.querySelectorAll('.asked'))];
    if (key === 'j' || key === 'k') {
      this.selected = Math.max(0, Math.min(items.length - 1, this.selected + (key === 'j' ? 1 : -1)));
      items[this.selected]?.focus();
    } else if (key === 'a') /** @type {HTMLElement | null} */ (items[this.selected]?.querySelector('nuncio-question :is(input, textarea, select, button)'))?.focus();
    else return false;
    return true;
  }

  view() {
    return [h('h1', null, 'Inbox'), this.error ? problem(this.error, () => this.load()) : null, ...[this.content()].flat()];
  }

  content() {
    if (!this.questions) return this.error ? null : loading('questions');
    if (this.questions.length === 0) {
      const last = this.page?.lastClosed;
      return empty('No question is open', last ? h('span', null, `Last: ${closedText(last)}`, ' ', time(last.at)) : 'A task that asks something appears here.');
    }
    return [h('ol', { class: 'inbox' }, ...this.questions.map((question, index) => this.item(question, index))), this.page?.more ? h('p', { class: 'note' }, 'More tasks wait than are shown: these are the oldest.') : null];
  }

  /** @param {any} question @param {number} index */
  item(question, index) {
    const { closed } = question;
    const path = question.path?.length ? question.path : [{ taskId: question.taskId, agent: question.agent }];
    const head = h('p', { class: 'said-head' }, ...path.flatMap((/** @type {any} */ step, /** @type {number} */ at) => [at > 0 ? ' → ' : '', h('a', { href: link(`tasks/${segment(step.taskId)}`) }, step.agent)]), ` · asked ${age(question.askedAt, clock.now())} · `, time(question.askedAt));
    const shape = { id: question.questionId, text: question.text, ask: question.ask };
    return h(
      'li',
      { key: keyOf(question), class: `asked ${closed ? 'closed' : ''} ${index === this.selected ? 'selected' : ''}`, tabindex: -1, onfocusin: () => (this.selected = index) },
      head,
      closed && h('p', { class: 'sent', role: 'status' }, closedText(closed)),
      h('nuncio-question', { prop: { taskId: question.taskId, question: shape } }),
    );
  }
}

customElements.define('nuncio-inbox', NuncioInbox);
