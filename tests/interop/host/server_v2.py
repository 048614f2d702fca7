"""A server made with the official Python SDK (mcp 2.x), for clients of both eras.

    server_v2.py stdio | http PORT | sse PORT
"""

import asyncio
import sys
from typing import Annotated

from mcp.server.elicitation import ElicitationResult
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resolve import Elicit, Resolve, Sample
from mcp_types import CreateMessageResult, SamplingMessage, TextContent
from pydantic import BaseModel

from events import Events

server = MCPServer("python-v2")


class Name(BaseModel):
    name: str


def ask_name():
    return Elicit("Who are you?", Name)


def ask_model():
    message = SamplingMessage(role="user", content=TextContent(type="text", text="Say something."))
    return Sample([message], max_tokens=50, system_prompt="Be brief.")


@server.tool()
def add(a: int, b: int) -> dict[str, int]:
    """Adds two numbers."""
    return {"sum": a + b}


@server.tool()
def picture() -> Image:
    """A picture, as far as anybody can tell."""
    return Image(data=b"abc", format="png")


@server.tool()
def fail() -> str:
    """Always fails."""
    raise ToolError("for a reason")


@server.tool()
async def tell(count: int, context: Context, let_go: bool = False) -> str:
    """Tells how far it is; in the middle of it, it may let go of the stream."""
    for step in range(1, count + 1):
        await context.report_progress(step, count, f"step {step}")
        if let_go and step == count // 2:
            await context.close_sse_stream()
            await asyncio.sleep(0.2)
    return f"told {count}"


@server.tool()
async def greet(name: Annotated[ElicitationResult[Name], Resolve(ask_name)]) -> str:
    """Greets whoever says their name."""
    return f"Hello, {name.data.name}." if name.action == "accept" else f"Hello, whoever ({name.action})."


@server.tool()
async def sample(said: Annotated[CreateMessageResult, Resolve(ask_model)]) -> str:
    """What the caller's model says."""
    return said.content.text


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["stdio"]:
            server.run("stdio")
        case ["http", port]:
            server.run("streamable-http", port=int(port), event_store=Events(), retry_interval=50)
        case ["sse", port]:
            server.run("sse", port=int(port))
