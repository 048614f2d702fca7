"""What `bench/mcp` starts, asks and promises.

A row's workload is named after its era, what is asked and the connections: "sessions call 64".
"""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from . import build, report
from .servers import L0, OURS, OURS_BESIDE, Server, Spec
from .targets import Target, Verdict
from .workloads import UNBOUNDED, Measurements

SESSIONS, STATELESS = "sessions", "stateless"
ERAS = {SESSIONS: "2025-11-25, with sessions", STATELESS: "2026-07-28, stateless"}
REQUESTS = ("call", "durable", "read")
ALL = (*REQUESTS, "first")
CONNECTIONS = (1, 64)

RMCP, PYTHON, TYPESCRIPT = "rmcp", "Python", "TypeScript"
PEERS = (RMCP, PYTHON, TYPESCRIPT)
BUILT_PEERS = {RMCP: "peer-rmcp"}
PYTHON_PACKAGES = ("mcp==2.3.0",)
NPM_PACKAGES = {
    SESSIONS: ("@modelcontextprotocol/sdk@1.32.2", "express@5.2.1", "zod@4.6.7"),
    STATELESS: ("@modelcontextprotocol/server@2.4.0", "@modelcontextprotocol/node@2.1.2", "zod@4.6.7"),
}


@dataclass(frozen=True)
class Size:
    """How long and how much."""

    secs: float
    warm_up: int
    firsts: int


FULL = Size(4.0, 5_000, 300)
QUICK = Size(1.0, 1_000, 60)


def catalog(
    ours: Path, built: Path, bench: Path, wanted: list[str], beside: Path | None = None
) -> list[Spec]:
    """Every server in every era that it knows; a peer that cannot be set up is left out."""

    def spec(name: str, era: str, about: str, command: Callable, *more: str) -> Spec:
        return Spec(name, about, command, ("call", "read", *more), dialect=f"mcp-{era}")

    specs, peers = [], built.parent / "peers"
    for era in ERAS:
        stateless = ["--stateless"] if era == STATELESS else []
        rmcp = str(built / BUILT_PEERS[RMCP])
        specs += [
            spec(
                L0,
                era,
                "bare axum: parses, answers with the same JSON, checks nothing and keeps no session",
                lambda port, _: [str(built / "limit"), "serve", str(port)],
            ),
        ]
        about = "this repository (`examples/mcp_bench.rs`); a durable call is one of the echo agent"
        more = ("durable", *(["first"] if era == SESSIONS else []))
        for name, binary in ((OURS, ours), (OURS_BESIDE, beside)):
            if binary:
                specs.append(
                    spec(
                        name,
                        era,
                        about if name == OURS else str(binary),
                        lambda port, data, b=binary: [str(b), "--listen", f"127.0.0.1:{port}", "--data", str(data)],
                        *more,
                    )
                )
        if RMCP in wanted:
            about = "rmcp 3.8.0, in memory; sessions as it comes (SSE), stateless with JSON answers"
            specs.append(
                spec(RMCP, era, about, lambda port, _, p=rmcp, s=stateless: [p, str(port), *s])
            )
        if PYTHON in wanted and (python := build.set_up("Python", lambda: python_peer(bench, peers))):
            about = "mcp 2.3.0 on uvicorn, one process; stateless with JSON answers"
            specs.append(
                spec(PYTHON, era, about, lambda port, _, p=python, s=stateless: [*p, str(port), *s])
            )
        if TYPESCRIPT in wanted and (node := build.set_up("TypeScript", lambda: node_peer(bench, peers, era))):
            about = "sdk 1.32.2 on express (sessions), server 2.4.0 (stateless), one process"
            specs.append(spec(TYPESCRIPT, era, about, lambda port, _, p=node: [*p, str(port)]))
    return specs


def python_peer(bench: Path, peers: Path) -> list[str]:
    python = build.python(peers / "python-mcp", PYTHON_PACKAGES)
    return [str(python), "-B", str(bench / "peer-python-mcp" / "server.py")]


def node_peer(bench: Path, peers: Path, era: str) -> list[str]:
    home, sources, packages = peers / f"typescript-mcp-{era}", bench / "peer-typescript-mcp", NPM_PACKAGES[era]

    def install() -> None:
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        (home / "package.json").write_text('{ "private": true }\n')
        npm = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", *packages]
        subprocess.run(npm, cwd=home, check=True, stdout=subprocess.DEVNULL)

    build.once(home, packages, install)
    # Node looks for packages beside the program.
    for source in (f"{era}.mjs", "bench.mjs"):
        shutil.copy(sources / source, home)
    return ["env", "NODE_ENV=production", "node", str(home / f"{era}.mjs")]


