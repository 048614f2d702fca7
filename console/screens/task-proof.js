/**
 * Prove it: on demand, that a log has no gap, that the fold here is the server's fold at its end and at samples, and the digest
 * of its events. The log is read again for it, so that what is proven is what the server has, whole.
 */

import { LogFold } from '../core/fold.js';
import { firstGap, foldDifference, MOST_SAMPLES, sampleNumbers } from '../core/proof.js';
import { get, segment } from '../ui/api.js';
import { h } from '../ui/dom.js';
import { ConsoleElement } from '../ui/element.js';
import { digestOf, readWhole } from '../ui/log-file.js';
import { verdict } from '../ui/operator-list.js';
import { announce, copyButton, problem } from '../ui/parts.js';

/** Requests at a time: the server folds for each of them. */
const AT_ONCE = 2;

class NuncioTaskProof extends ConsoleElement {
  /** @type {import('../ui/task-log.js').TaskLog | null} */
  log = null;
  /** @type {AbortController | null} */
  controller = null;
  progress = '';
  /** What was checked, in order. @type {{isGood: boolean, text: string}[]} */
  results = [];
  /** @type {string | null} */
  digest = null;
  /** @type {unknown} */
  error = null;

  connected() {
    this.onLeave(() => this.controller?.abort());
  }

  async prove() {
    const { log } = this;
    if (!log || this.controller) return;
    const controller = (this.controller = new AbortController());
    Object.assign(this, { results: [], digest: null, error: null });
    try {
      await this.check(log, controller.signal);
      announce(this.results.every(({ isGood }) => isGood) ? 'Proven' : 'The proof failed');
    } catch (error) {
      if (controller.signal.aborted) this.results.push({ isGood: false, text: 'Canceled: the rest was not checked.' });
      else this.error = error;
    }
    Object.assign(this, { controller: null, progress: '' });
    this.changed();
  }

  /** @param {import('../ui/task-log.js').TaskLog} log @param {AbortSignal} signal */
  async check(log, signal) {
    const { events } = await readWhole(log.id, signal, (done, last) => this.say(`Reading ${done} of ${last} events`));
    const last = events.length;
    const gap = firstGap(events, last);
    const shown = firstGap(log.fold.events.slice(0, last), Math.min(last, log.fold.events.length));
    this.add(gap === null && shown === null, gap ?? shown ? `Event ${gap ?? shown} is missing.` : `1 to ${last}, none missing.`);
    const fold = new LogFold(log.head.origin);
    fold.push(events);
    const numbers = sampleNumbers(last, Math.random);
    let [done, difference] = [0, ''];
    // The end first: where the fold is wrong at all, it is most likely wrong there.
    const waiting = [last, ...numbers.filter((seq) => seq !== last)];
    const compare = async () => {
      for (let seq = waiting.shift(); seq !== undefined && !difference; seq = waiting.shift()) {
        const { task } = await get(`tasks/${segment(log.id)}/at/${seq}`, { signal });
        difference ||= foldDifference(seq, fold.at(seq), task);
        this.say(`Comparing fold ${(done += 1)} of ${numbers.length}`);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, compare));
    this.add(difference === '', difference || `The fold here is the server's at event ${last}${numbers.length > 1 ? ` and at ${numbers.length - 1} ${numbers.length < last ? 'others, one of each stretch of the log' : 'others, which are all'}` : ''}.`);
    this.say('Computing the digest');
    this.digest = await digestOf(events, signal);
    if (!this.digest) this.results.push({ isGood: true, text: 'No digest: this page is not in a secure context.' });
  }

  /** @param {boolean} isGood @param {string} text */
  add(isGood, text) {
    this.results.push({ isGood, text });
    this.changed();
  }

  /** @param {string} progress */
  say(progress) {
    this.progress = progress;
    this.changed();
  }

  view() {
    const { controller, results, digest } = this;
    return h(
      'section',
      { 'aria-label': 'Proof' },
      h(
        'p',
        { class: 'bar' },
        controller ? h('button', { key: 'cancel', type: 'button', onclick: () => controller.abort() }, 'Cancel the proof') : h('button', { key: 'prove', type: 'button', onclick: () => void this.prove() }, 'Prove it'),
        h('span', { class: 'note', role: 'status' }, this.progress || (results.length === 0 ? `Reads the log again, and compares up to ${MOST_SAMPLES} folds with the server.` : '')),
      ),
      this.error ? problem(this.error, () => void this.prove()) : null,
      results.length > 0 && h('ul', { class: 'proof' }, ...results.map(({ isGood, text }) => h('li', null, verdict(isGood, isGood ? 'holds' : 'fails'), ' ', text)), digest && h('li', null, 'SHA-256 of the events: ', h('code', null, digest), ' ', copyButton(digest, 'Copy the digest'))),
    );
  }
}

customElements.define('nuncio-task-proof', NuncioTaskProof);
