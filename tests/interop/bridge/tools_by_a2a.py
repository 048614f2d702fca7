"""The reference MCP server as an A2A agent of a real nuncio server, called by the official client of A2A 1.0 (a2a-sdk
1.3.0): progress, questions, samples, cancel, and kills of everything that is not the client.

Usage: tools_by_a2a.py, under a Python that has the SDK, with the binary in NUNCIO."""

import asyncio
import contextlib
import json
import pathlib
import tempfile
import uuid

import httpx
from a2a.client import ClientConfig, ClientFactory
from a2a.client.card_resolver import A2ACardResolver
from a2a.types.a2a_pb2 import (
    CancelTaskRequest,
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskState,
)
from a2a.utils.errors import UnsupportedOperationError
from google.protobuf.json_format import MessageToDict

import world
from world import EVERYTHING, FULL, LONGEST, NODE, Ledger, happens

OVER_HTTP, ON_PIPES = "over_http", "on_pipes"
LONG = "trigger-long-running-operation"
ASKS = "trigger-elicitation-request"
FORM = {
    "name": "Ada",
    "check": True,
    "email": "ada@example.com",
    "integer": 7,
}


def tables(everything, pipes):
    """Each way to the server twice: a lost call is made again, or not."""
    # What goes over is written down on the way, as the relay does over HTTP.
    line = f'tee -a "{pipes.path}" | "{NODE}" "{EVERYTHING}" stdio'
    ways = ((OVER_HTTP, f'url = "{everything.url}"'), (ON_PIPES, f"command = {json.dumps(['sh', '-c', line])}"))
    table = '[[agent]]\nname = "{}"\nkind = "mcp"\n{}\nlost = "{}"\n'
    return "".join(
        table.format(name + suffix, place, lost)
        for name, place in ways
        for suffix, lost in (("", "again"), ("_once", "fail"))
    )


def message(text=None, data=None, task=""):
    part = Part(text=text or "")
    if data is not None:
        part = Part()
        part.data.struct_value.update(data)
    return Message(message_id=str(uuid.uuid4()), role=Role.ROLE_USER, parts=[part], task_id=task)


def call(tool, **arguments):
    return message(data={"tool": tool, "arguments": arguments})


def plain(part):
    return MessageToDict(part.data) if part.HasField("data") else part.text


def words(status):
    return "".join(part.text for part in status.message.parts)


def state(status):
    return TaskState.Name(status.state).removeprefix("TASK_STATE_")


def text_of(artifacts):
    return "\n".join(part.text for artifact in artifacts for part in artifact.parts)


def figures(events):
    """How far the work was, each time that it was told."""
    seen = []
    for event in events:
        if event.HasField("status_update"):
            for part in event.status_update.status.message.parts:
                if part.HasField("data") and "progress" in (data := MessageToDict(part.data)):
                    seen.append(data["progress"])
    return seen


class Caller:
    """The client of one agent, which finds it by its card alone."""

    def __init__(self, agent, http, client):
        self.agent, self.http, self.client = agent, http, client

    async def send(self, sent, **configuration):
        request = SendMessageRequest(message=sent, configuration=SendMessageConfiguration(**configuration))
        return [event async for event in self.client.send_message(request)]

    async def begin(self, sent):
        """Sends, and waits for nothing. The id of the task."""
        quick = ClientFactory(ClientConfig(httpx_client=self.http, streaming=False)).create(self.card)
        request = SendMessageRequest(
            message=sent, configuration=SendMessageConfiguration(return_immediately=True)
        )
        [event] = [event async for event in quick.send_message(request)]
        return event.task.id

    async def at_work(self, sent):
        """Sends, and waits until something was heard of the work. The id of the task."""
        events = []
        async for event in self.client.send_message(SendMessageRequest(message=sent)):
            events.append(event)
            if figures(events):
                return events[0].task.id
        raise AssertionError(f"it never said how far it was: {events}")

    async def get(self, task):
        return await self.client.get_task(GetTaskRequest(id=task))

    async def follow(self, task):
        """Everything from now to the end, or to the next question; or the task, if that is over."""
        return [event async for event in self.client.subscribe(SubscribeToTaskRequest(id=task))]

    async def until(self, task, holds):
        async with asyncio.timeout(LONGEST):
            while not holds(found := await self.get(task)):
                await asyncio.sleep(0.02)
        return found

    async def settled(self, task):
        rests = ("COMPLETED", "INPUT_REQUIRED", "AUTH_REQUIRED", "FAILED", "CANCELED", "REJECTED")
        return await self.until(task, lambda found: state(found.status) in rests)


