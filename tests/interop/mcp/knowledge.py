"""What is shared, as the official Python SDK reads it: every resource of the source, under its alias too, held against
the schema that its metadata names; every tool; and what has to be refused.

    knowledge.py NUNCIO    starts the server itself; ends with 0 when nothing failed

Runs with mcp 2.x (2026-07-28, and sessions in its legacy mode) and mcp 1.x (sessions).
"""

import contextlib
import importlib.metadata
import json
import sys
import urllib.parse
import urllib.request

import anyio
import anyio.to_thread
import jsonschema

import server as servers

PHASES = ["specification", "pseudocode", "architecture", "refinement", "completion"]
ROLES = ["researcher", "coder", "analyst", "coordinator"]
ODD_KEY = "task:1/spec 100% ü"
METADATA = {"resourceId", "type", "lastModified", "cachePolicy", "permissions", "schema"}
HOST = "claude-20x"
NEWEST = importlib.metadata.version("mcp").startswith("2.")


class Refused(Exception):
    """The server, or a tool, says no."""


class Client:
    def __init__(self, session):
        self.session = session

    async def read(self, uri):
        """The JSON that a resource holds, and what is said about it."""
        with refusals():
            if NEWEST:
                result = await self.session.read_resource(uri)
            else:
                from pydantic import AnyUrl

                result = await self.session.read_resource(AnyUrl(uri))
        content = json.loads(result.model_dump_json(by_alias=True))["contents"][0]
        return json.loads(content["text"]), content["_meta"]

    async def call(self, tool, **arguments):
        with refusals():
            result = await self.session.call_tool(tool, arguments)
        result = json.loads(result.model_dump_json(by_alias=True))
        if result.get("isError"):
            raise Refused(result["content"][0]["text"])
        return result["structuredContent"]

    async def tools(self):
        result = json.loads((await self.session.list_tools()).model_dump_json(by_alias=True))
        return {tool["name"]: tool for tool in result["tools"]}


@contextlib.contextmanager
def refusals():
    if NEWEST:
        from mcp.shared.exceptions import MCPError as Error
    else:
        from mcp import McpError as Error
    try:
        yield
    except Error as error:
        raise Refused(str(error)) from error


@contextlib.asynccontextmanager
async def connect(url, mode):
    if NEWEST:
        import mcp

        async with mcp.Client(url, mode=mode, read_timeout_seconds=60) as client:
            yield Client(client)
        return
    from mcp import ClientSession
    from mcp.client.streamable_http import streamable_http_client

    async with streamable_http_client(url) as (read, write, _), ClientSession(read, write) as session:
        await session.initialize()
        yield Client(session)


async def until(what, found):
    with anyio.fail_after(60):
        while not (seen := await found()):
            await anyio.sleep(0.05)
    return seen


async def seed(client, place):
    """Memory, a workflow and a batch, by their tools. Returns the addresses that there are now."""
    ns, context = f"interop-{place}", f"workflow-{place}"
    called = set()

    async def call(tool, **arguments):
        called.add(tool)
        return await client.call(tool, **arguments)

    await call("batch_configure", resourceMonitoring=False)
    await call("memory_store", namespace=ns, key=ODD_KEY, value={"a": [1, 2]}, ttl=3600)
    assert (await call("memory_get", namespace=ns, key=ODD_KEY))["value"] == {"a": [1, 2]}
    await call("memory_store", namespace=ns, key="gone", value=1)
    assert (await call("memory_delete", namespace=ns, key="gone"))["deleted"]
    assert (await call("memory_list", namespace=ns))["stats"]["total"] == 1
    assert (await call("memory_search", namespace=ns, pattern="task:*"))["pagination"]["total"] == 1
    lines = (await call("memory_export", namespace=ns))["lines"]
    assert (await call("memory_import", namespace=f"{ns}-2", lines=lines, mode="fail"))["written"] == 1
    assert (await call("memory_clear", namespace=f"{ns}-2", confirm=True))["cleared"] == 1

    await call("sparc_start", contextId=context, goal="Shorten links")
    template, _ = await client.read("sparc://phase/specification/template")
    example = template["examples"][0]
    artifact = example.get("artifact", example)
    assert (await call("sparc_submit", contextId=context, artifact=artifact))["passed"]
    await call("sparc_back", contextId=context, to="specification", reason="to see it")
    assert (await call("sparc_status", contextId=context))["currentPhase"] == "specification"
    assert len((await call("sparc_history", contextId=context))["entries"]) == 3
    assert context in [found["contextId"] for found in (await call("sparc_list"))["workflows"]]

    operations = [{"id": f"w{n}", "type": "wait", "args": {"ms": 1}} for n in range(20)]
    batch = (await call("batch_submit", operations=operations))["batchId"]

    async def ended():
        return (await call("batch_status", batchId=batch))["status"] == "completed"

    await until("the batch has ended", ended)
    assert batch in [found["batchId"] for found in (await call("batch_list"))["batches"]]
    await expect_refusal(call("batch_retry", batchId=batch), "succeeded")
    long = [{"id": "w", "type": "wait", "args": {"ms": 30_000}}]
    slow = (await call("batch_submit", operations=long))["batchId"]

    async def paused():
        with contextlib.suppress(Refused):
            return (await call("batch_pause", batchId=slow))["paused"]

    await until("the batch is paused", paused)
    assert not (await call("batch_resume", batchId=slow))["paused"]
    await call("batch_cancel", batchId=slow)

    asked = (await call("task_send", agent="travel_agent", text="Rome"))["taskId"]

    async def in_state(task, state):
        return (await call("task_get", taskId=task))["state"] == state

    await until("it asks", lambda: in_state(asked, "input-required"))
    await call("task_reply", taskId=asked, text="yes")
    await until("it has ended", lambda: in_state(asked, "completed"))
    assert asked in [task["taskId"] for task in (await call("task_list"))["tasks"]]
    assert (await call("task_events", taskId=asked))["events"]
    other = (await call("task_send", agent="travel_agent", text="Oslo"))["taskId"]
    await call("task_cancel", taskId=other)

    assert (await call("agents_list"))["discovery"]["totalAgents"] > 4
    assert (await call("agents_probe", name="echo"))["status"] == "healthy"
    quoted = urllib.parse.quote(ODD_KEY, safe="")
    resources = [
        f"sparc://workflow/{context}",
        *(f"sparc://phase/{phase}/template" for phase in PHASES),
        *(f"sparc://agent/{role}/capabilities" for role in ROLES),
        f"memory://namespace/{ns}/keys",
        f"memory://data/{ns}/{quoted}",
        f"memory://search/{ns}?pattern=task:*",
        "batchtools://metrics/performance",
        "batchtools://queue/status",
        "batchtools://config/settings",
        "a2a://agents/registry",
        f"a2a://tasks/{batch}",
    ]
    return ns, resources, called


