"""What `bench/host` starts, asks and promises: calls through bridges beside the calls they stand for, and plans.

A bridge is an agent of a configuration file, so two servers are alive: somebody's, and ours that stands in front of
it. A row's workload is named after the bridge and the connections: "mcp 16".
"""

import json
import shutil
import sqlite3
import statistics
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from . import machine, report
from .servers import OURS, Server, Spec, cpu_of_others
from .targets import Target, Verdict
from .workloads import UNBOUNDED, Measurements

DIRECT, SQLITE = "direct", "SQLite"
PLAN = "plan"
# What the agent that stands for somebody is called.
FAR = "far"
AT_THE_AGENT = ("--path", f"/agents/{FAR}")
# Sequential calls on one connection are bounded by their count, those on many by time.
ONE, MANY = 1, 16
ADDED_MS = 3
PLAN_ENDS_WITHIN = 600.0
BUILT_PEERS = {"rmcp": "peer-rmcp", "a2a-protocol-server": "peer-a2a-protocol-server"}


@dataclass(frozen=True)
class Size:
    """How long and how much."""

    calls: int
    secs: float
    subtasks: int


FULL = Size(2_000, 4.0, 1_000)
QUICK = Size(200, 1.0, 100)


@dataclass(frozen=True)
class Bridge:
    """Somebody's server, the table that makes an agent of it, and the same call in both ways."""

    name: str
    what: str
    far: Callable[[Path, Path], list]
    # Of `[[agent]]`; `{port}` is the far server's.
    table: str
    # The load generator's workload and dialect, with its flags.
    direct: tuple[str, str, tuple[str, ...]]
    through: tuple[str, str, tuple[str, ...]]
    # The peer that it needs, if that is built by itself.
    peer: str | None = None


def rmcp(*mode: str) -> Callable:
    return lambda _, built: [str(built / "peer-rmcp"), "{port}", *mode]


def a2a_server(_: Path, built: Path) -> list:
    return [str(built / "peer-a2a-protocol-server"), "{port}"]


SEND = ("send", "a2a", AT_THE_AGENT)
MCP_TABLE = 'kind = "mcp"\nurl = "http://127.0.0.1:{port}/mcp"'
A2A_TABLE = 'kind = "a2a"\nurl = "http://127.0.0.1:{port}"'
BRIDGES = [
    Bridge(
        "mcp",
        "a tool of an MCP server (2025-11-25), called over A2A",
        rmcp(),
        MCP_TABLE + '\nrevision = "2025-11-25"',
        ("call", "mcp-sessions", ()),
        SEND,
        "rmcp",
    ),
    Bridge(
        "mcp-stateless",
        "a tool of an MCP server (2026-07-28), called over A2A",
        rmcp("--stateless"),
        MCP_TABLE + '\nrevision = "2026-07-28"',
        ("call", "mcp-stateless", ()),
        SEND,
        "rmcp",
    ),
    Bridge(
        "a2a-tool",
        "an A2A agent, called as an MCP tool (2025-11-25)",
        a2a_server,
        A2A_TABLE,
        ("send", "a2a", ()),
        ("call", "mcp-sessions", ("--tool", FAR)),
        "a2a-protocol-server",
    ),
    Bridge(
        "a2a",
        "an A2A agent, called over A2A",
        a2a_server,
        A2A_TABLE,
        ("send", "a2a", ()),
        SEND,
        "a2a-protocol-server",
    ),
    Bridge(
        "nuncio",
        "an agent of another Nuncio, durable there too, called over A2A",
        lambda ours, _: [str(ours), "serve", "--listen", "127.0.0.1:{port}", "--data", "{data}", "--bench-agent"],
        A2A_TABLE,
        ("send", "a2a", ()),
        SEND,
    ),
    Bridge(
        "http",
        "an endpoint (POST), called over A2A",
        lambda _, built: [str(built / "limit"), "serve", "{port}"],
        'kind = "http"\nurl = "http://127.0.0.1:{port}/endpoint"',
        ("post", "a2a", ("--path", "/endpoint")),
        SEND,
    ),
]
ALL = (*(bridge.name for bridge in BRIDGES), PLAN)


@dataclass(frozen=True)
class Programs:
    """What was built, and where data is kept."""

    ours: Path
    plan: Path
    built: Path
    scratch: Path

    def server(self, name: str, dialect: str, command: Callable[[int, Path], list[str]]) -> Server:
        return Server(Spec(name, "", command, (), dialect), self.built / "load", self.scratch)


