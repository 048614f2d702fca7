"""What bench/console measures and promises: the goals of the console, each with its bound.

Every part has a name under which it is chosen, and puts its figures under that name. Parts of one group share a server and
what is stored in it.
"""

import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from playwright.sync_api import Browser, Error as BrowserError

from . import console_cost, console_list, console_live, console_task, report
from .console_server import ConsoleServer
from .servers import OURS, cpu_of_others
from .targets import NOT_RUN, Target, Verdict, judge
from .workloads import Measurements

# Of the load generator's figures, those that are zero or said elsewhere.
UNSHOWN = ("rep", "ok", "bad", "secs", "events_per_s", "cpu_s_per_1k_events", "client_cpu_s")
# The same server in the same repeat, while no console is open.
ALONE = "without consoles"


@dataclass(frozen=True)
class Size:
    """How much, and how often."""

    tasks: int
    failed: int
    loads: int
    requests: int
    changes: int
    events: int
    scrubs: int
    value: int
    commits: int
    idle_s: float
    send_s: float
    soak_s: float


FULL = Size(100_000, 500, 20, 500, 20, 100_000, 60, 10_000_000, 150, 20.0, 4.0, 60.0)
QUICK = Size(5_000, 50, 3, 50, 4, 5_000, 10, 2_000_000, 15, 5.0, 1.0, 12.0)


@dataclass
class Bench:
    """A run: what it measures with, and where its figures go."""

    browser: Browser
    ours: Path
    load: Path
    scratch: Path
    repo: Path
    size: Size
    measured: Measurements
    chosen: list[str]
    # Why a part has no figures.
    reasons: dict[str, str]

    def server(self, *store: str) -> ConsoleServer:
        return ConsoleServer(self.ours, self.load, self.scratch, store)

    def part(self, rep: int, name: str, server: ConsoleServer, measure: Callable[[], dict]) -> None:
        """One part, if it is chosen. One that fails is a figure that is missing, which is a MISS, and the others go on."""
        if name.partition(":")[0] not in self.chosen:
            return
        start, before = time.monotonic(), cpu_of_others([server.process.pid])
        try:
            figures = measure()
        except (OSError, RuntimeError, BrowserError, KeyError, IndexError, StopIteration) as error:
            self.measured.put(rep, OURS, name, {"error": f"{type(error).__name__}: {str(error).strip()[:300]}"})
            return
        # The browser counts: what it takes of the machine, it takes from all that is measured here.
        cores = max(cpu_of_others([server.process.pid]) - before, 0.0) / (time.monotonic() - start)
        self.measured.put(rep, OURS, name, {**figures, "cores_beside_server": cores})


PARTS = ("first-list", "filter", "bytes", "tabs", "commit", "other-node", "large-task", "large-value", "idle", "send", "soak")


def run_all(bench: Bench, reps: int) -> None:
    groups = [(many_tasks, {"first-list", "filter", "bytes", "tabs", "idle"}), (one_task, {"commit", "large-task", "large-value"})]
    groups += [(loaded, {"send"}), (soaked, {"soak"}), (two_nodes, {"other-node"})]
    for group, parts in groups:
        if not parts.isdisjoint(bench.chosen):
            print(f"{group.__name__}: {', '.join(part for part in PARTS if part in parts)}", file=sys.stderr, flush=True)
            try:
                group(bench, reps)
            except (OSError, RuntimeError, subprocess.SubprocessError) as error:
                # What all parts of the group stand on: a server that does not start, tasks that cannot be stored.
                for part in parts & set(bench.chosen):
                    bench.measured.put(0, OURS, part, {"error": str(error)[:300]})


def many_tasks(bench: Bench, reps: int) -> None:
    """A server with so many tasks stored that a list which reads them all is seen."""
    size, browser = bench.size, bench.browser
    with bench.server() as server:
        server.fill(size.tasks - size.failed)
        for task in server.send_many("printer", "print the invoice", size.failed)[-64:]:
            server.wait_for(task, ("failed",), 120)
        time.sleep(2.0)
        for rep in range(reps):
            bench.part(rep, "first-list", server, lambda: console_list.list_request(server, size.requests))
            bench.part(rep, "first-list:cold", server, lambda: console_list.first_list(browser, server, size.loads))
            bench.part(rep, "first-list:warm", server, lambda: console_list.list_again(browser, server, size.loads))
            bench.part(rep, "filter", server, lambda: console_list.filters(browser, server, size.changes))
            for how in ("hidden", "at-once", "background", "windows"):
                bench.part(rep, f"tabs:{how}", server, lambda: console_list.ninth_tab(browser, server, how))
            bench.part(rep, "idle", server, lambda: console_cost.idle(browser, server, size.idle_s))
        bench.part(0, "bytes", server, lambda: console_list.sizes(browser, server, bench.repo / "console"))


