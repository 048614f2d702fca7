"""Another client of the memory bank and of workflows: MCP requests of the journeys, beside the page."""

import json
import urllib.parse

VERSION = "2026-07-28"


def mcp(server, method, params, credentials=None):
    """The result of an MCP request of another client."""
    meta = {"io.modelcontextprotocol/protocolVersion": VERSION, "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "0"}, "io.modelcontextprotocol/clientCapabilities": {}}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": VERSION, "Mcp-Method": method, **(credentials or {})}
    if "name" in params or "uri" in params:
        headers["Mcp-Name"] = params.get("name") or params["uri"]
    status, _, text = server.request("POST", "/mcp", body, headers)
    assert status == 200, text
    answer = json.loads(text.removeprefix("data: "))
    assert "result" in answer, text
    return answer["result"]


def tool(server, name, **arguments):
    result = mcp(server, "tools/call", {"name": name, "arguments": arguments})
    assert not result.get("isError"), result
    return result["structuredContent"]


def store(server, namespace, key, value, **more):
    return tool(server, "memory_store", namespace=namespace, key=key, value=value, **more)


def entry_of(server, namespace, key):
    return tool(server, "memory_get", namespace=namespace, key=key)


def address(server, **view):
    return f"{server.base}/memory?{urllib.parse.urlencode(view)}"


def example(server, phase):
    text = mcp(server, "resources/read", {"uri": f"sparc://phase/{phase}/template"})["contents"][0]["text"]
    return json.loads(text)["examples"][0]["artifact"]
