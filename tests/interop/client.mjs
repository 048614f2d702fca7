// The official JavaScript client of A2A 1.0 (@a2a-js/sdk), over JSON-RPC, REST and gRPC; it finds the agent by its card
// alone.
//
//   node client.mjs URL
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import {
  CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, GetTaskPushNotificationConfigRequest, GetTaskRequest,
  ListTaskPushNotificationConfigsRequest, ListTasksRequest, SendMessageRequest, SubscribeToTaskRequest,
  TaskPushNotificationConfig, TaskState,
} from '@a2a-js/sdk';
import { ClientFactory, JsonRpcTransportFactory, RestTransportFactory } from '@a2a-js/sdk/client';
import { GrpcTransportFactory } from '@a2a-js/sdk/client/grpc';

const [url] = process.argv.slice(2);
const TRANSPORTS = { JSONRPC: JsonRpcTransportFactory, 'HTTP+JSON': RestTransportFactory, GRPC: GrpcTransportFactory };

const message = (parts, more = {}) => ({ messageId: randomUUID(), role: 'ROLE_USER', parts, ...more });
const request = (parts, more, configuration) =>
  SendMessageRequest.fromJSON({ message: message(parts, more), ...(configuration && { configuration }) });
const collect = async (events) => {
  const all = [];
  for await (const event of events) all.push(event);
  return all;
};
const caseOf = (event) => event.payload.$case;
const refused = async (attempt, name) => {
  await assert.rejects(attempt, (error) => {
    assert.equal(error.name, name, `${error.name}: ${error.message}`);
    return true;
  });
};

const stories = {
  async sends_gets_and_lists(client) {
    const task = await client.sendMessage(request([{ text: 'hello' }]));
    assert.equal(task.status.state, TaskState.TASK_STATE_COMPLETED);
    assert.equal(task.artifacts[0].parts[0].content.value, 'hello');
    const got = await client.getTask(GetTaskRequest.fromJSON({ id: task.id, historyLength: 0 }));
    assert.deepEqual([got.id, got.history], [task.id, []]);
    const listed = await client.listTasks(ListTasksRequest.fromJSON({ contextId: task.contextId, status: 'TASK_STATE_COMPLETED', includeArtifacts: true, pageSize: 5 }));
    assert.deepEqual([listed.tasks.length, listed.totalSize], [1, 1]);
  },

  async streams(client) {
    const events = await collect(client.sendMessageStream(request([{ text: 'hello' }])));
    assert.deepEqual(events.map(caseOf), ['task', 'statusUpdate', 'artifactUpdate', 'statusUpdate']);
  },

  async asks_and_takes_the_answer(_, at) {
    const client = await at('/agents/travel_agent');
    const asked = await client.sendMessage(request([{ text: 'Rome' }]));
    assert.equal(asked.status.state, TaskState.TASK_STATE_INPUT_REQUIRED);
    const done = await client.sendMessage(request([{ data: { confirm: true } }], { taskId: asked.id }));
    assert.equal(done.status.state, TaskState.TASK_STATE_COMPLETED);
  },

  async subscribes_and_cancels(_, at) {
    const client = await at('/agents/long_running_agent');
    const task = await client.sendMessage(request([{ text: 'go' }], {}, { returnImmediately: true }));
    const events = client.resubscribeTask(SubscribeToTaskRequest.fromJSON({ id: task.id }));
    const first = await events.next();
    assert.equal(caseOf(first.value), 'task');
    const canceled = await client.cancelTask(CancelTaskRequest.fromJSON({ id: task.id }));
    assert.equal(canceled.status.state, TaskState.TASK_STATE_CANCELED);
    await collect(events);
    await refused(() => client.cancelTask(CancelTaskRequest.fromJSON({ id: task.id })), 'TaskNotCancelableError');
    await refused(() => collect(client.resubscribeTask(SubscribeToTaskRequest.fromJSON({ id: task.id }))), 'UnsupportedOperationError');
  },

  async an_unknown_task_is_an_error_with_a_name(client) {
    for (const id of ['no-such-task', 'a/b:c']) {
      await refused(() => client.getTask(GetTaskRequest.fromJSON({ id })), 'TaskNotFoundError');
    }
    const reply = request([{ text: 'x' }], { taskId: 'no-such-task' });
    await refused(() => collect(client.sendMessageStream(reply)), 'TaskNotFoundError');
  },

  async sets_webhooks(_, at) {
    const client = await at('/agents/travel_agent');
    const task = await client.sendMessage(request([{ text: 'Oslo' }]));
    const config = { taskId: task.id, id: 'a/b', url: 'https://example.com/hook' };
    const set = await client.createTaskPushNotificationConfig(TaskPushNotificationConfig.fromJSON(config));
    assert.deepEqual([set.taskId, set.id], [task.id, 'a/b']);
    const one = { taskId: task.id, id: 'a/b' };
    const got = await client.getTaskPushNotificationConfig(GetTaskPushNotificationConfigRequest.fromJSON(one));
    assert.equal(got.url, config.url);
    await client.deleteTaskPushNotificationConfig(DeleteTaskPushNotificationConfigRequest.fromJSON(one));
    const rest = await client.listTaskPushNotificationConfig(ListTaskPushNotificationConfigsRequest.fromJSON({ taskId: task.id }));
    assert.deepEqual(rest.configs, []);
  },
};

let [passed, failed] = [0, 0];
for (const [binding, Transport] of Object.entries(TRANSPORTS)) {
  const factory = new ClientFactory({ transports: [new Transport()] });
  const at = (path) => factory.createFromUrl(url, `${path}/.well-known/agent-card.json`);
  for (const [name, story] of Object.entries(stories)) {
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