async def expect_refusal(attempt, *words):
    try:
        answer = await attempt
    except Refused as refused:
        text = str(refused).lower()
        assert any(word in text for word in words), f"refused, but not clearly: {refused}"
    else:
        raise AssertionError(f"expected a refusal, and got {answer}")


async def check_resource(client, uri):
    value, meta = await client.read(uri)
    assert METADATA <= set(meta), f"{uri}: {sorted(METADATA - set(meta))} missing"
    with urllib.request.urlopen(meta["schema"], timeout=10) as answer:
        schema = json.load(answer)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(value)
    kind, rest = uri.split("://", 1)
    assert meta["type"] == kind, (uri, meta)
    alias, _ = await client.read(f"mcp://{HOST}/{kind}/{rest}")
    assert set(alias) == set(value), uri


async def check_stream(server, client):
    """A stream of the other protocol, while somebody reads it."""
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"data": {"steps": 500}}]}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": {"message": message}}
    headers = {"Content-Type": "application/json", "A2A-Version": "1.0"}
    url = f"{server.root}/agents/long_running_agent"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    stream = await anyio.to_thread.run_sync(lambda: urllib.request.urlopen(request, timeout=30))
    try:
        open_ones = (await client.call("a2a_streams"))["streams"]
        for found in open_ones:
            await check_resource(client, f"a2a://streams/{found['streamId']}")
        assert open_ones, "the stream is not listed"
    finally:
        stream.close()


async def check_refusals(client, ns):
    for uri in [
        "memory://data/nobody/key",
        f"memory://data/{ns}/nothing",
        f"memory://data/{ns}/..%2f..%2fetc%2fpasswd",
        "memory://namespace/..%2f..%2fsecret/keys",
        "sparc://workflow/..%2fnobody",
        "sparc://workflow/nobody",
        "sparc://phase/lunch/template",
        "sparc://agent/cook/capabilities",
        "a2a://tasks/nobody",
        "a2a://streams/nobody",
        "batchtools://lunch",
        "unheard-of://thing",
        f"memory://search/{ns}?pattern={'x' * 1000}",
        f"memory://search/{ns}?pattern=*&limit=100000",
    ]:
        await expect_refusal(client.read(uri), "no resource", "pattern", "limit", "not", "invalid")
    await expect_refusal(client.call("memory_get", namespace="nobody", key="k"), "no key")
    large = "x" * (1024 * 1024)
    await expect_refusal(client.call("memory_store", namespace=ns, key="k", value=large), "value_bytes")
    await expect_refusal(client.call("memory_store", namespace=ns, key="k" * 600, value=1), "key")
    await expect_refusal(client.call("memory_search", namespace=ns, pattern="x" * 1000), "pattern")
    await expect_refusal(client.call("memory_store", namespace=ns, key="k", value=1, extra=1), "extra")


async def story(server, mode):
    # Every tool is called, also those that a list does not have by default.
    async with connect(f"{server.url}?tools=all", mode) as client:
        ns, resources, called = await seed(client, mode)
        for uri in resources:
            await check_resource(client, uri)
        await check_refusals(client, ns)
        ours = ("memory_", "sparc_", "batch_", "agents_", "task_")
        offered = await client.tools()
        wanted = {name for name in offered if name.startswith(ours)}
        # It goes on for as long as somebody answers; the command line's tests have it.
        missing = wanted - called - {"sparc_run"}
        assert not missing, f"never called: {sorted(missing)}"
        for name in sorted(wanted):
            tool = offered[name]
            assert tool["outputSchema"]["type"] == "object", name
            assert tool["inputSchema"]["additionalProperties"] is False, name
        await check_stream(server, client)
        called.add("a2a_streams")
    print(f"  {mode}: {len(resources)} resources twice, {len(called)} tools")


def main():
    modes = ["auto", "legacy"] if NEWEST else ["initialize"]
    with servers.serving(sys.argv[1], "20ms") as server:
        for mode in modes:
            anyio.run(story, server, mode)


if __name__ == "__main__":
    main()
