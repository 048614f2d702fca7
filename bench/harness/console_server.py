"""Our server for bench/console: the bench agent, one that does what a message says, one that fails; the few requests that
are sent to it; and live streams as a page opens them, without a browser.
"""

import http.client
import json
import os
import selectors
import socket
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

from .servers import OURS, Server, Spec

AGENT = Path(__file__).with_name("console_agent.py")
FAILS = 'read line; echo \'{"type":"failed","text":"the printer is on fire"}\''
# A value of 10 MB is one line of the agent, and a task of 100,000 events as many lines.
SETTINGS = f"""
[[agent]]
name = "maker"
kind = "process"
command = {json.dumps([sys.executable, "-B", str(AGENT)])}
max-processes = 64
max-line-bytes = {64 << 20}
max-lines = 10000000

[[agent]]
name = "printer"
kind = "process"
command = {json.dumps(["sh", "-c", FAILS])}
max-processes = 16
"""
ENDED = ("completed", "failed", "canceled", "rejected")
HZ = os.sysconf("SC_CLK_TCK")


class ConsoleServer(Server):
    """Ours, with an API of its console. `store`: flags for another store than a folder."""

    def __init__(self, ours: Path, load: Path, scratch: Path, store: tuple[str, ...] = ()):
        def command(port: int, data: Path) -> list[str]:
            settings = data.parent / "nuncio.toml"
            settings.write_text(SETTINGS)
            listen = ["--config", str(settings), "--listen", f"127.0.0.1:{port}", "--data", str(data), "--log", "warn"]
            return [str(ours), "serve", *listen, *store, "--demo", "--bench-agent"]

        super().__init__(Spec(OURS, "", command, ()), load, scratch)
        self.root = f"http://127.0.0.1:{self.port}"
        self.base = f"{self.root}/console"
        self.connections = threading.local()

    def request(self, method: str, path: str, body: dict | None = None, headers: dict | None = None):
        """The status, the headers and the bytes, on a connection that this thread keeps."""
        sent = {"A2A-Version": "1.0", **({"Content-Type": "application/json"} if body is not None else {}), **(headers or {})}
        for attempt in (1, 2):
            if not hasattr(self.connections, "kept"):
                self.connections.kept = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            try:
                self.connections.kept.request(method, path, None if body is None else json.dumps(body), sent)
                response = self.connections.kept.getresponse()
                return response.status, response.headers, response.read()
            except (http.client.HTTPException, OSError):
                # The server closes what is idle. Only a read is repeated: a message would be sent twice.
                del self.connections.kept
                if attempt == 2 or method != "GET":
                    raise

    def api(self, path: str, body: dict | None = None) -> dict:
        status, _, content = self.request("GET" if body is None else "POST", f"/console/api/{path}", body)
        if status != 200:
            raise RuntimeError(f"{path}: {status} {content[:300]!r}")
        return json.loads(content)

    def send(self, agent: str, text: str) -> str:
        """Starts a task and gives its id."""
        message = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": [{"text": text}]}
        body = {"message": message, "configuration": {"returnImmediately": True}}
        status, _, content = self.request("POST", f"/agents/{agent}/message:send", body)
        if status != 200:
            raise RuntimeError(f"{agent} refused: {status} {content[:300]!r}")
        return json.loads(content)["task"]["id"]

    def send_many(self, agent: str, text: str, count: int) -> list[str]:
        with ThreadPoolExecutor(8) as pool:
            return list(pool.map(lambda _: self.send(agent, text), range(count)))

    def row(self, task: str) -> dict:
        return self.api(f"tasks/{task}")["row"]

    def events(self, task: str) -> list[dict]:
        """The whole log, without the contents. A page also ends after so many bytes of content."""
        events: list[dict] = []
        while True:
            page = self.api(f"tasks/{task}/events?after={len(events)}&limit=1000&preview=0")
            events += page["events"]
            if page["after"] >= page["last"]:
                return events

    def wait_for(self, task: str, states: tuple[str, ...], within: float) -> dict:
        deadline = time.monotonic() + within
        while (row := self.row(task))["state"] not in states:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{task} is {row['state']} with {row['events']} events after {within:.0f} s")
            time.sleep(0.05)
        return row

    def completed(self, task: str, within: float) -> dict:
        row = self.wait_for(task, ENDED, within)
        if row["state"] != "completed":
            raise RuntimeError(f"{task} {row['state']}: {row.get('why')}")
        return row

    def fill(self, count: int) -> None:
        figures = self.load("fill", conns=64, count=count, secs=600.0)
        if figures.get("ok", 0) < count:
            raise RuntimeError(f"only {figures.get('ok')} of {count:,} tasks stored: {figures.get('error')}")

    def cpu_s(self) -> float:
        stat = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(") ")[2].split()
        return sum(map(int, stat[11:15])) / HZ

    def rss_kib(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def epoch_ms(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp() * 1000


class OpenConsoles:
    """Live streams with the topics that a page asked for, read to their end as a page reads them: after a `gap` of its rows
    a page reads its list again, at most once a second. They share one thread, and parse no more than they must: what they
    take of a small machine is to be little, since Chromium would take all of it."""

    REFRESH = 1.0

    def __init__(self, server: ConsoleServer, body: str, count: int, list_path: str):
        self.server, self.body, self.count, self.list_path = server, body, count, list_path
        self.closing = threading.Event()
        self.received, self.gaps, self.ended = 0, 0, 0

    def __enter__(self) -> "OpenConsoles":
        self.streams = [self.open() for _ in range(self.count)]
        self.thread = threading.Thread(target=self.read_all, daemon=True)
        self.thread.start()
        return self

    def open(self) -> socket.socket:
        stream = socket.create_connection(("127.0.0.1", self.server.port), 10)
        head = [
            "POST /console/api/live HTTP/1.1",
            f"Host: 127.0.0.1:{self.server.port}",
            f"Origin: {self.server.root}",
            "Content-Type: application/json",
            "Accept: text/event-stream",
            f"Content-Length: {len(self.body.encode())}",
        ]
        stream.sendall(("\r\n".join(head) + "\r\n\r\n" + self.body).encode())
        answer = b""
        while b"event: caught-up" not in answer:
            more = stream.recv(65536)
            if not more or (answer and not answer.startswith(b"HTTP/1.1 200")):
                raise RuntimeError(f"no live stream: {answer[:300]!r}")
            answer += more
        stream.setblocking(False)
        return stream

    def read_all(self) -> None:
        with selectors.DefaultSelector() as selector:
            for stream in self.streams:
                selector.register(stream, selectors.EVENT_READ, {"stream": stream, "due": 0.0})
            while not self.closing.is_set():
                for key, _ in selector.select(0.1):
                    try:
                        content = key.data["stream"].recv(1 << 18)
                    except BlockingIOError:
                        continue
                    if not content:
                        self.ended += 1
                        selector.unregister(key.data["stream"])
                        continue
                    self.received += len(content)
                    if b"event: gap" in content:
                        self.gaps += 1
                        key.data["due"] = key.data["due"] or time.monotonic() + self.REFRESH
                for key in selector.get_map().values():
                    if 0.0 < key.data["due"] <= time.monotonic():
                        key.data["due"] = 0.0
                        self.server.request("GET", self.list_path)

    def __exit__(self, *_) -> None:
        self.closing.set()
        self.thread.join(10)
        for stream in self.streams:
            stream.close()
