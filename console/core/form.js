/**
 * A form from a JSON Schema: a model of fields, its values as typed, and the JSON text that they make. A part that a form
 * cannot show is a field of JSON. The server validates every answer; the checks here only say earlier what it would refuse.
 *
 * A schema is hostile input. Patterns are shown and not run: a pattern can be made to take forever. Names of properties
 * are only ever keys of a Map.
 */

import { membersOf } from './json-members.js';
import { indentJson, jsonProblem } from './json-text.js';

/**
 * @typedef {'text' | 'long' | 'number' | 'integer' | 'boolean' | 'choice' | 'choices' | 'json'} FieldKind
 * @typedef {{text: string, label: string}} Option `text` is the value as JSON
 * @typedef {{name: string, kind: FieldKind, label: string, hint: string, required: boolean, options: Option[], initial: Typed,
 *   min: number | null, max: number | null, nullable: boolean, minLength: number, maxLength: number, format: string}} Field
 * @typedef {{fields: Field[], whole: boolean, further: string, closed: boolean}} FormModel `whole`: the schema is beyond a form,
 *   and its one field is the value. `further` names the field of members that the schema does not describe; `closed`: it forbids them
 * @typedef {string | boolean | string[]} Typed
 * @typedef {{name: string, message: string}} Problem
 */

const MAX_FIELDS = 100;
const FORMATS = ['email', 'uri', 'date', 'date-time', 'time'];

/** The form of nothing. @type {FormModel} */
export const NO_FORM = { fields: [], whole: false, further: '', closed: true };

/** @param {any} schema @returns {FormModel} */
export function formOf(schema) {
  const properties = isObject(schema) && isObject(schema.properties) ? Object.entries(schema.properties) : null;
  const composed = isObject(schema) && ['$ref', 'oneOf', 'anyOf', 'allOf', 'not', 'if', 'patternProperties'].some((key) => Object.hasOwn(schema, key));
  if (!properties || composed || properties.length > MAX_FIELDS || (schema.type !== undefined && schema.type !== 'object')) {
    const field = fieldOf('', schema, true);
    return { fields: [{ ...field, kind: 'json', label: 'Value as JSON', options: [], initial: initialJson(schema) }], whole: true, further: '', closed: false };
  }
  const required = new Set(Array.isArray(schema.required) ? schema.required : []);
  const fields = properties.map(([name, property]) => fieldOf(name, property, required.has(name)));
  let further = 'Further members';
  while (fields.some((field) => field.name === further)) further += '+';
  return { fields, whole: false, further, closed: schema.additionalProperties === false };
}

/** The fields to show: those of the schema, and one for further members if there are any.
 * @param {FormModel} model @param {Map<string, Typed>} typed @returns {Field[]} */
export function shownFields(model, typed) {
  if (model.whole || !typed.has(model.further)) return model.fields;
  const hint = model.closed ? 'The schema forbids members beyond its own.' : 'Members beyond the schema, as a JSON object.';
  return [...model.fields, { ...fieldOf(model.further, {}, false), hint }];
}

/** @param {string} name @param {any} schema @param {boolean} required @returns {Field} */
function fieldOf(name, schema, required) {
  const rules = isObject(schema) ? schema : {};
  // A checkbox cannot say "not given".
  const open = rules.type === 'boolean' && !required && rules.default === undefined;
  const options = open ? [option(true, 'yes'), option(false, 'no')] : optionsOf(rules);
  const many = rules.type === 'array' && isObject(rules.items) ? optionsOf(rules.items) : [];
  const kind = kindOf(rules, options, many);
  /** @type {Field} */
  const field = {
    name,
    kind,
    label: textOf(rules.title) || name,
    hint: hintOf(rules),
    required,
    options: kind === 'choices' ? many : options,
    initial: '',
    min: numberOf(rules.minimum),
    max: numberOf(rules.maximum),
    nullable: isNullable(rules),
    minLength: numberOf(rules.minLength) ?? 0,
    maxLength: numberOf(rules.maxLength) ?? Infinity,
    format: FORMATS.includes(rules.format) ? rules.format : '',
  };
  field.initial = rules.default === undefined ? emptyOf(kind) : typedOf(field, rules.default);
  return field;
}

/** @param {any} rules @param {Option[]} options @param {Option[]} many @returns {FieldKind} */
function kindOf(rules, options, many) {
  if (options.length > 0) return 'choice';
  if (many.length > 0) return 'choices';
  if (rules.type === 'string') return (rules.maxLength ?? 0) > 200 ? 'long' : 'text';
  if (rules.type === 'number' || rules.type === 'integer' || rules.type === 'boolean') return rules.type;
  if (isNullable(rules)) return rules.type.includes('integer') ? 'integer' : 'number';
  return 'json';
}

