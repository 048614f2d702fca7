/**
 * A small chart of the pulse: bars in SVG, a dashed box where nothing was measured, with its figures in words above it. The bars
 * are hidden from screen readers: the words have the sum, the last and the highest number.
 */

import { figuresOf, outlines } from '../core/pulse.js';
import { duration } from '../core/time.js';
import { h } from './dom.js';
import { svg } from './svg.js';

/** @typedef {import('../core/pulse.js').Series} Series */
/** @typedef {import('../core/pulse.js').SeriesByName} SeriesByName */

const WIDTH = 360;
const HEIGHT = 44;

/** @param {{class: string, values: Series}[]} layers the tallest first @param {Series} measured null where the node did not measure @param {number} [height] */
export function drawing(layers, measured, height = HEIGHT) {
  const most = layers.reduce((most, { values }) => Math.max(most, figuresOf(values).most ?? 0), 0);
  const drawn = layers.map((layer) => ({ ...layer, ...outlines(layer.values, { width: WIDTH, height, most, measured }) }));
  return svg(
    'svg',
    { class: 'pulse', viewBox: `0 0 ${WIDTH} ${height}`, preserveAspectRatio: 'none', 'aria-hidden': 'true', focusable: 'false' },
    svg('path', { class: 'pulse-gap', d: drawn[0]?.gaps ?? '' }),
    ...drawn.map((layer) => svg('path', { class: layer.class, d: layer.bars })),
  );
}

/** @param {string} name @param {string} figure @param {string} words @param {SVGElement} drawn */
function chart(name, figure, words, drawn) {
  return h('figure', { class: 'pulse-chart', key: name }, h('figcaption', null, h('span', { class: 'pulse-name' }, name), ' ', h('strong', null, figure), ' ', h('span', { class: 'note' }, words)), drawn);
}

/** @param {number | null} n @param {(n: number) => string} [text] */
function measured(n, text = String) {
  return n === null ? 'not measured' : text(n);
}

/** The charts of all, or of one agent. @param {SeriesByName} series */
export function pulseCharts(series) {
  const ran = series.sends ?? [];
  const count = (/** @type {string} */ name, /** @type {string} */ field, kind = 'pulse-bar') => {
    const values = series[field] ?? [];
    const { sum, most, last, intervals } = figuresOf(values);
    return chart(name, intervals === 0 ? 'not measured' : String(sum), `last interval ${measured(last)}, most ${measured(most)}`, drawing([{ class: kind, values }], ran));
  };
  const level = (/** @type {string} */ name, /** @type {string} */ field) => {
    const values = series[field];
    if (!values) return null;
    const { most, last } = figuresOf(values);
    return chart(name, measured(last), `most ${measured(most)}`, drawing([{ class: 'pulse-bar', values }], ran));
  };
  const [p50, p99] = [series.p50Ms ?? [], series.p99Ms ?? []];
  const [half, most] = [figuresOf(p50), figuresOf(p99)];
  const took = (/** @type {number | null} */ ms) => (ms === null ? 'none ended' : duration(ms));
  return [
    count('Sends', 'sends'),
    count('Events', 'events'),
    count('Commits', 'commits'),
    count('Ended', 'ended'),
    count('Failures', 'failed', 'pulse-bad'),
    chart('Duration', `p50 ${took(half.latest)}, p99 ${took(most.latest)}`, `highest p50 ${took(half.most)}, p99 ${took(most.most)}`, drawing([{ class: 'pulse-soft', values: p99 }, { class: 'pulse-bar', values: p50 }], ran)),
    level('Queue', 'queued'),
    level('Running', 'running'),
  ];
}
