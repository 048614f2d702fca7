/** What a plan came to, and where each part of it came from: subtask, agent, tries, time, and who was passed over. */

import { duration } from '../core/time.js';
import { segment } from '../ui/api.js';
import { markdown } from '../ui/content-view.js';
import { link } from '../ui/context.js';
import { h } from '../ui/dom.js';
import { ConsoleElement } from '../ui/element.js';
import { copyButton, empty, stateMark } from '../ui/parts.js';

class NuncioPlanResult extends ConsoleElement {
  /** @type {import('../core/plan.js').PlanView | null} */
  planView = null;
  ended = false;

  view() {
    const view = this.planView;
    if (!view) return null;
    if (view.result === null) return empty('No result', this.ended ? 'The plan ended before its parts were put together. What single subtasks made stands with them.' : 'The parts are put together when all subtasks are over; this page follows.');
    return [
      h('div', { class: 'said' }, h('p', { class: 'said-head' }, h('span', { class: 'note' }, `Put together ${view.by}`), ' ', copyButton(view.result, 'Copy the result')), markdown(view.result)),
      h('h2', null, 'Where each part came from'),
      h('ol', { class: 'subtasks' }, ...view.sources.map(source)),
    ];
  }
}

/** @param {import('../core/plan.js').Source} part */
function source(part) {
  return h(
    'li',
    { key: part.task, class: 'subtask' },
    h(
      'div',
      { class: 'subtask-line' },
      stateMark(part.state),
      h('strong', null, part.task),
      h('span', { class: 'agent' }, part.agent ? `from ${part.agent}` : 'from no agent'),
      h('span', { class: 'note' }, part.attempts === 1 ? '1 try' : `${part.attempts} tries`),
      !Number.isNaN(part.durationMs) && h('span', { class: 'took' }, duration(part.durationMs)),
      part.taskId && h('a', { href: link(`tasks/${segment(part.taskId)}`) }, 'Open task'),
    ),
    ...part.rerouted.map((one) => h('p', { class: 'rerouted' }, '⤳ not by ', h('strong', null, one.agent), one.why && `: ${one.why}`)),
    part.why && h('p', { class: 'why' }, part.why),
  );
}

customElements.define('nuncio-plan-result', NuncioPlanResult);
