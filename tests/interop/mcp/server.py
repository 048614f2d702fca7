"""`nuncio serve` in a process of its own, which a program can kill and start again."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request

# Long, because others may be busy on the same machine; nobody waits for it when all is well.
LONGEST_START = 30


class Server:
    """A server on one folder and one port, however often it is killed."""

    def __init__(self, binary, folder, step):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.root = f"http://127.0.0.1:{self.port}"
        self.url = f"{self.root}/mcp"
        self.folder = folder
        self.log = pathlib.Path(folder, "server.log")
        data = str(pathlib.Path(folder, "data"))
        listen = f"127.0.0.1:{self.port}"
        self.command = [binary, "serve", "--listen", listen, "--data", data, "--agent-step", step]
        self.process = None
        self.kills = 0

    def start(self):
        """Returns when it takes requests."""
        # What is set for another server is not meant for this one.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("NUNCIO_")}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, env=environment
            )
        deadline = time.monotonic() + LONGEST_START
        while True:
            assert self.process.poll() is None, f"the server ended with {self.process.returncode}: {self.said()}"
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.root}/readyz", timeout=5):
                return
            assert time.monotonic() < deadline, f"the server is not ready: {self.said()}"
            time.sleep(0.01)

    def kill(self):
        """Nothing of it is left when this returns."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(timeout=LONGEST_START)
        self.kills += 1

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait(timeout=LONGEST_START)

    def said(self):
        return self.log.read_text(errors="replace")[-4000:]

    def a2a(self, method, params):
        """What the tasks are, told by the other protocol."""
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
        headers = {"Content-Type": "application/json", "A2A-Version": "1.0"}
        with urllib.request.urlopen(urllib.request.Request(f"{self.root}/", body, headers), timeout=10) as answer:
            answer = json.load(answer)
        assert "result" in answer, answer
        return answer["result"]

    def tasks(self):
        """The ids of all tasks, and their states."""
        tasks, token = {}, ""
        while True:
            page = self.a2a("ListTasks", {"pageSize": 100, "pageToken": token})
            tasks |= {task["id"]: task["status"]["state"] for task in page["tasks"]}
            token = page.get("nextPageToken")
            if not token:
                return tasks


@contextlib.contextmanager
def serving(binary, step):
    """A server on a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="nuncio-interop-") as folder:
        server = Server(binary, folder, step)
        try:
            server.start()
            yield server
        finally:
            server.stop()
