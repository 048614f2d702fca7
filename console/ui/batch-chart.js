/**
 * A chart of a batch's operations over time: bars in as many lanes as ran beside each other, and a line where the cap is.
 * The list below has the same figures in words, so the bars are hidden from screen readers.
 */

import { chartOf, many } from '../core/batch.js';
import { duration } from '../core/time.js';
import { h } from './dom.js';
import { ConsoleElement } from './element.js';

const LANE = 16;
const MAX_BARS = 2000;
const MAX_LANES = 24;

class NuncioBatchChart extends ConsoleElement {
  /** @type {import('../core/batch.js').Operation[]} */
  operations = [];
  /** How many may run at once now; 0: not known. */
  cap = 0;
  /** Whether the batch has operations that were not read. */
  isPart = false;
  selected = '';
  /** @type {(id: string) => void} */
  onSelect = () => {};
  chart = chartOf([]);

  view() {
    this.chart = chartOf(this.operations);
    const { bars, lanes, from, to, left } = this.chart;
    if (bars.length === 0) return h('p', { class: 'note' }, 'No operation has ended yet: each is drawn when it ends.');
    if (bars.length > MAX_BARS) return h('p', { class: 'note' }, `${bars.length} operations are too many to draw; the list has them.`);
    const shown = Math.min(lanes, MAX_LANES);
    const words = [`${many(bars.length, 'operation')} in ${duration(to - from)}${this.isPart ? ', of those read so far' : ''}`, `at most ${lanes} beside each other`, this.cap > 0 && `the cap is ${this.cap} now`, left > 0 && `${many(left, 'operation has', 'operations have')} not ended and ${left === 1 ? 'is' : 'are'} not drawn`, lanes > shown && `${lanes - shown} lanes are not drawn`];
    return h(
      'figure',
      { class: 'chart' },
      h(
        'div',
        { class: 'chart-area', 'aria-hidden': 'true' },
        ...bars.filter((bar) => bar.lane < shown).map((bar) => h('button', { key: bar.id, type: 'button', tabindex: -1, class: `bar-box bar-${bar.status} ${bar.id === this.selected ? 'selected' : ''}`, 'data-id': bar.id, title: `${bar.id}: ${bar.status}, ${duration(bar.durationMs)}`, onclick: () => this.onSelect(bar.id) })),
        this.cap > 0 && this.cap <= Math.max(shown, 1) + 8 ? h('div', { key: 'cap line', class: 'cap-line' }, h('span', null, `cap ${this.cap}`)) : null,
      ),
      h('figcaption', { class: 'note' }, words.filter(Boolean).join(' · ')),
    );
  }

  updated() {
    const area = this.querySelector('.chart-area');
    if (!(area instanceof HTMLElement)) return;
    const rows = Math.max(Math.min(this.chart.lanes, MAX_LANES), area.querySelector('.cap-line') ? this.cap : 0);
    area.style.height = `${rows * LANE + 4}px`;
    const places = new Map(this.chart.bars.map((bar) => [bar.id, bar]));
    for (const box of area.children) {
      if (!(box instanceof HTMLElement)) continue;
      const bar = places.get(box.dataset.id ?? '');
      if (box.classList.contains('cap-line')) box.style.top = `${this.cap * LANE}px`;
      else if (bar) {
        box.style.left = `${bar.left * 100}%`;
        box.style.width = `max(3px, ${bar.width * 100}%)`;
        box.style.top = `${bar.lane * LANE + 1}px`;
      }
    }
  }
}

customElements.define('nuncio-batch-chart', NuncioBatchChart);
