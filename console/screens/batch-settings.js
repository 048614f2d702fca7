/** The settings of the batch engine: what is in force, and a form that sends only what differs from that. They hold for all tenants. */

import { flatSettings, settingsChange } from '../core/batch.js';
import { context } from '../ui/context.js';
import { h } from '../ui/dom.js';
import { ConsoleElement } from '../ui/element.js';
import { callTool } from '../ui/mcp.js';
import { announce, commandLine, problem } from '../ui/parts.js';
import { ValueEditor } from '../ui/value-editor.js';

const SCOPE = 'write:batchtools:batchtools';
const SCHEMA = {
  type: 'object',
  additionalProperties: false,
  required: ['enabled', 'maxConcurrency', 'resourceMonitoring', 'memoryUsage', 'cpuUsage', 'queueSize', 'optimizationStrategies'],
  properties: {
    enabled: { type: 'boolean', title: 'Batches are taken' },
    maxConcurrency: { type: 'integer', minimum: 1, maximum: 1000, title: 'Operations at once', description: 'Of all batches, on each node; takes effect at once' },
    resourceMonitoring: { type: 'boolean', title: 'Watch the load', description: 'Batches wait while memory or CPU are above their thresholds' },
    memoryUsage: { type: 'number', minimum: 0, maximum: 1, title: 'Threshold of memory', description: 'A share, above 0 and up to 1' },
    cpuUsage: { type: 'number', minimum: 0, maximum: 1, title: 'Threshold of CPU', description: 'A share, above 0 and up to 1' },
    queueSize: { type: 'integer', minimum: 1, maximum: 1000, title: 'Batches in the queue', description: 'Of one tenant; more are refused' },
    optimizationStrategies: { type: 'array', items: { enum: ['concurrent_processing', 'parallel_content_processing', 'resource_optimization'] }, title: 'Strategies that may be used' },
  },
};

class NuncioBatchSettings extends ConsoleElement {
  /** What is in force. @type {any} */
  settings = null;
  busy = false;
  said = '';
  /** @type {unknown} */
  error = null;
  editor = new ValueEditor('batch-settings', 'Settings', () => this.update());
  onClose = () => {};
  /** @type {(settings: any) => void} */
  onChanged = () => {};

  connected() {
    this.editor.begin(SCHEMA);
    this.editor.set(JSON.stringify(flatSettings(this.settings)));
  }

  async save() {
    const text = this.busy ? null : this.editor.read();
    Object.assign(this, { error: null, said: '' });
    if (text === null) return this.update();
    const change = settingsChange(this.settings, JSON.parse(text));
    if (Object.keys(change).length === 0) {
      this.said = 'Nothing differs from what is in force.';
      return this.update();
    }
    this.busy = true;
    this.update();
    try {
      this.settings = await callTool('batch_configure', change);
      this.said = `In force now: ${named(change)}.`;
      announce(this.said);
      this.onChanged(this.settings);
    } catch (error) {
      this.error = error;
    }
    this.busy = false;
    this.update();
  }

  view() {
    const may = context.may(SCOPE);
    const { thresholds } = this.settings;
    return h(
      'section',
      { class: 'editor', 'aria-label': 'Settings of batches' },
      h('div', { class: 'bar' }, h('h2', null, 'Settings'), h('button', { type: 'button', class: 'quiet', onclick: () => this.onClose() }, 'Close')),
      h('p', { class: 'in-force' }, `In force: ${this.settings.maxConcurrency} operations at once · batches ${this.settings.enabled ? 'are taken' : 'are not taken'} · load ${this.settings.resourceMonitoring ? `watched: memory ${thresholds.memoryUsage}, CPU ${thresholds.cpuUsage}` : 'not watched'} · queue ${thresholds.queueSize} · ${this.settings.optimizationStrategies.join(', ') || 'no strategy'}`),
      h(
        'form',
        { class: 'answer settings', novalidate: true, onsubmit: (/** @type {Event} */ event) => (event.preventDefault(), void this.save()) },
        ...this.editor.view(),
        h('p', { class: 'bar' }, h('button', { class: 'main', disabled: this.busy || !may, title: may ? null : `needs the scope ${SCOPE}` }, this.busy ? 'Saving…' : 'Save'), !may && h('span', { class: 'note' }, `Saving needs the scope ${SCOPE}`)),
      ),
      this.said && h('p', { class: 'sent', role: 'status' }, this.said),
      this.error ? problem(this.error, () => void this.save()) : null,
      commandLine('nuncio batch config --set maxConcurrency=10'),
    );
  }
}

/** @param {{[name: string]: any}} change */
function named(change) {
  return Object.entries(flatSettings(/** @type {any} */ ({ thresholds: {}, ...change }))).map(([name, value]) => `${name} = ${JSON.stringify(value)}`).join(', ');
}

customElements.define('nuncio-batch-settings', NuncioBatchSettings);
