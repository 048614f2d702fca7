/** What belongs into the artifact of a phase: its sections, guidelines, a worked example and the schema that its gate applies. */

import { indentJson } from '../core/json-text.js';
import { h } from '../ui/dom.js';
import { ConsoleElement } from '../ui/element.js';
import { readResource } from '../ui/mcp.js';
import { loading, problem } from '../ui/parts.js';
import '../ui/json-view.js';

/** @typedef {{phase: string, template: {[section: string]: string}, guidelines: string, examples: {title: string, artifact: any}[], validation: any}} Template */

/** Templates do not change while the server runs. @type {Map<string, Promise<Template>>} */
const templates = new Map();

/** @param {string} phase @returns {Promise<Template>} */
export function readTemplate(phase) {
  const read = templates.get(phase) ?? readResource(`sparc://phase/${phase}/template`).then(({ value }) => value);
  templates.set(phase, read);
  read.catch(() => templates.delete(phase));
  return read;
}

class NuncioPhaseTemplate extends ConsoleElement {
  phase = '';
  isOpen = false;
  loaded = '';
  /** @type {Template | null} */
  template = null;
  /** @type {unknown} */
  error = null;

  async load() {
    const { phase } = this;
    this.loaded = phase;
    Object.assign(this, { template: null, error: null });
    try {
      const template = await readTemplate(phase);
      if (this.loaded === phase) this.template = template;
    } catch (error) {
      this.error = error;
    }
    this.changed();
  }

  view() {
    if (this.isOpen && this.loaded !== this.phase) void this.load();
    const toggle = (/** @type {any} */ event) => {
      this.isOpen = event.target.open;
      this.changed();
    };
    return h('details', { open: this.isOpen, ontoggle: toggle }, h('summary', null, `What the ${this.phase} needs`), this.isOpen ? this.content() : null);
  }

  content() {
    const { template } = this;
    if (this.error) return problem(this.error, () => void this.load());
    if (!template) return loading('the template');
    return h(
      'div',
      null,
      h('dl', { class: 'sections' }, ...Object.entries(template.template).flatMap(([name, about]) => [h('dt', null, name), h('dd', null, about)])),
      h('h3', null, 'Guidelines'),
      h('p', { class: 'plain' }, template.guidelines),
      ...template.examples.map(({ title, artifact }) => h('details', null, h('summary', null, `Example: ${title}`), h('nuncio-json', { prop: { text: indentJson(JSON.stringify(artifact)) } }))),
      h('details', null, h('summary', null, 'JSON Schema that the gate applies'), h('nuncio-json', { prop: { text: JSON.stringify(template.validation) } })),
    );
  }
}

customElements.define('nuncio-phase-template', NuncioPhaseTemplate);
