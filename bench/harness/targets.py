"""What the project promises, and whether a run kept it.

A ratio is taken within each repeat, where both servers ran within the same minute, and the median of those
counts: on a shared machine absolute figures wander, their ratios much less.
"""

import statistics
from dataclasses import dataclass

from .servers import (
    A2A_PROTOCOL_SERVER,
    L0,
    L2,
    LF_GRPC,
    LF_REST,
    OURS,
    OURS_GRPC,
    OURS_REST,
    PYTHON_GRPC,
    PYTHON_REST,
    RA2A,
)
from .workloads import Measurements

PASS, MISS, NOT_RUN = "PASS", "MISS", "not run"


@dataclass(frozen=True)
class Target:
    """Ours against a server (a ratio, or how much more), against ourselves with another workload, or alone."""

    what: str
    workload: str
    figure: str
    bound: float
    at_least: bool
    server: str | None = None
    base_workload: str | None = None
    unit: str = ""
    # Under which it is chosen, if not by its workload.
    chosen_by: str | None = None
    # Not how many times as much, but how much more.
    is_difference: bool = False
    # Whose figure it is.
    subject: str = OURS

    def text(self) -> str:
        sign = "≥" if self.at_least else "≤"
        if self.is_ratio():
            return f"{sign} {self.bound:g} × {self.server or 'with few'}"
        if self.is_difference:
            return f"{sign} {self.bound:g}{self.unit} more than {self.server}"
        return f"{sign} {self.bound:,g}{self.unit}"

    def part(self) -> str:
        """The name under which it is chosen."""
        return self.chosen_by or self.workload

    def is_ratio(self) -> bool:
        return not self.is_difference and self.is_beside()

    def is_beside(self) -> bool:
        return self.server is not None or self.base_workload is not None


def grown(what: str, workload: str, figure: str, before: str) -> Target:
    """With many tasks stored, no more than twice that with few."""
    return Target(what, workload, figure, 2.0, False, base_workload=before, chosen_by="grow")


def bindings(workload: str, figure: str) -> list[Target]:
    """Beside JSON-RPC: REST within a tenth, gRPC within three tenths."""
    return [
        Target(f"{workload} over {name}: CPU", workload, figure, bound, False, OURS, subject=subject)
        for name, bound, subject in (("REST", 1.1, OURS_REST), ("gRPC", 1.3, OURS_GRPC))
    ]


def ahead(workload: str, figure: str) -> list[Target]:
    """Over REST and gRPC, no slower than the official SDKs over the same binding, though they keep nothing."""
    return [
        Target(f"{workload} over {name}: per second", workload, figure, 1.0, True, peer, subject=subject)
        for name, subject, peers in (
            ("REST", OURS_REST, (LF_REST, PYTHON_REST)),
            ("gRPC", OURS_GRPC, (LF_GRPC, PYTHON_GRPC)),
        )
        for peer in peers
    ]


TARGETS = [
    Target("send, 64 connections: per second", "send", "rps", 0.55, True, L2),
    Target("send: per second, beside the fastest in-memory SDK", "send", "rps", 1.2, True, RA2A),
    Target("send: CPU per request", "send", "cpu_s_per_1k", 2.0, False, L2),
    Target("send: p99", "send", "p99_ms", 2.0, False, L2),
    Target("stream, 32 streams: events per second", "stream", "events_per_s", 80_000, True),
    Target("stream: beside the best in-memory SDK", "stream", "events_per_s", 1.0, True, A2A_PROTOCOL_SERVER),
    Target("stream: beside the bare SSE loop", "stream", "events_per_s", 0.4, True, L0),
    Target("get, 64 connections: per second", "get", "rps", 0.6, True, L0),
    *bindings("send", "cpu_s_per_1k"),
    *bindings("get", "cpu_s_per_1k"),
    *bindings("stream", "cpu_s_per_1k_events"),
    *ahead("send", "rps"),
    *ahead("get", "rps"),
    *ahead("stream", "events_per_s"),
    Target("idle streams: memory of each", "idle", "kib_per_stream", 32, False, unit=" KiB"),
    grown("get with many stored: p50", "get-many", "p50_ms", "get-few"),
    grown("get with many stored: CPU", "get-many", "cpu_s_per_1k", "get-few"),
    grown("list with many stored: p50", "list-many", "p50_ms", "list-few"),
    grown("list with many stored: CPU", "list-many", "cpu_s_per_1k", "list-few"),
]


@dataclass(frozen=True)
class Verdict:
    target: Target
    values: list[float]
    outcome: str
    note: str = ""

    def median(self) -> float:
        return statistics.median(self.values)


def judge_all(
    measured: Measurements, chosen: list[str], promised: list[Target] = TARGETS
) -> list[Verdict]:
    return [judge(target, measured, chosen) for target in promised]


def judge(target: Target, measured: Measurements, chosen: list[str]) -> Verdict:
    if target.part() not in chosen:
        return Verdict(target, [], NOT_RUN)
    ours = measured.of(target.subject, target.workload)
    if not ours:
        return Verdict(target, [], MISS if measured.has(target.subject) else NOT_RUN, "no figures")
    values = [figures[target.figure] for figures in ours.values()]
    if target.is_beside():
        base = measured.of(target.server or OURS, target.base_workload or target.workload)
        pairs = [(ours[rep][target.figure], base[rep][target.figure]) for rep in ours.keys() & base.keys()]
        if target.is_difference:
            values = [mine - other for mine, other in pairs]
        else:
            values = [mine / other for mine, other in pairs if other]
    if not values:
        return Verdict(target, [], NOT_RUN, f"no figures of {target.server or 'few stored'}")
    median = statistics.median(values)
    kept = median >= target.bound if target.at_least else median <= target.bound
    # A fast wrong answer is not fast.
    failures = measured.failures(target.subject, target.workload)
    note = f"{failures} bad answers" if failures else ""
    return Verdict(target, values, PASS if kept and not failures else MISS, note)