def one_task(bench: Bench, reps: int) -> None:
    """Tasks that are looked at one by one, on a server that has few."""
    size, browser = bench.size, bench.browser
    with bench.server() as server:
        server.fill(200)
        many = large = ""
        if "large-task" in bench.chosen:
            many = server.send("maker", f"events {size.events}")
            server.completed(many, 600)
        if "large-value" in bench.chosen:
            large = server.send("maker", f"value {size.value}")
            server.completed(large, 120)
        for rep in range(reps):
            bench.part(rep, "commit:event", server, lambda: console_live.event(browser, server, server, size.commits))
            bench.part(rep, "commit:row", server, lambda: console_live.changed_row(browser, server, server, min(50, size.commits)))
            bench.part(rep, "commit:new", server, lambda: console_live.new_row(browser, server, server, min(50, size.commits)))
            bench.part(rep, "large-task:tail", server, lambda: console_task.tail(browser, server, many, size.loads))
            for reading in ("story", "events"):
                bench.part(rep, f"large-task:scrub-{reading}", server, lambda: console_task.scrub(browser, server, many, reading, size.scrubs))
            bench.part(rep, "large-task:scroll", server, lambda: console_task.scrolled(browser, server, many))
            bench.part(rep, "large-value", server, lambda: console_task.large_value(browser, server, large, 3))


def loaded(bench: Bench, reps: int) -> None:
    with bench.server() as server:
        server.fill(5_000)
        # A ratio of 0.97 wants more pairs than the other parts want repeats.
        for rep in range(2 * reps):
            try:
                figures = console_cost.sends(bench.browser, server, rep, bench.size.send_s)
            except (OSError, RuntimeError, BrowserError) as error:
                figures = {console_cost.LIVE_CONSOLES: {"error": str(error)[:300]}}
            for count, name in ((console_cost.LIVE_CONSOLES, OURS), (0, ALONE)):
                if count in figures:
                    bench.measured.put(rep, name, "send", figures[count])


def soaked(bench: Bench, _: int) -> None:
    with bench.server() as server:
        server.fill(200)
        bench.part(0, "soak", server, lambda: console_live.soak(bench.browser, server, bench.size.soak_s))


def two_nodes(bench: Bench, reps: int) -> None:
    """A page at one node, the tasks at the other, on one PostgreSQL."""
    script = str(bench.repo / "scripts" / "postgres")
    folder = subprocess.check_output(["mktemp", "-d", "/tmp/nuncio-pgc.XXXXXX"], text=True).strip()
    Path(folder).chmod(0o755)
    with ExitStack() as stack:
        stack.callback(subprocess.run, ["rm", "-rf", folder], check=False)
        started = subprocess.run([script, "start", folder], capture_output=True, text=True)
        if started.returncode != 0:
            bench.reasons["other-node"] = started.stderr.strip()[-200:]
            return
        stack.callback(subprocess.run, [script, "stop", folder], check=False)
        store = ("--store", started.stdout.strip(), "--store-schema", "console")
        here, there = (stack.enter_context(bench.server(*store)) for _ in range(2))
        here.send_many("echo", "hello", 60)
        count, browser = bench.size.commits, bench.browser
        for rep in range(reps):
            bench.part(rep, "other-node:event", there, lambda: console_live.event(browser, there, here, count))
            bench.part(rep, "other-node:row", there, lambda: console_live.changed_row(browser, there, here, min(20, count)))


