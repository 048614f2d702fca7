"""Streams of calls in sessions, cut at every event: whoever comes back gets the rest, byte for byte.

    python3 tests/interop/mcp/cut.py target/debug/nuncio

Plain HTTP, because bytes are compared. In every revision that has sessions long_running_agent is called, with all of
its log, and its stream is written down. Then the rest is asked for after each event of it, as a client does that saw
the stream up to there. The same for the stream of `tasks/result`, and for a call that asks something: answered
questions are not put again. Another call is cut at every event while it is at work. What is no event of the session's
own calls is refused.
"""

import argparse
import contextlib
import http.client
import json
import os
import time
import traceback

from server import serving

REVISIONS = ["2025-03-26", "2025-06-18", "2025-11-25"]
LONG_RUNNING, TRAVEL = "long_running_agent", "travel_agent"
STEPS, LINES = 100, 120
PATIENCE = 30


class Session:
    def __init__(self, port, revision):
        self.port = port
        self.headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        self.count = 0
        params = {
            "protocolVersion": revision,
            "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "cut", "version": "1"},
        }
        with self.post("initialize", params) as answer:
            self.headers["Mcp-Session-Id"] = answer.headers["mcp-session-id"]
            self.revision = json.load(answer)["result"]["protocolVersion"]
        assert self.revision == revision, self.revision
        self.headers["MCP-Protocol-Version"] = revision
        with self._send("POST", {"jsonrpc": "2.0", "method": "notifications/initialized"}):
            pass
        with self.post("logging/setLevel", {"level": "debug"}):
            pass

    def post(self, method, params):
        self.count += 1
        return self._send("POST", {"jsonrpc": "2.0", "id": self.count, "method": method, "params": params})

    def call(self, name, arguments, **more):
        params = {"name": name, "arguments": arguments, "_meta": {"progressToken": f"p{self.count}"}}
        return self.post("tools/call", params | more)

    def answer(self, request, result):
        with self._send("POST", {"jsonrpc": "2.0", "id": request, "result": result}) as answer:
            assert answer.status == 202, answer.status

    def after(self, event):
        """The stream that the event belongs to, from the next one on."""
        return self._send("GET", None, {"Last-Event-ID": event})

    def end(self):
        with self._send("DELETE", None) as answer:
            assert answer.status == 204, answer.status

    @contextlib.contextmanager
    def _send(self, method, message, headers={}):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            body = json.dumps(message) if message else None
            connection.request(method, "/mcp", body, self.headers | headers)
            yield connection.getresponse()
        finally:
            connection.close()


class Frame:
    """One event, as its bytes and what they say."""

    def __init__(self, raw):
        self.raw = raw
        fields = [line.partition(b": ") for line in raw.splitlines() if line and not line.startswith(b":")]
        fields = {name.rstrip(b":"): value.decode() for name, _, value in fields}
        self.id = fields.get(b"id")
        self.message = json.loads(fields[b"data"]) if fields.get(b"data") else {}

    def is_question(self):
        return "method" in self.message and "id" in self.message

    def is_response(self):
        return "result" in self.message or "error" in self.message


def frames(answer):
    """The events of a stream, to its end. Comments, which keep a quiet stream open, are left out."""
    assert answer.status == 200, (answer.status, answer.read())
    assert answer.headers["content-type"].startswith("text/event-stream"), answer.headers["content-type"]
    raw = b""
    while line := answer.readline():
        raw += line
        if line == b"\n":
            if not raw.startswith(b":"):
                yield Frame(raw)
            raw = b""
    assert not raw, f"the stream ends within an event: {raw}"


def raws(recorded):
    return b"".join(frame.raw for frame in recorded)


def rest(session, event):
    with session.after(event) as answer:
        return raws(frames(answer))


