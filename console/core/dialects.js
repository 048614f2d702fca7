/**
 * Requests that call an agent or a tool, in the protocols that the screen Try speaks: first, and to go on with the task or
 * the question that came of it. A request is data: it is sent, shown and copied as the same bytes. Pure.
 */

import { RawJson, writeJson } from './json-text.js';

/**
 * @typedef {'a2a-1.0-rest' | 'a2a-1.0-rpc' | 'a2a-0.3-rpc' | 'mcp-2026-07-28'} DialectName
 * @typedef {'stream' | 'wait' | 'background'} How
 * @typedef {{kind: 'agent' | 'tool', name: string, as: DialectName, how: How, value: string, id: string, key: string, client: string}} Call
 *   `value`: the arguments as JSON text; `id`: of the message; `key`: of idempotency, '' for none; `client`: the console's version
 * @typedef {{method: string, path: string, headers: {[name: string]: string}, body: string | null}} WireRequest `path` is below the server's root
 */

/** @type {{as: DialectName, label: string, hows: How[]}[]} */
export const DIALECTS = [
  { as: 'a2a-1.0-rest', label: 'A2A 1.0, REST', hows: ['stream', 'wait', 'background'] },
  { as: 'a2a-1.0-rpc', label: 'A2A 1.0, JSON-RPC', hows: ['stream', 'wait', 'background'] },
  { as: 'a2a-0.3-rpc', label: 'A2A 0.3, JSON-RPC', hows: ['stream', 'wait', 'background'] },
  { as: 'mcp-2026-07-28', label: 'MCP 2026-07-28', hows: ['stream', 'background'] },
];

/** The dialects of a target: a plain tool is called by MCP only. @param {'agent' | 'tool'} kind */
export function dialectsOf(kind) {
  return kind === 'agent' ? DIALECTS : DIALECTS.filter(({ as }) => isMcp(as)).map((dialect) => ({ ...dialect, hows: /** @type {How[]} */ (['stream']) }));
}

/** @param {DialectName} as */
export function isMcp(as) {
  return as.startsWith('mcp');
}

/** The value as the parts of an A2A message, by the server's own rule for arguments of MCP: a text alone is a text part.
 * @param {string} value @param {DialectName} as */
function partsOf(value, as) {
  const kind = (/** @type {string} */ name) => (as === 'a2a-0.3-rpc' ? { kind: name } : {});
  const parsed = JSON.parse(value);
  const names = typeof parsed === 'object' && parsed !== null ? Object.keys(parsed) : [];
  if (names.length === 1 && typeof parsed.text === 'string') return [{ ...kind('text'), text: parsed.text }];
  return [{ ...kind('data'), data: new RawJson(value) }];
}

/** @param {Call} call @returns {WireRequest} */
export function requestOf(call) {
  if (isMcp(call.as)) return mcpCall(call, {}, call.key);
  const { as, how } = call;
  const old = as === 'a2a-0.3-rpc';
  const message = { ...(old ? { kind: 'message' } : {}), messageId: call.id, role: old ? 'user' : 'ROLE_USER', parts: partsOf(call.value, as) };
  const waits = old ? { blocking: how === 'wait' } : how === 'background' ? { returnImmediately: true } : undefined;
  const params = { message, configuration: how === 'stream' ? undefined : waits };
  const streams = how === 'stream';
  const headers = { ...(call.key ? { 'Idempotency-Key': call.key } : {}) };
  if (as === 'a2a-1.0-rest') return a2a(call, `/message:${streams ? 'stream' : 'send'}`, headers, params);
  const method = old ? `message/${streams ? 'stream' : 'send'}` : streams ? 'SendStreamingMessage' : 'SendMessage';
  return a2a(call, '', headers, { jsonrpc: '2.0', id: 1, method, params });
}

/** The stream of a task after a cursor. @param {Call} call @param {string} task @param {string} cursor @returns {WireRequest} */
export function followOf(call, task, cursor) {
  /** @type {{[name: string]: string}} */
  const headers = cursor ? { 'Last-Event-ID': cursor } : {};
  if (call.as === 'a2a-1.0-rest') return { ...a2a(call, `/tasks/${encodeURIComponent(task)}:subscribe`, headers, null), method: 'GET' };
  const method = call.as === 'a2a-0.3-rpc' ? 'tasks/resubscribe' : 'SubscribeToTask';
  return a2a(call, '', headers, { jsonrpc: '2.0', id: 2, method, params: { id: task } });
}

/** The call of MCP again, with answers to its questions. @param {Call} call @param {string} requestState @param {{[id: string]: any}} inputResponses */
export function retryOf(call, requestState, inputResponses) {
  return mcpCall(call, { requestState, inputResponses }, '');
}

/** @param {Call} call @param {string} rest of the path @param {{[name: string]: string}} headers @param {any} body @returns {WireRequest} */
function a2a(call, rest, headers, body) {
  const version = call.as === 'a2a-0.3-rpc' ? '0.3' : '1.0';
  /** @type {{[name: string]: string}} */
  const content = body === null ? {} : { 'Content-Type': 'application/json' };
  return { method: 'POST', path: `agents/${encodeURIComponent(call.name)}${rest}`, headers: { 'A2A-Version': version, ...content, ...headers }, body: body === null ? null : writeJson(body) };
}

/** @param {Call} call @param {{[name: string]: any}} more @param {string} key @returns {WireRequest} */
function mcpCall(call, more, key) {
  const method = 'tools/call';
  const meta = {
    'io.modelcontextprotocol/protocolVersion': '2026-07-28',
    'io.modelcontextprotocol/clientInfo': { name: 'nuncio-console', version: call.client },
    'io.modelcontextprotocol/clientCapabilities': { elicitation: { form: {}, url: {} }, sampling: {} },
    ...(call.how === 'background' ? { 'nuncio/background': true } : { progressToken: call.id }),
    ...(key ? { 'nuncio/idempotencyKey': key } : {}),
  };
  const headers = { 'Content-Type': 'application/json', Accept: 'application/json, text/event-stream', 'MCP-Protocol-Version': '2026-07-28', 'Mcp-Method': method, 'Mcp-Name': call.name };
  return { method: 'POST', path: 'mcp', headers, body: writeJson({ jsonrpc: '2.0', id: 1, method, params: { name: call.name, arguments: new RawJson(call.value), ...more, _meta: meta } }) };
}

/** The request as it is on the wire. The token is named, never shown.
 * @param {WireRequest} request @param {string} root @param {boolean} withToken */
export function requestText(request, root, withToken) {
  const url = new URL(request.path, root);
  const lines = [`${request.method} ${url.pathname}${url.search} HTTP/1.1`, `Host: ${url.host}`, ...Object.entries(request.headers).map(([name, value]) => `${name}: ${value}`)];
  if (withToken) lines.push('Authorization: Bearer $NUNCIO_TOKEN');
  return `${lines.join('\n')}\n\n${request.body ?? ''}`;
}

/** The same request as a command. @param {WireRequest} request @param {string} root @param {boolean} withToken */
export function requestCurl(request, root, withToken) {
  const quote = (/** @type {string} */ text) => `'${text.replaceAll("'", "'\\''")}'`;
  const words = [`curl -N ${quote(new URL(request.path, root).href)}`, ...Object.entries(request.headers).map(([name, value]) => `-H ${quote(`${name}: ${value}`)}`)];
  if (withToken) words.push('-H "Authorization: Bearer $NUNCIO_TOKEN"');
  if (request.body !== null) words.push(`--data-binary ${quote(request.body)}`);
  return words.join(' ');
}
