/**
 * A log from a file, in the readings of a task. Nothing of it is sent to the server, and nothing is read from there. The file
 * stays in this tab until another one is opened or the page is loaded again; an address cannot hold it.
 */

import { duration, millis } from '../core/time.js';
import { context, link } from '../ui/context.js';
import { h } from '../ui/dom.js';
import { openLogFile } from '../ui/log-file.js';
import { announce, empty, loading, stateMark, time } from '../ui/parts.js';
import { fact } from '../ui/task-record.js';
import { LogScreen } from './log-screen.js';

/** The log that was opened last. @type {import('../ui/log-file.js').FileLog | null} */
let opened = null;

class NuncioLogFile extends LogScreen {
  /** @type {import('../ui/log-file.js').FileLog | null} */
  log = opened;
  message = '';
  isReading = false;

  get path() {
    return 'file/log';
  }

  connected() {
    this.listenTo(context, 'settings', () => this.changed());
  }

  /** @param {File | undefined} file */
  async open(file) {
    if (!file || this.isReading) return;
    Object.assign(this, { isReading: true, message: '' });
    this.update();
    try {
      opened = this.log = await openLogFile(file);
      announce(`${file.name}: ${opened.last} events`);
      context.go('file/log/story');
    } catch (error) {
      this.message = `${file.name} cannot be opened: ${error instanceof Error ? error.message : error}.`;
    }
    this.isReading = false;
    this.changed();
  }

  view() {
    const { log } = this;
    return [
      h('div', { key: 'open', class: 'bar title' }, h('h1', null, 'Log file'), this.field()),
      this.message && h('p', { key: 'message', class: 'problem', role: 'alert' }, this.message),
      this.isReading && loading('the file'),
      log ? h('div', { key: 'log', class: this.isReading ? 'old' : '' }, this.head(log), this.tabs(), this.scrubber(log), h('div', { class: 'reading', key: `reading ${this.tab}` }, this.reading(log))) : empty('No file is open', 'A task has Export: the file holds its whole log, and any console opens it here, also without the server that wrote it.'),
    ];
  }

  field() {
    const choose = (/** @type {any} */ event) => {
      const [file] = event.target.files;
      void this.open(file);
      event.target.value = '';
    };
    return h('label', null, 'Open a log file ', h('input', { type: 'file', accept: '.json,application/json', onchange: choose }));
  }

  /** @param {import('../ui/log-file.js').FileLog} log */
  head(log) {
    const { row, origin, agentVersion } = log.head;
    const task = this.shown(log);
    const took = millis(log.eventAt(this.at ?? log.last)?.timestamp) - millis(row.createdAt);
    return h(
      'section',
      { class: 'task-head' },
      h('p', { class: 'as-of from-file' }, h('strong', null, 'From a file: '), log.name, '. Nothing here was read from the server. ', log.verdict),
      h('h2', null, stateMark(task.state), ' ', h('span', { class: 'agent' }, origin.agent), agentVersion && h('span', { class: 'note' }, ` version ${agentVersion}`)),
      this.at !== null && this.at < log.last && h('p', { class: 'as-of' }, `As of event ${this.at} of ${log.last}. `, h('button', { type: 'button', onclick: () => this.goTo(null) }, 'Show the newest')),
      h(
        'dl',
        { class: 'facts' },
        fact('Task', h('code', null, log.id), ' ', h('a', { href: link(`tasks/${encodeURIComponent(log.id)}`) }, 'on this server')),
        fact('Context', origin.context),
        fact('Owner', origin.owner),
        fact('Created in', origin.dialect),
        fact('Began', time(row.createdAt)),
        fact(log.isOver ? 'Took' : 'Ran for', duration(took)),
        fact('Log', log.completeness, !log.isOver && ' (it had not ended)'),
        fact('Exported', time(log.exportedAt), log.server && ` by Nuncio ${log.server}`),
      ),
    );
  }
}

customElements.define('nuncio-log-file', NuncioLogFile);
