/**
 * The timeline of a task: who ran it, its steps, calls, questions and artifacts against time. The overview strip selects a
 * range by dragging; the range is in the address.
 */

import { ticks } from '../core/layout.js';
import { duration, format } from '../core/time.js';
import { markSpans } from '../core/seen.js';
import { LANE_NAMES, readRange, scaleOf, thin, timelineSpans } from '../core/timeline.js';
import { clock, get, segment } from '../ui/api.js';
import { context, link } from '../ui/context.js';
import { h } from '../ui/dom.js';
import { ConsoleElement } from '../ui/element.js';
import { commandLine, curl, empty, problem } from '../ui/parts.js';
import { SeenBy } from '../ui/seen-by.js';

/** @typedef {import('../core/timeline.js').TimelineSpan} TimelineSpan */

/** How long a journal is shown before it is read again while its task goes on. */
const READ_AGAIN = 1000;
/** The share of the width from which a span can be pressed: 24 px of a narrow screen. Smaller ones are looked at closer first. */
const PRESSED = 0.08;

class NuncioTaskTimeline extends ConsoleElement {
  /** @type {import('../ui/task-log.js').TaskLog | null} */
  log = null;
  taskId = '';
  /** The address of the screen. */
  path = '';
  search = '';
  size = 0;
  read = 0;
  /** @type {number | null} */
  at = null;
  /** @type {(seq: number, tab: string) => void} */
  goTo = () => {};
  /** @type {any} */
  journal = null;
  /** @type {unknown} */
  error = null;
  /** The log's length when the journal was read. */
  readAt = -1;
  /** @type {any} */
  timer = null;
  /** Where a drag on the overview began, from 0 to 1. @type {number | null} */
  dragged = null;

  connected() {
    this.listenTo(context, 'settings', () => this.changed());
    this.onLeave(() => clearTimeout(this.timer));
    if (!this.log || this.log.isFile) return;
    this.seen = new SeenBy(this.taskId, this.log.head.origin.owner, this);
    void this.load();
  }

  /** @type {SeenBy | null} */
  seen = null;

  async load() {
    const { size } = this;
    try {
      const path = `tasks/${segment(this.taskId)}/journal`;
      const journal = await get(path);
      for (let { next } = journal; next !== null; ) {
        const further = await get(`${path}?after=${next}`);
        journal.effects.push(...further.effects);
        next = further.next;
      }
      Object.assign(this, { journal, error: null, readAt: size });
    } catch (error) {
      this.error = error;
    }
    this.changed();
  }

  updated() {
    for (const bar of this.querySelectorAll('[data-left]')) {
      const { style, dataset } = /** @type {HTMLElement} */ (bar);
      // A point at the very end stays inside.
      style.setProperty('left', `min(${dataset.left}%, 100% - 6px)`);
      style.setProperty('width', `${dataset.width}%`);
      if (dataset.row) style.setProperty('top', `${Number(dataset.row) * 26}px`);
    }
    for (const lane of this.querySelectorAll('[data-rows]')) {
      const { style, dataset } = /** @type {HTMLElement} */ (lane);
      style.setProperty('height', `${Number(dataset.rows) * 26}px`);
    }
    const stale = this.readAt !== this.size || (this.journal?.runs ?? []).some((/** @type {any} */ run) => run.end === 'running' && this.log?.ended);
    if (stale && this.journal && this.timer === null) {
      this.timer = setTimeout(() => {
        this.timer = null;
        void this.load();
      }, READ_AGAIN);
    }
  }

  get folded() {
    return new URLSearchParams(this.search).get('idle') === 'fold';
  }

  /** Changes one parameter of the address. @param {string} name @param {string | null} value */
  ask(name, value) {
    const query = new URLSearchParams(this.search);
    if (value === null) query.delete(name);
    else query.set(name, value);
    const text = query.toString();
    context.go(`${this.path}/timeline${text ? `?${text}` : ''}`, { replace: true });
  }

  /** @param {string} key */
  onKey(key) {
    const factor = { '+': 0.5, '=': 0.5, '-': 2 }[key];
    if (factor) this.zoom(factor);
    else if (key === '0') this.ask('zoom', null);
    else if (key === 'ArrowLeft' || key === 'ArrowRight') this.pan(key === 'ArrowLeft' ? -0.25 : 0.25);
    else return false;
    return true;
  }