@contextlib.asynccontextmanager
async def calling(agent):
    async with httpx.AsyncClient(timeout=LONGEST) as http:
        url = f"{SERVER.url}/agents/{agent}"
        await happens(lambda: len(SERVER.card(agent)["skills"]) > 1, about=SERVER.said)
        card = await A2ACardResolver(http, url).get_agent_card()
        caller = Caller(agent, http, ClientFactory(ClientConfig(httpx_client=http)).create(card))
        caller.card = card
        LEDGERS[agent].anew()
        yield caller


# What is the same over HTTP and on pipes.


async def has_the_tools_as_skills(agent):
    async with calling(agent) as caller:
        skills = {skill.id for skill in caller.card.skills}
        assert {"echo", "get-sum", LONG, ASKS} <= skills, skills
        events = await caller.send(call("get-sum", a=2, b=40))
        last = await caller.get(events[0].task.id)
        assert state(last.status) == "COMPLETED" and "42" in text_of(last.artifacts), last


async def tells_how_far_it_is_in_order(agent):
    async with calling(agent) as caller:
        events = await caller.send(call(LONG, duration=0.4, steps=4))
        assert figures(events) == [1, 2, 3, 4], events
        kinds = [event.WhichOneof("payload") for event in events]
        assert kinds[0] == "task" and kinds[-2:] == ["artifact_update", "status_update"], kinds
        assert "completed" in events[-2].artifact_update.artifact.parts[0].text, events[-2]
        assert state(events[-1].status_update.status) == "COMPLETED", events[-1]


async def asks_and_takes_a_structured_answer(agent):
    async with calling(agent) as caller:
        events = await caller.send(call(ASKS))
        task, last = events[0].task.id, events[-1].status_update.status
        assert state(last) == "INPUT_REQUIRED", events
        schema = MessageToDict(last.message.parts[1].data)["schema"]
        assert {"name", "check", "integer"} <= set(schema["properties"]), schema
        events = await caller.send(message(data=FORM, task=task))
        assert state(events[-1].status_update.status) == "COMPLETED", events[-1]
        said = text_of((await caller.get(task)).artifacts)
        assert "Ada" in said and "ada@example.com" in said and "7" in said, said
        assert LEDGERS[agent].count("tools/call") == 1


async def takes_a_no(agent):
    async with calling(agent) as caller:
        task = (await caller.send(call(ASKS)))[0].task.id
        events = await caller.send(message(data={"action": "decline"}, task=task))
        assert state(events[-1].status_update.status) == "COMPLETED", events[-1]
        said = text_of((await caller.get(task)).artifacts)
        assert "declined" in said, said


async def refuses_an_answer_that_does_not_fit(agent):
    async with calling(agent) as caller:
        task = (await caller.send(call(ASKS)))[0].task.id
        try:
            await caller.send(message(data=FORM | {"integer": "many"}, task=task))
            raise AssertionError("it was taken")
        except Exception as error:
            assert "integer" in str(error), error
        assert state((await caller.get(task)).status) == "INPUT_REQUIRED"
        await caller.client.cancel_task(CancelTaskRequest(id=task))


async def has_the_servers_model_for_samples(agent):
    async with calling(agent) as caller:
        events = await caller.send(call("trigger-sampling-request", prompt="Say something.", maxTokens=20))
        task = await caller.get(events[0].task.id)
        assert state(task.status) == "COMPLETED" and MODEL_SAYS in text_of(task.artifacts), task


