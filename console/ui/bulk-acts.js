/** Acts on all tasks that match the filter of the list, as the server froze them. An act is a batch, to which the page leads. */

import { actsOn, filterText, isConfirmed, mustBeTyped, selectionFilter, tasksText } from '../core/bulk.js';
import { emptyFilter, writeFilter } from '../core/filter.js';
import { ApiError, post, segment } from './api.js';
import { context, link } from './context.js';
import { h } from './dom.js';
import { ConsoleElement } from './element.js';
import { announce, commandLine, curl, loading, problem, quote, stateMark, time } from './parts.js';

class NuncioBulkActs extends ConsoleElement {
  filter = emptyFilter();
  /** The query of the address: `act` opens the panel. */
  search = '';
  /** @type {{id: string, count: number, asOf: string, expires: string, examples: any[]} | null} */
  selection = null;
  /** @type {unknown} */
  error = null;
  /** The act that was refused, and why. @type {{act: import('../core/bulk.js').BulkAct, error: unknown} | null} */
  refused = null;
  busy = '';
  typed = '';
  /** The filter that is, or is being, frozen. @type {string | null} */
  frozen = null;

  connected() {
    this.listenTo(context, 'settings', () => this.changed());
    this.listenTo(this, 'keydown', (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== 'Escape' || !this.isOpen) return;
      event.preventDefault();
      this.querySelector('button')?.focus();
      this.open(false);
    });
  }

  get isOpen() {
    return new URLSearchParams(this.search).has('act');
  }

  /** @param {boolean} isOpen */
  open(isOpen) {
    const query = [writeFilter(this.filter), isOpen && 'act=all'].filter(Boolean).join('&');
    context.go(query ? `tasks?${query}` : 'tasks');
  }

  async freeze() {
    const frozen = (this.frozen = writeFilter(this.filter));
    Object.assign(this, { selection: null, error: null, refused: null, typed: '' });
    try {
      const selection = await post('selections', { filter: selectionFilter(this.filter) });
      if (this.frozen !== frozen) return;
      this.selection = selection;
      announce(`${tasksText(selection.count)} selected`);
    } catch (error) {
      if (this.frozen === frozen) this.error = error;
    }
    this.changed();
  }

  /** @param {import('../core/bulk.js').BulkAct} act */
  async act(act) {
    const { selection } = this;
    const { name, label } = act;
    if (!selection || this.busy) return;
    Object.assign(this, { busy: name, refused: null });
    this.update();
    try {
      const { batchId } = await post(`selections/${segment(selection.id)}/${name}`, { count: selection.count });
      announce(`${label(selection.count)}: the batch has begun`);
      context.go(`batches/${segment(batchId)}`);
    } catch (error) {
      this.refused = { act, error };
    }
    this.busy = '';
    this.changed();
  }

  view() {
    const { isOpen } = this;
    if (isOpen && this.frozen !== writeFilter(this.filter)) void this.freeze();
    if (!isOpen) this.frozen = null;
    return [
      h('button', { key: 'open', type: 'button', class: isOpen ? '' : 'quiet', 'aria-expanded': isOpen, onclick: () => this.open(!isOpen) }, 'Act on all that match …'),
      isOpen && h('section', { key: 'panel', class: 'panel', 'aria-label': 'Act on all that match' }, ...this.panel()),
    ];
  }

  panel() {
    const { selection } = this;
    const again = () => void this.freeze();
    if (this.error) return [problem(this.error, again)];
    if (!selection) return [loading('the tasks that match')];
    const { count } = selection;
    const head = [h('h2', null, `${tasksText(count)} as of `, time(selection.asOf)), h('p', null, filterText(this.filter))];
    const select = h('button', { type: 'button', class: 'quiet', onclick: again }, 'Select again');
    if (count === 0) return [...head, h('p', { class: 'bar' }, 'No task matches now.', select)];
    return [
      ...head,
      h('p', { class: 'note' }, 'These and no others: a task that comes later is not touched. An act is a batch, which can be paused and canceled. Good until ', time(selection.expires), '. ', select),
      this.examples(selection),
      mustBeTyped(count) && h('label', { class: 'typed-count' }, `Type ${count} to confirm`, h('input', { inputmode: 'numeric', autocomplete: 'off', prop: { value: this.typed }, oninput: (/** @type {any} */ event) => ((this.typed = event.target.value), this.update()) })),
      ...actsOn(this.filter).map((act) => this.button(act, count)),
      this.filter.owner && h('p', { class: 'note' }, 'Tasks of other callers are not sent again: their messages would run with your rights.'),
      this.refused && this.problem(this.refused),
      commandLine(`${curl(`selections/${segment(selection.id)}/cancel`)} -H 'Content-Type: application/json' -d ${quote(JSON.stringify({ count }))}`),
    ];
  }

  /** A selection that is not what was shown, or has expired, is made again; any other refusal is of the act.
   * @param {{act: import('../core/bulk.js').BulkAct, error: unknown}} refused */
  problem({ act, error }) {
    const isStale = error instanceof ApiError && (error.code === 'count_differs' || error.status === 404);
    return problem(error, () => void (isStale ? this.freeze() : this.act(act)));
  }

  /** @param {import('../core/bulk.js').BulkAct} act @param {number} count */
  button(act, count) {
    const missing = act.scopes(this.filter).find((scope) => !context.may(scope));
    return h(
      'p',
      { class: 'bar', key: act.name },
      h('button', { type: 'button', class: 'main', disabled: Boolean(missing) || this.busy !== '' || !isConfirmed(count, this.typed), onclick: () => void this.act(act) }, this.busy === act.name ? 'Beginning …' : act.label(count)),
      h('span', { class: 'note' }, act.what(count)),
      missing && h('span', { class: 'note' }, 'Needs the scope ', h('code', null, missing), '.'),
    );
  }

  /** @param {{count: number, examples: any[]}} selection */
  examples({ count, examples }) {
    const row = (/** @type {any} */ one) =>
      h('li', { key: one.taskId }, stateMark(one.state), ' ', one.agent, this.filter.owner && ` ${one.owner}`, ' ', h('a', { href: link(`tasks/${segment(one.taskId)}`), class: 'id' }, one.taskId.slice(-8)), ' ', h('span', { class: 'note' }, one.firstText || '(no text)'));
    return h('details', null, h('summary', null, examples.length < count ? `${examples.length} of the ${count}` : 'Which ones'), h('ul', { class: 'examples' }, ...examples.map(row)));
  }
}

customElements.define('nuncio-bulk-acts', NuncioBulkActs);
