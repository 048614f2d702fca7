// json-index, form, markdown.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { membersOf } from '../core/json-members.js';
import { indentJson } from '../core/json-text.js';
import { checkText, fieldAt, fillForm, formOf, initialValues, readForm, shownFields } from '../core/form.js';
import { JsonIndex } from '../core/json-index.js';
import { parseMarkdown, safeLink } from '../core/markdown.js';
import { rng } from './random-log.mjs';

const indexOf = (text) => new JsonIndex(new TextEncoder().encode(text));

function rebuild(index, node) {
  const all = () => {
    const found = [];
    for (let page = index.children(node, 0, 3); page.length; page = index.children(node, found.length, 3)) found.push(...page);
    return found;
  };
  if (node.kind === 'array') return all().map((child) => rebuild(index, child));
  if (node.kind === 'object') return Object.fromEntries(all().map((child) => [index.key(child), rebuild(index, child)]));
  return JSON.parse(index.text(node));
}

test('an indexed text has the values that a parser finds', () => {
  const random = rng(11);
  const value = (depth) => {
    const kind = Math.floor(random() * (depth > 0 ? 7 : 5));
    if (kind === 5) return [...Array(Math.floor(random() * 6))].map(() => value(depth - 1));
    if (kind === 6) return Object.fromEntries([...Array(Math.floor(random() * 6)).keys()].map((n) => [`k"${n}\\`, value(depth - 1)]));
    return [null, random() < 0.5, random() * 1e6, 'a "b" \\ \n ž 😀 ]}', ''][kind];
  };
  for (let round = 0; round < 300; round += 1) {
    const wanted = value(4);
    for (const space of [undefined, 2]) {
      const index = indexOf(JSON.stringify(wanted, null, space));
      assert.deepEqual(rebuild(index, index.root()), wanted);
    }
  }
});

test('numbers stay as written, damaged text is an error with its place', () => {
  const index = indexOf('{"n": 123456789012345678901234567890.10, "m": 1.0}');
  assert.deepEqual(index.children(index.root(), 0, 9).map((node) => index.text(node)), ['123456789012345678901234567890.10', '1.0']);
  for (const text of ['', '{"a" 1}', '[1 2]', '{"a": "b', '[1,', '{1:2}', 'xyz']) {
    assert.throws(() => {
      const broken = indexOf(text);
      broken.children(broken.root(), 0, 9);
    }, SyntaxError, text);
  }
});

test('10 MB: the first page, a late page and a search do not take long', () => {
  const rows = [];
  for (let n = 0; n < 80_000; n += 1) rows.push(`{"id":${n},"name":"row number ${n}","text":"${'lorem ipsum '.repeat(7)}"}`);
  const bytes = new TextEncoder().encode(`{"rows":[${rows.join(',')}],"last":true}`);
  assert.ok(bytes.length > 10_000_000);
  const timed = (name, work) => {
    const began = performance.now();
    const result = work();
    console.log(`${name} of ${(bytes.length / 1e6).toFixed(1)} MB: ${(performance.now() - began).toFixed(1)} ms`);
    return result;
  };
  const index = new JsonIndex(bytes);
  const list = timed('first node', () => index.children(index.root(), 0, 1))[0];
  assert.equal(timed('first 100 children', () => index.children(list, 0, 100)).length, 100);
  const late = timed('children from 70,000', () => index.children(list, 70_000, 100));
  assert.equal(index.string(index.children(late[5], 1, 1)[0]), 'row number 70005');
  timed('children from 70,100, again', () => index.children(list, 70_100, 100));
  let [hits, from] = [[], 0];
  timed('find', () => {
    while (from >= 0) {
      const found = index.find('NUMBER 79999', from);
      hits.push(...found.hits);
      from = found.next;
    }
  });
  assert.equal(hits.length, 1);
  const path = timed('path of a hit', () => index.pathAt(hits[0]));
  assert.deepEqual(path.slice(1).map((node) => index.key(node)), ['rows', 79_999, 'name']);
  assert.equal(index.count(list), 80_000);
});

