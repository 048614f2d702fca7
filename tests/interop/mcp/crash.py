"""A server that is killed in the middle of a call, and the official Python SDK 2.x (mcp) that comes back for it.

    target/interop/mcp-2.3.0/bin/python tests/interop/mcp/crash.py target/debug/nuncio --rounds 13

Every round makes one call, kills the server (SIGKILL) while it is at work on it, starts another on the same folder
and port, and ends the call with the same SDK: by the token of the stream where there are sessions (2025-11-25), by
the task where there are none (2026-07-28). Situations:

  progress     long_running_agent, somewhere in its fifty steps
  elicitation  travel_agent, while its question is not answered
  sampling     research_agent, while the model has not answered
  tasks        without sessions: a call in the background, a task at work, a task that waits for an answer

In sessions, odd rounds leave the reconnecting to the SDK, and even ones throw the client away and resume with
another that has only the session's id and the last token, as a new process of it would.

The SDK has an API for all of that but one: a transport takes a session's id only from an answer. So the second client
gives it, as a header of all requests, to the HTTP client that the SDK lets its user bring along.
"""

import argparse
import asyncio
import contextlib
import dataclasses
import json
import os
import sys
import time
import traceback
import typing
import warnings

import anyio
import httpx2
import mcp
from mcp import types
from mcp.client.extension import ClientExtension, ResultClaim
from mcp.client.session import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPDeprecationWarning
from mcp.shared.message import ClientMessageMetadata

import stories
from server import serving

warnings.simplefilter("ignore", MCPDeprecationWarning)

STATELESS = "2026-07-28"
TASKS = "io.modelcontextprotocol/tasks"
STEPS = 50
LONGEST_ROUND = 60
# Only so that a wait does not spin; what is waited for is always a condition.
BLINK = 0.01


async def until(what, holds, within=LONGEST_ROUND / 2):
    try:
        async with asyncio.timeout(within):
            while not holds():
                await asyncio.sleep(BLINK)
    except TimeoutError:
        raise AssertionError(f"waited in vain for {what}") from None


# --- the client ---


@dataclasses.dataclass
class Heard:
    """What a client was told, in the order of the wire. The SDK may hand notifications on in another."""

    messages: list[dict] = dataclasses.field(default_factory=list)
    tokens: list[str] = dataclasses.field(default_factory=list)
    closed: bool = False

    def add(self, message):
        # Changed lists are news of the session, on its own stream: no token of the call belongs to them.
        if not self.closed and not message.get("method", "").endswith("/list_changed"):
            self.messages.append(message)

    async def token(self, token):
        if not self.closed:
            self.tokens.append(token)

    def params(self, method):
        return [message["params"] for message in self.messages if message.get("method") == method]

    def progress(self):
        return [params["progress"] for params in self.params("notifications/progress")]

    def log(self):
        return [stories.words(params["data"]) for params in self.params("notifications/message")]

    def is_whole(self):
        """Whether the last token belongs to the last message: the first one comes with none."""
        return len(self.tokens) == len(self.messages) + 1


class Tap:
    """A read stream that writes down what it hands on."""

    def __init__(self, stream, heard):
        self.stream = stream
        self.heard = heard

    @property
    def last_context(self):
        return self.stream.last_context

    async def receive(self):
        item = await self.stream.receive()
        if not isinstance(item, Exception):
            message = item.message.model_dump(by_alias=True, mode="json", exclude_none=True)
            if "protocolVersion" not in message.get("result", {}):
                self.heard.add(message)
        return item

    async def aclose(self):
        await self.stream.aclose()

    def __aiter__(self):
        return self

    async def __anext__(self):
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.aclose()


@dataclasses.dataclass
class Person:
    """Who is asked through the client. Answers the questions from `answers_from` on; those before it stay open
    until `late` is set."""

    answers_from: int = 1
    asked: list[str] = dataclasses.field(default_factory=list)
    answered: list[str] = dataclasses.field(default_factory=list)
    late: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)

    async def decide(self, request):
        self.asked.append(str(request))
        if len(self.asked) < self.answers_from:
            await self.late.wait()
        self.answered.append(str(request))

    async def elicit(self, context, params):
        await self.decide(context.request_id)
        return types.ElicitResult(action="accept", content={"confirm": True})

    async def sample(self, context, params):
        await self.decide(context.request_id)
        content = types.TextContent(type="text", text="Bees are busy.")
        return types.CreateMessageResult(role="assistant", content=content, model="scripted")


