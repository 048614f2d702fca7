"""A Python A2A agent as a tool of a real nuncio server, called by the official MCP client (mcp 2.3.0): in a session
(2025-11-25), without one (2026-07-28), and as a task; with questions, cancel, and kills of everything but the client.

Usage: agents_by_mcp.py A2A_SDK_VERSION, under a Python that has mcp, with the binary in NUNCIO."""

import asyncio
import contextlib
import sys

import anyio
import mcp
from mcp import types

import far_agent
import world
from world import FULL, LONGEST, happens

sys.path.insert(0, str(world.HERE.parent / "mcp"))
from crash import (  # noqa: E402
    BLINK,
    STATELESS,
    Person,
    TaskMade,
    Tasks,
    answer_task,
    get_task,
    in_session,
    text_of,
    until,
    without_session,
)

CITY = "Lisbon"


class Traveller(Person):
    """Says where to, or does not want to; questions before `answers_from` stay open."""

    action = "accept"

    async def elicit(self, context, params):
        assert params.message.startswith("Which city?"), params
        await self.decide(context.request_id)
        content = {"answer": CITY} if self.action == "accept" else None
        return types.ElicitResult(action=self.action, content=content)


def no_traveller():
    person = Traveller()
    person.action = "decline"
    return person


def endpoint():
    return f"{SERVER.url}/mcp"


def said(heard):
    """How far it was, and with which words."""
    progress = heard.params("notifications/progress")
    return [each["progress"] for each in progress], [each.get("message") for each in progress]


async def ledger_is(*lines):
    await happens(lambda: FAR.ledger() == list(lines), within=10, about=lambda: f"{FAR.ledger()} is not {lines}")


# What comes through.


async def is_a_tool():
    async with mcp.Client(endpoint()) as client:
        [tool] = [tool for tool in (await client.list_tools()).tools if tool.name == "far"]
        assert "An agent made with a2a-sdk" in tool.description, tool
        assert tool.input_schema["required"] == ["text"], tool


async def tells_progress_and_the_artifact_comes_whole():
    FAR.go()
    async with in_session(endpoint(), Traveller()) as connection:
        result = await connection.call("far", {"text": "march 4"})
        assert not result.is_error and "1 2 3 4 " in text_of(result), result
        done, words = said(connection.heard)
        assert done == sorted(set(done)), done
        assert [word for word in words if word.startswith("step")] == ["step 1", "step 2", "step 3", "step 4"], words
    assert FAR.ledger() == ["march 4"]


async def asks_by_elicitation_in_a_session():
    async with in_session(endpoint(), Traveller()) as connection:
        result = await connection.call("far", {"text": "book"})
        assert not result.is_error and f"a trip to {CITY}" in text_of(result), result
    assert FAR.ledger() == ["book", CITY]


async def asks_by_elicitation_without_a_session():
    person, progress = Traveller(), []

    async def heard(done, _total, words):
        progress.append((done, words))

    async with without_session(endpoint(), person) as client:
        result = await client.call_tool("far", {"text": "book"}, progress_callback=heard)
        assert not result.is_error and f"a trip to {CITY}" in text_of(result), result
    assert len(person.asked) == 1 and FAR.ledger() == ["book", CITY]
    assert progress and progress[0][1] == "on it", progress


async def takes_a_no():
    told = "The request was declined."
    async with in_session(endpoint(), no_traveller()) as connection:
        result = await connection.call("far", {"text": "book"})
        assert f"a trip to {told}" in text_of(result), result
    assert FAR.ledger() == ["book", told]


async def passes_a_no_of_the_agent_on():
    async with in_session(endpoint(), Traveller()) as connection:
        result = await connection.call("far", {"text": "dance"})
        assert result.is_error and "nobody here can 'dance'" in text_of(result), result


async def passes_a_cancel_on():
    """A cancel of the call in a session, and a client that hangs up without one."""
    for mode in ("legacy", STATELESS):
        FAR.anew()
        async with mcp.Client(endpoint(), mode=mode) as client, anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "far", {"text": "slow"})
            await ledger_is("slow")
            group.cancel_scope.cancel()
        await ledger_is("slow", "cancel")


# Kills of the server.


async def survives_a_kill_while_it_works():
    """The SDK comes back by itself, in the same call."""
    async with in_session(endpoint(), Traveller()) as connection, asyncio.TaskGroup() as group:
        call = group.create_task(connection.call("far", {"text": "march 6"}))
        await until("half of the way", lambda: "step 3" in said(connection.heard)[1])
        await asyncio.to_thread(SERVER.again)
        FAR.go()
        result = await call
        assert not result.is_error and "1 2 3 4 5 6 " in text_of(result), result
        done, words = said(connection.heard)
        assert done == sorted(set(done)), done
        # Such an agent keeps no events: what it said while nobody listened is not told, but nothing is told twice.
        steps = [word for word in words if word.startswith("step")]
        assert steps[:3] == ["step 1", "step 2", "step 3"] and steps == sorted(set(steps)), steps
    assert FAR.ledger() == ["march 6"], "the work was done once"


async def survives_a_kill_while_it_asks():
    person = Traveller(answers_from=2)
    async with in_session(endpoint(), person) as connection, asyncio.TaskGroup() as group:
        call = group.create_task(connection.call("far", {"text": "book"}))
        await until("the question", lambda: person.asked)
        await asyncio.to_thread(SERVER.again)
        result = await call
        person.late.set()
        assert not result.is_error and f"a trip to {CITY}" in text_of(result), result
    assert FAR.ledger() == ["book", CITY], "it was asked once, and answered once"


