"""What is asked of a server, with the counts and times of a full and of a quick run."""

import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Callable

from .servers import REQUESTS, Server, Spec

ALL = (*REQUESTS, "idle", "grow")

# A count that no server here reaches: these runs are bounded by time.
UNBOUNDED = 1_000_000
CONNECTIONS = {"send": 64, "get": 64, "stream": 32}
SETTLE = 1.0


@dataclass(frozen=True)
class Size:
    """How long and how much."""

    secs: float
    warm_up: int
    idle_streams: int
    stored: tuple[int, int]
    gets: int
    lists: int
    fill_secs: float


FULL = Size(4.0, 5_000, 2_000, (1_000, 100_000), 10_000, 2_000, 180.0)
QUICK = Size(1.0, 1_000, 2_000, (1_000, 10_000), 2_000, 400, 30.0)


class Measurements:
    """Figures by workload and server, in the order of the repeats."""

    def __init__(self) -> None:
        self.rows: list[dict] = []

    def put(self, rep: int, server: str, workload: str, figures: dict) -> None:
        self.rows.append({"rep": rep, "server": server, "workload": workload, **figures})
        print(f"  {server:20} {workload:18} {brief(figures)}", file=sys.stderr, flush=True)

    def of(self, server: str, workload: str) -> dict[int, dict]:
        """The good repeats."""
        rows = [row for row in self.rows if row["server"] == server and row["workload"] == workload]
        return {row["rep"]: row for row in rows if "error" not in row}

    def has(self, server: str) -> bool:
        """Whether it was in the run at all, if only to fail."""
        return any(row["server"] == server for row in self.rows)

    def failures(self, server: str, workload: str) -> int:
        """Bad answers, and repeats without figures."""
        rows = [row for row in self.rows if row["server"] == server and row["workload"] == workload]
        return sum(1 if "error" in row else row.get("bad", 0) for row in rows)

    def troubles(self) -> list[str]:
        """Every error and every run with bad answers, as a line."""
        lines = []
        for row in self.rows:
            what = f"{row['server']}, {row['workload']}, repeat {row['rep'] + 1}"
            if "error" in row:
                lines.append(f"{what}: {row['error']}")
            elif row.get("bad"):
                lines.append(f"{what}: {row['bad']} bad answers, such as: {row['bad_sample']}")
        return lines


def brief(figures: dict) -> str:
    if "error" in figures:
        return "ERROR " + figures["error"]
    if "kib_per_stream" in figures:
        text = f"{figures['open']:,} open, {figures['kib_per_stream']:.1f} KiB each"
    elif "commits_per_s" in figures:
        text = f"{figures['commits_per_s']:,.0f} commits/s"
    elif "cpu_ms" in figures:
        text = f"{figures['ms']:.2f} ms each, cpu {figures['cpu_ms']:.2f} ms, {figures['commits']:.2f} commits"
    elif "event_p50_ms" in figures:
        text = f"first event: p50 {figures['event_p50_ms']:.2f} ms, message: p50 {figures['message_p50_ms']:.2f} ms"
    elif "rps" not in figures:
        text = ", ".join(f"{name} {value:.4g}" for name, value in figures.items())
    else:
        text = f"{figures['rps']:10,.0f}/s  p50 {figures['p50_ms']:.2f}  p99 {figures['p99_ms']:.2f} ms  "
        text += f"cpu {figures['cpu_s_per_1k']:.4f} s/1,000"
    return text + (f"  {figures['bad']} BAD: {figures['bad_sample']}" if figures.get("bad") else "")


def run_all(
    specs: list[Spec],
    chosen: list[str],
    reps: int,
    size: Size,
    start: Callable[[Spec], Server],
    into: Measurements,
    parts_of: Callable[[list[str]], list[Callable]] | None = None,
) -> None:
    """Every chosen workload on every server, one server at a time. `parts_of` says what has one to itself.

    Repeats are interleaved, and each begins with another server, so that what else the machine does falls
    on all of them alike.
    """
    for rep in range(reps):
        print(f"repeat {rep + 1} of {reps}", file=sys.stderr, flush=True)
        first = rep % len(specs)
        for spec in specs[first:] + specs[:first]:
            asked = [workload for workload in chosen if workload in spec.workloads]
            for part in (parts_of or parts)(asked):
                try:
                    with start(spec) as server:
                        part(server, rep, asked, size, into)
                except (OSError, RuntimeError, subprocess.SubprocessError) as error:
                    into.put(rep, spec.name, part.__name__, {"error": str(error)})


def parts(asked: list[str]) -> list[Callable]:
    """What has a server to itself."""
    found: list[Callable] = [requests] if any(workload in asked for workload in REQUESTS) else []
    found += [idle] if "idle" in asked else []
    found += [grow] if "grow" in asked else []
    return found


def requests(server: Server, rep: int, asked: list[str], size: Size, into: Measurements) -> None:
    """send, get and stream on one warmed-up server."""
    server.load("send", conns=8, count=size.warm_up, secs=6)
    for workload in (workload for workload in REQUESTS if workload in asked):
        figures = server.load(workload, conns=CONNECTIONS[workload], count=UNBOUNDED, secs=size.secs)
        into.put(rep, server.spec.name, workload, figures)


def idle(server: Server, rep: int, _: list[str], size: Size, into: Measurements) -> None:
    """Memory of streams that are open and quiet."""
    # Few, so that no memory which the warm-up has left behind is taken for the streams.
    server.load("send", conns=8, count=300, secs=2)
    into.put(rep, server.spec.name, "idle", server.load("idle", conns=size.idle_streams, count=0, secs=60))


def grow(server: Server, rep: int, _: list[str], size: Size, into: Measurements) -> None:
    """get and list on one connection, with few tasks stored and with many."""
    name, stored = server.spec.name, 0
    for label, goal in zip(("few", "many"), size.stored):
        ids = server.home / f"ids-{label}"
        filled = server.load("fill", conns=64, count=goal - stored, secs=size.fill_secs, ids=ids)
        if filled.get("ok", 0) < goal - stored:
            reason = filled.get("error") or f"only {filled['ok']:,} of {goal - stored:,} stored in time"
            into.put(rep, name, f"fill-{label}", {"error": reason})
            return
        stored = goal
        time.sleep(SETTLE)
        for workload, count, given in (("get", size.gets, ids), ("list", size.lists, None)):
            server.load(workload, conns=1, count=count // 10, secs=5, ids=given)
            figures = server.load(workload, conns=1, count=count, secs=20, ids=given)
            into.put(rep, name, f"{workload}-{label}", figures)
