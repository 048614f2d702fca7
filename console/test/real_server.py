"""A real server with a temporary folder, started, killed and started again on one port; and the few requests that tests send."""

import json
import os
import re
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

HERE = Path(__file__).parent
FULL = os.environ.get("NUNCIO_FULL") == "1"
BINARY = os.environ.get("NUNCIO", "target/debug/nuncio")
# NUNCIO_PAGES=disk: the pages as they are on disk instead of those in the binary, by serve.mjs in front of the server.
FROM_DISK = os.environ.get("NUNCIO_PAGES") == "disk"


def until(condition, what, within=10):
    """Waits for a condition, and gives what it came to."""
    deadline = time.monotonic() + within
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within} s: {what}")
        time.sleep(0.02)


class RealServer:
    def __init__(self, *flags):
        self.folder = tempfile.TemporaryDirectory()
        root = Path(self.folder.name)
        self.data, self.gates = root / "data", root / "gates"
        self.gates.mkdir()
        self.config = root / "nuncio.toml"
        program = json.dumps(["python3", str(HERE / "scripted_agent.py")])
        # The gate of a workflow's refinement: the test decides by a file what the command says.
        tests = json.dumps(["sh", "-c", 'echo "testing $SPARC_CONTEXT_ID"; test -e "$0/tests-pass"', str(self.gates)])
        self.config.write_text(
            f"sparc.test-command = {tests}\n"
            '[[agent]]\nname = "scripted"\ndescription = "Does what the test says"\nkind = "process"\n'
            f"command = {program}\nenv = {{ GATES = {json.dumps(str(self.gates))} }}\nmax-processes = 200\ngrace = \"100ms\"\n"
        )
        self.flags = flags
        self.port = 0
        self.front = None
        self.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for gate in ("all", "ticks"):
            self.open_gate(gate)
        for process in filter(None, (self.front, self.process)):
            process.terminate()
            process.wait(25)
        self.folder.cleanup()

    def start(self):
        command = [BINARY, "serve", "--config", str(self.config), "--listen", f"127.0.0.1:{self.port}", "--data", str(self.data)]
        command += ["--demo", "--agent-step", "20ms", *self.flags]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        printed = []
        for line in self.process.stdout:
            printed.append(line)
            found = re.search(r"Console: +http://127\.0\.0\.1:(\d+)/console/", line)
            if found:
                break
        else:
            raise RuntimeError("the server ended:\n" + "".join(printed))
        self.port = int(found.group(1))
        if FROM_DISK and not self.front:
            self.front = subprocess.Popen(["node", str(HERE.parent / "serve.mjs"), f"http://127.0.0.1:{self.port}", "0"], stdout=subprocess.PIPE, text=True)
            self.front_port = re.search(r":(\d+)/console/", self.front.stdout.readline()).group(1)
        self.public_url = f"http://127.0.0.1:{self.port}"
        self.root = f"http://127.0.0.1:{self.front_port if FROM_DISK else self.port}"
        self.base = f"{self.root}/console"
        # What it prints later must not fill the pipe.
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def kill(self):
        self.process.kill()
        self.process.wait(10)

    def open_gate(self, name):
        (self.gates / name).touch()

    def request(self, method, path, body=None, headers=None):
        """The status, the headers and the text of a response."""
        sent = {"A2A-Version": "1.0", **({"Content-Type": "application/json"} if body is not None else {}), **(headers or {})}
        request = urllib.request.Request(self.root + path, None if body is None else json.dumps(body).encode(), sent, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return response.status, response.headers, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read().decode()

    def api(self, path):
        status, _, text = self.request("GET", f"/console/api/{path}")
        assert status == 200, f"{path}: {status} {text[:300]}"
        return json.loads(text)

    def send(self, agent, text=None, data=None, headers=None):
        """Starts a task and gives its id."""
        parts = ([{"text": text}] if text is not None else []) + ([{"data": data}] if data is not None else [])
        message = {"messageId": os.urandom(8).hex(), "role": "ROLE_USER", "parts": parts}
        body = {"message": message, "configuration": {"returnImmediately": True}}
        status, _, answer = self.request("POST", f"/agents/{agent}/message:send", body, headers)
        assert status == 200, answer
        return json.loads(answer)["task"]["id"]

    def play(self, text, *script):
        """Starts a task of the scripted agent."""
        return self.send("scripted", text, {"script": list(script)})

    def state(self, task):
        return self.api(f"tasks/{task}")["row"]["state"]

    def ended(self, task, within=20):
        states = ("completed", "failed", "canceled", "rejected")
        return until(lambda: (state := self.state(task)) in states and state, f"{task} ends", within)

    def events(self, task):
        """The whole log."""
        events = []
        while True:
            page = self.api(f"tasks/{task}/events?after={len(events)}&limit=1000&preview=1048576")
            events += page["events"]
            if page["after"] >= page["last"]:
                return events

    def command(self, *arguments, check=True):
        """What a command of the binary prints."""
        done = subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=60)
        assert not check or done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        # An address that is printed is the server's own.
        return done.stdout.replace(self.public_url, self.root)
