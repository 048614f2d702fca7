// dialects, answer, registry: what the screens Try and Agents send and read.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { AnswerFold, responseTo } from '../core/answer.js';
import { dialectsOf, followOf, requestCurl, requestOf, requestText, retryOf } from '../core/dialects.js';
import { countsByAgent, isProbed, readCard, readRegistry } from '../core/registry.js';
import { PAYLOADS } from './payloads.mjs';

const CALL = { kind: 'agent', name: 'echo', as: 'a2a-1.0-rest', how: 'stream', value: '{"text":"Hi"}', id: 'm-1', key: 'k-1', client: '1' };

test('a call becomes a request of each dialect, with its value as typed', () => {
  const rest = requestOf(CALL);
  assert.deepEqual([rest.method, rest.path, rest.headers['A2A-Version'], rest.headers['Idempotency-Key']], ['POST', 'agents/echo/message:stream', '1.0', 'k-1']);
  assert.equal(rest.body, '{"message":{"messageId":"m-1","role":"ROLE_USER","parts":[{"text":"Hi"}]}}');
  const big = { ...CALL, value: '{"n": 12345678901234567890}' };
  assert.match(requestOf(big).body, /"parts":\[\{"data":\{"n": 12345678901234567890\}\}\]/);
  assert.match(requestOf({ ...CALL, how: 'background' }).body, /"configuration":\{"returnImmediately":true\}\}$/);
  const rpc = requestOf({ ...CALL, as: 'a2a-1.0-rpc' });
  assert.deepEqual([rpc.path, JSON.parse(rpc.body).method], ['agents/echo', 'SendStreamingMessage']);
  const old = requestOf({ ...CALL, as: 'a2a-0.3-rpc', how: 'background' });
  assert.equal(old.body, '{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"kind":"message","messageId":"m-1","role":"user","parts":[{"kind":"text","text":"Hi"}]},"configuration":{"blocking":false}}}');
  const mcp = requestOf({ ...big, as: 'mcp-2026-07-28' });
  assert.equal(mcp.headers['Mcp-Name'], 'echo');
  assert.match(mcp.body, /"arguments":\{"n": 12345678901234567890\}/);
  assert.equal(JSON.parse(mcp.body).params._meta['nuncio/idempotencyKey'], 'k-1');
  assert.deepEqual(dialectsOf('tool').map(({ as, hows }) => [as, ...hows]), [['mcp-2026-07-28', 'stream']]);
});

test('a task is followed after the last frame, and a question of MCP is answered by the call again', () => {
  assert.deepEqual(followOf(CALL, 'a/b', '7'), { method: 'GET', path: 'agents/echo/tasks/a%2Fb:subscribe', headers: { 'A2A-Version': '1.0', 'Last-Event-ID': '7' }, body: null });
  assert.equal(JSON.parse(followOf({ ...CALL, as: 'a2a-0.3-rpc' }, 't', '').body).method, 'tasks/resubscribe');
  const { params } = JSON.parse(retryOf({ ...CALL, as: 'mcp-2026-07-28' }, 'state', { q1: responseTo({ input: 'elicitation/create' }, 'accept', { a: 1 }) }).body);
  assert.deepEqual([params.requestState, params.inputResponses, params._meta['nuncio/idempotencyKey']], ['state', { q1: { action: 'accept', content: { a: 1 } } }, undefined]);
  assert.equal(responseTo({ input: 'sampling/createMessage' }, 'accept', { text: 'x' }).content.text, 'x');
});