def measure(bridge: Bridge, programs: Programs, rep: int, size: Size, into: Measurements) -> None:
    """One bridge: both servers are started, warmed up, and asked in turns."""
    (asked, dialect, flags), (ours_asked, our_dialect, our_flags) = bridge.direct, bridge.through

    def far(port: int, data: Path) -> list[str]:
        return [part.format(port=port, data=data) for part in bridge.far(programs.ours, programs.built)]

    with programs.server(f"{bridge.name}-far", dialect, far) as there:

        def here(port: int, data: Path) -> list[str]:
            table = f'[[agent]]\nname = "{FAR}"\n{bridge.table.format(port=there.port)}\n'
            (data.parent / "nuncio.toml").write_text(table)
            return [str(programs.ours), "serve", "--demo", "--listen", f"127.0.0.1:{port}", "--data", str(data)]

        with programs.server(bridge.name, our_dialect, here) as ours:
            ways = [
                (DIRECT, lambda **how: there.load(asked, *flags, **how)),
                (OURS, lambda **how: ours.load(ours_asked, *our_flags, beside=(there,), **how)),
            ]
            # Each repeat begins with the other one.
            ways = ways[rep % 2 :] + ways[: rep % 2]
            for _, load in ways:
                load(conns=MANY, count=size.calls, secs=size.secs)
            for conns, count, secs in ((ONE, size.calls, 60.0), (MANY, UNBOUNDED, size.secs)):
                for name, load in ways:
                    before = committed(ours)
                    figures = load(conns=conns, count=count, secs=secs)
                    if name == OURS and "error" not in figures:
                        figures["commits"] = per_task(before, committed(ours))
                    into.put(rep, name, f"{bridge.name} {conns}", figures)


def committed(server: Server) -> tuple[int, int]:
    """How many changes our server has written, and for how many tasks."""
    return changes(server.data, "SELECT coalesce(sum(version), 0), count(*) FROM task", ())


def changes(data: Path, query: str, arguments: tuple) -> tuple[int, int]:
    # A task's version counts what was written for it.
    with sqlite3.connect(f"file:{data / 'nuncio.db'}?mode=ro", uri=True) as database:
        return database.execute(query, arguments).fetchone()


def per_task(before: tuple[int, int], after: tuple[int, int]) -> float | None:
    tasks = after[1] - before[1]
    return (after[0] - before[0]) / tasks if tasks else None


def plan(programs: Programs, rep: int, size: Size, into: Measurements) -> None:
    """A plan whose subtasks need nothing of each other, one in which each needs the one before, and the same tasks
    without a plan."""
    limit = programs.built / "limit"
    into.put(rep, SQLITE, PLAN, {"commits_per_s": machine.commits(limit, programs.scratch, size.secs / 2)})
    home = programs.scratch / f"{PLAN}-{rep}"
    shutil.rmtree(home, ignore_errors=True)
    start, before = time.monotonic(), cpu_of_others([])
    command = [str(programs.plan), str(home), str(size.subtasks)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PLAN_ENDS_WITHIN)
    others = max(cpu_of_others([]) - before, 0.0) / (time.monotonic() - start)
    try:
        if done.returncode != 0:
            raise RuntimeError(f"plan_bench: {done.stderr.strip()[-400:]}")
        said = json.loads(done.stdout)
        for shape in ("parallel", "chain"):
            ours, direct = said[shape], said[f"direct_{shape}"]
            ours["commits"] = plan_commits(home, ours["task"], size.subtasks)
            into.put(rep, OURS, f"{PLAN} {shape}", {**ours, "others_cores": others})
            into.put(rep, DIRECT, f"{PLAN} {shape}", {**direct, "commits": 1.0, "others_cores": others})
    finally:
        shutil.rmtree(home, ignore_errors=True)


def plan_commits(data: Path, task: str, subtasks: int) -> float:
    """Changes written for a plan's task and for those that it called, by subtask."""
    name = uuid.UUID(task).bytes
    query = "SELECT sum(version), count(*) FROM task WHERE id = ? OR parent = ?"
    written, tasks = changes(data, query, (name, name))
    if tasks != subtasks + 1:
        raise RuntimeError(f"the plan of {subtasks} subtasks has {tasks - 1}")
    return written / subtasks


def run_all(chosen: list[str], reps: int, size: Size, programs: Programs, into: Measurements) -> None:
    """Repeats are interleaved, and each begins with another bridge."""
    parts = [bridge for bridge in BRIDGES if bridge.name in chosen]
    for rep in range(reps):
        print(f"repeat {rep + 1} of {reps}", file=sys.stderr, flush=True)
        first = rep % len(parts) if parts else 0
        for bridge in parts[first:] + parts[:first]:
            attempt(bridge.name, rep, into, lambda: measure(bridge, programs, rep, size, into))
        if PLAN in chosen:
            attempt(PLAN, rep, into, lambda: plan(programs, rep, size, into))


