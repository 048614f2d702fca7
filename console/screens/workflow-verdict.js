/** The verdict of a gate: what is wrong and where in the artifact, and what the test command printed. */

import { duration } from '../core/time.js';
import { h } from '../ui/dom.js';
import { stateMark, time } from '../ui/parts.js';

/** @param {any} gate @param {(path: string) => void} showPlace @param {string} [of] what was judged */
export function verdictView(gate, showPlace, of = '') {
  if (!gate) return h('p', { class: 'note' }, 'The gate has judged nothing yet.');
  const { violations, command } = gate;
  return h(
    'section',
    { class: 'verdict', 'aria-label': 'Verdict of the gate' },
    h('p', null, stateMark(gate.passed ? 'passed' : 'refused'), of && ` ${of}`, ' · ', time(gate.checkedAt), violations.length > 0 && ` · ${violations.length} ${violations.length === 1 ? 'violation' : 'violations'}`),
    violations.length > 0 && h('ul', { class: 'violations' }, ...violations.map((/** @type {any} */ one) => violation(one, showPlace))),
    command && commandView(command),
  );
}

/** @param {{path: string, message: string}} one @param {(path: string) => void} showPlace */
function violation({ path, message }, showPlace) {
  const place = path === '' ? h('span', { class: 'note' }, 'the whole artifact') : h('button', { type: 'button', class: 'place', title: 'Show this place in the artifact', onclick: () => showPlace(path) }, path);
  return h('li', null, place, ' ', h('span', null, message));
}

/** @param {any} report */
function commandView({ command, exitCode, timedOut, failure, durationMs, output, truncated }) {
  const end = failure ?? (timedOut ? 'killed: it took too long' : `exit code ${exitCode ?? 'none'}`);
  return h(
    'div',
    null,
    h('h3', null, 'Test command'),
    h('p', null, h('code', null, command.join(' ')), ` · ${end} · ${duration(durationMs)}`),
    truncated && h('p', { class: 'note' }, 'The output is longer: this is its end.'),
    output ? h('pre', { class: 'output', tabindex: 0, 'aria-label': 'Output of the test command' }, output) : h('p', { class: 'note' }, 'It printed nothing.'),
  );
}