const SCHEMA = {
  type: 'object',
  required: ['seat', 'count', 'agree'],
  properties: {
    seat: { type: 'string', minLength: 2, maxLength: 3, title: 'Seat' },
    count: { type: 'integer', minimum: 1, maximum: 99999999999999999999 },
    agree: { type: 'boolean', default: true },
    meal: { enum: ['none', 'veg', 3], enumNames: ['No meal', 'Vegetarian', 'Three'] },
    extras: { type: 'array', items: { enum: ['wifi', 'bag'] } },
    class: { oneOf: [{ const: 'e', title: 'Economy' }, { const: 'b', title: 'Business' }] },
    nested: { type: 'object', properties: { x: { type: 'number' } } },
    ['__proto__']: { type: 'string' },
  },
};

test('a schema becomes fields, and typed values become JSON', () => {
  const model = formOf(JSON.parse(JSON.stringify(SCHEMA).replace('"nested"', '"__proto__":{"type":"string"},"nested"')));
  assert.deepEqual(model.fields.map((field) => [field.name, field.kind]), [
    ['seat', 'text'], ['count', 'integer'], ['agree', 'boolean'], ['meal', 'choice'], ['extras', 'choices'], ['class', 'choice'],
    ['__proto__', 'text'], ['nested', 'json'],
  ]);
  const typed = initialValues(model);
  assert.deepEqual(readForm(model, typed).problems, [{ name: 'seat', message: 'a value is needed' }, { name: 'count', message: 'a value is needed' }]);
  typed.set('seat', '12A').set('count', '12345678901234567890').set('meal', '3').set('extras', ['"bag"', '"stolen"']).set('class', '"b"');
  typed.set('__proto__', 'x').set('nested', '{"x": 1.50}');
  assert.deepEqual(readForm(model, typed), {
    text: '{"seat":"12A","count":12345678901234567890,"agree":true,"meal":3,"extras":["bag"],"class":"b","__proto__":"x","nested":{"x": 1.50}}',
    problems: [],
  });
  typed.set('seat', '1234').set('count', '1.5').set('nested', '{');
  assert.deepEqual(readForm(model, typed).problems.map((problem) => problem.name), ['seat', 'count', 'nested']);
  assert.equal(fieldAt(model, '/seat'), 'seat');
  assert.equal(fieldAt(model, '/other/x'), '');
});

test('form and JSON can be switched, and what a form cannot show stays JSON', () => {
  const model = formOf(SCHEMA);
  const value = '{"seat":"12A","count":12345678901234567890,"agree":false,"meal":"veg","extras":["wifi"],"nested":{"x":1.50}}';
  const { typed } = fillForm(model, value);
  assert.equal(readForm(model, typed).text.replaceAll(/\s/g, ''), value);
  assert.deepEqual(shownFields(model, typed), model.fields);
  const further = fillForm(model, value.replace('}}', '},"unknown":7.0}'));
  assert.equal(shownFields(model, further.typed).at(-1).name, 'Further members');
  assert.match(readForm(model, further.typed).text, /"unknown":7\.0\}$/);
  assert.deepEqual(checkText(formOf({ ...SCHEMA, additionalProperties: false }), value.replace('}}', '},"unknown":1}')), [{ name: 'Further members', message: 'the schema has no unknown' }]);
  assert.equal(fillForm(model, '[1]').problem.message, 'an object is needed');
  for (const [wrong, field] of [['{"seat":5}', 'seat'], ['{"count":"2"}', 'count'], ['{"agree":1}', 'agree'], ['{"meal":"meat"}', 'meal'], ['{"extras":["bar"]}', 'extras'], ['{', '']]) assert.equal(fillForm(model, wrong).problem.name, field);
  assert.deepEqual(checkText(model, '{"seat":"1","count":0,"agree":true}').map(({ name }) => name), ['seat', 'count']);
  for (const schema of [true, null, 'x', { $ref: '#/x' }, { type: 'array' }, { properties: [] }, { type: 'object', allOf: [] }, { anyOf: [{ type: 'string' }] }]) {
    const whole = formOf(schema);
    assert.ok(whole.whole);
    assert.equal(readForm(whole, new Map([['', '[1, 2.0]']])).text, '[1, 2.0]');
  }
});

