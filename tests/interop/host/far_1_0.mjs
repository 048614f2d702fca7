// An agent made with @a2a-js/sdk 1.3.0, over JSON-RPC, REST and gRPC: counts, waits to be canceled, and asks.
//
//   node far_1_0.mjs PORT FOLDER GRPC_PORT
import { AgentCard, Task, TaskArtifactUpdateEvent, TaskStatusUpdateEvent } from '@a2a-js/sdk';
import { AgentEvent, DefaultRequestHandler, InMemoryTaskStore } from '@a2a-js/sdk/server';
import { UserBuilder, agentCardHandler, jsonRpcHandler, restHandler } from '@a2a-js/sdk/server/express';
import { A2AService, UserBuilder as GrpcUserBuilder, grpcService } from '@a2a-js/sdk/server/grpc';
import { Server, ServerCredentials } from '@grpc/grpc-js';
import express from 'express';

const [port, , grpcPort] = process.argv.slice(2);
const url = `http://127.0.0.1:${port}`;
const interfaces = [['JSONRPC', `${url}/rpc`], ['HTTP+JSON', `${url}/rest`], ['GRPC', `127.0.0.1:${grpcPort}`]];
const card = AgentCard.fromJSON({
  name: 'far', description: 'An agent made with @a2a-js/sdk 1.3.0.', version: '1',
  supportedInterfaces: interfaces.map(([protocolBinding, url]) => ({ url, protocolBinding, protocolVersion: '1.0' })),
  capabilities: { streaming: true }, defaultInputModes: ['text/plain'], defaultOutputModes: ['text/plain'],
  skills: [{ id: 'act', name: 'Act', description: 'Does what it is told.', tags: ['acting'] }],
});

class Executor {
  waiting = new Map();

  async execute(context, bus) {
    const ids = { taskId: context.taskId, contextId: context.contextId };
    const text = context.userMessage.parts.map((part) => part.content?.value ?? '').join('');
    const status = (state) => bus.publish(AgentEvent.statusUpdate(
      TaskStatusUpdateEvent.fromJSON({ ...ids, status: { state: `TASK_STATE_${state}`, timestamp: new Date().toISOString() } })));
    const piece = (text, append) => bus.publish(AgentEvent.artifactUpdate(
      TaskArtifactUpdateEvent.fromJSON({ ...ids, append, artifact: { artifactId: 'text', parts: [{ text }] } })));
    const begun = Task.fromJSON({ id: context.taskId, contextId: context.contextId, status: { state: 'TASK_STATE_WORKING' } });
    // The state of a task that goes on is not the one that it waited in: a caller that does not wait gets this.
    bus.publish(AgentEvent.task({ ...(context.task ?? begun), status: begun.status }));
    status('WORKING');
    const [verb, count] = text.split(' ');
    if (context.task) {
      piece(`to ${text}`, true);
    } else if (verb === 'count') {
      for (let n = 1; n <= Number(count); n += 1) piece(`${n} `, n > 1);
    } else if (verb === 'book') {
      piece('a trip ', false);
      status('INPUT_REQUIRED');
      return bus.finished();
    } else if (verb === 'slow') {
      await new Promise((resolve) => this.waiting.set(context.taskId, resolve));
      status('CANCELED');
      return bus.finished();
    }
    status('COMPLETED');
    bus.finished();
  }

  cancelTask = async (taskId) => this.waiting.get(taskId)?.();
}

const requestHandler = new DefaultRequestHandler(card, new InMemoryTaskStore(), new Executor());
const options = { requestHandler, userBuilder: UserBuilder.noAuthentication };
const app = express();
app.use('/.well-known/agent-card.json', agentCardHandler({ agentCardProvider: requestHandler }));
app.use('/rpc', jsonRpcHandler(options));
app.use('/rest', restHandler(options));
const grpc = new Server();
grpc.addService(A2AService, grpcService({ requestHandler, userBuilder: GrpcUserBuilder.noAuthentication }));
grpc.bindAsync(`127.0.0.1:${grpcPort}`, ServerCredentials.createInsecure(), (error) => {
  if (error) throw error;
  app.listen(Number(port), '127.0.0.1');
});
