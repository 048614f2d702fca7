/**
 * The versions of a phase's artifact: one with its verdict, or any two beside each other. Every submitted artifact is kept,
 * those that the gate refused too. The address says which are shown.
 */

import { indentJson, memberText, offsetOf } from '../core/json-text.js';
import { selectedVersions, versionsOf, workflowPath } from '../core/workflow.js';
import { segment } from '../ui/api.js';
import { context, link } from '../ui/context.js';
import { h } from '../ui/dom.js';
import { ConsoleElement } from '../ui/element.js';
import { readResource } from '../ui/mcp.js';
import { bytes, loading, problem, stateMark, time } from '../ui/parts.js';
import '../ui/diff-view.js';
import '../ui/json-view.js';
import { verdictView } from './workflow-verdict.js';

/** @typedef {{text: string, gate: any}} Artifact `text`: the content as the server wrote it */

class NuncioArtifact extends ConsoleElement {
  workflowId = '';
  phase = '';
  search = '';
  /** @type {import('../core/workflow.js').ArtifactNote[]} */
  artifacts = [];
  /** Artifacts never change. @type {Map<string, Artifact>} */
  read = new Map();
  /** @type {Set<string>} */
  asked = new Set();
  /** @type {unknown} */
  error = null;

  /** @param {string} uri */
  async load(uri) {
    if (this.asked.has(uri)) return;
    this.asked.add(uri);
    try {
      const { text, value } = await readResource(uri);
      this.read.set(uri, { text: indentJson(memberText(text, 'content') ?? 'null'), gate: value.gate });
      this.error = null;
    } catch (error) {
      this.asked.delete(uri);
      this.error = error;
    }
    this.changed();
  }

  /** Opens the artifact at the place that a violation names. @param {string} path */
  showPlace(path) {
    const viewer = /** @type {any} */ (this.querySelector('nuncio-json'));
    if (!viewer) return;
    const at = offsetOf(new TextEncoder().encode(viewer.text), path);
    if (at >= 0) viewer.reveal(at);
  }

  view() {
    const versions = versionsOf(this.artifacts, this.phase);
    if (versions.length === 0) return h('p', { class: 'note' }, 'No artifact was submitted yet.');
    const { version, compare } = selectedVersions(this.search, versions);
    const note = (/** @type {number} */ number) => versions.find((one) => one.version === number);
    const [shown, other] = [note(version), note(compare)];
    return [
      h('h2', null, `Artifact, ${versions.length} ${versions.length === 1 ? 'version' : 'versions'}`),
      this.chooser(versions, version, compare),
      h('ul', { class: 'records versions' }, ...versions.map((one) => this.row(one, one.version === version))),
      h('div', { key: 'error' }, this.error ? problem(this.error, () => ((this.error = null), this.update())) : null),
      other && shown ? this.difference(other, shown) : shown ? this.one(shown) : null,
    ];
  }

  /** @param {import('../core/workflow.js').ArtifactNote[]} versions @param {number} version @param {number} compare */
  chooser(versions, version, compare) {
    if (versions.length < 2) return null;
    const go = (/** @type {{version: number, compare: number}} */ next) => context.go(workflowPath(this.workflowId, this.phase, next));
    const options = (/** @type {number} */ chosen) => versions.map((one) => h('option', { value: one.version, selected: one.version === chosen }, `version ${one.version}, ${one.passed ? 'passed' : 'refused'}`));
    return h(
      'p',
      { class: 'bar' },
      h('label', null, 'Show ', h('select', { onchange: (/** @type {any} */ event) => go({ version: Number(event.target.value), compare }), prop: { value: String(version) } }, ...options(version))),
      h('label', null, ' compared with ', h('select', { onchange: (/** @type {any} */ event) => go({ version, compare: Number(event.target.value) }), prop: { value: String(compare) } }, h('option', { value: 0, selected: compare === 0 }, 'none'), ...options(compare))),
    );
  }

  /** @param {import('../core/workflow.js').ArtifactNote} note @param {boolean} isShown */
  row(note, isShown) {
    const { by } = note;
    return h(
      'li',
      { key: note.version },
      h('a', { href: link(workflowPath(this.workflowId, this.phase, { version: note.version })), 'aria-current': isShown ? 'true' : null }, `Version ${note.version}`),
      stateMark(note.passed ? 'passed' : 'refused'),
      h('span', null, 'by ', by.agent ? `${by.agent} for ${by.caller}` : by.caller),
      by.task && h('a', { href: link(`tasks/${segment(by.task)}`) }, 'task'),
      h('span', { class: 'note' }, bytes(note.size)),
      time(note.created),
    );
  }

  /** @param {import('../core/workflow.js').ArtifactNote} note */
  one(note) {
    const artifact = this.read.get(note.uri);
    if (!artifact) {
      if (!this.error) void this.load(note.uri);
      return this.error ? null : loading('the artifact');
    }
    return h('div', { key: `version ${note.version}` }, verdictView(artifact.gate, (path) => this.showPlace(path), `version ${note.version}`), h('nuncio-json', { prop: { text: artifact.text } }));
  }

  /** @param {import('../core/workflow.js').ArtifactNote} before @param {import('../core/workflow.js').ArtifactNote} after */
  difference(before, after) {
    const [left, right] = [before, after].map((note) => {
      const artifact = this.read.get(note.uri);
      if (!artifact && !this.error) void this.load(note.uri);
      return artifact;
    });
    if (!left || !right) return this.error ? null : loading('both versions');
    return h('nuncio-diff', { key: `${before.version} ${after.version}`, prop: { left: left.text, right: right.text, names: [`version ${before.version}`, `version ${after.version}`] } });
  }
}

customElements.define('nuncio-artifact', NuncioArtifact);
