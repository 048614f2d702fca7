/**
 * The drawing of a plan: a box for each subtask, in layers, with lines from what it needs. The list of subtasks beside it
 * says the same in words, so the drawing is hidden from screen readers and left out on narrow screens.
 */

import { BOX, layoutPlan } from '../core/plan-layout.js';
import { h } from './dom.js';
import { ConsoleElement } from './element.js';
import { stateMark } from './parts.js';
import { svg } from './svg.js';

/** @typedef {import('../core/plan.js').PlanTask} PlanTask */
/** @typedef {import('../core/plan.js').Subtask} Subtask */

class NuncioPlanGraph extends ConsoleElement {
  /** @type {PlanTask[]} */
  tasks = [];
  /** Where each subtask stands; empty for a plan that does not run. @type {Map<string, Subtask>} */
  parts = new Map();
  selected = '';
  /** @type {(id: string) => void} */
  onSelect = () => {};
  /** The layout, while the needs are the same. @type {{of: string, graph: import('../core/plan-layout.js').GraphLayout | null}} */
  drawn = { of: '', graph: null };
  #shown = '';
  #painted = '';

  /** A page that shows a plan updates often, and most changes are not of the drawing. */
  update() {
    const parts = [...this.parts.values()].map(({ state, agent, attempts, rerouted }) => `${state} ${agent} ${attempts} ${rerouted.length}`);
    const painted = JSON.stringify([this.isConnected, this.selected, parts, this.tasks.map(({ id, needs, target, optional }) => [id, needs, target, optional])]);
    if (painted === this.#painted) return;
    this.#painted = painted;
    super.update();
  }

  layout() {
    const of = JSON.stringify(this.tasks.map(({ id, needs }) => [id, needs]));
    if (of !== this.drawn.of) this.drawn = { of, graph: layoutPlan(this.tasks) };
    return this.drawn.graph;
  }

  view() {
    const graph = this.layout();
    if (!graph) return h('p', { class: 'note graph-only' }, `A plan of ${this.tasks.length} subtasks with their needs is too large to be drawn; the list has all of them.`);
    const tasks = new Map(this.tasks.map((task) => [task.id, task]));
    return h(
      'div',
      { class: 'graph', tabindex: 0, role: 'group', 'aria-label': 'Drawing of the plan; the list has the same in words' },
      h(
        'div',
        { class: 'graph-canvas', 'aria-hidden': 'true' },
        svg('svg', { width: graph.width, height: graph.height, viewBox: `0 0 ${graph.width} ${graph.height}` }, ...graph.edges.map(({ from, to, path }) => svg('path', { d: path, class: this.edgeClass(from, to) }))),
        ...graph.nodes.map(({ id }) => this.box(tasks.get(id), this.parts.get(id))),
      ),
    );
  }

  /** @param {string} from @param {string} to */
  edgeClass(from, to) {
    const near = this.selected === from || this.selected === to ? ' edge-near' : '';
    return `edge edge-${this.parts.get(from)?.state === 'done' ? 'done' : 'open'}${near}`;
  }

  /** @param {PlanTask | undefined} task @param {Subtask | undefined} part */
  box(task, part) {
    if (!task) return null;
    const tries = part && part.attempts > 1 ? ` · try ${part.attempts}` : '';
    return h(
      'button',
      { key: task.id, type: 'button', tabindex: -1, class: `box box-${part?.state ?? 'waiting'} ${task.id === this.selected ? 'selected' : ''} ${task.optional ? 'box-optional' : ''}`, 'data-id': task.id, title: task.id, onclick: () => this.onSelect(task.id) },
      h('span', { class: 'box-id' }, task.id),
      h('span', { class: 'box-line' }, part ? stateMark(part.state) : null, h('span', { class: 'box-agent' }, `${part ? ' ' : ''}${part?.agent || task.target}${tries}`)),
      part && part.rerouted.length > 0 ? h('span', { class: 'box-rerouted', title: `rerouted from ${part.rerouted.map(({ agent }) => agent).join(', ')}` }, '⤳') : null,
    );
  }

  updated() {
    const { graph } = this.drawn;
    const canvas = this.querySelector('.graph-canvas');
    if (!graph || !(canvas instanceof HTMLElement)) return;
    canvas.style.width = `${graph.width}px`;
    canvas.style.height = `${graph.height}px`;
    const places = new Map(graph.nodes.map((node) => [node.id, node]));
    for (const box of canvas.querySelectorAll('.box')) {
      const place = box instanceof HTMLElement ? places.get(box.dataset.id ?? '') : undefined;
      if (!place || !(box instanceof HTMLElement)) continue;
      box.style.left = `${place.x}px`;
      box.style.top = `${place.y}px`;
      box.style.width = `${BOX.width}px`;
      box.style.height = `${BOX.height}px`;
      if (place.id === this.selected && this.#shown !== place.id) this.reveal(box);
    }
    this.#shown = this.selected;
  }

  /** Scrolls the drawing, not the page. @param {HTMLElement} box */
  reveal(box) {
    const frame = this.querySelector('.graph');
    if (!frame) return;
    const [left, right] = [box.offsetLeft - BOX.margin, box.offsetLeft + box.offsetWidth + BOX.margin];
    if (left < frame.scrollLeft) frame.scrollLeft = left;
    else if (right > frame.scrollLeft + frame.clientWidth) frame.scrollLeft = right - frame.clientWidth;
    const [top, bottom] = [box.offsetTop - BOX.margin, box.offsetTop + box.offsetHeight + BOX.margin];
    if (top < frame.scrollTop) frame.scrollTop = top;
    else if (bottom > frame.scrollTop + frame.clientHeight) frame.scrollTop = bottom - frame.clientHeight;
  }
}

customElements.define('nuncio-plan-graph', NuncioPlanGraph);
