"""The servers of a run, and how one of them is started, loaded and ended.

One server is alive at a time. Each gets a port of its own and, where it stores, a folder of its own that is
removed afterwards.
"""

import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

STARTS_WITHIN = 20.0
ENDS_WITHIN = 5.0
# The load generator gives up by itself before this.
LOAD_GRACE = 90.0

OURS = "nuncio"
# The same server over its other bindings, and encrypted.
OURS_REST = "nuncio, REST"
OURS_GRPC = "nuncio, gRPC"
OURS_TLS = "nuncio, TLS"
OURS_GRPC_TLS = "nuncio, gRPC, TLS"
# Another build of ours: an older one, or one of another profile.
OURS_BESIDE = "nuncio, beside"
L0 = "L0"
L2 = "L2"
RA2A = "ra2a"
A2A_PROTOCOL_SERVER = "a2a-protocol-server"
# These have all three bindings, so there are three rows of each.
LF, LF_REST, LF_GRPC = "a2a-server-lf", "a2a-server-lf, REST", "a2a-server-lf, gRPC"
PYTHON, PYTHON_REST, PYTHON_GRPC = "Python a2a-sdk", "Python a2a-sdk, REST", "Python a2a-sdk, gRPC"

# Peers by their names, with the program that is built of each.
PEERS = {RA2A: "peer-ra2a", A2A_PROTOCOL_SERVER: "peer-a2a-protocol-server", LF: "peer-a2a-lf"}
REQUESTS = ("send", "get", "stream")


@dataclass(frozen=True)
class Spec:
    """A server that can be started."""

    name: str
    about: str
    command: Callable[[int, Path], list[str]]
    workloads: tuple[str, ...]
    dialect: str = "a2a"
    # The certificate that a client trusts, where the server is encrypted.
    ca: Path | None = None

    def family(self) -> str:
        """The server's name without the binding."""
        return self.name.partition(",")[0]


@dataclass(frozen=True)
class Certificate:
    """The files of a certificate that no CA has signed."""

    cert: Path
    key: Path


def certificate(ours: Path, folder: Path) -> Certificate | None:
    """One for this machine, made by our own binary. A build that cannot make one is measured without TLS."""
    command = [str(ours), "cert", "self-signed", "--host", "127.0.0.1", "--out", str(folder), "--force"]
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(command, capture_output=True, text=True, timeout=STARTS_WITHIN)
    if done.returncode != 0:
        print(f"no certificate; going on without TLS: {done.stderr.strip()[:400]}", file=sys.stderr)
        return None
    return Certificate(folder / "cert.pem", folder / "key.pem")


def catalog(
    ours: Path,
    built: Path,
    beside: Path | None = None,
    tls: Certificate | None = None,
    python: list[str] | None = None,
) -> list[Spec]:
    """Every server; `built` is where the bench workspace's programs are, `python` starts the peer in Python."""

    def program(name: str) -> str:
        return str(built / name)

    def serving(
        name: str,
        about: str,
        binary: Path,
        asked: tuple[str, ...],
        dialect: str = "a2a",
        tls: Certificate | None = None,
    ) -> Spec:
        def command(port: int, data: Path) -> list[str]:
            listen = ["--listen", f"127.0.0.1:{port}", "--data", str(data)]
            files = ["--tls-cert", str(tls.cert), "--tls-key", str(tls.key)] if tls else []
            return [str(binary), "serve", *listen, *files, "--bench-agent"]

        return Spec(name, about, command, asked, dialect, tls.cert if tls else None)

    def bindings(names: tuple[str, str, str], about: str, start: list[str]) -> list[Spec]:
        """A peer that has gRPC on a port of its own."""
        rpc, rest, grpc = names
        return [
            Spec(rpc, about, lambda port, _: [*start, str(port)], (*REQUESTS, "idle")),
            Spec(rest, "the same over HTTP+JSON", lambda port, _: [*start, str(port)], REQUESTS, "a2a-rest"),
            Spec(
                grpc, "the same over gRPC", lambda port, _: [*start, str(port), "--grpc"], REQUESTS, "a2a-grpc"
            ),
        ]

    specs = [
        Spec(
            L0,
            "bare axum, tasks in a map; streams: the bare SSE loop",
            lambda port, _: [program("limit"), "serve", str(port)],
            ("send", "get", "stream", "idle"),
        ),
        Spec(
            L2,
            "axum + SQLite FULL in the log layout, answered after the commit",
            lambda port, data: [program("limit"), "serve", str(port), "--data", str(data)],
            ("send", "get"),
        ),
        serving(OURS, "this repository, durable", ours, ("send", "get", "stream", "idle", "grow")),
        serving(OURS_REST, "the same over HTTP+JSON", ours, REQUESTS, "a2a-rest"),
        serving(OURS_GRPC, "the same over gRPC", ours, REQUESTS, "a2a-grpc"),
        *(
            [
                serving(OURS_TLS, "JSON-RPC over TLS 1.3, connections kept", ours, REQUESTS, "a2a", tls),
                serving(OURS_GRPC_TLS, "gRPC over TLS 1.3", ours, REQUESTS, "a2a-grpc", tls),
            ]
            if tls
            else []
        ),
        *([serving(OURS_BESIDE, str(beside), beside, ("send", "get", "stream", "idle"))] if beside else []),
        Spec(
            RA2A,
            "ra2a 0.10.1, in memory; it never closes a stream, so there is no figure for those",
            lambda port, _: [program("peer-ra2a"), str(port)],
            ("send", "get", "idle"),
            dialect="ra2a",
        ),
        Spec(
            A2A_PROTOCOL_SERVER,
            "a2a-protocol-server 0.15.0, in memory; at most 1,024 streams at once",
            lambda port, _: [program("peer-a2a-protocol-server"), str(port)],
            ("send", "get", "stream", "idle"),
        ),
        *bindings(
            (LF, LF_REST, LF_GRPC),
            "a2a-server-lf 0.5.3 (gRPC: a2a-grpc 0.3.11), in memory",
            [program(PEERS[LF])],
        ),
        *(
            bindings(
                (PYTHON, PYTHON_REST, PYTHON_GRPC),
                "a2a-sdk 1.3.0 on uvicorn with uvloop (gRPC: grpc.aio), in memory, one process",
                python,
            )
            if python
            else []
        ),
    ]
    return specs