/** Whether the value is a number or null. @param {any} rules */
function isNullable({ type }) {
  return Array.isArray(type) && type.length === 2 && type.includes('null') && (type.includes('integer') || type.includes('number'));
}

/** @param {any} rules @returns {Option[]} */
function optionsOf(rules) {
  if (Object.hasOwn(rules, 'const')) return [option(rules.const, '')];
  if (Array.isArray(rules.enum) && rules.enum.length <= 500) {
    const names = Array.isArray(rules.enumNames) ? rules.enumNames : [];
    return rules.enum.map((/** @type {any} */ value, /** @type {number} */ at) => option(value, names[at]));
  }
  const choices = Array.isArray(rules.oneOf) ? rules.oneOf : Array.isArray(rules.anyOf) ? rules.anyOf : [];
  const constant = choices.length > 0 && choices.length <= 500 && choices.every((/** @type {any} */ one) => isObject(one) && Object.hasOwn(one, 'const'));
  return constant ? choices.map((/** @type {any} */ one) => option(one.const, one.title)) : [];
}

/** @param {any} value @param {any} label @returns {Option} */
function option(value, label) {
  return { text: JSON.stringify(value), label: textOf(label) || (typeof value === 'string' ? value : JSON.stringify(value)) };
}

/** @param {any} rules */
function hintOf(rules) {
  const hints = [textOf(rules.description)];
  if (typeof rules.pattern === 'string') hints.push(`Pattern: ${rules.pattern.slice(0, 200)}`);
  if (typeof rules.format === 'string') hints.push(`Format: ${rules.format.slice(0, 40)}`);
  if (isNullable(rules)) hints.push('or null');
  return hints.filter(Boolean).join(' · ');
}

/** @param {FieldKind} kind @returns {Typed} */
function emptyOf(kind) {
  return kind === 'boolean' ? false : kind === 'choices' ? [] : '';
}

/** @param {any} schema */
function initialJson(schema) {
  const value = isObject(schema) ? schema.default : undefined;
  return value === undefined ? '' : JSON.stringify(value, null, 2);
}

/** A value as it would have been typed. @param {Field} field @param {any} value @returns {Typed} */
function typedOf(field, value) {
  switch (field.kind) {
    case 'boolean':
      return value === true;
    case 'choices':
      return Array.isArray(value) ? value.map((one) => JSON.stringify(one)) : [];
    case 'choice':
      return JSON.stringify(value);
    case 'json':
      return JSON.stringify(value, null, 2);
    default:
      return typeof value === 'string' ? value : JSON.stringify(value);
  }
}

/** @param {FormModel} model @returns {Map<string, Typed>} */
export function initialValues(model) {
  return new Map(model.fields.map((field) => [field.name, field.initial]));
}

/** What a JSON text would be in the form, numbers as written, or why the form cannot show all of it.
 * @param {FormModel} model @param {string} text @returns {{typed: Map<string, Typed>} | {problem: Problem}} */
export function fillForm(model, text) {
  const broken = jsonProblem(text);
  if (broken) return { problem: { name: '', message: broken } };
  if (model.whole) return { typed: new Map([['', indentJson(text)]]) };
  if (!isObject(JSON.parse(text))) return { problem: { name: '', message: 'an object is needed' } };
  const members = membersOf(text);
  /** @type {Map<string, Typed>} */
  const typed = new Map();
  for (const field of model.fields) {
    const member = members.get(field.name);
    members.delete(field.name);
    const value = member === undefined ? emptyOf(field.kind) : typedOfText(field, member);
    if (value === null) return { problem: { name: field.name, message: EXPECTED[field.kind] } };
    typed.set(field.name, value);
  }
  if (members.size > 0) typed.set(model.further, indentJson(`{${[...members].map(([name, value]) => `${JSON.stringify(name)}:${value}`).join(',')}}`));
  return { typed };
}

/** @type {{[kind in FieldKind]: string}} */
const EXPECTED = {
  text: 'a text is expected', long: 'a text is expected', number: 'a number is expected', integer: 'a whole number is expected',
  boolean: 'true or false is expected', choice: 'none of the choices', choices: 'not a list of the choices', json: '',
};

/** A member's text as it would have been typed; null if its field cannot have it. @param {Field} field @param {string} text @returns {Typed | null} */
function typedOfText(field, text) {
  if (field.kind === 'json') return indentJson(text);
  const value = JSON.parse(text);
  const known = (/** @type {any} */ one) => field.options.some((option) => option.text === JSON.stringify(one));
  switch (field.kind) {
    case 'number':
    case 'integer':
      return typeof value === 'number' || (value === null && field.nullable) ? text : null;
    case 'boolean':
      return typeof value === 'boolean' ? value : null;
    case 'choice':
      return known(value) ? JSON.stringify(value) : null;
    case 'choices':
      return Array.isArray(value) && value.every(known) ? value.map((one) => JSON.stringify(one)) : null;
    default:
      return typeof value === 'string' ? value : null;
  }
}

