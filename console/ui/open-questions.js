/**
 * The open questions of a task, to be answered in the screen that shows the task. One that is closed while a person types in
 * its form stays, marked as closed, until the focus leaves it.
 */

import { segment } from './api.js';
import { context, link } from './context.js';
import { h } from './dom.js';
import { ConsoleElement } from './element.js';
import './question-form.js';

/** @typedef {[number, import('../core/fold.js').Question]} Open */

class NuncioOpenQuestions extends ConsoleElement {
  taskId = '';
  owner = '';
  /** @type {Open[]} */
  questions = [];
  /** Says whose question it is, and which task asks it. @type {(question: import('../core/fold.js').Question) => {who: string, taskId: string}} */
  about = () => ({ who: 'The task', taskId: '' });
  /** @type {Open[]} */
  shown = [];

  view() {
    const open = new Set(this.questions.map(([seq]) => seq));
    const typing = this.querySelector('.asked:focus-within');
    const kept = this.shown.filter(([seq]) => !open.has(seq) && typing instanceof HTMLElement && typing.dataset.seq === String(seq));
    this.shown = [...kept, ...this.questions];
    if (this.shown.length === 0) return null;
    return h('ol', { class: 'inbox', 'aria-label': 'Questions' }, ...this.shown.map(([seq, question]) => this.item(seq, question, !open.has(seq))));
  }

  /** @param {number} seq @param {import('../core/fold.js').Question} question @param {boolean} closed */
  item(seq, question, closed) {
    const { who, taskId } = this.about(question);
    // Only the caller whose task it is answers, also where others may read it.
    const mine = this.owner === context.owner;
    // Its form goes when it is answered: the focus goes to the heading instead of nowhere.
    const onAnswered = () => /** @type {HTMLElement | null} */ (document.querySelector('main h1'))?.focus();
    return h(
      'li',
      { key: seq, class: `asked ${closed ? 'closed' : ''}`, 'data-seq': seq },
      h('p', { class: 'said-head' }, h('strong', null, who), ' asks ', taskId && h('a', { href: link(`tasks/${segment(taskId)}`) }, 'Open its task')),
      closed && h('p', { class: 'sent', role: 'status' }, 'Closed: it was answered elsewhere, or the task has ended.'),
      mine ? h('nuncio-question', { prop: { taskId: this.taskId, question, onAnswered } }) : h('p', { class: 'plain' }, question.text),
    );
  }
}

customElements.define('nuncio-open-questions', NuncioOpenQuestions);
