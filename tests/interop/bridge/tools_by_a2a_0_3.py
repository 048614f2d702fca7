"""The reference MCP server as an A2A agent of a real nuncio server, called by the official client of A2A 0.3 (a2a-sdk
0.3.26): progress, a question with a structured answer, and a kill while it is open.

Usage: tools_by_a2a_0_3.py, under a Python that has the SDK, with the binary in NUNCIO."""

import asyncio
import contextlib
import uuid

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import DataPart, Message, Part, Role, TaskIdParams, TaskQueryParams, TaskState

import world
from world import LONGEST, happens

AGENT = "everything"


def message(data, task=None, context=None):
    part = Part(root=DataPart(data=data))
    return Message(message_id=str(uuid.uuid4()), role=Role.user, parts=[part], task_id=task, context_id=context)


def call(tool, **arguments):
    return message({"tool": tool, "arguments": arguments})


def text_of(task):
    return "\n".join(part.root.text for artifact in task.artifacts or [] for part in artifact.parts)


@contextlib.asynccontextmanager
async def calling():
    async with httpx.AsyncClient(timeout=LONGEST) as http:
        await happens(lambda: len(SERVER.card(AGENT)["skills"]) > 1, about=SERVER.said)
        card = await A2ACardResolver(http, f"{SERVER.url}/agents/{AGENT}").get_agent_card()
        yield ClientFactory(ClientConfig(httpx_client=http)).create(card)


async def send(client, sent):
    return [event async for event in client.send_message(sent)]


async def tells_how_far_it_is_in_order():
    async with calling() as client:
        events = await send(client, call("trigger-long-running-operation", duration=0.4, steps=4))
        said = [update.status.message for _, update in events if getattr(update, "status", None)]
        data = [part.root.data for each in said if each for part in each.parts if part.root.kind == "data"]
        assert [each["progress"] for each in data if "progress" in each] == [1, 2, 3, 4], data
        task, last = events[-1]
        assert last.final and task.status.state == TaskState.completed and "completed" in text_of(task), task


async def asks_and_survives_a_kill():
    LEDGER.anew()
    async with calling() as client:
        task, last = (await send(client, call("trigger-elicitation-request")))[-1]
        assert last.final and task.status.state == TaskState.input_required, last
    await asyncio.to_thread(SERVER.again)
    async with calling() as client:
        answer = message({"name": "Ada", "check": True}, task.id, task.context_id)
        sent, _ = (await send(client, answer))[-1]
        assert sent.id == task.id
        while (found := await client.get_task(TaskQueryParams(id=task.id))).status.state == TaskState.working:
            await asyncio.sleep(0.02)
        assert found.status.state == TaskState.completed and "Ada" in text_of(found), found
    assert LEDGER.count("tools/call") == 1, "the work was done once"


async def follows_on_after_a_kill():
    LEDGER.anew()
    async with calling() as client:
        with contextlib.suppress(Exception):
            async for task, _update in client.send_message(
                call("trigger-long-running-operation", duration=1.5, steps=5)
            ):
                if task.status.message:
                    await asyncio.to_thread(SERVER.kill)
        await asyncio.to_thread(SERVER.start)
    async with calling() as client:
        events = [event async for event in client.resubscribe(TaskIdParams(id=task.id))]
        assert events[-1][0].status.state == TaskState.completed, events[-1]
        assert "completed" in text_of(await client.get_task(TaskQueryParams(id=task.id)))
    assert LEDGER.count("tools/call") == 1, "the work was done once"


if __name__ == "__main__":
    with world.everything() as there:
        LEDGER = there.ledger
        with world.nuncio(f'[[agent]]\nname = "{AGENT}"\nkind = "mcp"\nurl = "{there.url}"\n') as SERVER:
            told = (tells_how_far_it_is_in_order, asks_and_survives_a_kill, follows_on_after_a_kill)
            raise SystemExit(1 if world.tell([(story.__name__, story) for story in told], SERVER.said) else 0)
