/**
 * What this server offers to call: its agents, by its list of agents, and the tools of MCP, page by page. An agent is a tool
 * as well, which has its input schema.
 */

import { ApiError, headers } from './api.js';
import { serverRoot } from './exchange.js';
import { mcpRequest } from './mcp.js';

/**
 * @typedef {{kind: 'agent' | 'tool', name: string, title: string, description: string, schema: any, takesKey: boolean}} Target
 * @typedef {{targets: Target[], problem: unknown}} Catalog `problem`: why the tools are not listed
 */

const MAX_PAGES = 100;
const FREE_TEXT = { type: 'object', required: ['text'], properties: { text: { type: 'string', title: 'Message', minLength: 1, maxLength: 1_000_000 } } };

/** @returns {Promise<Catalog>} */
export async function loadCatalog() {
  const [agents, { tools, problem }] = await Promise.all([loadAgents(), loadTools().then((tools) => ({ tools, problem: null }), (problem) => ({ tools: [], problem }))]);
  const byName = new Map(tools.map((tool) => [text(tool.name), tool]));
  const names = new Set(agents.map((agent) => text(agent.name)));
  /** @type {Target[]} */
  const targets = agents.map((agent) => target('agent', agent, byName.get(text(agent.name))));
  for (const tool of tools) if (!names.has(text(tool.name))) targets.push(target('tool', tool, tool));
  return { targets, problem };
}

/** @param {'agent' | 'tool'} kind @param {any} listed @param {any} tool @returns {Target} */
function target(kind, listed, tool) {
  const schema = tool?.inputSchema ?? null;
  return {
    kind,
    name: text(listed.name),
    title: text(tool?.title),
    description: text(listed.description),
    schema: kind === 'agent' && isFreeText(schema) ? freeText(schema) : (schema ?? FREE_TEXT),
    takesKey: kind === 'agent' || tool?._meta?.['nuncio/idempotencyKey'] === true,
  };
}

/** Whether an agent takes a message in words and describes nothing else. @param {any} schema */
function isFreeText(schema) {
  const names = Object.keys(schema?.properties ?? {});
  return schema === null || (names.length === 1 && schema.properties.text?.type === 'string');
}

/** A message box, with the agent's own words about it. @param {any} schema */
function freeText(schema) {
  const description = text(schema?.properties?.text?.description);
  return { ...FREE_TEXT, properties: { text: { ...FREE_TEXT.properties.text, description } } };
}

/** @returns {Promise<any[]>} */
async function loadAgents() {
  const response = await fetch(serverRoot(), { headers: headers({ accept: 'application/json' }), credentials: 'omit', cache: 'no-store', redirect: 'error' }).catch(() => {
    throw new ApiError(0, { message: 'the server is unreachable' });
  });
  const body = await response.json().catch(() => null);
  if (!response.ok) throw new ApiError(response.status, body?.error);
  return Array.isArray(body?.agents) ? body.agents : [];
}

/** @returns {Promise<any[]>} */
async function loadTools() {
  /** @type {any[]} */
  const tools = [];
  let cursor;
  for (let page = 0; page < MAX_PAGES; page += 1) {
    // All of them, whichever the operator chose for the lists of other clients.
    const result = await mcpRequest('tools/list', cursor === undefined ? {} : { cursor }, { query: '?tools=all' });
    tools.push(...result.tools);
    cursor = result.nextCursor;
    if (cursor === undefined) break;
  }
  return tools;
}

/** @param {any} value */
const text = (value) => (typeof value === 'string' ? value : '');
