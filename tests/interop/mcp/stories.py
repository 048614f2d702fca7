"""What a person with an official MCP client would try on a Nuncio server, whatever the client.

A program says how its SDK does each thing (class `Client` below) and hands itself to `run`, which tells the stories,
prints a line for each, and counts. The server serves the built-in agents as tools, with short steps.
"""

import argparse
import asyncio
import contextlib
import dataclasses
import json
import traceback
import typing

TRAVEL, RESEARCH, LONG_RUNNING = "travel_agent", "research_agent", "long_running_agent"
INVALID_PARAMS = -32602
LONGEST_STORY = 60


class ServerError(Exception):
    """An error that the server answered with, as JSON-RPC has it."""

    def __init__(self, code, message):
        super().__init__(f"{code}: {message}")
        self.code = code


@dataclasses.dataclass
class Result:
    """The end of a tool call."""

    failed: bool
    text: str


@dataclasses.dataclass
class Person:
    """What the client can do for the server, beyond calling tools. What is `None` is not declared to it."""

    # Gets the question and the schema; gives the action, and the content if it is "accept".
    elicit: typing.Callable[[str, dict], tuple[str, dict | None]] | None = None
    # Gets the prompt; gives the text of the model.
    sample: typing.Callable[[str], str] | None = None
    # From which level on it wants to hear the log; `heard` is what it heard.
    level: str | None = None
    heard: list[tuple[str, str]] = dataclasses.field(default_factory=list)


class Client(typing.Protocol):
    """A connection that an SDK made."""

    version: str
    server: str

    async def tools(self) -> dict[str, dict]: ...
    async def call(self, name: str, arguments: dict, progress=None) -> Result: ...
    async def call_and_cancel(self, name: str, arguments: dict, when: asyncio.Event, progress) -> None: ...
    async def resources(self) -> list[str]: ...
    async def templates(self) -> list[str]: ...
    async def ping(self) -> None: ...


Connect = typing.Callable[[Person], typing.AsyncContextManager[Client]]


class Stories:
    def __init__(self, connect: Connect, revision: str):
        self.connect = connect
        self.revision = revision

    async def meets_the_server(self):
        async with self.connect(Person()) as client:
            assert client.version == self.revision, client.version
            assert client.server, "the server did not say who it is"

    async def finds_the_agents(self):
        async with self.connect(Person()) as client:
            tools = await client.tools()
            assert {TRAVEL, RESEARCH, LONG_RUNNING} <= set(tools), sorted(tools)
            assert "text" in tools[echo_of(tools)]["properties"], tools
            assert "destination" in tools[TRAVEL]["properties"], tools[TRAVEL]
            assert "topic" in tools[RESEARCH]["properties"], tools[RESEARCH]

    async def hears_its_echo(self):
        async with self.connect(Person()) as client:
            echo = echo_of(await client.tools())
            result = await client.call(echo, {"text": "Hello, is anybody there? äöü 😀"})
            assert not result.failed and "Hello, is anybody there? äöü 😀" in result.text, result

    async def books_after_a_yes(self):
        asked = []

        def elicit(question, schema):
            asked.append((question, schema))
            return "accept", {"confirm": True, "notes": "a window seat"}

        result, progress = await self._travels(Person(elicit=elicit))
        [(question, schema)] = asked
        assert "$1200" in question and "Lisbon" in question, question
        assert schema["properties"]["confirm"]["type"] == "boolean" and schema["required"] == ["confirm"], schema
        assert not result.failed and "Trip to Lisbon booked for $1200. Reference: TRIP-" in result.text, result
        assert progress == [0, 25, 50, 75, 100], progress

    async def books_nothing_after_a_no(self):
        result, progress = await self._travels(Person(elicit=lambda *_: ("decline", None)))
        assert "Not booked: the offer for Lisbon was declined." in result.text, result
        assert progress == [0, 25, 50, 100], progress

    async def books_nothing_when_it_is_not_confirmed(self):
        result, _ = await self._travels(Person(elicit=lambda *_: ("accept", {"confirm": False})))
        assert "Not booked: you did not confirm" in result.text, result

    async def books_nothing_when_the_question_is_dismissed(self):
        try:
            result, _ = await self._travels(Person(elicit=lambda *_: ("cancel", None)))
        except ServerError as error:
            result = Result(True, str(error))
        assert "booked for" not in result.text, result
        assert "dismissed" in result.text, result

    async def books_nothing_when_nobody_can_be_asked(self):
        result, progress = await self._travels(Person())
        assert not result.failed and "Price quoted, not booked" in result.text, result
        assert progress == [0, 25, 50, 100], progress

    async def _travels(self, person):
        seen = []
        async with self.connect(person) as client:
            result = await client.call(TRAVEL, {"destination": "Lisbon"}, lambda done, _: seen.append(done))
            # An SDK may hand the last report on after the result.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2):
                    while 100 not in seen:
                        await asyncio.sleep(0.01)
        return result, without_repeats(seen)

    async def takes_the_default_of_an_argument(self):
        async with self.connect(Person()) as client:
            result = await client.call(TRAVEL, {})
            assert "The trip to Paris costs $1200." in result.text, result

    async def writes_with_the_callers_model(self):
        asked = []

        def sample(prompt):
            asked.append(prompt)
            return "Bees are busy."

        async with self.connect(Person(sample=sample)) as client:
            result = await client.call(RESEARCH, {"topic": "bees"})
        [prompt] = asked
        assert "bees" in prompt, prompt
        assert not result.failed and "Bees are busy." in result.text, result
        assert "The summary was written by your model." in result.text, result

    async def writes_itself_where_there_is_no_model(self):
        async with self.connect(Person()) as client:
            result = await client.call(RESEARCH, {"topic": "bees"})
        assert not result.failed and "there was no model to ask" in result.text, result

    async def hears_every_step(self):
        progress = []
        person = Person(level="info")
        async with self.connect(person) as client:
            result = await client.call(LONG_RUNNING, {}, lambda done, total: progress.append((done, total)))
            await heard(person, 50)
        assert "All 50 steps are done." in result.text, result
        assert steps(person) == list(range(1, 51)), person.heard
        levels = [level for level, _ in person.heard]
        assert levels.count("info") == 45 and levels.count("warning") == 5, levels
        assert without_repeats(progress) == [(done, 50) for done in range(1, 51)], progress

    async def hears_warnings_alone(self):
        person = Person(level="warning")
        async with self.connect(person) as client:
            await client.call(LONG_RUNNING, {})
            await heard(person, 5)
        assert steps(person) == [10, 20, 30, 40, 50] and len(person.heard) == 5, person.heard

    async def hears_details_too(self):
        person = Person(level="debug")
        async with self.connect(person) as client:
            await client.call(LONG_RUNNING, {})
            await heard(person, 60)
        details = [text for level, text in person.heard if level == "debug"]
        assert len(person.heard) == 60 and len(details) == 10, person.heard

    async def lists_resources_and_templates(self):
        async with self.connect(Person()) as client:
            resources, templates = await client.resources(), await client.templates()
            assert all(resources), resources
            assert all("{" in template for template in templates), templates

    async def pings(self):
        async with self.connect(Person()) as client:
            await client.ping()

    async def cancels_a_call_and_goes_on(self):
        async with self.connect(Person()) as client:
            echo = echo_of(await client.tools())
            begun, seen = asyncio.Event(), []

            def progress(done, _):
                seen.append(done)
                begun.set()

            await client.call_and_cancel(LONG_RUNNING, {}, begun, progress)
            assert seen and 50 not in seen, seen
            result = await client.call(echo, {"text": "still here"})
            assert "still here" in result.text, result

    async def calls_two_tools_at_once(self):
        async with self.connect(Person()) as client:
            echo = echo_of(await client.tools())
            async with asyncio.TaskGroup() as group:
                long = group.create_task(client.call(LONG_RUNNING, {}))
                result = await client.call(echo, {"text": "meanwhile"})
                assert "meanwhile" in result.text and not long.done(), result
            assert "All 50 steps are done." in long.result().text, long.result()

    async def an_unknown_tool_is_an_error(self):
        async with self.connect(Person()) as client:
            try:
                result = await client.call("no_such_agent", {})
            except ServerError as error:
                assert error.code == INVALID_PARAMS, error
            else:
                raise AssertionError(f"a result: {result}")


