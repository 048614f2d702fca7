"""Requests that come to nothing: refused, cut off, left half-open, dropped. Afterwards the server's memory is to be
what it was before.
"""

import asyncio
import json
import os
import socket
import struct
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Awaitable, Callable

from .servers import Server

COUNT = 10_000
# Of the same kinds, before the first look: what a server needs for its first requests is no leak.
WARM_UP = 2_000
AT_ONCE = 64
# Ended tasks that were asked for are kept in memory, up to 32 MiB of them (`ended_cache_bytes`). So many tasks of
# this length fill it before the first look: what it takes up later is not the flood's.
CACHED, CACHED_BYTES = 48, 1_000_000
# The server gives a head 10 s and a body 30 s to arrive.
SETTLES_WITHIN = 60.0
# The allocator gives back what has been free for some seconds when it is asked for more, not while the server has
# nothing to do. So before each look there are some ordinary calls, each second for so long at least.
ORDINARY = 20
ORDINARY_SECS = 20
# How much more than before there may be.
SLACK = 0.10

JSON = "application/json"
BOTH = "application/json, text/event-stream"
OLD, NEW = "2025-11-25", "2026-07-28"


def run(server: Server, count: int) -> bool:
    """Prints what was done and both figures; returns whether the memory came back."""
    return asyncio.run(Flood(server).run(count))