def parts(asked: list[str]) -> list[Callable]:
    return [measure] if asked else []


def measure(server: Server, rep: int, asked: list[str], size: Size, into: Measurements) -> None:
    """Everything on one warmed-up server."""
    era = server.spec.dialect.removeprefix("mcp-")
    for workload in (workload for workload in REQUESTS if workload in asked):
        server.load(workload, conns=8, count=size.warm_up, secs=size.secs)
        for conns in CONNECTIONS:
            figures = server.load(workload, conns=conns, count=UNBOUNDED, secs=size.secs)
            into.put(rep, server.spec.name, f"{era} {workload} {conns}", figures)
    if "first" in asked:
        server.load("first", conns=1, count=size.firsts // 10, secs=size.secs)
        figures = server.load("first", conns=1, count=size.firsts, secs=60)
        into.put(rep, server.spec.name, f"{era} first", figures)


def promises() -> list[Target]:
    targets = []
    for era, about in ERAS.items():
        call, durable = f"{era} call 64", f"{era} durable 64"
        targets += [
            Target(f"plain call, {about}: CPU", call, "cpu_s_per_1k", 0.6, False, RMCP, chosen_by="call"),
            Target(f"plain call, {about}: per second", call, "rps", 1.3, True, RMCP, chosen_by="call"),
            Target(
                f"durable call, {about}: per second, beside a call in memory",
                *(durable, "rps", 0.5, True, RMCP, call),
                chosen_by="durable",
            ),
        ]
    for figure, what in (("event_p50_ms", "event"), ("message_p50_ms", "message")):
        what = f"first SSE {what} of a session's call: p50"
        targets.append(Target(what, f"{SESSIONS} first", figure, 2, False, unit=" ms", chosen_by="first"))
    return targets


def markdown(
    machine: list[tuple[str, str]], verdicts: list[Verdict], specs: list[Spec], measured: Measurements
) -> str:
    parts = [
        "# Last run of the MCP benchmark",
        "\n".join(f"- {key}: {value}" for key, value in machine),
        "## Targets",
        "At 64 connections.",
        report.targets(verdicts),
    ]
    for era, about in ERAS.items():
        parts += [f"## {about}", figures(era, measured)]
    parts += [*firsts(measured), *abouts(specs), *report.troubles(measured)]
    return "\n\n".join(parts) + "\n"


def abouts(specs: list[Spec]) -> list[str]:
    return ["\n".join(dict.fromkeys(f"- {spec.name}: {spec.about}" for spec in specs))]


def figures(era: str, measured: Measurements) -> str:
    columns = (
        ("rps", report.number),
        ("p50_ms", report.decimals),
        ("p99_ms", report.decimals),
        ("cpu_s_per_1k", report.small),
    )
    head = f"| asked | connections | | per second | p50 ms | p99 ms | CPU | rate, of {RMCP} | CPU, of {RMCP} |"
    lines = [head, "|" + " --- |" * 9]
    for workload in REQUESTS:
        # What is in memory only is the measure of what is durable.
        base = "call" if workload == "durable" else workload
        for conns in CONNECTIONS:
            for server in (L0, OURS, OURS_BESIDE, RMCP, PYTHON, TYPESCRIPT):
                name = f"{era} {workload} {conns}"
                cells = [report.median(measured, server, name, figure, show) for figure, show in columns]
                if not any(cells):
                    continue
                cells += [
                    report.beside(measured, (server, name), (RMCP, f"{era} {base} {conns}"), figure)
                    for figure in ("rps", "cpu_s_per_1k")
                ]
                lines.append("| " + " | ".join([workload, str(conns), server, *cells]) + " |")
    return "\n".join(lines)


def firsts(measured: Measurements) -> list[str]:
    name = f"{SESSIONS} first"
    if not measured.of(OURS, name):
        return []
    lines = ["| the first of a session's call, one connection | p50 ms | p99 ms |", "| --- | --- | --- |"]
    for key, what in (("event", "event (it may be empty but for its id)"), ("message", "message")):
        cells = [report.median(measured, OURS, name, f"{key}_{p}_ms", report.decimals) for p in ("p50", "p99")]
        lines.append(f"| {what} | " + " | ".join(cells) + " |")
    return ["\n".join(lines)]