def told(revision):
    """The stories that can be told of a revision, by their names: 2026-07-28 has no ping."""
    names = [name for name in vars(Stories) if not name.startswith("_")]
    return [name for name in names if not (name == "pings" and revision >= "2026-07-28")]


def echo_of(tools):
    """The agent that says back what it is told, under either of its names."""
    [name] = {"echo", "echo_agent"} & set(tools)
    return name


def without_repeats(values):
    """A question in between makes two requests of one call; the second may say again where it stands."""
    return [value for n, value in enumerate(values) if n == 0 or value != values[n - 1]]


def steps(person):
    return [int(text.split()[2].split("/")[0]) for _, text in person.heard if text.startswith("Processing step")]


async def heard(person, count, within=5):
    """Log lines come beside the result, so the last may come after it."""
    with contextlib.suppress(asyncio.TimeoutError):
        async with asyncio.timeout(within):
            while len(person.heard) < count:
                await asyncio.sleep(0.01)


def words(data):
    """What a log line says: its text, or its data as JSON."""
    return data if isinstance(data, str) else json.dumps(data)


def why(error):
    """The cause in one line; task groups wrap it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__} {error}".replace("\n", " ")[:500]


def run(name, modes):
    """Tells the stories for every mode of connecting, given as name: (connect, the revision to arrive at)."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url", metavar="URL")
    parser.add_argument("--only", default="", help="stories whose names have this in them")
    options = parser.parse_args()
    passed = failed = 0
    for mode, (connect, revision) in modes.items():
        stories = Stories(lambda person: connect(options.url, person), revision)
        for story in told(revision):
            if options.only not in story:
                continue
            title = f"{name}/{mode}/{story}"
            try:
                asyncio.run(asyncio.wait_for(getattr(stories, story)(), LONGEST_STORY))
                passed += 1
                print(f"ok {title}", flush=True)
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                failed += 1
                print(f"FAIL {title}: {why(error)}", flush=True)
                if options.only:
                    traceback.print_exc()
    print(f"{passed} passed, {failed} failed", flush=True)
    raise SystemExit(1 if failed else 0)