class Flood:
    def __init__(self, server: Server) -> None:
        self.port, self.pid = server.port, server.process.pid
        self.answers: dict[str, Counter] = {}
        self.half_open: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self.session = ""
        # Resident when the last connection was gone.
        self.idle = 0

    async def run(self, count: int) -> bool:
        self.session = await self.begin_session()
        quiet = open_files(self.pid)
        for _ in range(CACHED):
            await self.whole(post(call("talker", CACHED_BYTES), self.in_session()))
        await self.phase(WARM_UP, quiet)
        before = resident_kib(self.pid)
        self.answers.clear()
        print(f"{count:,} requests after a warm-up of {WARM_UP:,}", file=sys.stderr, flush=True)
        start = time.monotonic()
        await self.phase(count, quiet)
        after, left = resident_kib(self.pid), open_files(self.pid)
        for kind, answers in self.answers.items():
            told = ", ".join(f"{n:,} × {answer}" for answer, n in answers.most_common())
            print(f"  {kind}: {told}")
        wrong = self.unexpected()
        alive = await self.answers_still()
        kept = after <= before * (1 + SLACK) and not wrong and alive and left <= quiet + AT_ONCE
        growth = (after - before) / before * 100
        print(f"resident memory before: {before / 1024:.1f} MiB, after: {after / 1024:.1f} MiB ({growth:+.1f} %)")
        print(f"(and {self.idle / 1024:.1f} MiB before the first ordinary calls after it)")
        print(f"open files of the server before: {quiet}, after: {left}")
        for line in wrong:
            print(f"unexpected: {line}")
        print("it answers as before" if alive else "it does not answer any more")
        verdict = "PASS" if kept else "MISS"
        took = time.monotonic() - start
        print(f"memory within {SLACK:.0%} after {count:,} requests that came to nothing ({took:.0f} s): {verdict}")
        return kept

    async def phase(self, count: int, quiet: int) -> None:
        """Sends them, a few at once, and waits until the server is quiet again."""
        kinds = self.kinds()
        names = list(kinds)
        todo = iter(range(count))

        async def work() -> None:
            for number in todo:
                kind = names[number % len(names)]
                try:
                    answer = await asyncio.wait_for(kinds[kind][0](), 20)
                except (OSError, EOFError, asyncio.TimeoutError) as error:
                    answer = type(error).__name__
                self.answers.setdefault(kind, Counter())[answer] += 1

        await asyncio.gather(*(work() for _ in range(AT_ONCE)))
        await self.settle(quiet)

    def kinds(self) -> dict[str, tuple[Callable[[], Awaitable[str]], str | None]]:
        """What is sent, and the only answer that is right where there is one."""
        old, new = self.in_session(), {"mcp-protocol-version": NEW}
        talker = call("talker", 200)
        modern = call("talker", 0, modern=True)
        echo = call("echo", 2_000)
        named = {**new, "mcp-method": "tools/call", "mcp-name": "talker"}
        whole = lambda *given: (lambda: self.whole(post(*given)))  # noqa: E731
        return {
            "headers that contradict the body": (whole(modern, {**new, "mcp-method": "tools/list"}), "400"),
            "no session": (whole(talker, {"mcp-protocol-version": OLD}), "400"),
            "a session that there is not": (whole(talker, {**old, "mcp-session-id": "0" * 64}), "404"),
            "a revision that there is not": (whole(modern, {"mcp-protocol-version": "2031-01-01"}), "400"),
            "broken JSON": (whole(talker[:-5], old), "400"),
            "JSON that is too deep": (whole("[" * 2_000, old), "400"),
            "another content type": (whole(talker, {**old, "content-type": "text/plain"}), "415"),
            "initialize and never again": (whole(INITIALIZE, {}), "200"),
            "a body that is cut": (lambda: self.dropped(post(echo, old)[:-1_000]), None),
            "a head that is cut": (lambda: self.dropped(post(echo, old)[:60]), None),
            "a body that never ends": (lambda: self.held(post(echo, old)[:-1_000]), None),
            "a head that never ends": (lambda: self.held(post(echo, old)[:60]), None),
            "a call that nobody waits for": (lambda: self.dropped(post(echo, old)), None),
            "a stateless call that nobody waits for": (lambda: self.dropped(post(modern, named)), None),
            "a call's stream, dropped at once": (lambda: self.head_only(post(talker, old)), "200"),
            "a stateless call's stream, dropped at once": (lambda: self.head_only(post(modern, named)), "200"),
            "a GET stream, dropped at once": (lambda: self.head_only(get(old)), "200"),
            "a GET stream that nobody waits for": (lambda: self.dropped(get(old)), None),
        }

    def unexpected(self) -> list[str]:
        kinds = self.kinds()
        return [
            f"{kind}: {answers[answer]:,} × {answer}"
            for kind, answers in self.answers.items()
            for answer in answers
            if (expected := kinds[kind][1]) is not None and answer != expected
        ]

    async def whole(self, request: bytes) -> str:
        """Reads all of the answer; its status."""
        reader, writer = await self.connect(request)
        try:
            answer = await reader.read()
        finally:
            reset(writer)
        return status(answer)

    async def head_only(self, request: bytes) -> str:
        """Goes away after the head of the answer."""
        reader, writer = await self.connect(request)
        try:
            answer = await reader.readuntil(b"\r\n\r\n")
        finally:
            reset(writer)
        return status(answer)

    async def dropped(self, request: bytes) -> str:
        """Goes away without an answer."""
        _, writer = await self.connect(request)
        reset(writer)
        return "dropped"

    async def held(self, request: bytes) -> str:
        """Stays, and says no more."""
        self.half_open.append(await self.connect(request))
        return "left open"

    async def connect(self, request: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(request)
        await writer.drain()
        return reader, writer

    async def settle(self, quiet: int) -> None:
        """Until the server has let go of every connection, and its memory has not shrunk for a while."""
        end = time.monotonic() + SETTLES_WITHIN
        while open_files(self.pid) > quiet + 8 and time.monotonic() < end:
            await asyncio.sleep(0.5)
        ended = 0
        for reader, _ in self.half_open:
            try:
                await asyncio.wait_for(reader.read(), 0.01)
                ended += 1
            except asyncio.TimeoutError:
                pass
            except OSError:
                ended += 1
        print(f"the server ended {ended:,} of {len(self.half_open):,} half-open ones", file=sys.stderr, flush=True)
        for _, writer in self.half_open:
            reset(writer)
        self.half_open.clear()
        self.idle = resident_kib(self.pid)
        seen = [self.idle]
        while len(seen) <= 3 * ORDINARY_SECS:
            ordinary = post(call("echo_tool", 200), self.in_session())
            await asyncio.gather(*(self.whole(ordinary) for _ in range(ORDINARY)))
            await asyncio.sleep(1)
            seen.append(resident_kib(self.pid))
            if len(seen) > ORDINARY_SECS and min(seen[-5:]) >= min(seen[:-5]):
                return

    def in_session(self) -> dict[str, str]:
        return {"mcp-protocol-version": OLD, "mcp-session-id": self.session}

    async def begin_session(self) -> str:
        reader, writer = await self.connect(post(INITIALIZE, {}))
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        reset(writer)
        lines = (line.partition(": ") for line in head.splitlines())
        return next(value for name, _, value in lines if name.lower() == "mcp-session-id")

    async def answers_still(self) -> bool:
        reader, writer = await self.connect(post(call("echo", 10), self.in_session()))
        answer = await reader.read()
        writer.close()
        return status(answer) == "200" and b"x" * 10 in answer


def call(tool: str, length: int, modern: bool = False) -> str:
    meta: dict = {"progressToken": 1}
    if modern:
        prefix = "io.modelcontextprotocol/"
        meta |= {f"{prefix}protocolVersion": NEW, f"{prefix}clientCapabilities": {}}
        meta |= {f"{prefix}clientInfo": {"name": "flood", "version": "1"}}
    params = {"_meta": meta, "name": tool, "arguments": {"text": "x" * length}}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})


INITIALIZE = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {
            "protocolVersion": OLD,
            "capabilities": {},
            "clientInfo": {"name": "flood", "version": "1"},
        },
    }
)


def post(body: str, headers: dict[str, str]) -> bytes:
    headers = {"content-type": JSON, "accept": BOTH, **headers, "content-length": str(len(body))}
    return head("POST", headers) + body.encode()


def get(headers: dict[str, str]) -> bytes:
    return head("GET", {"accept": "text/event-stream", **headers})


def head(method: str, headers: dict[str, str]) -> bytes:
    lines = [f"{method} /mcp HTTP/1.1", "host: 127.0.0.1", "connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def status(answer: bytes) -> str:
    words = answer[:64].split(b" ")
    return words[1].decode() if len(words) > 1 else "no answer"


def reset(writer: asyncio.StreamWriter) -> None:
    """Ends a connection as a client that is killed does."""
    sock = writer.get_extra_info("socket")
    if sock is not None and sock.fileno() >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def resident_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))
