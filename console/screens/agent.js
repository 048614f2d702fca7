/**
 * One agent: its health and tasks, its card as parsed and as served, and the card in every generation of A2A beside each
 * other. A remote that is only listed has its own card, as the registry read it.
 */

import { jsonDiff } from '../core/diff.js';
import { readCard } from '../core/registry.js';
import { get, headers, segment } from '../ui/api.js';
import { healthMark, lastSeen, loadRegistry, probe, reached, REREAD, taskCounts } from '../ui/agent-health.js';
import { partView } from '../ui/content-view.js';
import { context, link } from '../ui/context.js';
import { h } from '../ui/dom.js';
import { ConsoleElement } from '../ui/element.js';
import { serverRoot } from '../ui/exchange.js';
import '../ui/json-view.js';
import { commandLine, copyButton, empty, loading, problem, quote } from '../ui/parts.js';

/** @typedef {import('../core/registry.js').AgentEntry} AgentEntry */
/** @typedef {{generation: string, path: string, text: string | null, why: string}} ServedCard */

const TABS = ['overview', 'card', 'generations'];
const GENERATIONS = [['0.1', '/.well-known/agent.json'], ['0.3', '/.well-known/agent-card.json'], ['1.0', '/.well-known/agent-card.json']];

class NuncioAgent extends ConsoleElement {
  recordId = '';
  tab = 'overview';
  search = '';
  /** @type {AgentEntry | null | undefined} undefined: not read yet */
  entry = undefined;
  /** @type {ServedCard[]} */
  cards = [];
  /** @type {Map<string, number> | undefined} */
  counts = undefined;
  /** @type {unknown} */
  error = null;
  refused = '';
  busy = false;

  connected() {
    this.listenTo(context, 'settings', () => this.changed());
    const timer = setInterval(() => document.visibilityState === 'visible' && void this.load(), REREAD);
    this.onLeave(() => clearInterval(timer));
    void this.load();
  }

  async load() {
    try {
      const { entries } = await loadRegistry();
      this.entry = entries.find((entry) => entry.name === this.recordId) ?? null;
      this.changed();
      if (this.entry?.kind === 'local') {
        this.cards = await Promise.all(GENERATIONS.map(([generation, path]) => loadCard(this.recordId, generation, path)));
        const { facets } = await get(`tasks?agent=${segment(this.recordId)}&limit=1`);
        this.counts = new Map(Object.entries(facets?.state ?? {}));
      }
      this.error = null;
    } catch (error) {
      this.error = error;
    }
    this.changed();
  }

  async probe() {
    Object.assign(this, { busy: true, refused: '' });
    this.update();
    try {
      this.entry = await probe(this.recordId);
    } catch (error) {
      this.refused = error instanceof Error ? error.message : String(error);
    }
    this.busy = false;
    this.update();
  }

  /** @param {string} key */
  onKey(key) {
    if (key === 'p') void this.probe();
    else if (key === 'r') void this.load();
    else if (key === 'y' && this.entry?.kind === 'local') context.go(`try?agent=${segment(this.recordId)}`);
    else if (key === 'Escape') context.go('agents');
    else return false;
    return true;
  }

  view() {
    const { entry } = this;
    const error = this.error ? problem(this.error, () => this.load()) : null;
    if (entry === undefined) return error ?? loading('the agent');
    if (entry === null) return [error, empty(`There is no agent named ${this.recordId} here`, h('a', { href: link('agents') }, 'All agents'))];
    return [
      h('p', { class: 'said-head' }, h('a', { href: link('agents') }, '← All agents')),
      h('h1', null, entry.name, ' ', healthMark(entry)),
      error,
      h('p', { class: 'bar' }, h('button', { type: 'button', disabled: this.busy, onclick: () => this.probe() }, this.busy ? 'Probing…' : 'Probe'), entry.kind === 'local' && h('a', { href: link(`try?agent=${segment(entry.name)}`) }, 'Try'), entry.kind === 'local' && h('a', { href: link(`tasks?agent=${segment(entry.name)}`) }, 'Tasks'), h('span', { class: 'note' }, ...reached(entry)), h('span', { class: 'note' }, lastSeen(entry))),
      this.refused && h('p', { class: 'problem', role: 'alert' }, this.refused),
      entry.lastError && h('p', { class: 'reason' }, entry.lastError),
      h('nav', { class: 'tabs', 'aria-label': 'Parts of the agent' }, ...TABS.map((tab) => h('a', { href: link(`agents/${segment(entry.name)}/${tab}`), 'aria-current': tab === this.shownTab ? 'page' : null }, tab[0].toUpperCase() + tab.slice(1)))),
      h('div', { key: `tab ${this.shownTab}`, class: 'reading' }, ...[this.content(entry)].flat()),
    ];
  }

  get shownTab() {
    return TABS.includes(this.tab) ? this.tab : 'overview';
  }

  /** @param {AgentEntry} entry */
  content(entry) {
    if (this.shownTab === 'generations') return this.generations(entry);
    if (this.shownTab === 'card') return this.card(entry);
    const card = readCard(entry.card);
    const root = serverRoot().replace(/\/$/, '');
    return [
      h('p', { class: 'plain lead' }, entry.description),
      entry.kind === 'local' && h('p', { class: 'bar' }, 'Your tasks: ', this.counts ? taskCounts(entry.name, this.counts) : '…'),
      h('h2', null, 'Skills'),
      skills(card),
      commandLine(`nuncio agents probe ${quote(entry.name)} -a ${root}`),
    ];
  }

  /** The newest card that there is, and its text. @param {AgentEntry} entry */
  newest(entry) {
    const served = this.cards.filter((card) => card.text !== null).at(-1);
    if (served?.text) return served.text;
    return entry.kind === 'local' || !entry.card ? null : JSON.stringify(entry.card);
  }

