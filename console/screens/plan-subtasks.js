/**
 * The subtasks of a plan as a list, step by step: what the drawing shows, in words, for screen readers and narrow screens,
 * and the rest: tries, who was passed over and why, input and output.
 */

import { isOver, outputOf, SUBTASK_STATES } from '../core/plan.js';
import { layersOf } from '../core/plan-layout.js';
import { duration } from '../core/time.js';
import { clock, segment } from '../ui/api.js';
import { partView } from '../ui/content-view.js';
import { link } from '../ui/context.js';
import { h } from '../ui/dom.js';
import { ConsoleElement } from '../ui/element.js';
import { stateMark, time } from '../ui/parts.js';

/** @typedef {import('../core/plan.js').Subtask} Subtask */
/** @typedef {import('../core/plan.js').PlanTask} PlanTask */

const STEP = 100;

class NuncioPlanSubtasks extends ConsoleElement {
  /** @type {import('../core/plan.js').PlanView | null} */
  planView = null;
  /** @type {import('../core/fold.js').Task | null} */
  task = null;
  selected = '';
  /** A state; only subtasks in it are shown. */
  filter = '';
  size = 0;
  limit = STEP;
  /** @type {string[]} Subtasks that are shown, in their order. */
  shownIds = [];
  /** @type {(values: {[name: string]: string}) => void} */
  goTo = () => {};
  #focused = '';

  view() {
    const view = this.planView;
    if (!view) return null;
    const tasks = new Map(view.plan.tasks.map((task) => [task.id, task]));
    const parts = new Map(view.parts.map((part) => [part.id, part]));
    const wanted = (/** @type {string} */ id) => !this.filter || parts.get(id)?.state === this.filter || id === this.selected;
    const layers = layersOf(view.plan.tasks).map((ids) => ids.filter(wanted));
    const all = layers.flat();
    this.shownIds = all.slice(0, Math.max(this.limit, all.indexOf(this.selected) + 1));
    const shown = new Set(this.shownIds);
    return [
      this.chips(view.parts),
      h(
        'ol',
        { class: 'steps' },
        ...layers.map((ids, at) => {
          const here = ids.filter((id) => shown.has(id));
          if (here.length === 0) return null;
          return h('li', { key: at }, layers.length > 1 && h('h2', null, `Step ${at + 1}`), h('ol', { class: 'subtasks' }, ...here.map((id) => this.item(tasks.get(id), parts.get(id)))));
        }),
      ),
      all.length === 0 ? h('p', { class: 'note' }, `No subtask is ${this.filter}; ${view.parts.length} are hidden by this filter.`) : null,
      all.length > this.shownIds.length ? h('button', { type: 'button', onclick: () => ((this.limit += STEP), this.update()) }, `Show ${Math.min(STEP, all.length - this.shownIds.length)} more of ${all.length}`) : null,
    ];
  }

  /** @param {Subtask[]} parts */
  chips(parts) {
    const count = (/** @type {string} */ state) => parts.filter((part) => part.state === state).length;
    const shown = SUBTASK_STATES.filter((state) => count(state) > 0 || state === this.filter);
    return h('div', { class: 'chips', role: 'group', 'aria-label': 'Subtasks by state' }, ...shown.map((state) => h('button', { key: state, type: 'button', class: 'chip', 'aria-pressed': state === this.filter, onclick: () => this.goTo({ state: state === this.filter ? '' : state }) }, state, h('span', { class: 'chip-count' }, ` ${count(state)}`))));
  }

  /** @param {PlanTask | undefined} task @param {Subtask | undefined} part */
  item(task, part) {
    if (!task || !part) return null;
    const open = task.id === this.selected;
    const runs = !isOver(part.state) && !Number.isNaN(part.startedAt);
    const took = runs ? duration(clock.now() - part.startedAt) : Number.isNaN(part.durationMs) ? '' : duration(part.durationMs);
    return h(
      'li',
      { key: task.id, class: `subtask ${open ? 'selected' : ''}`, 'data-id': task.id },
      h(
        'div',
        { class: 'subtask-line' },
        stateMark(part.state),
        h('button', { type: 'button', class: 'subtask-id', 'aria-expanded': open, onclick: () => this.goTo({ task: open ? '' : task.id }) }, task.id),
        h('span', { class: 'agent' }, part.agent || task.target),
        part.attempts > 0 && h('span', { class: 'note' }, `${part.attempts === 1 ? '1 try' : `${part.attempts} tries`}${task.attempts > 1 ? `, at most ${task.attempts} an agent` : ''}`),
        took && h('span', { class: 'took' }, took),
        task.optional && h('span', { class: 'note' }, 'optional'),
        part.taskId ? h('a', { href: link(`tasks/${segment(part.taskId)}`) }, 'Open task') : null,
      ),
      task.needs.length > 0 && h('p', { class: 'note' }, 'needs ', ...task.needs.flatMap((need, at) => [at > 0 ? ', ' : '', h('button', { type: 'button', class: 'link', onclick: () => this.goTo({ task: need }) }, need)])),
      part.rerouted.map((one) => h('p', { class: 'rerouted' }, '⤳ not by ', h('strong', null, one.agent), one.why && `: ${one.why}`)),
      part.why && h('p', { class: part.state === 'skipped' ? 'note' : 'why' }, part.why),
      open && this.detail(task, part),
    );
  }

  /** @param {PlanTask} task @param {Subtask} part */
  detail(task, part) {
    const output = this.task ? outputOf(this.task, task.id) : [];
    const given = typeof task.input === 'string' ? [{ text: task.input }] : task.input === undefined ? [] : [{ data: task.input }];
    return h(
      'div',
      { class: 'subtask-detail' },
      h('p', { class: 'note' }, [`planned for ${task.target || 'any agent'}`, task.fallbacks.length > 0 && `then ${task.fallbacks.join(', ')}`, task.timeout && `at most ${task.timeout} a try`].filter(Boolean).join(' · '), ...(Number.isNaN(part.startedAt) ? [] : [' · began ', time(part.startedAt)])),
      given.length > 0 && h('h3', null, 'Input'),
      ...given.map((one) => partView(one, true)),
      h('h3', null, 'Output'),
      ...(output.length > 0 ? output.map((one) => partView(one)) : [h('p', { class: 'note' }, part.state === 'done' ? 'Done, without text or data.' : 'Nothing yet.')]),
    );
  }

  updated() {
    if (this.selected && this.selected !== this.#focused) {
      for (const item of this.querySelectorAll('.subtask.selected')) item.scrollIntoView({ block: 'nearest' });
    }
    this.#focused = this.selected;
  }
}

customElements.define('nuncio-plan-subtasks', NuncioPlanSubtasks);
