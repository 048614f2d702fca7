/**
 * The client of the server's tools and resources: MCP 2026-07-28, one request each, no session. What the console does with
 * plans, batches, workflows and memory any MCP client can do.
 */

import { writeJson } from '../core/json-text.js';
import { SseParser } from '../core/sse.js';
import { ApiError, BASE, headers } from './api.js';
import { context } from './context.js';

const VERSION = '2026-07-28';

/** The address of the server's MCP endpoint. */
export function mcpUrl() {
  return location.origin + BASE.replace(/console\/$/, '') + 'mcp';
}

/** What a request carries beside its own parameters. */
function meta() {
  return {
    'io.modelcontextprotocol/protocolVersion': VERSION,
    'io.modelcontextprotocol/clientInfo': { name: 'nuncio-console', version: context.me?.version ?? '0' },
    'io.modelcontextprotocol/clientCapabilities': {},
  };
}

/** The request of a method as a body, for sending and for showing. @param {string} method @param {{[name: string]: any}} params */
export function mcpBody(method, params) {
  return { jsonrpc: '2.0', id: 1, method, params: { ...params, _meta: { ...meta(), ...params._meta } } };
}

/** @param {string} method @param {{[name: string]: any}} params
 * @param {{signal?: AbortSignal, onNotification?: (message: any) => void, query?: string}} [options] `query`: of the endpoint's address
 * @returns {Promise<any>} the result */
export async function mcpRequest(method, params, { signal, onNotification, query = '' } = {}) {
  const subject = params.name ?? params.uri;
  const sent = headers({
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
    'mcp-protocol-version': VERSION,
    'mcp-method': method,
    ...(subject === undefined ? {} : { 'mcp-name': subject }),
  });
  let response;
  try {
    response = await fetch(mcpUrl() + query, { method: 'POST', headers: sent, body: writeJson(mcpBody(method, params)), credentials: 'omit', cache: 'no-store', redirect: 'error', signal: signal ?? null });
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error;
    throw new ApiError(0, { message: 'the server is unreachable' });
  }
  if (response.status === 401) context.notify('unauthorized');
  const streamed = response.headers.get('content-type')?.startsWith('text/event-stream');
  const message = streamed && response.body ? await lastMessage(response.body.getReader(), onNotification) : await response.json().catch(() => null);
  if (message?.result) return message.result;
  const { data } = message?.error ?? {};
  throw new ApiError(response.ok ? 400 : response.status, { ...data, scope: data?.requiredScope, code: message?.error?.code, message: message?.error?.message });
}

/** The message that ends a stream; those before it are notifications.
 * @param {ReadableStreamDefaultReader<Uint8Array>} reader @param {((message: any) => void) | undefined} onNotification */
async function lastMessage(reader, onNotification) {
  const parser = new SseParser();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new ApiError(0, { message: 'the stream ended before its result' });
    for (const frame of parser.push(value)) {
      if (!frame.data) continue;
      const message = JSON.parse(frame.data);
      if (message.id !== undefined) return message;
      onNotification?.(message);
    }
  }
}

/** Calls a tool and gives its structured result; a result that is an error is thrown with its words.
 * @param {string} name @param {{[name: string]: any}} [args] @param {{signal?: AbortSignal}} [options] @returns {Promise<any>} */
export async function callTool(name, args = {}, options = {}) {
  const result = await mcpRequest('tools/call', { name, arguments: args }, options);
  if (!result.isError) return result.structuredContent ?? result;
  const message = result.content?.find((/** @type {any} */ part) => part.type === 'text')?.text ?? `${name} failed`;
  throw new ApiError(400, { message, code: 'tool_failed', ...result.structuredContent });
}

/** Reads a resource of JSON; `text` is as the server wrote it. @param {string} uri @param {{signal?: AbortSignal}} [options] */
export async function readResource(uri, options = {}) {
  const { contents } = await mcpRequest('resources/read', { uri }, options);
  const [content] = contents;
  const json = content.mimeType?.includes('json');
  return { text: content.text ?? '', value: json ? JSON.parse(content.text) : null, meta: content._meta ?? {}, mimeType: content.mimeType ?? '' };
}
