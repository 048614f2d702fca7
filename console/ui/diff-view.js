/** Two texts beside each other, line by line, with what differs marked by sign and colour; equal parts are folded. */

import { jsonDiff } from '../core/diff.js';
import { foldSame, lineDiff } from '../core/line-diff.js';
import { h } from './dom.js';
import { ConsoleElement } from './element.js';

const MAX_ROWS = 400;
const MAX_PLACES = 8;

export class NuncioDiff extends ConsoleElement {
  left = '';
  right = '';
  names = ['before', 'after'];
  limit = MAX_ROWS;
  isWhole = false;
  /** @type {{left: string, right: string, diff: import('../core/line-diff.js').TextDiff, places: string} | null} */
  made = null;

  /** The difference is computed when the texts change, not at every update. */
  get difference() {
    if (this.made?.left !== this.left || this.made.right !== this.right) {
      this.made = { left: this.left, right: this.right, diff: lineDiff(this.left, this.right), places: places(this.left, this.right) };
    }
    return this.made;
  }

  view() {
    const { diff, places } = this.difference;
    const [left, right] = this.names;
    if (diff.added === 0 && diff.removed === 0) return h('p', { class: 'note', role: 'status' }, `${left} and ${right} are the same, line by line.`);
    const rows = this.isWhole ? diff.rows : foldSame(diff.rows);
    const shown = rows.slice(0, this.limit);
    return [
      h('p', { class: 'note' }, `${count(diff.removed)} of ${left} and ${count(diff.added)} of ${right} differ. ${places}`, diff.exact ? null : ' The texts differ too much to be aligned line by line.'),
      h(
        'div',
        { class: 'diff', role: 'table', 'aria-label': `${left} beside ${right}`, tabindex: 0 },
        h('div', { class: 'diff-row diff-head', role: 'row' }, h('span', { role: 'columnheader' }, left), h('span', { role: 'columnheader' }, right)),
        ...shown.map((row, at) => this.row(row, at)),
      ),
      shown.length < rows.length && h('button', { type: 'button', class: 'quiet', onclick: () => ((this.limit += MAX_ROWS), this.update()) }, `Show ${Math.min(MAX_ROWS, rows.length - shown.length)} more lines`),
    ];
  }

  /** @param {import('../core/line-diff.js').DiffRow | number} row @param {number} at */
  row(row, at) {
    if (typeof row === 'number') {
      const show = () => ((this.isWhole = true), this.update());
      return h('div', { class: 'diff-row', role: 'row', key: at }, h('span', { class: 'diff-fold', role: 'cell' }, h('button', { type: 'button', class: 'quiet', onclick: show }, `${row} equal ${row === 1 ? 'line' : 'lines'}`)));
    }
    const cell = (/** @type {string | null} */ text, /** @type {string} */ sign, /** @type {string} */ name) =>
      h('span', { role: 'cell', class: text === null ? 'diff-none' : row.op === 'same' ? '' : name }, text === null ? '' : `${row.op === 'same' ? '  ' : sign}${text}`);
    return h('div', { class: 'diff-row', role: 'row', key: at }, cell(row.before, '− ', 'diff-removed'), cell(row.after, '+ ', 'diff-added'));
  }
}

/** @param {number} lines */
const count = (lines) => `${lines} ${lines === 1 ? 'line' : 'lines'}`;

/** The places at which two JSON values differ; empty if these are none. @param {string} before @param {string} after */
function places(before, after) {
  try {
    const { changes, more } = jsonDiff(JSON.parse(before), JSON.parse(after), MAX_PLACES);
    return changes.length > 0 ? `Places: ${changes.map(({ path, op }) => `${path || '(all)'} ${op}`).join(', ')}${more ? ', …' : ''}.` : '';
  } catch {
    return '';
  }
}

customElements.define('nuncio-diff', NuncioDiff);
