"""What stands between the two official ends: a nuncio server that may be killed and started again, a relay that writes
down what goes over to an MCP server, the reference server itself, and a stand-in for a model."""

import asyncio
import contextlib
import http.server
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
BINARY = os.environ["NUNCIO"]
INTEROP = HERE.parents[2] / "target/interop"
NODE = INTEROP / "mcp-node/node_modules/node/bin/node"
EVERYTHING = INTEROP / "mcp-everything/node_modules/@modelcontextprotocol/server-everything/dist/index.js"
FULL = os.environ.get("NUNCIO_FULL", "0") == "1"
# Long, because others may be busy on the same machine; nobody waits for it when all is well.
LONGEST = 30


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def until(what, within=LONGEST, about=lambda: ""):
    """Waits until that is something; gives it."""
    deadline = time.monotonic() + within
    while True:
        with contextlib.suppress(OSError):
            if found := what():
                return found
        assert time.monotonic() < deadline, f"this should have come long ago: {what}\n{about()}"
        time.sleep(0.02)


async def happens(what, within=LONGEST, about=lambda: ""):
    """The same, beside whatever else goes on."""
    return await asyncio.to_thread(until, what, within, about)


def fetch(url):
    with urllib.request.urlopen(url, timeout=5) as answer:
        return json.load(answer)


def kill(process):
    """Nothing of it is left when this returns."""
    process.send_signal(signal.SIGKILL)
    process.wait(LONGEST)


class Nuncio:
    """`nuncio serve` on one folder, one port and one configuration, however often it is killed."""

    def __init__(self, folder, config):
        self.folder = pathlib.Path(folder)
        self.url = f"http://127.0.0.1:{(port := free_port())}"
        (self.folder / "nuncio.toml").write_text(config)
        flags = ["--config", str(self.folder / "nuncio.toml"), "--listen", f"127.0.0.1:{port}"]
        self.command = [BINARY, "serve", *flags, "--data", str(self.folder / "data")]
        self.process = None

    def start(self):
        with open(self.folder / "log", "a") as log:
            self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=log)
        until(lambda: urllib.request.urlopen(f"{self.url}/readyz", timeout=5).status == 200, about=self.said)

    def kill(self):
        kill(self.process)

    def again(self):
        """Killed in the midst of whatever it does, and started again."""
        self.kill()
        self.start()

    def card(self, agent):
        return fetch(f"{self.url}/agents/{agent}/.well-known/agent-card.json")

    def said(self):
        return (self.folder / "log").read_text(errors="replace")[-3000:]


@contextlib.contextmanager
def nuncio(config):
    with tempfile.TemporaryDirectory(prefix="nuncio-bridge-") as folder:
        server = Nuncio(folder, config)
        try:
            server.start()
            yield server
        finally:
            kill(server.process)


class Ledger:
    """What went over to an MCP server, as it was written down on the way, from some moment on."""

    def __init__(self, path):
        self.path, self.begin = pathlib.Path(path), 0
        self.path.touch()

    def anew(self):
        self.begin = self.path.stat().st_size

    def text(self):
        with open(self.path, "rb") as file:
            file.seek(self.begin)
            return file.read().decode(errors="replace")

    def count(self, method):
        return len(re.findall(rf'"method":\s*"{re.escape(method)}"', self.text()))


class Relay:
    """Passes bytes on between Nuncio and a server, and writes down those that go over."""

    def __init__(self, to, ledger):
        self.to, self.ledger = to, ledger
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            near, _ = self.listener.accept()
            try:
                far = socket.create_connection(("127.0.0.1", self.to), timeout=5)
                far.settimeout(None)
            except OSError:
                near.close()
                continue
            for source, sink, path in ((near, far, self.ledger.path), (far, near, None)):
                threading.Thread(target=self.pass_on, args=(source, sink, path), daemon=True).start()

    def pass_on(self, source, sink, path):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if path:
                    with open(path, "ab") as file:
                        file.write(data)
                sink.sendall(data)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


class Everything:
    """The reference server over HTTP, which keeps nothing when it is killed."""

    def __init__(self, folder):
        self.port = free_port()
        self.ledger = Ledger(pathlib.Path(folder) / "over-http")
        self.relay = Relay(self.port, self.ledger)
        self.url = f"http://127.0.0.1:{self.relay.port}/mcp"

    def start(self):
        environment = os.environ | {"PORT": str(self.port)}
        command = [str(NODE), str(EVERYTHING), "streamableHttp"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, env=environment, **quiet)
        until(lambda: socket.create_connection(("127.0.0.1", self.port), timeout=1).close() is None)


@contextlib.contextmanager
def everything():
    with tempfile.TemporaryDirectory(prefix="nuncio-bridge-") as folder:
        server = Everything(folder)
        try:
            server.start()
            yield server
        finally:
            kill(server.process)


@contextlib.contextmanager
def model(words):
    """A stand-in for a model of an OpenAI-compatible API: it always says the same. Gives its base URL."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if asked.get("stream"):
                piece = {"choices": [{"index": 0, "delta": {"content": words}, "finish_reason": None}]}
                last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
                body = "".join(f"data: {json.dumps(one)}\n\n" for one in (piece, last)) + "data: [DONE]\n\n"
                kind = "text/event-stream"
            else:
                message = {"role": "assistant", "content": words}
                body = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
                kind = "application/json"
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()


def tell(stories, about):
    """Tells every story whose name has the word of the command line, and counts them; gives how many failed."""
    word = os.environ.get("STORY", "")
    failed = told = 0
    for name, story in stories:
        if word not in name:
            continue
        began, told = time.monotonic(), told + 1
        try:
            asyncio.run(asyncio.wait_for(story(), LONGEST))
            print(f"  ok    {name} ({time.monotonic() - began:.1f} s)", flush=True)
        except Exception:
            failed += 1
            print(f"  FAIL  {name}", flush=True)
            traceback.print_exc()
            print(about(), file=sys.stderr)
    print(f"{told - failed} passed, {failed} failed", flush=True)
    return failed