async def passes_a_cancel_on(agent):
    async with calling(agent) as caller:
        task = await caller.at_work(call(LONG, duration=30, steps=300))
        canceled = await caller.client.cancel_task(CancelTaskRequest(id=task))
        assert state(canceled.status) == "CANCELED", canceled
        await happens(lambda: LEDGERS[agent].count("notifications/cancelled") == 1, about=LEDGERS[agent].text)


async def says_what_to_do_about_a_wrong_call(agent):
    async with calling(agent) as caller:
        for sent, expected in (
            (call("dance"), ("REJECTED", "there is no tool \"dance\"; there is echo")),
            (call("get-sum", a="two", b=2), ("REJECTED", "/a: \"two\" is not of type \"number\"")),
        ):
            events = await caller.send(sent)
            status = (await caller.get(events[0].task.id)).status
            assert state(status) == expected[0] and expected[1] in words(status), status
        assert LEDGERS[agent].count("tools/call") == 0
        task = (await caller.send(call("get-sum", a=2)))[0].task.id
        status = (await caller.get(task)).status
        assert state(status) == "INPUT_REQUIRED" and "needs more" in words(status), status
        await caller.send(message(data={"b": 3}, task=task))
        assert "5" in text_of((await caller.get(task)).artifacts)


# Kills.


async def survives_a_kill_while_it_works():
    """Over HTTP the call is taken up where its stream was: made once, and nothing is told twice or left out."""
    async with calling(OVER_HTTP) as caller:
        events = []
        with contextlib.suppress(Exception):
            async for event in caller.client.send_message(
                SendMessageRequest(message=call(LONG, duration=4, steps=20))
            ):
                events.append(event)
                if figures(events) == [1, 2]:
                    await asyncio.to_thread(SERVER.kill)
        task, seen = events[0].task.id, figures(events)
        assert seen[:2] == [1, 2] and seen[-1] < 20, seen
        await asyncio.to_thread(SERVER.start)
        try:
            rest = await caller.follow(task)
            more = figures(rest)
            assert more == list(range(int(more[0]), 21)), f"from somewhere on, nothing is left out: {more}"
            assert state(rest[-1].status_update.status) == "COMPLETED", rest[-1]
        except UnsupportedOperationError:
            # On a busy machine it has ended before the server is there again.
            pass
        found = await caller.settled(task)
        assert state(found.status) == "COMPLETED", found
        assert "completed" in text_of(found.artifacts) and len(found.artifacts) == 1, found
        assert LEDGERS[OVER_HTTP].count("tools/call") == 1, "the work was done once"


async def survives_a_kill_while_it_asks():
    async with calling(OVER_HTTP) as caller:
        task = (await caller.send(call(ASKS)))[0].task.id
        await asyncio.to_thread(SERVER.again)
    async with calling_on(OVER_HTTP) as caller:
        assert state((await caller.get(task)).status) == "INPUT_REQUIRED"
        await caller.send(message(data=FORM, task=task))
        found = await caller.settled(task)
        assert state(found.status) == "COMPLETED" and "Ada" in text_of(found.artifacts), found
        assert LEDGERS[OVER_HTTP].count("tools/call") == 1, "the work was done once"


async def survives_a_kill_right_after_the_answer():
    async with calling(OVER_HTTP) as caller:
        task = (await caller.send(call(ASKS)))[0].task.id
        await caller.begin(message(data=FORM, task=task))
        await asyncio.to_thread(SERVER.again)
    async with calling_on(OVER_HTTP) as caller:
        found = await caller.settled(task)
        assert state(found.status) == "COMPLETED" and "Ada" in text_of(found.artifacts), found
        assert LEDGERS[OVER_HTTP].count("tools/call") == 1, "the work was done once"


