"""An MCP server made with the official Python SDK (mcp 2.x) whose one tool takes its time. Usage: tools.py PORT FOLDER"""

import asyncio
import pathlib
import sys

from mcp.server.mcpserver import MCPServer

PORT, FOLDER = int(sys.argv[1]), pathlib.Path(sys.argv[2])

server = MCPServer("tools")


def note(text):
    with open(FOLDER / "ledger", "a") as ledger:
        ledger.write(f"{text}\n")


@server.tool()
async def work(job: str) -> str:
    """Does a part of a plan: its name, how long it takes, and what it is made of."""
    note(f"work {job}")
    name, seconds, *of = job.split(" ", 2)
    await asyncio.sleep(float(seconds))
    note(f"done {name}")
    return f"{name}({''.join(of)})"


server.run("streamable-http", port=PORT)
