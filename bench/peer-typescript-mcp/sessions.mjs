// An echo tool and a resource on @modelcontextprotocol/sdk 1.32, with sessions, on express: node sessions.mjs PORT
import { randomUUID } from 'node:crypto';

import express from 'express';
import { z } from 'zod';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';

import { TEXT, echoed, read } from './bench.mjs';

const sessions = new Map();

async function begin() {
  const server = new McpServer({ name: 'bench', version: '1' });
  server.registerTool('echo_tool', { description: 'Returns the text.', inputSchema: { text: z.string() } }, echoed);
  server.registerResource('text', TEXT, { mimeType: 'text/plain' }, read);
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    onsessioninitialized: (id) => sessions.set(id, transport),
  });
  await server.connect(transport);
  return transport;
}

const app = express();
app.use(express.json());
app.post('/mcp', async (request, response) => {
  const transport = sessions.get(request.headers['mcp-session-id']) ?? (await begin());
  await transport.handleRequest(request, response, request.body);
});
app.listen(Number(process.argv[2]), '127.0.0.1');
