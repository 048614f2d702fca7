"""Builds ours and the bench workspace, and says where the programs are."""

import json
import subprocess
import sys
from pathlib import Path

from .servers import PEERS

PLAN_BENCH = "plan_bench"
# The profile of what is published; the peers are built alike.
PROFILE = "dist"


def ours(repo: Path, skip: bool, example: str | None = None) -> Path:
    """The server, or a program that stands on it."""
    if not skip:
        what = ("--bin", "nuncio") if example is None else ("--package", "nuncio", "--example", example)
        cargo(repo, "build", "--profile", PROFILE, *what)
    built = target_directory(repo) / PROFILE
    return built / "nuncio" if example is None else built / "examples" / example


def host(repo: Path, skip: bool) -> tuple[Path, Path]:
    """The server, and the program that runs plans. Together, so that what both stand on is built once."""
    if not skip:
        packages = ("--package", "nuncio", "--package", "nuncio-cli")
        cargo(repo, "build", "--profile", PROFILE, *packages, "--bin", "nuncio", "--example", PLAN_BENCH)
    built = target_directory(repo) / PROFILE
    return built / "nuncio", built / "examples" / PLAN_BENCH


def bench(
    workspace: Path, with_peers: bool, skip: bool, of: dict[str, str] = PEERS
) -> tuple[Path, list[str]]:
    """Where the programs are, and which peers there are: one that does not build is left out.

    Each is built by itself, so that it has the features that it asks for and not those of its neighbours.
    """
    built = target_directory(workspace) / "release"
    wanted = of if with_peers else {}
    if skip:
        return built, [name for name, program in wanted.items() if (built / program).exists()]
    cargo(workspace, "build", "--release", "--locked", "-p", "load", "-p", "limit")
    peers = []
    for name, program in wanted.items():
        try:
            cargo(workspace, "build", "--release", "--locked", "-p", program)
            peers.append(name)
        except subprocess.CalledProcessError:
            print(f"{program} does not build; going on without it", file=sys.stderr)
    return built, peers


def cargo(directory: Path, *arguments: str) -> None:
    subprocess.run(["cargo", *arguments], cwd=directory, check=True)


def target_directory(workspace: Path) -> Path:
    metadata = subprocess.run(
        ["cargo", "metadata", "--no-deps", "--format-version", "1"],
        cwd=workspace,
        check=True,
        capture_output=True,
        text=True,
    )
    return Path(json.loads(metadata.stdout)["target_directory"])
