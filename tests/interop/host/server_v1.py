"""A server made with the official Python SDK (mcp 1.x).

    server_v1.py stdio | http PORT | sse PORT
"""

import asyncio
import sys

from mcp.server.fastmcp import Context, FastMCP, Image
from mcp.types import SamplingMessage, TextContent
from pydantic import BaseModel

from events import Events

transport, port = sys.argv[1], int((sys.argv + ["0"])[2])
server = FastMCP("python-v1", port=port, event_store=Events(), retry_interval=50)


class Name(BaseModel):
    name: str


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
    raise ValueError("for a reason")


@server.tool()
async def tell(count: int, context: Context, let_go: bool = False) -> str:
    """Tells how far it is; in the middle of it, it may let go of the stream."""
    for step in range(1, count + 1):
        await context.info(f"line {step}")
        await context.report_progress(step, count, f"step {step}")
        if let_go and step == count // 2:
            await context.close_sse_stream()
            await asyncio.sleep(0.2)
    return f"told {count}"


@server.tool()
async def greet(context: Context) -> str:
    """Greets whoever says their name."""
    name = await context.elicit("Who are you?", Name)
    return f"Hello, {name.data.name}." if name.action == "accept" else f"Hello, whoever ({name.action})."


@server.tool()
async def visit(context: Context) -> str:
    """Sends somebody to a link."""
    visited = await context.elicit_url("Please go there.", "https://example.com/there", "there")
    return f"visited: {visited.action}"


@server.tool()
async def sample(context: Context) -> str:
    """What the caller's model says."""
    message = SamplingMessage(role="user", content=TextContent(type="text", text="Say something."))
    said = await context.session.create_message([message], max_tokens=50, system_prompt="Be brief.")
    return said.content.text


if __name__ == "__main__":
    server.run({"http": "streamable-http"}.get(transport, transport))
