"""The tables of a run, as markdown."""

import json
import statistics
import sys
from pathlib import Path

from .servers import OURS, OURS_GRPC, OURS_GRPC_TLS, OURS_TLS, Spec
from .targets import Verdict
from .workloads import Measurements, Size


def markdown(
    machine: list[tuple[str, str]],
    verdicts: list[Verdict],
    specs: list[Spec],
    measured: Measurements,
    size: Size,
) -> str:
    parts = [
        "# Last run of the benchmark",
        "\n".join(f"- {key}: {value}" for key, value in machine),
        "## Targets",
        targets(verdicts),
        "## Figures",
        "Medians. CPU is the server's, in seconds per 1,000 requests or events.",
        figures(specs, measured),
        *encryption(measured),
        *growth(measured, size),
        "\n".join(f"- {spec.name}: {spec.about}" for spec in specs),
        *troubles(measured),
    ]
    return "\n\n".join(parts) + "\n"


def targets(verdicts: list[Verdict]) -> str:
    lines = ["| target | bound | measured | of all repeats | |", "| --- | --- | --- | --- | --- |"]
    for verdict in verdicts:
        show = ratio if verdict.target.is_ratio() else decimals if verdict.target.is_difference else number
        measured, spread = "", ""
        if verdict.values:
            measured = show(verdict.median())
            spread = f"{show(min(verdict.values))} … {show(max(verdict.values))}"
        outcome = f"**{verdict.outcome}**" + (f" ({verdict.note})" if verdict.note else "")
        cells = [verdict.target.what, verdict.target.text(), measured, spread, outcome]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def figures(specs: list[Spec], measured: Measurements) -> str:
    columns = [
        ("send/s", "send", "rps", number),
        ("p50 ms", "send", "p50_ms", decimals),
        ("p99 ms", "send", "p99_ms", decimals),
        ("CPU", "send", "cpu_s_per_1k", small),
        ("get/s", "get", "rps", number),
        ("CPU", "get", "cpu_s_per_1k", small),
        ("events/s", "stream", "events_per_s", number),
        ("CPU", "stream", "cpu_s_per_1k_events", small),
        ("KiB per idle stream", "idle", "kib_per_stream", decimals),
    ]
    columns = [column for column in columns if any(measured.of(spec.name, column[1]) for spec in specs)]
    lines = ["| | " + " | ".join(column[0] for column in columns) + " |", "| --- |" + " --- |" * len(columns)]
    for spec in specs:
        cells = [median(measured, spec.name, workload, figure, show) for _, workload, figure, show in columns]
        if any(cells):
            lines.append(f"| {spec.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) if columns else "None."


def encryption(measured: Measurements) -> list[str]:
    """What TLS costs: each row beside the plain one of the same binding."""
    columns = [
        ("send: CPU", "send", "cpu_s_per_1k"),
        ("send/s", "send", "rps"),
        ("get: CPU", "get", "cpu_s_per_1k"),
        ("get/s", "get", "rps"),
        ("stream: CPU", "stream", "cpu_s_per_1k_events"),
        ("events/s", "stream", "events_per_s"),
    ]
    rows = []
    for encrypted, plain in ((OURS_TLS, OURS), (OURS_GRPC_TLS, OURS_GRPC)):
        cells = [
            beside(measured, (encrypted, workload), (plain, workload), figure) for _, workload, figure in columns
        ]
        if any(cells):
            rows.append(f"| {encrypted}, of {plain} | " + " | ".join(cells) + " |")
    head = ["| | " + " | ".join(column[0] for column in columns) + " |", "| --- |" + " --- |" * len(columns)]
    return ["\n".join(head + rows)] if rows else []


def growth(measured: Measurements, size: Size) -> list[str]:
    rows = []
    for workload in ("get", "list"):
        for label, stored in zip(("few", "many"), size.stored):
            name = f"{workload}-{label}"
            cells = [
                median(measured, OURS, name, figure, show)
                for figure, show in (("p50_ms", decimals), ("p99_ms", decimals), ("cpu_s_per_1k", small))
            ]
            if any(cells):
                rows.append(f"| {workload}, {stored:,} stored | " + " | ".join(cells) + " |")
    if not rows:
        return []
    head = [f"| {OURS}, one connection | p50 ms | p99 ms | CPU |", "| --- | --- | --- | --- |"]
    return ["\n".join(head + rows)]


def troubles(measured: Measurements) -> list[str]:
    lines = measured.troubles()
    return ["## Troubles", "\n".join("- " + " ".join(line.split()) for line in lines)] if lines else []


def keep(text: str, measured: Measurements, into: Path, raw_into: Path, name: str = "results") -> None:
    """Writes the text, and the raw figures where they are not committed."""
    path, raw = into / f"{name}.md", raw_into / name.replace("results", "measurements")
    raw = raw.with_suffix(".jsonl")
    path.write_text(text)
    raw.write_text("".join(json.dumps(row) + "\n" for row in measured.rows))
    print(f"written: {path} and {raw}", file=sys.stderr)


def median(measured: Measurements, server: str, workload: str, figure: str, show) -> str:
    values = [row[figure] for row in measured.of(server, workload).values() if figure in row]
    return show(statistics.median(values)) if values else ""


def beside(measured: Measurements, ours: tuple[str, str], theirs: tuple[str, str], figure: str) -> str:
    """The median of the ratios within each repeat."""
    mine, others = measured.of(*ours), measured.of(*theirs)
    ratios = [mine[rep][figure] / others[rep][figure] for rep in mine.keys() & others.keys() if others[rep][figure]]
    return ratio(statistics.median(ratios)) if ratios else ""


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def decimals(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def small(value: float) -> str:
    return f"{value:.4f}"


def ratio(value: float) -> str:
    return f"{value:.2f} ×"
