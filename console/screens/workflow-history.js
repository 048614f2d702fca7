/** The history of a workflow, newest first: who did what, in which phase, and what came of it. */

import { segment } from '../ui/api.js';
import { link } from '../ui/context.js';
import { h } from '../ui/dom.js';
import { ConsoleElement } from '../ui/element.js';
import { workflowPath } from '../core/workflow.js';
import { callTool } from '../ui/mcp.js';
import { loading, problem, stateMark, time } from '../ui/parts.js';

const PAGE = 50;
const WHAT = new Map([['started', 'started the workflow with'], ['submitted', 'submitted'], ['went_back', 'went back to'], ['blocked', 'gave up in']]);

class NuncioWorkflowHistory extends ConsoleElement {
  workflowId = '';
  total = 0;
  /** The total that was read. */
  loaded = 0;
  /** @type {Map<number, any>} */
  entries = new Map();
  first = 0;
  /** @type {unknown} */
  error = null;

  /** @param {number} after */
  async load(after) {
    try {
      const { entries } = await callTool('sparc_history', { contextId: this.workflowId, after, limit: PAGE });
      for (const entry of entries) this.entries.set(entry.n, entry);
      Object.assign(this, { first: Math.min(...this.entries.keys()), error: null });
    } catch (error) {
      this.error = error;
    }
    this.changed();
  }

  view() {
    if (this.total !== this.loaded) {
      this.loaded = this.total;
      void this.load(Math.max(0, this.total - PAGE));
    }
    const shown = [...this.entries.values()].sort((a, b) => b.n - a.n);
    return [
      this.error ? problem(this.error, () => void this.load(Math.max(0, this.total - PAGE))) : null,
      shown.length === 0 ? (this.error ? null : loading('the history')) : h('ol', { class: 'records' }, ...shown.map((entry) => this.entry(entry))),
      this.first > 1 ? h('button', { type: 'button', onclick: () => void this.load(Math.max(0, this.first - 1 - PAGE)) }, 'Show earlier') : null,
    ];
  }

  /** @param {any} entry */
  entry({ n, when, who, what, phase, version, outcome, detail }) {
    return h(
      'li',
      { key: n },
      h('span', { class: 'seq' }, n),
      h('span', null, who.agent ? `${who.agent} for ${who.caller}` : who.caller, ` ${WHAT.get(what) ?? what} `, version ? h('a', { href: link(workflowPath(this.workflowId, phase, { version })) }, `${phase} version ${version}`) : phase),
      stateMark(outcome),
      who.task && h('a', { href: link(`tasks/${segment(who.task)}`) }, 'task'),
      time(when),
      detail && h('p', { class: 'plain detail' }, detail),
    );
  }
}

customElements.define('nuncio-workflow-history', NuncioWorkflowHistory);