  /** @param {AgentEntry} entry */
  card(entry) {
    if (entry.serverInfo) return [h('p', { class: 'note' }, 'An MCP server has no card; this is what it says of itself.'), h('nuncio-json', { prop: { text: JSON.stringify(entry.serverInfo) } })];
    const text = this.newest(entry);
    if (text === null) return entry.kind === 'local' && this.cards.length === 0 ? loading('the card') : empty('No card', this.cards.find((card) => card.why)?.why ?? 'It was not reached yet, or you may not see it.');
    const root = serverRoot().replace(/\/$/, '');
    return [
      h('div', { class: 'frames pair' }, h('section', { class: 'frame' }, h('h2', null, 'As parsed'), parsedCard(readCard(parse(text)))), h('section', { class: 'frame' }, h('h2', null, 'As served'), h('nuncio-json', { prop: { text } }))),
      entry.kind === 'local' && commandLine(`nuncio card get -a ${root}/agents/${segment(entry.name)}`),
    ];
  }

  /** @param {AgentEntry} entry */
  generations(entry) {
    if (entry.kind !== 'local') return empty('One generation', 'This server only lists it: its card is its own, as read. See Card.');
    if (this.cards.length === 0) return loading('the cards');
    return [
      h('p', { class: 'note' }, 'A client that names no version gets a document that readers of 1.0 and 0.3 both understand.'),
      h('div', { class: 'frames' }, ...this.cards.map((card, at) => generation(card, this.cards[at - 1], entry.name))),
    ];
  }
}

/** @param {ServedCard} card @param {ServedCard | undefined} before @param {string} name */
function generation(card, before, name) {
  const command = `curl ${quote(`${serverRoot()}agents/${segment(name)}${card.path}`)}${card.generation === '0.1' ? '' : ` -H 'A2A-Version: ${card.generation}'`}`;
  if (card.text === null) return h('section', { class: 'frame', key: card.generation }, h('h2', null, `A2A ${card.generation}`), h('p', { class: 'problem' }, card.why));
  return h('section', { class: 'frame', key: card.generation }, h('h2', null, `A2A ${card.generation} `, copyButton(card.text, `Copy the card of ${card.generation}`)), before?.text ? differences(before, card) : null, h('nuncio-json', { prop: { text: card.text, plain: true } }), commandLine(command));
}

/** @param {ServedCard} before @param {ServedCard} card */
function differences(before, card) {
  const { changes, more } = jsonDiff(parse(before.text ?? ''), parse(card.text ?? ''), 100);
  if (changes.length === 0) return h('p', { class: 'note' }, `The same as ${before.generation}.`);
  const words = { added: '+', removed: '−', changed: '≠' };
  return h('details', null, h('summary', null, `${changes.length}${more ? '+' : ''} differences from ${before.generation}`), h('ul', { class: 'changes' }, ...changes.map(({ path, op }) => h('li', null, `${words[op]} `, h('code', null, path || '/'), ` ${op}`))));
}

/** @param {import('../core/registry.js').ParsedCard} card */
function parsedCard(card) {
  const fact = (/** @type {string} */ name, /** @type {import('../ui/dom.js').Child} */ value) => (value ? h('div', null, h('dt', null, name), h('dd', null, value)) : null);
  return h(
    'div',
    null,
    h('p', { class: 'plain' }, h('strong', null, card.name), card.version && ` · version ${card.version}`),
    h('p', { class: 'plain' }, card.description),
    h('dl', { class: 'facts' }, fact('Provider', card.provider), fact('Takes', card.inputModes.join(', ')), fact('Makes', card.outputModes.join(', ')), fact('Can', card.capabilities.join(', ')), fact('Credentials', card.security.join(', ') || 'none'), fact('Signatures', card.signatures || 'none')),
    card.documentation && partView({ url: card.documentation }),
    h('h3', null, 'Interfaces, in the order of preference'),
    h('ol', null, ...card.interfaces.map((one) => h('li', null, `${one.binding} ${one.version} `, h('code', null, one.url)))),
    card.extensions.length > 0 && h('h3', null, 'Extensions'),
    h('ul', null, ...card.extensions.map((one) => h('li', null, h('code', null, one.uri), one.required && ' required', h('span', { class: 'note' }, ` ${one.description}`)))),
    h('h3', null, 'Skills'),
    skills(card),
  );
}

/** @param {import('../core/registry.js').ParsedCard} card */
function skills({ skills: all }) {
  if (all.length === 0) return h('p', { class: 'note' }, 'The card names none.');
  return h('ul', { class: 'family' }, ...all.map((skill) => h('li', null, h('strong', null, skill.name || skill.id), h('span', { class: 'id' }, skill.id), h('span', { class: 'plain about' }, skill.description), h('span', { class: 'chips' }, ...skill.tags.map((tag) => h('span', { class: 'tag' }, tag))), skill.examples.length > 0 && h('span', { class: 'note about' }, `Such as: ${skill.examples.map((one) => `“${one}”`).join(', ')}`))));
}

/** @param {string} name @param {string} generation @param {string} path @returns {Promise<ServedCard>} */
async function loadCard(name, generation, path) {
  try {
    const response = await fetch(`${serverRoot()}agents/${segment(name)}${path}`, { headers: headers({ 'A2A-Version': generation }), credentials: 'omit', cache: 'no-store', redirect: 'error' });
    const text = await response.text();
    return { generation, path, text: response.ok ? text : null, why: response.ok ? '' : `${response.status} ${text.slice(0, 300)}` };
  } catch {
    return { generation, path, text: null, why: 'the server is unreachable' };
  }
}

/** @param {string} text */
function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

customElements.define('nuncio-agent', NuncioAgent);