def compare(session, recorded):
    """Asks for the rest after every event; questions have been answered meanwhile. Gives how many there were."""
    assert recorded[-1].is_response() and all(frame.id for frame in recorded), raws(recorded)
    assert len({frame.id for frame in recorded}) == len(recorded), "two events have the same id"
    for n, frame in enumerate(recorded, 1):
        expected = raws(frame for frame in recorded[n:] if not frame.is_question())
        got = rest(session, frame.id)
        assert got == expected, f"after {frame.id}, event {n} of {len(recorded)}: {got!r}, not {expected!r}"
    return len(recorded)


def check_long_running(recorded):
    progress = [f.message["params"]["progress"] for f in recorded if method(f) == "notifications/progress"]
    lines = [f for f in recorded if method(f) == "notifications/message"]
    assert progress == list(range(1, STEPS + 1)) and len(lines) == LINES, raws(recorded)
    assert f"All {STEPS} steps are done." in json.dumps(recorded[-1].message["result"]), recorded[-1].raw


def method(frame):
    return frame.message.get("method")


def talk(session, answer):
    """Hears a stream to its end, and answers what it asks."""
    recorded = []
    for frame in frames(answer):
        recorded.append(frame)
        if frame.is_question():
            session.answer(frame.message["id"], {"action": "accept", "content": {"confirm": True}})
    return recorded


class Cuts:
    """What is tried, in one revision."""

    def __init__(self, server, revision):
        self.server = server
        self.port = server.port
        self.revision = revision

    def after_the_call(self):
        """A call that is over, after each of its events."""
        session = Session(self.port, self.revision)
        with session.call(LONG_RUNNING, {"steps": STEPS}) as answer:
            recorded = list(frames(answer))
        check_long_running(recorded)
        events = compare(session, recorded)
        # And when nothing of it is in memory any more.
        self.server.kill()
        self.server.start()
        assert compare(session, recorded) == events
        return f"{events} events, and again after a kill"

    def during_the_call(self):
        """A call at work: every connection ends after one event, and the next goes on there."""
        session = Session(self.port, self.revision)
        with session.call(LONG_RUNNING, {"steps": STEPS}) as answer:
            recorded = [next(frames(answer))]
        deadline = time.monotonic() + PATIENCE
        while not recorded[-1].is_response():
            assert time.monotonic() < deadline, f"no end after {len(recorded)} events"
            with session.after(recorded[-1].id) as answer:
                recorded.append(next(frames(answer)))
        check_long_running(recorded)
        assert rest(session, recorded[0].id) == raws(recorded[1:]), "the whole is not the sum of its parts"
        return f"{len(recorded)} connections"

    def in_a_batch(self):
        """Two calls on one stream: each event leads back to both of them."""
        session = Session(self.port, self.revision)

        def call(number):
            params = {"name": LONG_RUNNING, "arguments": {"steps": STEPS}, "_meta": {"progressToken": number}}
            return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}

        def told(number, frames_):
            """What a call was told by its id or its token; log lines name neither."""
            messages = [frame.message for frame in frames_]
            return [m for m in messages if number in (m.get("id"), m.get("params", {}).get("progressToken"))]

        with session._send("POST", [call(101), call(102)]) as answer:
            recorded = list(frames(answer))
        for n in range(2, len(recorded), 7):
            with session.after(recorded[n].id) as answer:
                got = list(frames(answer))
            for number in (101, 102):
                assert told(number, got) == told(number, recorded[n + 1 :]), f"call {number} after event {n}"
        return f"{len(recorded)} events of two calls"

    def with_a_question(self):
        """A call that asks, and has been answered."""
        session = Session(self.port, self.revision)
        with session.call(TRAVEL, {"destination": "Lisbon"}) as answer:
            recorded = talk(session, answer)
        asked = sum(frame.is_question() for frame in recorded)
        # Before 2025-06-18 nobody can be asked.
        assert asked == (self.revision >= "2025-06-18"), raws(recorded)
        return f"{compare(session, recorded)} events, {asked} of them a question"

    def while_it_asks(self):
        """A question that is not answered is put again after every event, under another id; one answer ends it."""
        session = Session(self.port, self.revision)
        recorded, ids = [], set()
        with session.call(TRAVEL, {"destination": "Lisbon"}) as answer:
            for frame in frames(answer):
                recorded.append(frame)
                if frame.is_question():
                    break
        for n, cut in enumerate(recorded, 1):
            with session.after(cut.id) as answer:
                again = frames(answer)
                got = [next(again) for _ in recorded[n:] or [cut]]
                question = got.pop()
                assert raws(got) == raws(recorded[n:-1]), (cut.id, raws(got))
                assert question.is_question(), question.raw
                assert question.message["params"] == recorded[-1].message["params"], question.raw
                ids.add(question.message["id"])
        assert len(ids | {recorded[-1].message["id"]}) == len(recorded) + 1, ids
        with session.after(recorded[-1].id) as answer:
            end = talk(session, answer)
        assert "booked for $1200" in end[-1].raw.decode(), end[-1].raw
        # A late answer to the first time that it was asked is let pass.
        session.answer(recorded[-1].message["id"], {"action": "decline"})
        return f"put {len(ids)} times again"

    def the_result_of_a_task(self):
        """`tasks/result` of 2025-11-25, which has a stream of its own."""
        session = Session(self.port, self.revision)
        with session.call(LONG_RUNNING, {"steps": STEPS}, task={}) as answer:
            task = json.load(answer)["result"]["task"]["taskId"]
        with session.post("tasks/result", {"taskId": task}) as answer:
            recorded = list(frames(answer))
        return f"{compare(session, recorded)} events"

    def strangers_are_refused(self):
        """What is no event of the session's own calls."""
        mine, other = Session(self.port, self.revision), Session(self.port, self.revision)
        with mine.call(LONG_RUNNING, {"steps": STEPS}) as answer:
            stream = frames(answer)
            first = next(stream)
            task = first.id.partition(".")[0]
            unknown = task[:-4] + ("0000" if task[-4:] != "0000" else "1111")
            strange = [
                "nonsense", "0", ".", task, f"{task}.", f"{task}.x", f"{task}.-1", f"{task}.99999", f"{task}.1.zz",
                f"{task}.{2**64 - 1}", f"{task}.{2**64}", f"{unknown}.0", f"{unknown}.1", f"x{first.id}",
            ]
            for event in strange:
                refused(mine, event)
            refused(other, first.id)
            for last in stream:
                pass
        refused(other, last.id)
        refused(other, f"{task}.1")
        # The session's own events still are.
        assert rest(mine, last.id) == b"", "there is more after the response"
        mine.end()
        refused(mine, last.id)
        return f"{len(strange) + 4} refused"


