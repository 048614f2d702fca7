/**
 * A list of virtual rows: only those near the view are in the DOM, at most 120, placed by the pure layout. The owner gives
 * `count` and `rowAt(index)`; a row that is open has a height of its own, which is measured.
 */

import { RowHeights, scrollTo, visibleRows } from '../core/layout.js';
import { h } from './dom.js';
import { ConsoleElement } from './element.js';

export class NuncioRows extends ConsoleElement {
  count = 0;
  label = '';
  /** @type {(index: number) => Node | string} */
  rowAt = () => '';
  /** @type {(index: number) => string} */
  rowClass = () => '';
  /** @type {((end: number) => void) | null} told the last row that was drawn */
  onNear = null;
  /** Rows with a height of their own. @type {Set<number>} */
  open = new Set();
  narrow = matchMedia('(max-width: 640px)');
  heights = new RowHeights(this.narrow.matches ? 64 : 34);
  drawn = { first: 0, end: 0, total: 0 };

  connected() {
    this.tabIndex = 0;
    this.setAttribute('role', 'list');
    this.listenTo(this, 'scroll', () => this.changed());
    this.listenTo(this.narrow, 'change', () => {
      this.heights = new RowHeights(this.narrow.matches ? 64 : 34);
      this.changed();
    });
    const observer = new ResizeObserver(() => this.changed());
    observer.observe(this);
    this.onLeave(() => observer.disconnect());
  }

  view() {
    this.setAttribute('aria-label', this.label);
    this.drawn = visibleRows(this.heights, this.count, this.scrollTop, this.clientHeight || 600);
    const rows = [];
    for (let index = this.drawn.first; index < this.drawn.end; index += 1) {
      const open = this.open.has(index);
      const row = h('div', { key: index, role: 'listitem', class: `row ${open ? 'row-open' : ''} ${this.rowClass(index)}`, 'aria-posinset': index + 1, 'aria-setsize': this.count, 'data-index': index }, this.rowAt(index));
      rows.push(row);
    }
    return [h('div', { key: 'height', class: 'rows-height', role: 'presentation' }), ...rows];
  }

  updated() {
    let moved = false;
    for (const row of this.querySelectorAll(':scope > .row')) {
      if (!(row instanceof HTMLElement)) continue;
      const index = Number(row.dataset.index);
      row.style.top = `${this.heights.top(index)}px`;
      if (this.open.has(index)) {
        row.style.height = '';
        const height = Math.max(this.heights.base, row.offsetHeight);
        if (this.heights.top(index + 1) - this.heights.top(index) !== height) {
          this.heights.set(index, height);
          moved = true;
        }
      } else {
        row.style.height = `${this.heights.base}px`;
      }
    }
    const space = this.querySelector(':scope > .rows-height');
    if (space instanceof HTMLElement) space.style.height = `${this.heights.top(this.count)}px`;
    if (moved) this.changed();
    this.onNear?.(this.drawn.end);
  }

  /** @param {number} index */
  toggle(index) {
    if (this.open.delete(index)) this.heights.set(index, null);
    else this.open.add(index);
    this.changed();
  }

  /** @param {number} index */
  show(index) {
    this.scrollTop = scrollTo(this.heights, index, this.scrollTop, this.clientHeight);
    this.changed();
  }

  get isAtEnd() {
    return this.scrollTop + this.clientHeight >= this.scrollHeight - this.heights.base;
  }
}

customElements.define('nuncio-rows', NuncioRows);