  /** @param {number} factor */
  zoom(factor) {
    const { began, from, to } = this.range();
    const [middle, half] = [(from + to) / 2, Math.max(1, ((to - from) / 2) * factor)];
    this.select(middle - half - began, middle + half - began);
  }

  /** @param {number} share */
  pan(share) {
    const { began, from, to } = this.range();
    const by = (to - from) * share;
    this.select(from + by - began, to + by - began);
  }

  /** Shows a range, in milliseconds after the beginning. @param {number} from @param {number} to */
  select(from, to) {
    const { began, end } = this.range();
    const [first, last] = [Math.max(0, Math.floor(from)), Math.min(end - began, Math.ceil(to))];
    this.ask('zoom', first <= 0 && last >= end - began ? null : `${first}-${Math.max(first + 1, last)}`);
  }

  /** The task's own range, and the shown one. */
  range() {
    const events = this.log?.fold.events ?? [];
    const began = Date.parse(events[0]?.timestamp ?? '') || clock.now();
    const last = Date.parse(events.at(-1)?.timestamp ?? '') || began;
    const end = Math.max(began + 1, this.log?.ended ? last : clock.now());
    return { began, end, ...readRange(this.search, began, end) };
  }

  view() {
    const { log } = this;
    if (!log || log.fold.events.length === 0) return empty('Nothing has happened yet', 'The first event comes with the task.');
    if (this.error && !this.journal) return problem(this.error, () => this.load());
    const { began, end, from, to } = this.range();
    const spans = timelineSpans(this.journal, log.fold.events, end, markSpans(this.seen?.marks ?? [], (seq) => log.eventAt(seq)));
    const scale = scaleOf(spans, from, to, this.folded);
    return [
      this.bar(began, from, to),
      this.overview(spans, began, end, from, to),
      this.error ? problem(this.error, () => this.load()) : null,
      this.axis(scale, began),
      ...[...LANE_NAMES].map(([lane, name]) => this.lane(name, lane, spans.filter((span) => span.lane === lane), scale)),
      this.seen?.view(this.path, log.last) ?? null,
      this.journal && this.journal.runs.length === 0 && h('p', { class: 'note' }, 'Runs of this task were not recorded: it began before the server recorded them. Its events are drawn as points.'),
      this.journal?.moreRuns && h('p', { class: 'note' }, 'It has had more runs than are recorded.'),
      log.isFile ? h('p', { class: 'note' }, 'A file has the events of a task, not its runs and steps.') : commandLine(curl(`tasks/${segment(this.taskId)}/journal`)),
    ];
  }

  /** @param {number} began @param {number} from @param {number} to */
  bar(began, from, to) {
    const button = (/** @type {string} */ label, /** @type {string} */ name, /** @type {() => void} */ act) => h('button', { type: 'button', class: 'quiet', 'aria-label': name, title: name, onclick: act }, label);
    return h(
      'p',
      { class: 'bar' },
      button('+', 'Zoom in', () => this.zoom(0.5)), button('−', 'Zoom out', () => this.zoom(2)),
      button('◀', 'Earlier', () => this.pan(-0.25)), button('▶', 'Later', () => this.pan(0.25)),
      button('Fit', 'Fit', () => this.ask('zoom', null)),
      h('label', null, h('input', { type: 'checkbox', prop: { checked: this.folded }, onchange: (/** @type {any} */ event) => this.ask('idle', event.target.checked ? 'fold' : null) }), ' Fold idle times'),
      h('span', { class: 'note', role: 'status' }, `${duration(to - from)} from ${duration(from - began)} after the beginning`),
    );
  }

