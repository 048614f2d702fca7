// A server made with the official TypeScript SDK (1.x): `server.mjs stdio | http PORT`.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";

import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { isInitializeRequest } from "@modelcontextprotocol/sdk/types.js";
import { z } from "zod";

const text = (said) => ({ content: [{ type: "text", text: said }] });

function server() {
  const server = new McpServer({ name: "typescript-v1", version: "1" }, { capabilities: { logging: {} } });
  server.registerTool("add", {
    description: "Adds two numbers.",
    inputSchema: { a: z.number(), b: z.number() },
    outputSchema: { sum: z.number() },
  }, ({ a, b }) => ({ ...text(JSON.stringify({ sum: a + b })), structuredContent: { sum: a + b } }));
  server.registerTool("picture", { description: "A picture, as far as anybody can tell." }, () => ({
    content: [{ type: "image", data: "YWJj", mimeType: "image/png" }],
  }));
  server.registerTool("fail", { description: "Always fails." }, () => {
    throw new Error("for a reason");
  });
  server.registerTool("tell", {
    description: "Tells how far it is; in the middle of it, it may let go of the stream.",
    inputSchema: { count: z.number(), let_go: z.boolean().optional() },
  }, async ({ count, let_go }, extra) => {
    for (let step = 1; step <= count; step++) {
      const params = { progressToken: extra._meta.progressToken, progress: step, total: count };
      await extra.sendNotification({ method: "notifications/progress", params });
      if (let_go && step === Math.floor(count / 2)) {
        extra.closeSSEStream?.();
        await sleep(200);
      }
    }
    return text(`told ${count}`);
  });
  server.registerTool("greet", { description: "Greets whoever says their name." }, async (extra) => {
    const schema = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };
    const request = {
      method: "elicitation/create",
      params: { mode: "form", message: "Who are you?", requestedSchema: schema },
    };
    const said = await extra.sendRequest(request, z.object({ action: z.string(), content: z.any().optional() }));
    return text(said.action === "accept" ? `Hello, ${said.content.name}.` : `Hello, whoever (${said.action}).`);
  });
  server.registerTool("sample", { description: "What the caller's model says." }, async (extra) => {
    const messages = [{ role: "user", content: { type: "text", text: "Say something." } }];
    const params = { messages, systemPrompt: "Be brief.", maxTokens: 50 };
    const said = await extra.sendRequest({ method: "sampling/createMessage", params }, z.object({ content: z.any() }));
    return text(said.content.text);
  });
  return server;
}

// The events of all streams, in memory: what lets the SDK take up a stream again.
class Events {
  events = [];

  async storeEvent(stream, message) {
    this.events.push([stream, message]);
    return String(this.events.length);
  }

  async replayEventsAfter(last, { send }) {
    const stream = this.events[Number(last) - 1]?.[0];
    for (let number = Number(last); number < this.events.length; number++) {
      const [of, message] = this.events[number];
      if (of === stream && Object.keys(message).length > 0) await send(String(number + 1), message);
    }
    return stream;
  }
}

async function http(port) {
  const sessions = new Map();
  createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const body = chunks.length > 0 ? JSON.parse(Buffer.concat(chunks)) : undefined;
    let transport = sessions.get(request.headers["mcp-session-id"]);
    if (!transport && isInitializeRequest(body)) {
      transport = new StreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        eventStore: new Events(),
        retryInterval: 50,
        onsessioninitialized: (id) => sessions.set(id, transport),
      });
      await server().connect(transport);
    }
    if (transport) return transport.handleRequest(request, response, body);
    const status = request.headers["mcp-session-id"] ? 404 : 400;
    response.writeHead(status).end(JSON.stringify({ jsonrpc: "2.0", id: null, error: { code: -32000, message: "no session" } }));
  }).listen(port, "127.0.0.1");
}

const [transport, port] = process.argv.slice(2);
if (transport === "stdio") await server().connect(new StdioServerTransport());
else await http(Number(port));
