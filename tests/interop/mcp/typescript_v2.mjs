// The official TypeScript SDK 2.x (@modelcontextprotocol/client): as it connects by itself (2025-11-25), when it may
// negotiate, and when it is told to speak 2026-07-28 and nothing else.

import { Client, LOG_LEVEL_META_KEY, ProtocolError, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

import { run, ServerError, words } from './stories.mjs';

const connecting = mode => async (url, person) => {
    const capabilities = { ...(person.elicit && { elicitation: {} }), ...(person.sample && { sampling: {} }) };
    const options = { capabilities, ...(mode && { versionNegotiation: { mode } }) };
    const client = new Client({ name: 'nuncio-interop', version: '1.0.0' }, options);
    if (person.elicit) {
        client.setRequestHandler('elicitation/create', ({ params }) =>
            person.elicit(params.message, params.requestedSchema)
        );
    }
    if (person.sample) {
        client.setRequestHandler('sampling/createMessage', ({ params }) => ({
            role: 'assistant',
            content: { type: 'text', text: person.sample([params.messages[0].content].flat()[0].text) },
            model: 'scripted'
        }));
    }
    client.setNotificationHandler('notifications/message', ({ params }) => {
        person.heard.push([params.level, words(params.data)]);
    });
    const transport = new StreamableHTTPClientTransport(new URL(url));
    await client.connect(transport);
    const modern = client.getProtocolEra() === 'modern';
    if (person.level && !modern) await client.setLoggingLevel(person.level);
    // Where there is no session to set a level for, every request says the level that it wants.
    const meta = person.level && modern ? { _meta: { [LOG_LEVEL_META_KEY]: person.level } } : {};
    return {
        version: client.getNegotiatedProtocolVersion(),
        server: client.getServerVersion()?.name,
        async tools() {
            return Object.fromEntries((await client.listTools()).tools.map(tool => [tool.name, tool.inputSchema]));
        },
        async call(name, args, progress, signal) {
            // Between the rounds of a call the SDK reports their number as progress; the agents' has a total.
            const onprogress = progress && (update => update.total !== undefined && progress(update));
            try {
                const result = await client.callTool({ name, arguments: args, ...meta }, { onprogress, signal });
                const texts = result.content.filter(block => block.type === 'text').map(block => block.text);
                return { failed: Boolean(result.isError), text: texts.join('\n') };
            } catch (error) {
                throw error instanceof ProtocolError ? new ServerError(error.code, error.message) : error;
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
            if (!modern) await transport.terminateSession();
            await client.close();
        }
    };
};

await run('typescript-2', {
    default: [connecting(), '2025-11-25'],
    auto: [connecting('auto'), '2026-07-28'],
    pinned: [connecting({ pin: '2026-07-28' }), '2026-07-28']
});
