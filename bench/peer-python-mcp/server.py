"""An echo tool and a resource on mcp 2.3.0, the official Python SDK, on the uvicorn that it brings.

    server.py PORT [--stateless]

As it comes, it keeps sessions and answers each request with a stream. With --stateless it keeps none and answers
with JSON: the cheapest that it has for MCP 2026-07-28.
"""

import logging
import sys

import uvicorn
from mcp.server.mcpserver import MCPServer

TEXT_BYTES = 1024

server = MCPServer("bench")


@server.tool()
def echo_tool(text: str) -> str:
    """Returns the text."""
    return text


@server.resource("bench://text")
def text() -> str:
    return "x" * TEXT_BYTES


def main() -> None:
    # A line for every request would be measured as well.
    logging.disable(logging.WARNING)
    stateless = "--stateless" in sys.argv[2:]
    app = server.streamable_http_app(stateless_http=stateless, json_response=stateless)
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error", access_log=False)


main()