/** The JSON text that the form makes, numbers as typed, and what is wrong with it, by field.
 * @param {FormModel} model @param {Map<string, Typed>} typed @returns {{text: string, problems: Problem[]}} */
export function readForm(model, typed) {
  /** @type {Problem[]} */
  const problems = [];
  /** @type {string[]} */
  const members = [];
  for (const field of model.fields) {
    const result = readField(field, typed.get(field.name) ?? emptyOf(field.kind));
    if (typeof result === 'object' && result) problems.push({ name: field.name, message: result.problem });
    else if (result !== null) members.push(model.whole ? result : `${JSON.stringify(field.name)}:${result}`);
  }
  if (model.whole) return { text: members[0] ?? 'null', problems };
  const further = readFurther(model, String(typed.get(model.further) ?? '').trim());
  if (typeof further === 'string') problems.push({ name: model.further, message: further });
  else for (const [name, value] of further) members.push(`${JSON.stringify(name)}:${value}`);
  return { text: `{${members.join(',')}}`, problems };
}

/** The members beyond the schema, or what is wrong with them. @param {FormModel} model @param {string} text */
function readFurther(model, text) {
  if (text === '') return [];
  const broken = jsonProblem(text);
  if (broken) return broken;
  if (!isObject(JSON.parse(text))) return 'an object is needed';
  const members = [...membersOf(text)];
  const twice = members.find(([name]) => model.fields.some((field) => field.name === name));
  if (twice) return `${twice[0]} has a field of its own`;
  if (model.closed && members.length > 0) return `the schema has no ${members.map(([name]) => name).join(', ')}`;
  return members;
}

/** What is wrong with a JSON text, as far as the form can tell. @param {FormModel} model @param {string} text @returns {Problem[]} */
export function checkText(model, text) {
  const filled = fillForm(model, text);
  return 'problem' in filled ? [filled.problem] : readForm(model, filled.typed).problems;
}

/** @param {Field} field @param {Typed} value @returns {string | null | {problem: string}} null: absent */
function readField(field, value) {
  if (typeof value === 'boolean') return String(value);
  if (Array.isArray(value)) {
    const known = value.filter((text) => field.options.some((one) => one.text === text));
    return known.length > 0 || field.required ? `[${known.join(',')}]` : null;
  }
  if (field.kind === 'choice') {
    if (field.options.some((one) => one.text === value)) return value;
    return field.required ? { problem: 'choose one' } : null;
  }
  if (field.kind === 'text' || field.kind === 'long') return readText(field, value);
  const text = value.trim();
  if (text === '') return field.required ? { problem: 'a value is needed' } : null;
  if (field.kind !== 'json') return readNumber(field, text);
  const broken = jsonProblem(text);
  return broken ? { problem: broken } : text;
}

/** @param {Field} field @param {string} value */
function readText(field, value) {
  if (value === '') return field.required ? (field.minLength === 0 ? '""' : { problem: 'a value is needed' }) : null;
  const length = [...value].length;
  if (length < field.minLength) return { problem: `at least ${field.minLength} characters` };
  if (length > field.maxLength) return { problem: `at most ${field.maxLength} characters` };
  if (field.format === 'email' && !/^[^\s@]+@[^\s@]+$/.test(value)) return { problem: 'an e-mail address' };
  if (field.format === 'date' && !/^\d{4}-\d{2}-\d{2}$/.test(value)) return { problem: 'a date such as 2026-11-18' };
  if (field.format === 'uri' && !/^[a-zA-Z][a-zA-Z0-9+.-]*:/.test(value)) return { problem: 'a URI such as https://a.example' };
  return JSON.stringify(value);
}

/** @param {Field} field @param {string} text */
function readNumber(field, text) {
  if (field.nullable && text === 'null') return text;
  if (!/^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/.test(text)) return { problem: 'a number such as 12 or 0.5' };
  if (field.kind === 'integer' && !/^-?\d+$/.test(text)) return { problem: 'a whole number' };
  if (field.min !== null && Number(text) < field.min) return { problem: `at least ${field.min}` };
  if (field.max !== null && Number(text) > field.max) return { problem: `at most ${field.max}` };
  return text;
}

/** The field that the server's JSON pointer names; '' for none. @param {FormModel} model @param {string} at */
export function fieldAt(model, at) {
  const name = at.split('/')[1]?.replaceAll('~1', '/').replaceAll('~0', '~') ?? '';
  return model.fields.some((field) => field.name === name) ? name : '';
}

/** @param {any} value @returns {value is {[key: string]: any}} */
function isObject(value) {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** @param {any} value */
const textOf = (value) => (typeof value === 'string' ? value.slice(0, 2000) : '');
/** @param {any} value */
const numberOf = (value) => (typeof value === 'number' && Number.isFinite(value) ? value : null);