  /** @param {TimelineSpan[]} spans @param {number} began @param {number} end @param {number} from @param {number} to */
  overview(spans, began, end, from, to) {
    const whole = scaleOf(spans, began, end, false);
    const share = (/** @type {any} */ event) => {
      const box = event.currentTarget.getBoundingClientRect();
      return Math.max(0, Math.min(1, (event.clientX - box.left) / box.width));
    };
    const down = (/** @type {any} */ event) => {
      event.currentTarget.setPointerCapture(event.pointerId);
      this.dragged = share(event);
    };
    const up = (/** @type {any} */ event) => {
      if (this.dragged === null) return;
      const [a, b] = [this.dragged, share(event)].sort((one, other) => one - other);
      this.dragged = null;
      if (b - a > 0.005) this.select(a * (end - began), b * (end - began));
    };
    const marks = thin(spans.filter((span) => ['run', 'question', 'artifact'].includes(span.lane)), whole, 60);
    return h(
      'div',
      { class: 'overview', 'aria-hidden': 'true', onpointerdown: down, onpointerup: up },
      ...marks.map((span) => placed(`mark lane-${span.lane}`, whole.at(span.from), whole.at(span.to), null)),
      placed('window', whole.at(from), whole.at(to), null),
    );
  }

  /** @param {import('../core/timeline.js').Scale} scale @param {number} began */
  axis(scale, began) {
    const marks = ticks(scale.from, scale.to, 6).filter((at) => !scale.gaps.some((gap) => at > gap.from && at < gap.to));
    const label = (/** @type {number} */ at) => (context.timeMode === 'relative' ? duration(at - began) : format(at, context.timeMode, clock.now()).split(' ').slice(1).join(' ') || format(at, context.timeMode, clock.now()));
    return h(
      'div',
      { class: 'lane axis', 'aria-hidden': 'true' },
      h('span', { class: 'lane-name' }, context.timeMode === 'relative' ? 'after the beginning' : context.timeMode === 'utc' ? 'UTC' : 'local time'),
      h('div', { class: 'spans', 'data-rows': 1 }, ...marks.map((at) => placed('tick', scale.at(at), scale.at(at), null, label(at))), ...scale.gaps.map((gap) => placed('gap', scale.at(gap.from), scale.at(gap.to), null))),
    );
  }

  /** @param {string} name @param {string} lane @param {TimelineSpan[]} spans @param {import('../core/timeline.js').Scale} scale */
  lane(name, lane, spans, scale) {
    if (spans.length === 0) return null;
    const shown = thin(spans, scale);
    const rows = 1 + Math.max(0, ...shown.map((span) => span.row));
    return h(
      'section',
      { class: 'lane', 'aria-label': name },
      h('span', { class: 'lane-name' }, name, h('span', { class: 'note' }, ` ${spans.length}`)),
      h('div', { class: 'spans', 'data-rows': rows }, ...shown.map((span) => this.span(span, lane, scale)), shown.length === 0 && h('span', { class: 'note' }, 'none in this range')),
    );
  }

  /** @param {TimelineSpan} span @param {string} lane @param {import('../core/timeline.js').Scale} scale */
  span(span, lane, scale) {
    const length = span.open ? `${duration(span.to - span.from)} so far` : duration(span.to - span.from);
    const text = `${span.label}${span.count ? ` and ${span.count - 1} more` : ''}, ${length}${span.detail ? `; ${span.detail}` : ''}`;
    const attributes = { title: text, 'aria-label': text };
    const inside = h('span', { 'aria-hidden': 'true' }, span.label);
    const cls = `span lane-${lane} ${span.kind ?? ''} ${span.from === span.to ? 'point' : ''}`;
    const wide = scale.at(span.to) - scale.at(span.from) >= PRESSED;
    if (span.taskId && wide) return placed(cls, scale.at(span.from), scale.at(span.to), span.row, h('a', { ...attributes, href: link(`tasks/${segment(span.taskId)}`) }, inside));
    const open = span.seq > 0 && wide ? () => this.goTo(span.seq, 'events') : null;
    return placed(cls, scale.at(span.from), scale.at(span.to), span.row, open ? h('button', { ...attributes, type: 'button', onclick: open }, inside) : h('span', { ...attributes, role: 'img' }, inside));
  }
}

/** A box at its place; the element sets it through CSSOM, which the policy of the page allows.
 * @param {string} name @param {number} left @param {number} right @param {number | null} row @param {...import('../ui/dom.js').Child} children */
function placed(name, left, right, row, ...children) {
  const attributes = { class: name, 'data-left': (left * 100).toFixed(3), 'data-width': ((right - left) * 100).toFixed(3), ...(row === null ? {} : { 'data-row': row }) };
  return h('div', attributes, ...children);
}

customElements.define('nuncio-task-timeline', NuncioTaskTimeline);
