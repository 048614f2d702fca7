/**
 * Sending a message to an agent: a new task in the caller's name, over A2A 1.0. The first message of a task can be sent again;
 * the old task stays as it is.
 */

import { ApiError, BASE, headers, segment } from './api.js';

/** A stored part in the form of A2A 1.0. @param {any} part */
export function wirePart(part) {
  const { text, data, url, bytes, media_type: mediaType, filename, metadata } = part;
  const content = text !== undefined ? { text } : url !== undefined ? { url } : bytes !== undefined ? { raw: bytes } : { data };
  return { ...content, ...(mediaType === undefined ? {} : { mediaType }), ...(filename === undefined ? {} : { filename }), ...(metadata === undefined ? {} : { metadata }) };
}

/** @param {string} agent @param {any} message the stored message that created the task @returns {Promise<string>} the id of the new task */
export function sendAgain(agent, message) {
  return sendMessage(agent, { parts: message.parts.map(wirePart), ...(message.metadata === undefined ? {} : { metadata: message.metadata }) });
}

/** @param {string} agent @param {{parts: any[], metadata?: any}} content in the form of A2A 1.0 @returns {Promise<string>} the id of the new task */
export async function sendMessage(agent, content) {
  const body = {
    message: { messageId: crypto.randomUUID(), role: 'ROLE_USER', ...content },
    configuration: { returnImmediately: true },
  };
  const url = `${BASE.replace(/console\/$/, '')}agents/${segment(agent)}/message:send`;
  const sent = headers({ 'content-type': 'application/json', 'a2a-version': '1.0' });
  let response;
  try {
    response = await fetch(url, { method: 'POST', headers: sent, body: JSON.stringify(body), credentials: 'omit', cache: 'no-store', redirect: 'error' });
  } catch {
    throw new ApiError(0, { message: 'the server is unreachable' });
  }
  const answer = await response.json().catch(() => null);
  const id = answer?.task?.id;
  if (response.ok && typeof id === 'string') return id;
  throw new ApiError(response.status, { message: answer?.error?.message ?? 'the agent answered without a task' });
}
