"""A Python A2A agent as a tool of a real nuncio server, called by the official MCP client of the generation before (mcp
1.30.0): progress, a question, and a kill of the server.

Usage: agents_by_mcp_v1.py A2A_SDK_VERSION, under a Python that has mcp, with the binary in NUNCIO."""

import asyncio
import contextlib
import sys

import httpx
from mcp import ClientSession, types
from mcp.client.streamable_http import streamable_http_client

import far_agent
import world
from world import happens


@contextlib.asynccontextmanager
async def session(elicit):
    # A start may take longer than the SDK's two attempts, so the connecting itself is repeated too.
    transport = httpx.AsyncHTTPTransport(retries=6)
    http = httpx.AsyncClient(transport=transport, timeout=httpx.Timeout(world.LONGEST))
    async with http, streamable_http_client(f"{SERVER.url}/mcp", http_client=http) as (read, write, _id):
        async with ClientSession(read, write, elicitation_callback=elicit) as client:
            await client.initialize()
            yield client


def text_of(result):
    return "\n".join(block.text for block in result.content if block.type == "text")


async def tells_progress_and_asks():
    asked, heard = [], []

    async def elicit(_context, params):
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"answer": "Lisbon"})

    async def progress(done, _total, words):
        heard.append((done, words))

    async with session(elicit) as client:
        result = await client.call_tool("far", {"text": "book"}, progress_callback=progress)
    assert not result.isError and "a trip to Lisbon" in text_of(result), result
    assert heard[0] == (1, "on it") and len(asked) == 1, (heard, asked)
    assert FAR.ledger() == ["book", "Lisbon"]


def made_by_far():
    """The artifact of the agent's newest task, as the agent itself has it: its SDK may store a chunk twice."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {"includeArtifacts": True}}
    tasks = httpx.post(FAR.url, json=body, headers={"A2A-Version": "1.0"}).json()["result"]["tasks"]
    made = "".join(part["text"] for artifact in tasks[0]["artifacts"] for part in artifact["parts"])
    assert made.startswith("1 2 3 4 5 ") and made.endswith("6 "), made
    return made


async def survives_a_kill_while_it_works():
    heard = []

    async def progress(done, _total, words):
        heard.append((done, words))

    async with session(None) as client, asyncio.TaskGroup() as group:
        call = group.create_task(client.call_tool("far", {"text": "march 6"}, progress_callback=progress))
        await happens(lambda: any(words == "step 3" for _, words in heard))
        await asyncio.to_thread(SERVER.again)
        FAR.go()
        result = await call
    assert not result.isError and text_of(result).startswith(made_by_far()), (result, made_by_far())
    done = [done for done, _ in heard]
    assert done == sorted(set(done)), heard
    assert FAR.ledger() == ["march 6"], "the work was done once"


if __name__ == "__main__":
    with far_agent.published(sys.argv[1]) as (FAR, SERVER):
        world.until(lambda: "An agent made with" in SERVER.card("far")["description"], about=SERVER.said)
        told = []
        for story in (tells_progress_and_asks, survives_a_kill_while_it_works):
            async def begun_anew(story=story):
                FAR.anew()
                await story()

            told.append((story.__name__, begun_anew))
        raise SystemExit(1 if world.tell(told, SERVER.said) else 0)