async def survives_a_kill_right_after_the_answer():
    person = Traveller()
    async with in_session(endpoint(), person) as connection, asyncio.TaskGroup() as group:
        call = group.create_task(connection.call("far", {"text": "book"}))
        await until("the answer to be taken", lambda: connection.posted)
        await asyncio.to_thread(SERVER.again)
        result = await call
        assert not result.is_error and f"a trip to {CITY}" in text_of(result), result
    assert FAR.ledger() == ["book", CITY], "it was asked once, and answered once"


@contextlib.asynccontextmanager
async def as_task(text, when):
    """A call that is answered with a task; it is killed when that holds of the task. Gives the client and the id."""
    person = Traveller()
    async with without_session(endpoint(), person, Tasks()) as client, asyncio.timeout(LONGEST):
        made = await client.session.call_tool("far", {"text": text}, allow_claimed=True)
        assert isinstance(made, TaskMade), made
        while not when(await get_task(client, made.task_id)):
            await asyncio.sleep(BLINK)
    await asyncio.to_thread(SERVER.again)
    async with without_session(endpoint(), person, Tasks()) as client, asyncio.timeout(LONGEST):
        yield client, made.task_id, person


async def ended(client, id):
    while (task := await get_task(client, id))["status"] not in ("completed", "failed", "cancelled"):
        await asyncio.sleep(BLINK)
    return task


async def survives_a_kill_as_a_task_at_work():
    async with as_task("march 6", lambda task: task.get("statusMessage") == "step 3") as (client, id, _):
        FAR.go()
        task = await ended(client, id)
        assert task["status"] == "completed" and "1 2 3 4 5 6 " in str(task["result"]), task
    assert FAR.ledger() == ["march 6"], "the work was done once"


async def survives_a_kill_as_a_task_that_asks():
    async with as_task("book", lambda task: task["status"] == "input_required") as (client, id, person):
        asked = (await get_task(client, id))["inputRequests"]
        await answer_task(client, id, asked, person)
        task = await ended(client, id)
        assert task["status"] == "completed" and f"a trip to {CITY}" in str(task["result"]), task
    assert FAR.ledger() == ["book", CITY], "it was asked once, and answered once"


# Kills of the agent, whose tasks are in its memory.


async def does_it_again_when_the_agent_was_killed():
    async with in_session(endpoint(), Traveller()) as connection, asyncio.TaskGroup() as group:
        call = group.create_task(connection.call("far", {"text": "march 6"}))
        await until("half of the way", lambda: "step 3" in said(connection.heard)[1])
        FAR.go()
        await asyncio.to_thread(FAR.again)
        result = await call
        assert not result.is_error and text_of(result).count("1 2 3 4 5 6 ") == 1, result
        done, _ = said(connection.heard)
        assert done == sorted(set(done)), done
    assert FAR.ledger() == ["march 6", "march 6"]


async def nobody_is_asked_again_when_the_agent_was_killed():
    person = Traveller(answers_from=2)
    async with in_session(endpoint(), person) as connection, asyncio.TaskGroup() as group:
        call = group.create_task(connection.call("far", {"text": "book"}))
        await until("the question", lambda: person.asked)
        await asyncio.to_thread(FAR.again)
        # The one who was asked takes their time.
        person.answers_from = 1
        person.late.set()
        result = await call
        assert not result.is_error and f"a trip to {CITY}" in text_of(result), result
    assert len(person.asked) == 1, person
    assert FAR.ledger() == ["book", "book", CITY]


async def does_it_once_where_the_table_says_so():
    async with in_session(endpoint(), Traveller()) as connection, asyncio.TaskGroup() as group:
        call = group.create_task(connection.call("far_once", {"text": "slow"}))
        await ledger_is("slow")
        await asyncio.to_thread(FAR.again)
        result = await call
        assert result.is_error and "the call was lost and is not made again: " in text_of(result), result
    assert FAR.ledger() == ["slow"]


TOLD = [
    is_a_tool,
    tells_progress_and_the_artifact_comes_whole,
    asks_by_elicitation_in_a_session,
    asks_by_elicitation_without_a_session,
    takes_a_no,
    passes_a_no_of_the_agent_on,
    passes_a_cancel_on,
]
KILLS = [
    survives_a_kill_while_it_works,
    survives_a_kill_while_it_asks,
    survives_a_kill_right_after_the_answer,
    survives_a_kill_as_a_task_at_work,
    survives_a_kill_as_a_task_that_asks,
    does_it_again_when_the_agent_was_killed,
    nobody_is_asked_again_when_the_agent_was_killed,
    does_it_once_where_the_table_says_so,
]


def stories():
    def begun_anew(story):
        async def told():
            FAR.anew()
            await story()

        return told

    # The agents differ in how they are spoken to, not in what is done about kills: the older one is killed less often.
    kills = KILLS if FULL or not sys.argv[1].startswith("0.") else KILLS[:2]
    for story in TOLD:
        yield story.__name__, begun_anew(story)
    for nth in range(5 if FULL else 1):
        for story in kills:
            yield f"{story.__name__}{f', {nth + 1}' if FULL else ''}", begun_anew(story)


if __name__ == "__main__":
    with far_agent.published(sys.argv[1]) as (FAR, SERVER):
        for name in ("far", "far_once"):
            world.until(lambda name=name: "An agent made with" in SERVER.card(name)["description"], about=SERVER.said)
        raise SystemExit(1 if world.tell(stories(), SERVER.said) else 0)
