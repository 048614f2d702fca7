"""The machine of a run: figures without it say nothing."""

import json
import os
import platform
import resource
import statistics
import subprocess
from datetime import datetime, timezone
from pathlib import Path

# Cores that others may use, in the median, before rates say more about them than about us.
QUIET = 0.2


def describe(repo: Path, scratch: Path) -> list[tuple[str, str]]:
    """What is known before the run."""
    return [
        ("date", datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")),
        ("commit", commit(repo)),
        ("cores", f"{len(os.sched_getaffinity(0))} ({first('/proc/cpuinfo', 'model name')})"),
        ("memory", f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / (1 << 30):.0f} GiB"),
        ("kernel", f"{platform.system()} {platform.release()}"),
        ("file system of the data", file_system(scratch)),
        ("compiler", said("rustc", "--version")),
    ]


def fsync(limit: Path, scratch: Path, secs: float) -> dict:
    """Times a second that the disk makes 4 KiB durable, appended and overwritten."""
    done = subprocess.run(
        [str(limit), "fsync", str(scratch), "--secs", str(secs)], capture_output=True, text=True, timeout=60
    )
    if done.returncode != 0:
        raise RuntimeError(f"limit fsync: {done.stderr.strip()}")
    return json.loads(done.stdout)


def commits(limit: Path, scratch: Path, secs: float) -> float:
    """Times a second that SQLite commits one task of a log, one after the other, with `synchronous=FULL`."""
    done = subprocess.run(
        [str(limit), "commits", str(scratch), "--secs", str(secs)], capture_output=True, text=True, timeout=60
    )
    if done.returncode != 0:
        raise RuntimeError(f"limit commits: {done.stderr.strip()}")
    return json.loads(done.stdout)["commits_per_s"]


def fsync_text(measurements: list[dict]) -> str:
    kinds = (("append_per_s", "appended"), ("overwrite_per_s", "overwritten"))
    return ", ".join(f"{name} {' and '.join(f'{m[key]:,}' for m in measurements)}/s" for key, name in kinds)


def others_text(rows: list[dict]) -> str:
    """How busy others were during the measurements."""
    busy = [row["others_cores"] for row in rows if "others_cores" in row]
    if not busy:
        return "unknown"
    text = f"{statistics.median(busy):.2f} cores in the median of the measurements, at most {max(busy):.2f}"
    return text + (": too busy to trust rates and p99" if statistics.median(busy) > QUIET else "")


def allow_many_files() -> None:
    """2,000 streams are as many sockets in the server and in the load generator, which inherit this."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def commit(repo: Path) -> str:
    revision = said("git", "-C", str(repo), "rev-parse", "--short", "HEAD")
    changed = said("git", "-C", str(repo), "status", "--porcelain", "--", "crates", "Cargo.lock")
    return revision + (" with changes" if changed else "")


def said(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.strip()
    except OSError:
        return ""


def first(path: str, key: str) -> str:
    lines = Path(path).read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), "unknown")


def file_system(path: Path) -> str:
    """The type of the mount that holds a path. On tmpfs an fsync costs nothing and durability is a fiction."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    holding = [mount for mount in mounts if path.resolve().is_relative_to(mount[1])]
    return max(holding, key=lambda mount: len(mount[1]))[2] if holding else "unknown"