async def does_it_again_when_the_pipes_died():
    """A server on pipes dies with Nuncio; what was answered is not asked again."""
    async with calling(ON_PIPES) as caller:
        task = (await caller.send(call(ASKS)))[0].task.id
        await asyncio.to_thread(SERVER.again)
    async with calling_on(ON_PIPES) as caller:
        await caller.send(message(data=FORM, task=task))
        found = await caller.settled(task)
        assert state(found.status) == "COMPLETED" and "Ada" in text_of(found.artifacts), found
        asked = [item for item in found.history if item.role == Role.ROLE_AGENT and len(item.parts) > 1]
        assert len(asked) == 1, found.history
        assert LEDGERS[ON_PIPES].count("tools/call") == 2


async def does_it_again_when_the_server_was_killed():
    """The reference server keeps nothing over its own death."""
    async with calling(OVER_HTTP) as caller:
        task = await caller.at_work(call(LONG, duration=1, steps=5))
        await asyncio.to_thread(revive)
        found = await caller.settled(task)
        assert state(found.status) == "COMPLETED" and "completed" in text_of(found.artifacts), found
        # The new server may refuse one first, because it belongs to a session of the old one.
        assert LEDGERS[OVER_HTTP].count("tools/call") in (2, 3), LEDGERS[OVER_HTTP].text()


async def does_it_once_where_the_table_says_so():
    for agent, lose in ((OVER_HTTP, revive), (ON_PIPES, lambda: SERVER.again())):
        async with calling(f"{agent}_once") as caller:
            # So that its session is one of the server that is there now.
            await caller.send(call("echo", message="hello"))
            LEDGERS[agent].anew()
            task = await caller.at_work(call(LONG, duration=30, steps=300))
            await asyncio.to_thread(lose)
        async with calling_on(f"{agent}_once") as caller:
            status = (await caller.settled(task)).status
            assert state(status) == "FAILED", status
            assert words(status).startswith("the call was lost and is not made again: "), words(status)
            assert LEDGERS[agent].count("tools/call") == 1


def revive():
    world.kill(EVERYTHING_THERE.process)
    EVERYTHING_THERE.start()


@contextlib.asynccontextmanager
async def calling_on(agent):
    """The same agent after a restart: what was written down before still counts."""
    begin = LEDGERS[agent].begin
    async with calling(agent) as caller:
        LEDGERS[agent].begin = begin
        yield caller


MODEL_SAYS = "The bees are busy."
ALIKE = [
    has_the_tools_as_skills,
    tells_how_far_it_is_in_order,
    asks_and_takes_a_structured_answer,
    takes_a_no,
    refuses_an_answer_that_does_not_fit,
    has_the_servers_model_for_samples,
    passes_a_cancel_on,
    says_what_to_do_about_a_wrong_call,
]
KILLS = [
    survives_a_kill_while_it_works,
    survives_a_kill_while_it_asks,
    survives_a_kill_right_after_the_answer,
    does_it_again_when_the_pipes_died,
    does_it_again_when_the_server_was_killed,
    does_it_once_where_the_table_says_so,
]


def stories():
    for agent in (OVER_HTTP, ON_PIPES):
        for story in ALIKE:
            yield f"{agent}: {story.__name__}", lambda story=story, agent=agent: story(agent)
    for nth in range(5 if FULL else 1):
        for story in KILLS:
            yield f"{story.__name__}{f', {nth + 1}' if FULL else ''}", story


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, world.everything() as EVERYTHING_THERE, \
            world.model(MODEL_SAYS) as model:
        pipes = Ledger(pathlib.Path(folder) / "on-pipes")
        LEDGERS = {OVER_HTTP: EVERYTHING_THERE.ledger, ON_PIPES: pipes}
        LEDGERS |= {f"{agent}_once": ledger for agent, ledger in LEDGERS.items()}
        settings = f'[model]\nprovider = "openai"\nname = "stand-in"\nbase-url = "{model}"\n'
        with world.nuncio(settings + tables(EVERYTHING_THERE, pipes)) as SERVER:
            raise SystemExit(1 if world.tell(stories(), SERVER.said) else 0)
