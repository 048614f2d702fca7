"""Builds ours and the bench workspace, installs the peers' packages, and says where the programs are."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Callable

from .servers import PEERS

PLAN_BENCH = "plan_bench"
# The profile of what is published; the peers are built alike.
PROFILE = "dist"
# uvicorn with uvloop and httptools, which is the fastest that it has.
PYTHON_A2A_PACKAGES = ("a2a-sdk[http-server,grpc]==1.3.0", "uvicorn[standard]==0.54.0")
# In the folder of installed packages: which ones they are.
READY = "ready"


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


def python_a2a(workspace: Path, peers: Path, skip: bool) -> list[str] | None:
    """What starts the peer in Python, its port yet to be added; None where it cannot be set up."""
    home = peers / "python-a2a"
    if skip and not (home / READY).exists():
        print(f"{home} is not there; going on without it", file=sys.stderr)
        return None
    interpreter = set_up("Python", lambda: [str(python(home, PYTHON_A2A_PACKAGES)), "-B"])
    return interpreter and [*interpreter, str(workspace / "peer-python-a2a" / "server.py")]


def python(home: Path, packages: tuple[str, ...]) -> Path:
    """The interpreter of an environment that has these packages."""

    def install() -> None:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        pip = [str(home / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *packages], check=True)

    once(home, packages, install)
    return home / "bin" / "python"


def once(home: Path, packages: tuple[str, ...], install: Callable[[], None]) -> None:
    """Installs unless those very packages are there."""
    ready, wanted = home / READY, " ".join(packages)
    if not ready.exists() or ready.read_text() != wanted:
        home.parent.mkdir(parents=True, exist_ok=True)
        install()
        ready.write_text(wanted)


def set_up(name: str, make: Callable[[], list[str]]) -> list[str] | None:
    try:
        return make()
    except (OSError, subprocess.SubprocessError) as error:
        print(f"{name} cannot be set up; going on without it: {error}", file=sys.stderr)
        return None


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
