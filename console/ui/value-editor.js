/**
 * An editor of one JSON value: a form made from a schema, or the same value as JSON text. Both can be switched while the
 * value is valid; what is wrong is shown at its field. The question form and the screen Try each own one.
 */

import { checkText, fieldAt, fillForm, formOf, initialValues, NO_FORM, readForm, shownFields } from '../core/form.js';
import { indentJson } from '../core/json-text.js';
import { h } from './dom.js';

/** @typedef {import('../core/form.js').Field} Field */
/** @typedef {import('../core/form.js').Typed} Typed */

export class ValueEditor {
  model = NO_FORM;
  /** @type {Map<string, Typed>} */
  typed = new Map();
  /** @type {Map<string, string>} */
  problems = new Map();
  /** A problem that belongs to no field. */
  message = '';
  /** The value as JSON text, while it is edited so; null: by the form. @type {string | null} */
  json = null;

  /** @param {string} id what the ids of its fields begin with @param {string} noun what the value is @param {() => void} onChange */
  constructor(id, noun, onChange) {
    this.id = id;
    this.noun = noun;
    this.onChange = onChange;
  }

  /** Begins with the defaults of a schema; null: there is nothing to fill in. @param {any} schema */
  begin(schema) {
    this.model = schema === null ? NO_FORM : formOf(schema);
    this.typed = initialValues(this.model);
    this.clear();
    this.json = null;
  }

  clear() {
    this.problems.clear();
    this.message = '';
  }

  /** Shows a value: in the form, or as JSON if the form cannot have it. @param {string} text */
  set(text) {
    this.clear();
    const filled = fillForm(this.model, text);
    if ('problem' in filled) this.json = text;
    else Object.assign(this, { typed: filled.typed, json: this.json === null ? null : indentJson(text) });
  }

  /** The value as JSON text; null if something is wrong with it, which is then shown. @returns {string | null} */
  read() {
    this.clear();
    if (this.json !== null) {
      const problems = checkText(this.model, this.json);
      this.message = problems.map(({ name, message }) => (name ? `${name}: ${message}` : message)).join(' · ');
      return problems.length > 0 ? null : this.json;
    }
    const { text, problems } = readForm(this.model, this.typed);
    for (const { name, message } of problems) this.problems.set(name, message);
    return problems.length > 0 ? null : text;
  }

  /** The value as far as it can be read, for showing. */
  get draft() {
    return this.json ?? readForm(this.model, this.typed).text;
  }

  /** Puts a refusal of the server at the field that it names; false if it names none. @param {string} at @param {string} message */
  refuse(at, message) {
    const name = this.json === null ? fieldAt(this.model, at) : '';
    if (name) this.problems.set(name, message);
    return name !== '';
  }

  toggle() {
    this.clear();
    if (this.json === null) {
      const { text, problems } = readForm(this.model, this.typed);
      const broken = problems.find(({ name }) => shownFields(this.model, this.typed).some((field) => field.name === name && field.kind === 'json' && this.typed.get(name) !== ''));
      if (broken) this.problems.set(broken.name, broken.message);
      else this.json = indentJson(text);
    } else {
      const filled = fillForm(this.model, this.json);
      if ('problem' in filled) this.message = `${filled.problem.name || 'The form cannot show this value'}: ${filled.problem.message}`;
      else Object.assign(this, { typed: filled.typed, json: null });
    }
    this.onChange();
  }

  /** The button between form and JSON; none where the form is JSON already. */
  toggleButton() {
    if (this.model.whole || (this.model.fields.length === 0 && this.model.closed)) return null;
    return h('button', { type: 'button', class: 'quiet', onclick: () => this.toggle() }, this.json === null ? 'As JSON' : 'As form');
  }

  /** @returns {import('./dom.js').Child[]} */
  view() {
    const problem = this.message && h('p', { class: 'problem', role: 'alert', tabindex: -1 }, this.message);
    if (this.json === null) return [problem, ...shownFields(this.model, this.typed).map((field) => this.field(field))];
    const input = (/** @type {any} */ event) => (this.json = event.target.value);
    return [problem, h('label', { key: 'json text' }, `${this.noun} as JSON`, h('textarea', { rows: 8, spellcheck: 'false', class: 'code', 'aria-invalid': this.message ? 'true' : null, prop: { value: this.json }, oninput: input }))];
  }

  /** @param {Field} field */
  field(field) {
    const problem = this.problems.get(field.name);
    const value = this.typed.get(field.name) ?? '';
    const set = (/** @type {Typed} */ next) => void this.typed.set(field.name, next);
    const described = `${this.id}-${field.name}`.replaceAll(/[^\w-]/g, '_');
    const common = { 'aria-invalid': problem ? 'true' : null, 'aria-describedby': problem || field.hint ? described : null, 'aria-required': field.required };
    const notes = [field.hint && h('span', { class: 'note' }, field.hint), problem && h('span', { class: 'field-problem' }, problem)];
    const about = h('span', { id: described, class: 'field-notes' }, ...notes);
    const label = h('span', { class: 'label' }, field.label, field.required ? ' *' : '');
    const input = (/** @type {any} */ event) => set(event.target.value);
    if (field.kind === 'boolean') return h('label', { class: 'check', key: field.name }, h('input', { type: 'checkbox', ...common, 'aria-required': null, prop: { checked: value === true }, onchange: (/** @type {any} */ event) => set(event.target.checked) }), ' ', label, about);
    if (field.kind === 'choices') return this.choices(field, label, about, set);
    if (field.kind === 'choice') {
      const options = [{ text: '', label: '–' }, ...field.options];
      return h('label', { key: field.name }, label, h('select', { ...common, onchange: input, prop: { value } }, ...options.map((one) => h('option', { value: one.text, selected: one.text === value }, one.label))), about);
    }
    const long = field.kind === 'long' || field.kind === 'json';
    const types = { email: 'email', date: 'date', number: 'text' };
    const type = types[/** @type {keyof typeof types} */ (field.format)] ?? 'text';
    const numeric = field.kind === 'number' || field.kind === 'integer';
    return h('label', { key: field.name }, label, long ? h('textarea', { rows: field.maxLength > 2000 && field.kind === 'long' ? 5 : 2, class: field.kind === 'json' ? 'code' : null, ...common, prop: { value }, oninput: input }) : h('input', { type, ...common, inputmode: numeric ? 'decimal' : null, autocomplete: 'off', prop: { value }, oninput: input }), about);
  }

  /** @param {Field} field @param {Node} label @param {Node} about @param {(typed: string[]) => void} set */
  choices(field, label, about, set) {
    const chosen = () => /** @type {string[]} */ (this.typed.get(field.name) ?? []);
    const box = (/** @type {{text: string, label: string}} */ one) =>
      h('label', { class: 'check' }, h('input', { type: 'checkbox', prop: { checked: chosen().includes(one.text) }, onchange: (/** @type {any} */ event) => set(event.target.checked ? [...chosen(), one.text] : chosen().filter((text) => text !== one.text)) }), ' ', one.label);
    return h('fieldset', { key: field.name }, h('legend', null, label), ...field.options.map(box), about);
  }
}
