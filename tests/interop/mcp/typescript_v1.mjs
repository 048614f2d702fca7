// The official TypeScript SDK 1.x (@modelcontextprotocol/sdk), which knows the revisions up to 2025-11-25.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import {
    CreateMessageRequestSchema,
    ElicitRequestSchema,
    LoggingMessageNotificationSchema,
    McpError
} from '@modelcontextprotocol/sdk/types.js';

import { run, ServerError, words } from './stories.mjs';

async function connect(url, person) {
    const capabilities = { ...(person.elicit && { elicitation: {} }), ...(person.sample && { sampling: {} }) };
    const client = new Client({ name: 'nuncio-interop', version: '1.0.0' }, { capabilities });
    if (person.elicit) {
        client.setRequestHandler(ElicitRequestSchema, ({ params }) =>
            person.elicit(params.message, params.requestedSchema)
        );
    }
    if (person.sample) {
        client.setRequestHandler(CreateMessageRequestSchema, ({ params }) => ({
            role: 'assistant',
            content: { type: 'text', text: person.sample([params.messages[0].content].flat()[0].text) },
            model: 'scripted'
        }));
    }
    client.setNotificationHandler(LoggingMessageNotificationSchema, ({ params }) => {
        person.heard.push([params.level, words(params.data)]);
    });
    const transport = new StreamableHTTPClientTransport(new URL(url));
    await client.connect(transport);
    if (person.level) await client.setLoggingLevel(person.level);
    return {
        version: transport.protocolVersion,
        server: client.getServerVersion()?.name,
        async tools() {
            return Object.fromEntries((await client.listTools()).tools.map(tool => [tool.name, tool.inputSchema]));
        },
        async call(name, args, onprogress, signal) {
            try {
                const result = await client.callTool({ name, arguments: args }, undefined, { onprogress, signal });
                const texts = result.content.filter(block => block.type === 'text').map(block => block.text);
                return { failed: Boolean(result.isError), text: texts.join('\n') };
            } catch (error) {
                throw error instanceof McpError ? new ServerError(error.code, error.message) : error;
            }
        },
        async resources() {
            return (await client.listResources()).resources.map(resource => resource.uri);
        },
        async templates() {
            return (await client.listResourceTemplates()).resourceTemplates.map(template => template.uriTemplate);
        },
        ping: () => client.ping(),
        async close() {
            await transport.terminateSession();
            await client.close();
        }
    };
}

await run('typescript-1', { initialize: [connect, '2025-11-25'] });