@dataclasses.dataclass
class Connection:
    session: ClientSession
    heard: Heard
    # The session's id, as the answer to initialize said; and what became of the answers to questions, by their ids.
    id: str | None = None
    posted: dict[str, int] = dataclasses.field(default_factory=dict)

    async def call(self, name, arguments, token=None):
        """Calls a tool, or goes on with the call that a token belongs to."""
        params = types.CallToolRequestParams(name=name, arguments=arguments, _meta={"progress_token": "p"})
        metadata = ClientMessageMetadata(resumption_token=token, on_resumption_token_update=self.heard.token)
        request = types.CallToolRequest(params=params)
        return await self.session.send_request(request, types.CallToolResult, LONGEST_ROUND, metadata)


@contextlib.asynccontextmanager
async def in_session(url, person, resume=None):
    """A client with a session: a new one, or that of another connection."""
    connection = None

    async def noted(response):
        connection.id = response.headers.get("mcp-session-id", connection.id)
        if response.request.method == "POST":
            sent = json.loads(response.request.content)
            if "method" not in sent:
                connection.posted[sent["id"]] = response.status_code

    headers = {"mcp-session-id": resume.id} if resume else {}
    # A start may take longer than the SDK's two attempts, so the connecting itself is repeated too.
    transport = httpx2.AsyncHTTPTransport(retries=5)
    timeout = httpx2.Timeout(LONGEST_ROUND)
    http = httpx2.AsyncClient(headers=headers, transport=transport, timeout=timeout, event_hooks={"response": [noted]})
    async with http, streamable_http_client(url, http_client=http, terminate_on_close=False) as (read, write):
        heard = Heard()
        session = ClientSession(
            Tap(read, heard), write, elicitation_callback=person.elicit, sampling_callback=person.sample
        )
        connection = Connection(session, heard)
        async with session:
            if resume:
                session.adopt(resume.session.initialize_result)
            else:
                await session.initialize()
                await session.set_logging_level("debug")
                heard.messages.clear()
            yield connection


class TaskMade(types.Result):
    """What a call is answered with that was made a task."""

    result_type: typing.Literal["task"] = "task"
    task_id: str
    status: str


class GetTask(types.Request[dict, typing.Literal["tasks/get"]]):
    method: typing.Literal["tasks/get"] = "tasks/get"
    name_param = "taskId"


class UpdateTask(types.Request[dict, typing.Literal["tasks/update"]]):
    method: typing.Literal["tasks/update"] = "tasks/update"
    name_param = "taskId"


class Anything(types.Result, extra="allow"):
    """The SDK knows the extension's name and headers, and leaves its results to whoever uses it."""


class Tasks(ClientExtension):
    identifier = TASKS

    def claims(self):
        async def resolve(_made, _context):
            raise AssertionError("these calls ask for the task itself")

        return [ResultClaim(result_type="task", model=TaskMade, resolve=resolve)]


def without_session(url, person, *extensions):
    return mcp.Client(
        url,
        mode=STATELESS,
        read_timeout_seconds=LONGEST_ROUND,
        elicitation_callback=person.elicit,
        extensions=extensions,
    )


# --- the situations ---


