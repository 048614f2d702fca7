// An echo tool and a resource on @modelcontextprotocol/server 2.4, which speaks MCP 2026-07-28, on Node's own HTTP:
// node stateless.mjs PORT
import { createServer } from 'node:http';

import { z } from 'zod';
import { toNodeHandler } from '@modelcontextprotocol/node';
import { McpServer, createMcpHandler } from '@modelcontextprotocol/server';

import { TEXT, echoed, read } from './bench.mjs';

// One for every request, as the SDK wants it.
function make() {
  const server = new McpServer({ name: 'bench', version: '1' });
  const inputSchema = z.object({ text: z.string() });
  server.registerTool('echo_tool', { description: 'Returns the text.', inputSchema }, echoed);
  server.registerResource('text', TEXT, { mimeType: 'text/plain' }, read);
  return server;
}

createServer(toNodeHandler(createMcpHandler(make))).listen(Number(process.argv[2]), '127.0.0.1');
