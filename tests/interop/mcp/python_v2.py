"""The official Python SDK 2.x (mcp), as it connects by itself (2026-07-28) and in its legacy mode (2025-11-25)."""

import contextlib
import warnings

import anyio
import mcp
from mcp import types
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError

import stories

warnings.simplefilter("ignore", MCPDeprecationWarning)


class Client:
    def __init__(self, client):
        self.client = client
        self.version = client.protocol_version
        self.server = client.server_info and client.server_info.name

    async def tools(self):
        return {tool.name: tool.input_schema for tool in (await self.client.list_tools()).tools}

    async def call(self, name, arguments, progress=None):
        async def report(done, total, _message):
            progress(done, total)

        with server_errors():
            result = await self.client.call_tool(name, arguments, progress_callback=progress and report)
        texts = [block.text for block in result.content if block.type == "text"]
        return stories.Result(bool(result.is_error), "\n".join(texts))

    async def call_and_cancel(self, name, arguments, when, progress):
        """The SDK tells the server when the scope of a call is cancelled: by a notification, or by hanging up."""
        async with anyio.create_task_group() as group:
            async def call():
                await self.call(name, arguments, progress)

            group.start_soon(call)
            await when.wait()
            group.cancel_scope.cancel()

    async def resources(self):
        return [resource.uri for resource in (await self.client.list_resources()).resources]

    async def templates(self):
        return [template.uri_template for template in (await self.client.list_resource_templates()).resource_templates]

    async def ping(self):
        await self.client.send_ping()


@contextlib.contextmanager
def server_errors():
    try:
        yield
    except MCPError as error:
        raise stories.ServerError(error.code, error.message) from error


def connecting(mode):
    @contextlib.asynccontextmanager
    async def connect(url, person):
        async def elicit(_context, params):
            action, content = person.elicit(params.message, params.requested_schema)
            return types.ElicitResult(action=action, content=content)

        async def sample(_context, params):
            text = person.sample(params.messages[0].content.text)
            content = types.TextContent(type="text", text=text)
            return types.CreateMessageResult(role="assistant", content=content, model="scripted")

        async def log(params):
            person.heard.append((params.level, stories.words(params.data)))

        client = mcp.Client(
            url,
            mode=mode,
            read_timeout_seconds=stories.LONGEST_STORY,
            elicitation_callback=elicit if person.elicit else None,
            sampling_callback=sample if person.sample else None,
            logging_callback=log,
            log_level=person.level,
        )
        async with client:
            if mode == "legacy" and person.level:
                await client.set_logging_level(person.level)
            yield Client(client)

    return connect


if __name__ == "__main__":
    stories.run("python-2", {
        "auto": (connecting("auto"), "2026-07-28"),
        "legacy": (connecting("legacy"), "2025-11-25"),
    })
