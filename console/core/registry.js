/**
 * The registry of agents and their cards, read with care: cards of remotes are hostile input, so that every member may be
 * of any type. Pure.
 */

/**
 * @typedef {{name: string, kind: string, status: string, breaker: string, url: string, capabilities: string[], lastSeen: string | null,
 *   lastError: string, latencyMs: number | null, description: string, card: any, serverInfo: any}} AgentEntry
 * @typedef {{id: string, name: string, description: string, tags: string[], examples: string[], modes: string[]}} CardSkill
 * @typedef {{name: string, description: string, version: string, provider: string, documentation: string, capabilities: string[],
 *   extensions: {uri: string, description: string, required: boolean}[], interfaces: {binding: string, version: string, url: string}[],
 *   inputModes: string[], outputModes: string[], skills: CardSkill[], security: string[], signatures: number}} ParsedCard
 */

/** @param {any} registry @returns {AgentEntry[]} by name, those of this server first */
export function readRegistry(registry) {
  const entries = list(registry?.agents).map(readEntry);
  return entries.sort((a, b) => Number(a.kind !== 'local') - Number(b.kind !== 'local') || (a.name < b.name ? -1 : 1));
}

/** @param {any} entry @returns {AgentEntry} */
export function readEntry(entry) {
  const card = isObject(entry?.agentCard) ? entry.agentCard : null;
  return {
    name: text(entry?.agentType),
    kind: text(entry?.kind),
    status: text(entry?.status),
    breaker: text(entry?.breaker),
    url: text(entry?.url),
    capabilities: texts(entry?.capabilities),
    lastSeen: text(entry?.lastSeen) || null,
    lastError: text(entry?.lastError),
    latencyMs: typeof entry?.latencyMs === 'number' ? entry.latencyMs : null,
    description: text(card?.description),
    card,
    serverInfo: isObject(entry?.serverInfo) ? entry.serverInfo : null,
  };
}

/** Whether an agent is reached by a connection that can fail: it is probed. @param {AgentEntry} entry */
export function isProbed(entry) {
  return entry.kind !== 'local' || entry.latencyMs !== null || entry.status !== 'healthy';
}

/** A card of any generation. @param {any} card @returns {ParsedCard} */
export function readCard(card) {
  const source = isObject(card) ? card : {};
  const capabilities = isObject(source.capabilities) ? source.capabilities : {};
  const url = text(source.url);
  const main = url ? [{ binding: text(source.preferredTransport) || 'JSONRPC', version: text(source.protocolVersion), url }] : [];
  const interfaces = [...list(source.supportedInterfaces), ...list(source.additionalInterfaces)].map((one) => ({ binding: text(one?.protocolBinding) || text(one?.transport), version: text(one?.protocolVersion), url: text(one?.url) }));
  return {
    name: text(source.name),
    description: text(source.description),
    version: text(source.version),
    provider: [text(source.provider?.organization), text(source.provider?.url)].filter(Boolean).join(' · '),
    documentation: text(source.documentationUrl),
    capabilities: Object.entries(capabilities).filter(([, value]) => value === true).map(([name]) => name),
    extensions: list(capabilities.extensions).map((one) => ({ uri: text(one?.uri), description: text(one?.description), required: one?.required === true })),
    interfaces: [...main, ...interfaces].filter((one, at, all) => all.findIndex((other) => other.binding === one.binding && other.version === one.version && other.url === one.url) === at),
    inputModes: texts(source.defaultInputModes),
    outputModes: texts(source.defaultOutputModes),
    skills: list(source.skills).map(readSkill),
    security: Object.keys(isObject(source.securitySchemes) ? source.securitySchemes : isObject(source.authentication) ? source.authentication : {}),
    signatures: list(source.signatures).length,
  };
}

/** @param {any} skill @returns {CardSkill} */
function readSkill(skill) {
  return { id: text(skill?.id), name: text(skill?.name), description: text(skill?.description), tags: texts(skill?.tags), examples: texts(skill?.examples), modes: [...texts(skill?.inputModes), ...texts(skill?.outputModes)] };
}

/** Counts by agent and state, from the facets of one page a state. @param {{state: string, agents: any}[]} pages @returns {Map<string, Map<string, number>>} */
export function countsByAgent(pages) {
  /** @type {Map<string, Map<string, number>>} */
  const counts = new Map();
  for (const { state, agents } of pages) {
    for (const [agent, count] of Object.entries(isObject(agents) ? agents : {})) {
      const known = counts.get(agent) ?? new Map();
      counts.set(agent, known.set(state, Number(count)));
    }
  }
  return counts;
}

/** @param {any} value @returns {value is {[key: string]: any}} */
function isObject(value) {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
/** @param {any} value @returns {any[]} */
const list = (value) => (Array.isArray(value) ? value : []);
/** @param {any} value */
const text = (value) => (typeof value === 'string' ? value : '');
/** @param {any} value @returns {string[]} */
const texts = (value) => list(value).filter((one) => typeof one === 'string');
