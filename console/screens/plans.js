/** The list of plans, and the place where one is written, checked and run. The live stream changes the states; names and counts are read. */

import { PLAN_AGENT } from '../core/plan.js';
import { AgentListScreen } from '../ui/agent-list.js';
import { h } from '../ui/dom.js';
import { commandLine, empty } from '../ui/parts.js';
import './plan-editor.js';

class NuncioPlans extends AgentListScreen {
  path = 'plans';
  noun = 'plan';
  agent = PLAN_AGENT;
  tool = 'plan_list';
  command = 'nuncio plan list';
  /** @type {[string, string]} */
  heads = ['Plan', 'Subtasks'];

  top() {
    const from = this.query.get('new');
    return [
      h('div', { class: 'bar' }, h('h1', null, 'Plans'), from === null && h('button', { type: 'button', class: 'main', onclick: () => this.show({ new: '' }) }, 'New plan')),
      from !== null && h('nuncio-plan-editor', { key: `editor ${from}`, prop: { from, onClose: () => this.show({ new: null }) } }),
    ];
  }

  none() {
    return h(
      'div',
      null,
      empty('No plan yet', 'A plan is work for several agents: subtasks with an order, who does each, and how the parts are put together. Write one here, or have it made of a request:', 'nuncio plan make "Research agent protocols and research SQLite, then echo the results" --to my.toml'),
      commandLine('nuncio plan run my.toml'),
    );
  }

  /** @param {any} row */
  wordsOf(row) {
    return this.list?.details.get(row.taskId)?.name || row.firstText || '(no name yet)';
  }

  /** @param {any} plan @returns {[number | undefined, number | undefined]} */
  countOf(plan) {
    return [plan?.over, plan?.total];
  }
}

customElements.define('nuncio-plans', NuncioPlans);
