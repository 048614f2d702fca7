/**
 * An open question and its answer: a form from its schema (and the same value as JSON), a text for a model's question, a
 * checked link for an authorization. What was typed stays when the server refuses it, with the reason at the field.
 */

import { senderText } from '../core/questions.js';
import { ApiError, clock, postText, segment } from './api.js';
import { auditNote, noteAct } from './audit-note.js';
import { authorizationLink, markdown } from './content-view.js';
import { context } from './context.js';
import { h } from './dom.js';
import { ConsoleElement } from './element.js';
import { ValueEditor } from './value-editor.js';

/** @typedef {{action: string, content: string | null, note: string}} TypedAnswer `content` is JSON text */

const SAMPLE = { type: 'object', required: ['text'], properties: { text: { type: 'string', title: 'Answer', minLength: 1, maxLength: 1_000_000 } } };

class NuncioQuestion extends ConsoleElement {
  taskId = '';
  /** The question in the engine's form: id, text, ask. @type {any} */
  #question = null;
  editor = new ValueEditor('', 'Answer', () => this.update());
  message = '';
  busy = false;
  sent = '';
  onAnswered = () => {};
  /** Brings the answer to the server, and gives what to say about it. The default is the console's API, whatever protocol the
   * task was made in. @type {(answer: TypedAnswer) => Promise<string>} */
  deliver = (answer) => this.deliverToTask(answer);

  set question(question) {
    const before = this.#question;
    if (before?.id === question?.id) return;
    this.#question = question;
    // The same question, which another task passes on under another id: what was typed stays.
    if (before && JSON.stringify(before.ask) === JSON.stringify(question.ask)) return;
    const { form, sample } = question.ask;
    this.editor.id = question.id;
    this.editor.begin(form ? form.schema : sample ? SAMPLE : null);
  }

  get question() {
    return this.#question;
  }

  /** @param {string} action */
  async send(action) {
    this.editor.clear();
    this.message = '';
    /** @type {string | null} */
    let content = null;
    if (action === 'accept' && !this.question.ask.authorization) {
      content = this.editor.read();
      if (content === null) return this.showProblem();
    }
    const typed = this.querySelector('input[name=note]');
    const note = action === 'decline' && typed instanceof HTMLInputElement ? typed.value.trim() : '';
    this.busy = true;
    this.update();
    try {
      this.sent = await this.deliver({ action, content, note });
      this.onAnswered();
    } catch (error) {
      this.takeError(error);
    }
    this.busy = false;
    this.update();
    if (this.message || this.editor.problems.size > 0) this.showProblem();
  }

  /** @param {TypedAnswer} answer */
  async deliverToTask({ action, content, note }) {
    const began = clock.now();
    const answer = await postText(`tasks/${segment(this.taskId)}/answers`, `{"questionId":${JSON.stringify(this.question.id)},${membersOf({ action, content, note })}}`);
    noteAct(this.taskId, began);
    return `Sent: ${action}. The task is ${answer.state}.`;
  }

  /** @param {unknown} error */
  takeError(error) {
    const api = error instanceof ApiError ? error : null;
    const closed = api?.details.closed;
    if (api?.code === 'not_asked') this.sent = closed?.by ? `Answered elsewhere${senderText(closed.by)}.` : 'This question is closed: it was answered elsewhere, or the task has ended.';
    else if (api?.code === 'answer_invalid' && this.editor.refuse(api.details.at ?? '', api.message)) return;
    else this.message = error instanceof Error ? error.message : String(error);
  }

  showProblem() {
    this.update();
    /** @type {HTMLElement | null} */ (this.querySelector('[aria-invalid=true], .problem'))?.focus();
  }

  view() {
    const { question } = this;
    if (!question) return null;
    const { sample, authorization } = question.ask;
    const may = context.may('write:a2a:tasks');
    const off = this.busy || !may;
    const act = (/** @type {string} */ action, /** @type {string} */ label) => h('button', { type: 'button', disabled: off, title: may ? null : 'needs the scope write:a2a:tasks', onclick: () => this.send(action) }, label);
    return [
      markdown(question.text),
      sample?.system ? h('details', null, h('summary', null, 'Instructions for the model'), h('p', { class: 'plain' }, sample.system)) : null,
      authorization ? authorizationLink(String(authorization.url)) : null,
      this.sent
        ? h('div', null, h('p', { class: 'sent', role: 'status' }, this.sent), auditNote(this.taskId))
        : h(
            'form',
            { class: 'answer', novalidate: true, onsubmit: (/** @type {SubmitEvent} */ event) => (event.preventDefault(), void this.send('accept')) },
            this.message && h('p', { class: 'problem', role: 'alert', tabindex: -1 }, this.message),
            ...this.editor.view(),
            h('p', { class: 'bar' }, h('button', { class: 'main', disabled: off }, authorization ? 'Granted' : 'Accept'), act('decline', 'Decline'), h('input', { name: 'note', 'aria-label': 'Note to a decline', placeholder: 'Note to a decline' }), act('cancel', 'Cancel'), act('unavailable', 'Not me'), this.editor.toggleButton()),
          ),
    ];
  }
}

/** The members of an answer as JSON text; numbers stay as they were typed. @param {TypedAnswer} answer */
export function membersOf({ action, content, note }) {
  return [`"action":${JSON.stringify(action)}`, content === null ? '' : `"content":${content}`, note ? `"note":${JSON.stringify(note)}` : ''].filter(Boolean).join(',');
}

customElements.define('nuncio-question', NuncioQuestion);