def choose(specs: list[Spec], only: list[str]) -> list[Spec]:
    """Those that are named: all rows of a server, or one of them as in `nuncio-grpc`."""
    unknown = set(only) - {slug(name) for spec in specs for name in (spec.family(), spec.name)}
    if unknown:
        there = ", ".join(slug(spec.name) for spec in specs)
        raise SystemExit(f"no such server: {', '.join(unknown)} (there are {there})")
    return [spec for spec in specs if slug(spec.family()) in only or slug(spec.name) in only]


def slug(name: str) -> str:
    """A row's name as it is written on a command line."""
    return name.lower().replace(",", "").replace(" ", "-")


class Server:
    """A started server. Use it with `with`."""

    def __init__(self, spec: Spec, load: Path, scratch: Path):
        self.spec, self.load_program = spec, load
        self.port = free_port()
        self.home = scratch / f"{spec.name}-{self.port}"
        self.data = self.home / "data"

    def __enter__(self) -> "Server":
        shutil.rmtree(self.home, ignore_errors=True)
        self.data.mkdir(parents=True)
        # In a folder of its own and without settings of this shell, so that no nuncio.toml gets in.
        environment = {key: value for key, value in os.environ.items() if not key.startswith("NUNCIO_")}
        self.log_path = self.home / "server.log"
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                self.spec.command(self.port, self.data),
                cwd=self.home,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            self.wait_until_it_listens()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_) -> None:
        self.stop()

    def wait_until_it_listens(self) -> None:
        deadline = time.monotonic() + STARTS_WITHIN
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                said = self.log_path.read_text(errors="replace")[-400:].strip()
                raise RuntimeError(f"{self.spec.name} ended with {self.process.returncode}: {said}")
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError(f"{self.spec.name} does not listen after {STARTS_WITHIN:.0f} s")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.home, ignore_errors=True)
        # What this one has left to write is not to be paid for by the next one's fsyncs.
        os.sync()

    def load(
        self,
        workload: str,
        *more: str,
        conns: int,
        count: int,
        secs: float,
        ids: Path | None = None,
        beside: tuple["Server", ...] = (),
    ) -> dict:
        """Runs the load generator once; what it printed, and how busy others were meanwhile.

        `more`: further flags of it. `beside`: servers that this one stands on, which are no others.
        """
        command = [str(self.load_program), workload, "--port", str(self.port), "--pid", str(self.process.pid)]
        command += ["--conns", str(conns), "--count", str(count), "--secs", str(secs)]
        command += ["--dialect", self.spec.dialect, *more]
        if self.spec.ca is not None:
            command += ["--tls", "--ca", str(self.spec.ca)]
        if ids is not None:
            command += ["--ids", str(ids)]
        environment = {**os.environ, "RUST_BACKTRACE": "0"}
        limit = secs + LOAD_GRACE
        pids = [server.process.pid for server in (self, *beside)]
        start, before = time.monotonic(), cpu_of_others(pids)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit)
        if done.returncode != 0:
            return {"error": done.stderr.strip()[:400]}
        figures = json.loads(done.stdout)
        others = cpu_of_others(pids) - before
        figures["others_cores"] = max(others, 0.0) / (time.monotonic() - start)
        return figures


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def cores_of_others(secs: float) -> float:
    """Cores that are busy while this run does nothing."""
    start, before = time.monotonic(), cpu_of_others([])
    time.sleep(secs)
    return max(cpu_of_others([]) - before, 0.0) / (time.monotonic() - start)


def cpu_of_others(servers: list[int]) -> float:
    """CPU seconds that this machine has spent on neither these servers nor our own children."""
    hz = os.sysconf("SC_CLK_TCK")
    user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    everything = user + nice + system + irq + softirq + steal
    for server in servers:
        stat = Path(f"/proc/{server}/stat").read_text().rpartition(") ")[2].split()
        everything -= sum(map(int, stat[11:15]))
    ours = resource.getrusage(resource.RUSAGE_CHILDREN)
    return everything / hz - ours.ru_utime - ours.ru_stime
