// The official JavaScript client of A2A 0.3 (@a2a-js/sdk 0.3), over the bindings that are named; it finds the agent by
// its card alone.
//
//   node client_0_3.mjs URL BINDING…
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { ClientFactory, JsonRpcTransportFactory, RestTransportFactory } from '@a2a-js/sdk/client';
import { GrpcTransportFactory } from '@a2a-js/sdk/client/grpc';

const [url, ...bindings] = process.argv.slice(2);
const TRANSPORTS = { JSONRPC: JsonRpcTransportFactory, 'HTTP+JSON': RestTransportFactory, GRPC: GrpcTransportFactory };

const request = (parts, more = {}, configuration = { blocking: true }) =>
  ({ message: { kind: 'message', messageId: randomUUID(), role: 'user', parts, ...more }, configuration });
const said = (text) => [{ kind: 'text', text }];
const collect = async (events) => {
  const all = [];
  for await (const event of events) all.push(event);
  return all;
};

const stories = {
  async sends_and_gets(client) {
    const task = await client.sendMessage(request(said('hello')));
    assert.equal(task.status.state, 'completed');
    assert.equal(task.artifacts[0].parts[0].text, 'hello');
    const got = await client.getTask({ id: task.id, historyLength: 1 });
    assert.deepEqual([got.id, got.status.state], [task.id, 'completed']);
  },

  async streams(client) {
    const events = await collect(client.sendMessageStream(request(said('hello'))));
    assert.deepEqual(events.map((event) => event.kind), ['task', 'status-update', 'artifact-update', 'status-update']);
    assert.equal(events.at(-1).status.state, 'completed');
  },

  async asks_and_takes_the_answer(_, at) {
    const client = await at('/agents/travel_agent');
    const asked = await client.sendMessage(request(said('Rome')));
    assert.equal(asked.status.state, 'input-required');
    const answer = [{ kind: 'data', data: { confirm: true } }];
    const done = await client.sendMessage(request(answer, { taskId: asked.id, contextId: asked.contextId }));
    assert.equal(done.status.state, 'completed');
  },

  async cancels(_, at) {
    const client = await at('/agents/long_running_agent');
    const task = await client.sendMessage(request(said('go'), {}, { blocking: false }));
    const canceled = await client.cancelTask({ id: task.id });
    assert.equal(canceled.status.state, 'canceled');
    await assert.rejects(() => client.cancelTask({ id: task.id }));
  },

  async an_unknown_task_is_an_error(client) {
    await assert.rejects(() => client.getTask({ id: 'no-such-task' }), /not found|no task|no such/i);
  },
};

let [passed, failed] = [0, 0];
for (const binding of bindings) {
  const factory = new ClientFactory({ transports: [new TRANSPORTS[binding]()] });
  const at = (path) => factory.createFromUrl(url, `${path}/.well-known/agent-card.json`);
  for (const [name, story] of Object.entries(stories)) {
    // Over gRPC 0.3 has nothing that names an agent: a server has its default one there.
    if (binding === 'GRPC' && story.length > 1) continue;
    try {
      await story(await at(''), at);
      passed += 1;
      console.log(`ok      ${name} (${binding})`);
    } catch (error) {
      failed += 1;
      console.log(`FAILED  ${name} (${binding})\n${error.stack}`);
    }
  }
}
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
