"""Servers of ours that fail on purpose: their logs, their metrics, and what the command line shows of a task."""

import contextlib
import json
import os
import pathlib
import re
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

BINARY = os.environ["NUNCIO"]
# A machine that also compiles is slow; a scene that works takes a second or two.
PATIENCE = 60


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def until(look, what):
    """What `look` gives as soon as it gives something."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"not within {PATIENCE} s: {what}")


class Server:
    """`nuncio serve` in a folder of its own, with this configuration."""

    def __init__(self, folder, config, *flags, data=None):
        self.folder, self.port = pathlib.Path(folder), free_port()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.url = f"http://127.0.0.1:{self.port}"
        self.flags = flags
        # Commands find the server by its data folder.
        self.environment = {**os.environ, "HOME": str(self.folder), "NUNCIO_DATA": str(data or self.folder / "nuncio-data")}
        self.log_file = self.folder / "log.jsonl"
        self.configure(config)
        self.process = None

    def configure(self, config):
        (self.folder / "nuncio.toml").write_text(config)

    def start(self):
        command = [BINARY, "serve", "--listen", f"127.0.0.1:{self.port}", "--log-format", "json", *self.flags]
        with open(self.log_file, "a") as log:
            self.process = subprocess.Popen(command, cwd=self.folder, env=self.environment, stdout=log, stderr=log)
        until(self.is_ready, f"the server is ready; its log:\n{self.log_file.read_text()}")
        return self

    def is_ready(self):
        if self.process.poll() is not None:
            raise AssertionError(f"the server ended with {self.process.returncode}:\n{self.log_file.read_text()}")
        with contextlib.suppress(OSError):
            return urllib.request.urlopen(f"{self.url}/readyz", timeout=5).status == 200

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(PATIENCE)

    def log(self):
        return self.log_file.read_text().splitlines()

    def log_line(self, pattern):
        """The first line of the log that says this."""
        return until(lambda: next((line for line in self.log() if re.search(pattern, line)), None), f"the log says {pattern}")

    def metrics(self):
        told = json.loads((pathlib.Path(self.environment["NUNCIO_DATA"]) / "server.json").read_text())
        request = urllib.request.Request(f"{self.url}/metrics", headers={"authorization": f"Bearer {told['adminToken']}"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.read().decode().splitlines()

    def sample(self, pattern):
        """The first sample that is as wanted."""
        return until(lambda: next((line for line in self.metrics() if re.search(pattern, line)), None), f"metrics say {pattern}")

    def command(self, *arguments, code=None):
        done = subprocess.run(
            [BINARY, *arguments], cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=PATIENCE,
            stdin=subprocess.DEVNULL,
        )
        if code is not None and done.returncode != code:
            raise AssertionError(f"nuncio {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def send(self, agent, text, *flags):
        """Begins a task; its id."""
        printed = self.command("send", "--agent", agent, "--async", *flags, text)
        return re.search(r"Task: (\S+)", printed)[1]

    def show_line(self, task, pattern):
        """The first line of `task show` that says this."""

        def look():
            lines = self.command("task", "show", task).splitlines()
            return next((line.strip() for line in lines if re.search(pattern, line)), None)

        return until(look, f"task show says {pattern}; it says:\n{self.command('task', 'show', task)}")


@contextlib.contextmanager
def folder():
    with tempfile.TemporaryDirectory(prefix="nuncio-failures-") as path:
        # PostgreSQL and programs run as other users may have to reach it.
        os.chmod(path, 0o755)
        yield pathlib.Path(path)


@contextlib.contextmanager
def server(config="", *flags, **more):
    with folder() as path:
        one = Server(path / "server", config, *flags, **more)
        try:
            yield one.start()
        finally:
            one.stop()