test('an optional boolean can be left out, and a constant is a choice', () => {
  const model = formOf({ properties: { on: { type: 'boolean' }, sure: { const: true } } });
  assert.deepEqual(model.fields.map(({ kind, options }) => [kind, options.map(({ text }) => text)]), [['choice', ['true', 'false']], ['choice', ['true']]]);
  assert.equal(readForm(model, initialValues(model)).text, '{}');
  assert.equal(readForm(model, fillForm(model, '{"on":false}').typed).text, '{"on":false}');
});

test('JSON text is indented with its numbers and strings as written', () => {
  const text = '{"a":[1.0,{},[ ]],"b {,}":"x\\"[,]:","c":{"d":12345678901234567890,"e":null}}';
  assert.equal(indentJson(text), '{\n  "a": [\n    1.0,\n    {},\n    []\n  ],\n  "b {,}": "x\\"[,]:",\n  "c": {\n    "d": 12345678901234567890,\n    "e": null\n  }\n}');
  assert.deepEqual([...membersOf('{"a":1,"__proto__":2.0,"a":{"b":3}}')], [['a', '{"b":3}'], ['__proto__', '2.0']]);
});

test('markdown: the subset, and nothing else', () => {
  assert.deepEqual(parseMarkdown('# A *b*\n\nText **bold** and `code`\nnext\n\n- one\n- two\n  - inner\n\n```js\n<b>\n```'), [
    { type: 'heading', level: 1, children: [{ type: 'text', text: 'A ' }, { type: 'em', children: [{ type: 'text', text: 'b' }] }] },
    { type: 'paragraph', children: [
      { type: 'text', text: 'Text ' }, { type: 'strong', children: [{ type: 'text', text: 'bold' }] }, { type: 'text', text: ' and ' },
      { type: 'code', text: 'code' }, { type: 'break' }, { type: 'text', text: 'next' }] },
    { type: 'list', ordered: false, start: 1, items: [
      [{ type: 'paragraph', children: [{ type: 'text', text: 'one' }] }],
      [{ type: 'paragraph', children: [{ type: 'text', text: 'two' }] },
        { type: 'list', ordered: false, start: 1, items: [[{ type: 'paragraph', children: [{ type: 'text', text: 'inner' }] }]] }]] },
    { type: 'fence', language: 'js', text: '<b>' },
  ]);
});

test('markdown: only http links are links, and images are text', () => {
  const links = (source) => JSON.stringify(parseMarkdown(source)).match(/"href":"[^"]*"/g) ?? [];
  assert.deepEqual(links('[a](https://a.example/x) https://b.example/y.'), ['"href":"https://a.example/x"', '"href":"https://b.example/y"']);
  for (const hostile of ['javascript:alert(1)', 'JaVaScRiPt:alert(1)', 'data:text/html,x', 'vbscript:x', '//a.example', 'https://user:pw@a.example', '\tjavascript:x', 'blob:https://a.example/x']) {
    assert.deepEqual(links(`[a](${hostile})`), [], hostile);
    assert.equal(safeLink(hostile), null);
  }
  assert.ok(!JSON.stringify(parseMarkdown('![x](https://a.example/i.png) <img src=x onerror=alert(1)>')).includes('"type":"image"'));
});

test('markdown: hostile input takes linear time', () => {
  for (const piece of ['*a', '[a](', '`', '``a`', '_a ', 'http://', '- ', '  - ', '```\n', '# ', '**a*', '\\', '1. a\n\n', '[[', '> ', '~~~\n']) {
    const began = performance.now();
    parseMarkdown(piece.repeat(Math.floor(250_000 / piece.length)));
    const took = performance.now() - began;
    assert.ok(took < 1500, `${JSON.stringify(piece)}: ${took} ms`);
  }
});
