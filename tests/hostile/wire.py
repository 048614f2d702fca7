"""The few lines of HTTP and JSON-RPC that the tenants speak; nothing but the standard library."""

import http.client
import json
import threading
import uuid

_local = threading.local()


def _connection(port):
    kept = getattr(_local, "connection", None)
    if kept is None or _local.port != port:
        kept = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        _local.connection, _local.port = kept, port
    return kept


def post(port, token, path, body, headers=()):
    """One request on the thread's own connection; the status, and the answer as JSON where it is."""
    text = body if isinstance(body, (bytes, str)) else json.dumps(body)
    heads = {"content-type": "application/json", "authorization": f"Bearer {token}", **dict(headers)}
    for last_try in (False, True):
        connection = _connection(port)
        try:
            connection.request("POST", path, text, heads)
            answer = connection.getresponse()
            content = answer.read()
            break
        except (http.client.HTTPException, OSError):
            connection.close()
            _local.connection = None
            if last_try:
                raise
    try:
        return answer.status, json.loads(content)
    except ValueError:
        return answer.status, content


def request(method, params):
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def call(port, token, agent, method, params):
    """A method of A2A 1.0."""
    return post(port, token, f"/agents/{agent}", request(method, params), [("a2a-version", "1.0")])


def message(parts):
    return {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": parts}


def send(port, token, agent, text, **configuration):
    params = {"message": message([{"text": text}])}
    if configuration:
        params["configuration"] = configuration
    return call(port, token, agent, "SendMessage", params)


def tool(port, token, name, arguments):
    """A tool of MCP 2026-07-28, where every request stands for itself."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "load", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    heads = [
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", name),
    ]
    body = request("tools/call", {"name": name, "arguments": arguments, "_meta": meta})
    return post(port, token, "/mcp", body, heads)
