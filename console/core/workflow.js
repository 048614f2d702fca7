/**
 * A SPARC workflow as the screen shows it: phases in their order, versions of artifacts, what an address selects. Pure.
 */

/**
 * @typedef {'specification' | 'pseudocode' | 'architecture' | 'refinement' | 'completion'} Phase
 * @typedef {{phase: Phase, version: number, uri: string, created: string, by: {caller: string, agent: string | null, task: string | null}, size: number, passed: boolean}} ArtifactNote
 */

/** @type {Phase[]} */
export const PHASES = ['specification', 'pseudocode', 'architecture', 'refinement', 'completion'];

/** The state of each phase by what a list tells: those before the current one have passed, those after it are pending.
 * @param {{currentPhase: string, status: string}} summary @returns {{phase: Phase, status: string}[]} */
export function phaseStates({ currentPhase, status }) {
  const current = PHASES.indexOf(/** @type {Phase} */ (currentPhase));
  return PHASES.map((phase, at) => ({ phase, status: at < current ? 'passed' : at === current ? status : 'pending' }));
}

/** The phases that a workflow can go back to. @param {string} current @returns {Phase[]} */
export function earlierPhases(current) {
  return PHASES.slice(0, Math.max(0, PHASES.indexOf(/** @type {Phase} */ (current))));
}

/** The versions of a phase's artifact, newest first. @param {ArtifactNote[]} artifacts @param {string} phase */
export function versionsOf(artifacts, phase) {
  return artifacts.filter((note) => note.phase === phase).sort((a, b) => b.version - a.version);
}

/** What the address selects: one version, or two that are compared; the newest by default.
 * @param {string} search @param {ArtifactNote[]} versions newest first @returns {{version: number, compare: number}} 0: none */
export function selectedVersions(search, versions) {
  const query = new URLSearchParams(search);
  const known = (/** @type {string} */ name) => versions.find((note) => String(note.version) === query.get(name))?.version ?? 0;
  return { version: known('version') || (versions[0]?.version ?? 0), compare: known('compare') };
}

/** The tasks that worked on a workflow, as its artifacts and its history name them.
 * @param {{task: string | null}[]} actors @returns {Set<string>} */
export function tasksOf(actors) {
  return new Set(actors.flatMap(({ task }) => (task ? [task] : [])));
}

/** @param {string} id */
export function workflowUri(id) {
  return `sparc://workflow/${encodeURIComponent(id).replaceAll(/[!'()*]/g, (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`)}`;
}

/** The address of a workflow below the console's base. A path cannot hold `.` and `..`, so these are in the query.
 * @param {string} id @param {string} [tab] @param {{[name: string]: string | number}} [query] */
export function workflowPath(id, tab = '', query = {}) {
  const search = new URLSearchParams(Object.entries(query).filter(([, value]) => value).map(([name, value]) => [name, String(value)]));
  const hidden = id === '.' || id === '..';
  if (hidden) search.set('id', id);
  if (hidden && tab) search.set('tab', tab);
  const written = search.toString();
  return `sparc${hidden ? '' : `/${encodeURIComponent(id)}${tab ? `/${tab}` : ''}`}${written ? `?${written}` : ''}`;
}