def attempt(name: str, rep: int, into: Measurements, what: Callable[[], None]) -> None:
    try:
        what()
    except (OSError, RuntimeError, ValueError, subprocess.SubprocessError, sqlite3.Error) as error:
        into.put(rep, OURS, name, {"error": str(error)})


def promises() -> list[Target]:
    return [
        Target(
            f"{bridge.what}: p50",
            *(f"{bridge.name} {ONE}", "p50_ms", ADDED_MS, False, DIRECT),
            unit=" ms",
            chosen_by=bridge.name,
            is_difference=True,
        )
        for bridge in BRIDGES
    ]


def markdown(
    about: list[tuple[str, str]], verdicts: list[Verdict], measured: Measurements, size: Size
) -> str:
    parts = [
        "# Last run of the host's benchmark",
        "\n".join(f"- {key}: {value}" for key, value in about),
        "Every call through a bridge is a durable task here: its message is committed (SQLite, WAL, "
        "`synchronous=FULL`) before anybody is called, and its end before it is answered. What is called keeps "
        "everything in memory, but for the other Nuncio. CPU is that of the bridge alone, or of the server that is "
        "called directly.",
        "## Targets",
        f"{ONE} connection, {size.calls:,} calls one after the other in each repeat.",
        report.targets(verdicts),
        f"## {ONE} connection",
        one_by_one(measured),
        f"## {MANY} connections",
        many_at_once(measured),
        *plans(measured, size),
        *report.troubles(measured),
    ]
    return "\n\n".join(parts) + "\n"


def one_by_one(measured: Measurements) -> str:
    head = "| | direct: p50 ms | p99 ms | through: p50 ms | p99 ms | added p50 ms | CPU ms a call | commits a call |"
    lines = [head, "|" + " --- |" * 8]
    for bridge in BRIDGES:
        name = f"{bridge.name} {ONE}"
        cells = [
            report.median(measured, server, name, figure, report.decimals)
            for server in (DIRECT, OURS)
            for figure in ("p50_ms", "p99_ms")
        ]
        # Seconds for a thousand are milliseconds for one.
        cells += [added(measured, name, "p50_ms"), report.median(measured, OURS, name, "cpu_s_per_1k", report.decimals)]
        cells += [report.median(measured, OURS, name, "commits", report.decimals)]
        if any(cells):
            lines.append(f"| {bridge.what} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def many_at_once(measured: Measurements) -> str:
    head = "| | direct: per second | through: per second | p50 ms | p99 ms | CPU ms a call | commits a call |"
    lines = [head, "|" + " --- |" * 7]
    for bridge in BRIDGES:
        name = f"{bridge.name} {MANY}"
        cells = [report.median(measured, server, name, "rps", report.number) for server in (DIRECT, OURS)]
        figures = ("p50_ms", "p99_ms", "cpu_s_per_1k", "commits")
        cells += [report.median(measured, OURS, name, figure, report.decimals) for figure in figures]
        if any(cells):
            lines.append(f"| {bridge.what} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def added(measured: Measurements, name: str, figure: str) -> str:
    """The median of the differences within each repeat."""
    mine, base = measured.of(OURS, name), measured.of(DIRECT, name)
    more = [mine[rep][figure] - base[rep][figure] for rep in mine.keys() & base.keys()]
    return report.decimals(statistics.median(more)) if more else ""


def plans(measured: Measurements, size: Size) -> list[str]:
    if not measured.of(OURS, f"{PLAN} chain"):
        return []
    head = "| | ms a subtask | without a plan, ms a task | added ms | CPU ms a subtask | without | commits a subtask |"
    lines = [head, "|" + " --- |" * 7]
    for shape, what in (("parallel", "all at once"), ("chain", "each needs the one before")):
        name = f"{PLAN} {shape}"
        cells = [report.median(measured, server, name, "ms", report.decimals) for server in (OURS, DIRECT)]
        cells.append(added(measured, name, "ms"))
        cells += [report.median(measured, server, name, "cpu_ms", report.decimals) for server in (OURS, DIRECT)]
        cells.append(report.median(measured, OURS, name, "commits", report.decimals))
        lines.append(f"| {what} | " + " | ".join(cells) + " |")
    bare = report.median(measured, SQLITE, PLAN, "commits_per_s", report.number)
    return [
        f"## Plans of {size.subtasks:,} subtasks",
        "Each subtask is a durable task of the agent `echo`; who is to do it and what came of it is journaled by the "
        "plan's own task. A commit is a change of one task; those that wait share an fsync. A task without a plan is "
        f"one commit. This machine makes {bare} commits/s with bare SQLite, one after the other, with an fsync each.",
        "\n".join(lines),
    ]