def tried(revision):
    """The names of the cuts that a revision has: batches came and went with 2025-03-26, nobody can be asked before
    2025-06-18, and tasks came after it."""
    since = {"while_it_asks": "2025-06-18", "the_result_of_a_task": "2025-11-25"}
    until = {"in_a_batch": "2025-03-26"}
    names = [name for name in vars(Cuts) if not name.startswith("_")]
    return [name for name in names if since.get(name, "") <= revision <= until.get(name, revision)]


def refused(session, event):
    with session.after(event) as answer:
        assert 400 <= answer.status < 500, f"{event} is answered with {answer.status}"
        error = json.loads(answer.read())
        assert "error" in error, error


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary", metavar="NUNCIO_BINARY", type=os.path.abspath)
    parser.add_argument("--only", default="", help="cuts whose names have this in them")
    options = parser.parse_args()
    passed = failed = 0
    with serving(options.binary, "5ms") as server:
        for revision in REVISIONS:
            for name in tried(revision):
                title = f"cut/{revision}/{name}"
                if options.only not in title:
                    continue
                try:
                    found = getattr(Cuts(server, revision), name)()
                    passed += 1
                    print(f"ok {title}: {found}", flush=True)
                except Exception as error:
                    failed += 1
                    print(f"FAIL {title}: {type(error).__name__} {error}"[:600].replace("\n", " "), flush=True)
                    if options.only:
                        traceback.print_exc()
    print(f"{passed} passed, {failed} failed", flush=True)
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