def promises(size: Size) -> list[Target]:
    tasks, events = f"{size.tasks:,} tasks", f"a task of {size.events:,} events"

    def most(what: str, workload: str, figure: str, bound: float, unit: str = " ms") -> Target:
        return Target(what, workload, figure, bound, False, unit=unit, chosen_by=workload.partition(":")[0])

    return [
        most(f"first list, {tasks}, empty cache: p50", "first-list:cold", "p50_ms", 400),
        most("… p95", "first-list:cold", "p95_ms", 700),
        most("first list, files in the cache: p50", "first-list:warm", "p50_ms", 200),
        most("the list request by a plain client: p50", "first-list", "p50_ms", 5),
        most(f"change of a filter, {tasks}: p95", "filter", "p95_ms", 100),
        most("commit → event painted: p50", "commit:event", "p50_ms", 50),
        most("… p99", "commit:event", "p99_ms", 250),
        most("commit → changed row painted: p99", "commit:row", "p99_ms", 400),
        most("commit → new row counted: p99", "commit:new", "p99_ms", 400),
        most("commit at another node → event painted: p99", "other-node:event", "p99_ms", 1500),
        most("commit at another node → changed row painted: p99", "other-node:row", "p99_ms", 1500),
        most(f"{events}: tail painted, p50", "large-task:tail", "p50_ms", 300),
        most("… scrub to any event, story: p95", "large-task:scrub-story", "p95_ms", 100),
        most("… scrub to any event, list of events: p95", "large-task:scrub-events", "p95_ms", 100),
        most("… rows in the DOM", "large-task:scroll", "rows", 120, ""),
        most("… heap", "large-task:scroll", "heap_mb", 80, " MB"),
        most("… longest frame while scrolling", "large-task:scroll", "frame_max_ms", 50),
        most(f"a value of {size.value / 1e6:g} MB: its beginning painted", "large-value", "first_ms", 200),
        most("… longest task of the page after the click", "large-value", "long_task_ms", 100),
        most("… longest task while its log is opened", "large-value", "opening_long_task_ms", 100),
        most("scripts to the first list, gzip", "bytes", "first_js_kib", 60, " KiB"),
        most("all scripts, gzip", "bytes", "all_js_kib", 150, " KiB"),
        most("styles, gzip", "bytes", "css_kib", 15, " KiB"),
        most("requests to other hosts", "bytes", "outside", 0, ""),
        most("50 idle consoles: CPU of the server", "idle", "cpu_percent", 1, " % of a core"),
        most("50 idle consoles: memory of each", "idle", "kib_each", 64, " KiB"),
        Target("sends a second with ten consoles", "send", "rps", 0.97, True, ALONE),
        most("a ninth tab: eight hidden for a while", "tabs:hidden", "ms", 1000),
        most("… all nine opened one right after the other", "tabs:at-once", "ms", 1000),
        most("… eight opened in the background", "tabs:background", "ms", 1000),
        most("… eight windows in view", "tabs:windows", "ms", 1000),
        most(f"heap of the list at 100 events/s for {lasting(size.soak_s)}: growth", "soak", "list_mb", 10, " MiB"),
        most("heap of a page that follows task after task: growth", "soak", "task_mb", 10, " MiB"),
    ]


def lasting(seconds: float) -> str:
    return f"{seconds / 3600:g} h" if seconds >= 3600 else f"{seconds:g} s"


def judge_all(bench: Bench) -> list[Verdict]:
    def judged(target: Target) -> Verdict:
        reason = bench.reasons.get(target.part())
        return Verdict(target, [], NOT_RUN, reason) if reason else judge(target, bench.measured, bench.chosen)

    return [judged(target) for target in promises(bench.size)]


def markdown(about: list[tuple[str, str]], verdicts: list[Verdict], measured: Measurements, size: Size) -> str:
    parts = [
        "# Last run of the console's benchmark",
        "\n".join(f"- {key}: {value}" for key, value in about),
        "How each is measured: [README.md](README.md#the-console).",
        "## Goals",
        report.targets(verdicts),
        "## Figures",
        "Medians of the repeats. `cores_beside_server` is what the browser and all others took meanwhile.",
        figures(measured),
        *beside(measured),
        *report.troubles(measured),
    ]
    return "\n\n".join(parts) + "\n"


def figures(measured: Measurements) -> str:
    lines = ["| part | figures |", "| --- | --- |"]
    for server, workload in dict.fromkeys((row["server"], row["workload"]) for row in measured.rows):
        rows = list(measured.of(server, workload).values())
        names = [name for name, value in rows[0].items() if isinstance(value, (int, float)) and name not in UNSHOWN] if rows else []
        cells = [f"{name} {report.median(measured, server, workload, name, figure)}" for name in names]
        what = workload if server == OURS else f"{workload}, {server}"
        lines.append(f"| {what} | {', '.join(cells) or 'none'} |")
    return "\n".join(lines)


def figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def beside(measured: Measurements) -> list[str]:
    """What ten consoles cost a send, in CPU of the server."""
    cpu = report.beside(measured, (OURS, "send"), (ALONE, "send"), "cpu_s_per_1k")
    return [f"CPU of a send with ten consoles open: {cpu} of one without, in the median of the pairs."] if cpu else []
