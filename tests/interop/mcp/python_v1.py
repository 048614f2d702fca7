"""The official Python SDK 1.x (mcp), which knows the revisions up to 2025-11-25."""

import contextlib

import anyio
from mcp import ClientSession, McpError, types
from mcp.client.streamable_http import streamable_http_client

import stories


class Client:
    def __init__(self, session, initialized):
        self.session = session
        self.version = initialized.protocolVersion
        self.server = initialized.serverInfo.name

    async def tools(self):
        return {tool.name: tool.inputSchema for tool in (await self.session.list_tools()).tools}

    async def call(self, name, arguments, progress=None):
        async def report(done, total, _message):
            progress(done, total)

        try:
            result = await self.session.call_tool(name, arguments, progress_callback=progress and report)
        except McpError as error:
            raise stories.ServerError(error.error.code, error.error.message) from error
        texts = [block.text for block in result.content if block.type == "text"]
        return stories.Result(bool(result.isError), "\n".join(texts))

    async def call_and_cancel(self, name, arguments, when, progress):
        """This SDK leaves it to its user to tell the server; the id is the next that it counts to."""
        request = self.session._request_id
        async with anyio.create_task_group() as group:
            async def call():
                await self.call(name, arguments, progress)

            group.start_soon(call)
            await when.wait()
            params = types.CancelledNotificationParams(requestId=request, reason="The person changed their mind.")
            notification = types.CancelledNotification(params=params)
            await self.session.send_notification(types.ClientNotification(notification))
            group.cancel_scope.cancel()

    async def resources(self):
        return [str(resource.uri) for resource in (await self.session.list_resources()).resources]

    async def templates(self):
        return [template.uriTemplate for template in (await self.session.list_resource_templates()).resourceTemplates]

    async def ping(self):
        await self.session.send_ping()


@contextlib.asynccontextmanager
async def connect(url, person):
    async def elicit(_context, params):
        action, content = person.elicit(params.message, params.requestedSchema)
        return types.ElicitResult(action=action, content=content)

    async def sample(_context, params):
        text = person.sample(params.messages[0].content.text)
        content = types.TextContent(type="text", text=text)
        return types.CreateMessageResult(role="assistant", content=content, model="scripted")

    async def log(params):
        person.heard.append((params.level, stories.words(params.data)))

    async with streamable_http_client(url) as (read, write, _session_id):
        session = ClientSession(
            read,
            write,
            elicitation_callback=elicit if person.elicit else None,
            sampling_callback=sample if person.sample else None,
            logging_callback=log,
        )
        async with session:
            initialized = await session.initialize()
            if person.level:
                await session.set_logging_level(person.level)
            yield Client(session, initialized)


if __name__ == "__main__":
    stories.run("python-1", {"initialize": (connect, "2025-11-25")})