class Situations:
    def __init__(self, server):
        self.server = server

    async def progress(self, round):
        # All over the call, with some steps left for a machine that is slow.
        step = 1 + (round * 11) % (STEPS - 10)

        def middle(heard):
            return len(heard.progress()) >= step

        heard, result = await self._cut(round, "long_running_agent", {}, middle, Person())
        assert f"All {STEPS} steps are done." in text_of(result), result
        assert progress_in(heard) == list(range(1, STEPS + 1)), progress_in(heard)
        lines = [line for part in heard for line in part.log()]
        steps = [int(line.split()[2].split("/")[0]) for line in lines if line.startswith("Processing step")]
        assert steps == list(range(1, STEPS + 1)) and len(lines) == STEPS + STEPS // 5, lines

    async def elicitation(self, round):
        result = await self._asks(round, "travel_agent", {"destination": f"Lisbon {round}"})
        assert f"Trip to Lisbon {round} booked for $1200. Reference: TRIP-" in text_of(result), result

    async def sampling(self, round):
        result = await self._asks(round, "research_agent", {"topic": f"bees {round}"})
        text = text_of(result)
        assert "The summary was written by your model." in text and text.count("Bees are busy.") == 1, result

    async def tasks(self, round):
        kinds = [self._background, self._task_at_work, self._task_that_asks]
        await kinds[round % len(kinds)](round)

    async def _asks(self, round, agent, arguments):
        person = Person(answers_from=2)
        heard, result = await self._cut(round, agent, arguments, lambda _: person.asked, person)
        first, second, *_ = person.asked
        assert first != second, f"the question was put again under the id {first}"
        assert progress_in(heard) == [0, 25, 50, 75, 100], progress_in(heard)
        await self._answered_once(task_in(result))
        return result

    async def _cut(self, round, agent, arguments, when, person):
        """A call in a session, cut when that holds. Gives what was heard before and after, and the result."""
        async with self._one_task(lambda: task_in(result)):
            if round % 2:
                heard, result = await self._reconnects(agent, arguments, when, person)
            else:
                heard, result = await self._resumes(agent, arguments, when, person)
        assert not result.is_error, result
        return heard, result

    async def _reconnects(self, agent, arguments, when, person):
        """The SDK comes back by itself, in the same call."""
        async with in_session(self.server.url, person) as connection, asyncio.TaskGroup() as group:
            call = group.create_task(connection.call(agent, arguments))
            await until("the moment to kill", lambda: call.done() or when(connection.heard))
            assert not call.done(), "the call was over before the kill"
            self.server.kill()
            await asyncio.to_thread(self.server.start)
            result = await call
            if person.asked:
                # The first question is answered too, too late: that is taken and changes nothing.
                person.late.set()
                await until("the answers to be taken", lambda: set(person.asked) <= set(connection.posted))
            assert set(connection.posted.values()) <= {202}, connection.posted
        return [connection.heard], result

    async def _resumes(self, agent, arguments, when, person):
        """Another client goes on with the call of one that is no more."""
        async with in_session(self.server.url, person) as first:
            call = asyncio.create_task(first.call(agent, arguments))
            try:
                await until("the moment to kill", lambda: call.done() or when(first.heard))
                assert not call.done(), "the call was over before the kill"
                self.server.kill()
                # What the client had when it went away: a message counts when its token does.
                await until("the last token", first.heard.is_whole)
                first.heard.closed = True
            finally:
                call.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await call
        await asyncio.to_thread(self.server.start)
        async with in_session(self.server.url, person, resume=first) as second:
            result = await second.call(agent, arguments, first.heard.tokens[-1])
            if person.asked:
                await until("the answer to be taken", lambda: set(person.answered) <= set(second.posted))
            assert set(second.posted.values()) <= {202}, second.posted
        return [first.heard, second.heard], result

    async def _background(self, round):
        person = Person()
        async with self._one_task(lambda: uri.removeprefix("a2a://tasks/")):
            async with without_session(self.server.url, person) as client:
                meta = {"nuncio/background": True}
                result = await client.call_tool("research_agent", {"topic": "bees"}, meta=meta)
                [uri] = [block.uri for block in result.content if block.type == "resource_link"]
                assert uri.startswith("a2a://tasks/"), uri
            self.server.kill()
            await asyncio.to_thread(self.server.start)
            async with without_session(self.server.url, person) as client, asyncio.timeout(LONGEST_ROUND / 2):
                while True:
                    [content] = (await client.read_resource(uri)).contents
                    task = json.loads(content.text)
                    if task["status"]["state"] not in ("submitted", "working"):
                        break
                    await asyncio.sleep(BLINK)
            assert task["status"]["state"] == "completed", task
            report = "".join(part["text"] for part in task["artifacts"][0]["parts"])
            for section in ("# bees", "## Sources", "## Findings", "## Summary", "## Next"):
                assert report.count(f"{section}\n") == 1, report

    async def _task_at_work(self, round):
        step = 1 + (round * 11) % (STEPS - 10)

        def middle(task):
            said = task.get("statusMessage", "").split()
            return said[:1] == ["Step"] and int(said[1]) >= step

        task, person = await self._task("long_running_agent", {}, middle)
        assert f"All {STEPS} steps are done." in json.dumps(task["result"]), task
        assert not person.asked, person

    async def _task_that_asks(self, round):
        arguments = {"destination": f"Lisbon {round}"}
        task, person = await self._task("travel_agent", arguments, lambda task: task["status"] == "input_required")
        assert f"Trip to Lisbon {round} booked for $1200. Reference: TRIP-" in json.dumps(task["result"]), task
        assert len(person.asked) == 1, person
        await self._answered_once(task["taskId"])

    async def _task(self, agent, arguments, when):
        """A call that is answered with a task, cut when that holds of the task. Gives the task in the end."""
        person = Person()
        async with self._one_task(lambda: made.task_id):
            async with without_session(self.server.url, person, Tasks()) as client, asyncio.timeout(LONGEST_ROUND / 2):
                made = await client.session.call_tool(agent, arguments, allow_claimed=True)
                assert isinstance(made, TaskMade), made
                while not when(task := await get_task(client, made.task_id)):
                    assert task["status"] == "working", task
                    await asyncio.sleep(BLINK)
            before = task.get("inputRequests")
            self.server.kill()
            await asyncio.to_thread(self.server.start)
            async with without_session(self.server.url, person, Tasks()) as client, asyncio.timeout(LONGEST_ROUND / 2):
                while (task := await get_task(client, made.task_id))["status"] in ("working", "input_required"):
                    if asked := task.get("inputRequests"):
                        assert asked == before, (before, asked)
                        await answer_task(client, made.task_id, asked, person)
                    await asyncio.sleep(BLINK)
            assert task["status"] == "completed" and not task["result"]["isError"], task
        return task, person

    @contextlib.asynccontextmanager
    async def _one_task(self, made):
        """What is done within makes one task, that one, and it is completed."""
        before, kills = await asyncio.to_thread(self.server.tasks), self.server.kills
        yield
        assert self.server.kills == kills + 1, "the server was not killed"
        tasks = await asyncio.to_thread(self.server.tasks)
        new = {id: state for id, state in tasks.items() if id not in before}
        assert new == {made(): "TASK_STATE_COMPLETED"}, new
        assert {id: state for id, state in tasks.items() if id in before} == before, "tasks of before have changed"

    async def _answered_once(self, id):
        """The task asked each question once, however often that was told, and took one answer to it."""
        history = (await asyncio.to_thread(self.server.a2a, "GetTask", {"id": id}))["history"]
        named = [(message["role"], part.get("data", {})) for message in history for part in message["parts"]]
        about = {}
        for role, data in named:
            if "questionId" in data:
                about.setdefault(data["questionId"], []).append(role)
        assert about and all(roles == ["ROLE_AGENT", "ROLE_USER"] for roles in about.values()), history