test('a request is shown and copied without its token, and quoted for a shell', () => {
  const request = { ...requestOf({ ...CALL, value: '{"text":"it\'s $HOME"}' }) };
  assert.match(requestText(request, 'http://a.example/base/', true), /^POST \/base\/agents\/echo\/message:stream HTTP\/1.1\nHost: a.example\n.*Authorization: Bearer \$NUNCIO_TOKEN\n\n\{/s);
  const command = requestCurl(request, 'http://a.example/', true);
  assert.ok(command.includes(`"it'\\''s $HOME"`) && command.includes('"Authorization: Bearer $NUNCIO_TOKEN"'), command);
  assert.ok(!requestCurl(request, 'http://a.example/', false).includes('Authorization'));
});

const status = (state, parts) => ({ statusUpdate: { taskId: 't', status: { state, ...(parts && { message: { messageId: `m ${state}`, role: 'ROLE_AGENT', parts } }) } } });

test('frames of A2A 1.0 become an answer that grows', () => {
  const fold = new AnswerFold();
  fold.take({ task: { id: 't', status: { state: 'TASK_STATE_SUBMITTED' }, history: [{ role: 'ROLE_USER', messageId: 'u', parts: [{ text: 'mine' }] }] } }, '1');
  fold.take(status('TASK_STATE_WORKING', [{ text: 'Half' }, { data: { progress: 1, total: 2 } }]), '2');
  fold.take({ artifactUpdate: { artifact: { artifactId: 'a', name: 'Report', parts: [{ text: 'One ' }] } } }, '3');
  fold.take({ artifactUpdate: { append: true, artifact: { artifactId: 'a', parts: [{ text: 'two' }, { raw: 'PGI+', filename: 'b', mediaType: 'text/html' }] } } }, '4');
  fold.take(status('TASK_STATE_INPUT_REQUIRED', [{ text: 'Which?' }, { data: { questionId: 'q' } }]), '5');
  assert.ok(fold.waits && !fold.ended);
  assert.deepEqual(fold.items.map(({ kind, name, parts }) => [kind, name, parts]), [['progress', 'Half', []], ['artifact', 'Report', [{ text: 'One two' }, { bytes: 'PGI+', filename: 'b', media_type: 'text/html' }]]]);
  fold.take(status('TASK_STATE_COMPLETED', [{ text: 'Done' }]), '6');
  assert.deepEqual([fold.taskId, fold.state, fold.cursor, fold.ended, fold.items.at(-1).parts], ['t', 'completed', '6', true, [{ text: 'Done' }]]);
});

test('so do those of 0.3 and MCP, and refusals in every form', () => {
  const old = new AnswerFold();
  old.take({ jsonrpc: '2.0', id: 1, result: { kind: 'task', id: 't', status: { state: 'completed' }, artifacts: [{ artifactId: 'a', parts: [{ kind: 'file', file: { uri: 'https://x.example', name: 'x' } }] }], history: [{ role: 'agent', messageId: 'q', parts: [{ kind: 'data', data: { questionId: 'q1' } }] }] } });
  assert.deepEqual([old.state, old.items.map(({ parts }) => parts[0].url)], ['completed', ['https://x.example']]);
  const mcp = new AnswerFold();
  mcp.take({ method: 'notifications/progress', params: { progress: 1, total: 2, message: 'half' } });
  mcp.take({ id: 1, result: { resultType: 'input_required', requestState: 's', inputRequests: { q: { method: 'elicitation/create', params: { message: 'Which?', requestedSchema: { type: 'object' } } } } } });
  assert.deepEqual([mcp.state, mcp.requestState, mcp.questions[0].ask], ['input-required', 's', { form: { schema: { type: 'object' } } }]);
  mcp.take({ id: 1, error: { code: -32602, message: 'does not fit' } });
  assert.deepEqual([mcp.reopen(), mcp.problem, mcp.waits, mcp.reopen()], ['does not fit (-32602)', null, true, null]);
  mcp.take({ id: 1, result: { resultType: 'complete', content: [{ type: 'text', text: '{"a":1}' }, { type: 'text', text: 'words' }], structuredContent: { a: 1 }, _meta: { 'nuncio/taskId': 't' } } });
  assert.deepEqual([mcp.state, mcp.taskId, mcp.questions, mcp.items.at(-1).parts], ['completed', 't', [], [{ text: 'words' }, { data: { a: 1 } }]]);
  for (const [message, words] of [[{ error: { code: 404, message: 'no agent' } }, 'no agent (404)'], [{ jsonrpc: '2.0', error: { code: -32602, message: 'bad' } }, 'bad (-32602)'], [{ result: { resultType: 'complete', isError: true, content: [{ type: 'text', text: 'does not fit' }] } }, 'does not fit'], [{ error: 'x' }, 'The request was refused']]) {
    const fold = new AnswerFold();
    fold.take(message);
    assert.deepEqual([fold.problem, fold.ended], [words, true]);
  }
});

test('answers, registries and cards of any shape are read without an exception', () => {
  const shapes = [null, true, 1, 'x', [], [null], {}, { name: {} }, ...PAYLOADS.slice(0, 5)];
  const members = ['task', 'message', 'statusUpdate', 'artifactUpdate', 'result', 'error', 'method', 'params', 'content', 'resultType', 'inputRequests'];
  for (const shape of shapes) {
    for (const member of members) new AnswerFold().take({ [member]: shape });
    for (const member of members) new AnswerFold().take({ result: { resultType: 'input_required', kind: 'task', [member]: shape, inputRequests: { q: shape }, status: shape, artifacts: [shape], history: [shape] } });
    for (const member of ['skills', 'capabilities', 'supportedInterfaces', 'provider', 'url', 'signatures', 'securitySchemes']) readCard({ [member]: shape, skills: [shape] });
    assert.ok(Array.isArray(readRegistry({ agents: [shape] })) && Array.isArray(readRegistry(shape)));
  }
});

test('a registry has agents of this server first, and a card of any generation the same facts', () => {
  const entries = readRegistry({ agents: [{ agentType: 'z', kind: 'a2a', status: 'healthy', latencyMs: 1 }, { agentType: 'b', kind: 'local', status: 'healthy', agentCard: { description: 'B' } }, { agentType: 'a', kind: 'local', status: 'healthy', latencyMs: 2.5 }] });
  assert.deepEqual(entries.map((entry) => [entry.name, isProbed(entry), entry.description]), [['a', true, ''], ['b', false, 'B'], ['z', true, '']]);
  const old = readCard({ url: 'http://a.example', protocolVersion: '0.3.0', preferredTransport: 'JSONRPC', additionalInterfaces: [{ transport: 'HTTP+JSON', url: 'http://a.example' }], capabilities: { streaming: true, pushNotifications: false } });
  assert.deepEqual([old.interfaces.map(({ binding }) => binding), old.capabilities], [['JSONRPC', 'HTTP+JSON'], ['streaming']]);
  assert.deepEqual([...countsByAgent([{ state: 'failed', agents: { echo: 2 } }, { state: 'completed', agents: { echo: 3, far: 1 } }]).get('echo')], [['failed', 2], ['completed', 3]]);
});
