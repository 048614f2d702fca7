"""Agents made with the official Python SDKs, called through a real nuncio server that publishes them: what they say
and ask comes through, and neither a kill of the server nor of the agent loses the work.

Usage: a2a_agents.py PYTHON FAR_SCRIPT [BINDING], with the binary in NUNCIO. With a binding, the script must have all."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from nuncio import BINARY, run  # noqa: E402

PYTHON, FAR = sys.argv[1], str(pathlib.Path(__file__).parent / sys.argv[2])
BINDING = sys.argv[3] if len(sys.argv) > 3 else None


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class World:
    """A far agent and a nuncio server that stands for it, each of which may be killed and started again."""

    def __enter__(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.scratch.name)
        self.far_port, self.port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        config = f'[[agent]]\nname = "far"\nkind = "a2a"\nurl = "http://127.0.0.1:{self.far_port}/"\nlost = "again"\n'
        if BINDING:
            config += f'transport = "{BINDING}"\n'
            self.grpc_port = free_port()
        (self.folder / "nuncio.toml").write_text(config)
        self.start_far()
        self.start()
        return self

    def __exit__(self, *_):
        for process in (self.server, self.far):
            process.kill()
            process.wait()
        self.scratch.cleanup()

    def start_far(self):
        here = str(pathlib.Path(__file__).parent)
        environment = {**os.environ, "PYTHONPATH": here, "PYTHONDONTWRITEBYTECODE": "1"}
        ports = [str(self.grpc_port)] if BINDING else []
        self.far = subprocess.Popen([PYTHON, FAR, str(self.far_port), str(self.folder), *ports], env=environment)
        self.until(lambda: fetch(f"http://127.0.0.1:{self.far_port}/.well-known/agent-card.json"))

    def start(self):
        flags = ["--config", str(self.folder / "nuncio.toml"), "--listen", f"127.0.0.1:{self.port}"]
        command = [BINARY, "serve", *flags, "--data", str(self.folder / "data")]
        self.server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=open(self.folder / "log", "a"))
        self.until(lambda: fetch(f"{self.url}/agents/far/.well-known/agent-card.json"))

    def kill(self, process):
        process.send_signal(signal.SIGKILL)
        process.wait()

    def until(self, what, within=30):
        deadline = time.monotonic() + within
        while True:
            try:
                found = what()
                if found:
                    return found
            except OSError:
                pass
            if time.monotonic() > deadline:
                raise AssertionError(f"this should have come long ago; the server said:\n{self.log()}")
            time.sleep(0.05)

    def log(self):
        path = self.folder / "log"
        return path.read_text()[-3000:] if path.exists() else ""

    def call(self, method, params):
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        headers = {"content-type": "application/json", "a2a-version": "1.0"}
        request = urllib.request.Request(f"{self.url}/agents/far", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            answer = json.load(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def send(self, text, task=None):
        message = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": [{"text": text}]}
        if task:
            message["taskId"] = task["id"]
        sent = self.call("SendMessage", {"message": message, "configuration": {"returnImmediately": True}})
        return sent["task"]

    def settled(self, task):
        rests = ("COMPLETED", "INPUT_REQUIRED", "FAILED", "CANCELED", "REJECTED")
        get = lambda: self.call("GetTask", {"id": task["id"]})  # noqa: E731
        return self.until(lambda: (found := get())["status"]["state"].endswith(rests) and found)

    def partly(self, task, text):
        """Waits until so much of the artifact is there."""
        return self.until(lambda: text_of(self.call("GetTask", {"id": task["id"]})) == text)

    def ledger(self):
        return (self.folder / "ledger").read_text().splitlines()


def fetch(url):
    with urllib.request.urlopen(url, timeout=5) as answer:
        return json.load(answer)


def text_of(task):
    parts = [part for artifact in task.get("artifacts", []) for part in artifact["parts"]]
    return "".join(part.get("text", "") for part in parts)


def state(task):
    return task["status"]["state"].removeprefix("TASK_STATE_")


def words(task):
    return "".join(part.get("text", "") for part in task["status"].get("message", {}).get("parts", []))


async def presents_itself_as_the_far_agent_does():
    with World() as world:
        card = world.until(lambda: (
            card := fetch(f"{world.url}/agents/far/.well-known/agent-card.json")
        )["description"].startswith("An agent made with") and card)
        [skill] = card["skills"]
        assert (skill["id"], skill["tags"], skill["examples"]) == ("act", ["acting"], ["count 3"]), skill


async def comes_through_whole():
    with World() as world:
        task = world.settled(world.send("count 5"))
        assert (state(task), text_of(task), words(task)) == ("COMPLETED", "1 2 3 4 5 ", "counted"), task
        task = world.settled(world.send("dance"))
        assert (state(task), words(task)) == ("REJECTED", "nobody here can 'dance'"), task


async def asks_and_is_answered():
    with World() as world:
        task = world.settled(world.send("book"))
        assert state(task) == "INPUT_REQUIRED" and words(task).startswith("Which city?"), task
        task = world.settled(world.send("Lisbon", task))
        assert (state(task), text_of(task), words(task)) == ("COMPLETED", "a trip to Lisbon", "booked"), task
        assert world.ledger() == ["book", "Lisbon"]


async def goes_on_after_a_kill_of_the_server():
    with World() as world:
        task = world.send("slow")
        world.partly(task, "half ")
        world.kill(world.server)
        world.start()
        (world.folder / "go").touch()
        task = world.settled(task)
        assert (state(task), text_of(task)) == ("COMPLETED", "half done"), task
        assert world.ledger() == ["slow"], "it was done once"


async def is_answered_after_a_kill_of_the_server():
    with World() as world:
        task = world.settled(world.send("book"))
        world.kill(world.server)
        world.start()
        task = world.settled(world.send("Lisbon", task))
        assert (state(task), text_of(task)) == ("COMPLETED", "a trip to Lisbon"), task
        assert world.ledger() == ["book", "Lisbon"]


async def is_done_again_after_a_kill_of_the_agent():
    with World() as world:
        task = world.send("slow")
        world.partly(task, "half ")
        world.kill(world.far)
        (world.folder / "go").touch()
        world.start_far()
        task = world.settled(task)
        assert (state(task), text_of(task)) == ("COMPLETED", "half done"), task
        assert world.ledger() == ["slow", "slow"]


async def is_not_asked_again_after_a_kill_of_the_agent():
    with World() as world:
        task = world.settled(world.send("book"))
        world.kill(world.far)
        world.start_far()
        task = world.settled(world.send("Lisbon", task))
        assert (state(task), text_of(task)) == ("COMPLETED", "a trip to Lisbon"), task
        assert world.ledger() == ["book", "book", "Lisbon"]


async def is_canceled_there_too():
    with World() as world:
        task = world.settled(world.send("book"))
        canceled = world.call("CancelTask", {"id": task["id"]})
        assert state(canceled) == "CANCELED", canceled
        assert world.ledger() == ["book", "cancel"]
        task = world.send("slow")
        world.partly(task, "half ")
        canceled = world.call("CancelTask", {"id": task["id"]})
        assert state(canceled) == "CANCELED", canceled
        assert world.ledger() == ["book", "cancel", "slow", "cancel"]


run([
    presents_itself_as_the_far_agent_does,
    comes_through_whole,
    asks_and_is_answered,
    goes_on_after_a_kill_of_the_server,
    is_answered_after_a_kill_of_the_server,
    is_done_again_after_a_kill_of_the_agent,
    is_not_asked_again_after_a_kill_of_the_agent,
    is_canceled_there_too,
])