async def get_task(client, id):
    result = await client.session.send_request(GetTask(params={"taskId": id}), Anything)
    return result.model_dump(by_alias=True, mode="json", exclude_none=True)


async def answer_task(client, id, asked, person):
    """Puts the questions of a task to the person, and hands the answers in."""
    responses = {}
    for name, request in asked.items():
        assert request["method"] == "elicitation/create", request
        params = types.ElicitRequestFormParams.model_validate(request["params"])
        context = mcp.client.session.ClientRequestContext(session=client.session, request_id=name)
        answer = await client.session.dispatch_input_request(context, types.ElicitRequest(params=params))
        responses[name] = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
    params = {"taskId": id, "inputResponses": responses}
    await client.session.send_request(UpdateTask(params=params), Anything)


def task_in(result):
    return result.meta["nuncio/taskId"]


def text_of(result):
    return "\n".join(block.text for block in result.content if block.type == "text")


def progress_in(parts):
    """All progress of a call that was heard in parts: nothing twice, nothing out of order, nothing left out. Pieces of
    a result come between the agent's own steps, at fractions; they rise like all the others."""
    told = [value for heard in parts for value in heard.progress()]
    assert told == sorted(set(told)), told
    return [value for value in told if value == int(value)]


# --- the rounds ---


async def run(name, binary, rounds):
    with serving(binary, "100ms") as server:
        situation = getattr(Situations(server), name)
        for round in range(rounds):
            try:
                async with asyncio.timeout(LONGEST_ROUND):
                    await situation(round)
            except Exception as error:
                error.add_note(f"round {round}")
                print(server.said(), file=sys.stderr)
                raise
        tasks = server.tasks()
        assert len(tasks) == server.kills == rounds, (tasks, server.kills)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary", metavar="NUNCIO_BINARY", type=os.path.abspath)
    parser.add_argument("--rounds", type=int, default=2, help="for each situation; 13 make the full count of 50")
    parser.add_argument("--only", default="", help="situations whose names have this in them")
    options = parser.parse_args()
    passed = failed = 0
    for name in [name for name in vars(Situations) if not name.startswith("_") and options.only in name]:
        began = time.monotonic()
        try:
            asyncio.run(run(name, options.binary, options.rounds))
        except Exception as error:
            failed += 1
            print(f"FAIL {name}: {', '.join(getattr(error, '__notes__', []))}: {stories.why(error)}", flush=True)
            traceback.print_exc()
            continue
        passed += 1
        seconds = time.monotonic() - began
        print(f"ok {name}: {options.rounds} rounds, each ended after a kill as one task ({seconds:.1f} s)", flush=True)
    print(f"{passed} passed, {failed} failed", flush=True)
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
