"""Our command line against an agent made with an official SDK, over every binding that the agent has.

Usage: cli.py VERSION BINDING,… COMMAND …, with the binary in NUNCIO. The command starts the agent with PORT FOLDER GRPC_PORT."""

import functools
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from nuncio import BINARY, over, run  # noqa: E402

VERSION, BINDINGS, COMMAND = sys.argv[1], sys.argv[2].split(","), sys.argv[3:]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Cli:
    """The command line, at one agent and in one binding."""

    def __init__(self, url, folder):
        self.url, self.folder, self.binding = url, folder, None

    def choose(self, binding):
        self.binding = binding

    def flags(self):
        return ["-a", self.url, "--a2a-version", VERSION, "--transport", self.binding, "-o", "json"]

    def __call__(self, *args, code=0):
        command = [BINARY, *args, *self.flags()]
        home = {**os.environ, "HOME": str(self.folder), "XDG_STATE_HOME": str(self.folder)}
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=self.folder, env=home)
        assert ran.returncode == code, f"{args}: {ran.returncode}\n{ran.stdout}\n{ran.stderr}"
        return [json.loads(line) for line in ran.stdout.splitlines()]


def task_of(sent):
    """The task of a response; before 1.0 nothing is around it."""
    return sent.get("task", sent)


def state_of(of):
    """The name of a state, in either generation."""
    return of["status"]["state"].removeprefix("TASK_STATE_").replace("_", "-").lower()


def kind_of(event):
    """What an event is, and the event itself."""
    if "kind" in event:
        return event["kind"], event
    name, payload = next(iter(event.items()))
    return {"statusUpdate": "status-update", "artifactUpdate": "artifact-update"}.get(name, name), payload


def text_of(task):
    return "".join(part["text"] for artifact in task["artifacts"] for part in artifact["parts"])


async def sends_and_gets(cli):
    # a2a-sdk 0.3 stores a chunk that is appended to an artifact twice if the response is no stream.
    number, counted = (3, "1 2 3 ") if VERSION == "1.0" else (1, "1 ")
    [sent] = cli("send", f"count {number}")
    task = task_of(sent)
    assert state_of(task) == "completed", task
    assert text_of(task) == counted, task
    [got] = cli("task", "get", task["id"], "--history", "1")
    assert (got["id"], text_of(got)) == (task["id"], counted), got


async def streams(cli):
    events = [kind_of(event) for event in cli("send", "count 3", "--stream")]
    kinds = [kind for kind, _ in events]
    assert kinds[0] == "task" and kinds.count("artifact-update") == 3, kinds
    last = [event for kind, event in events if kind == "status-update"][-1]
    assert state_of(last) == "completed", last


async def asks_and_takes_the_answer(cli):
    [asked] = cli("send", "book")
    task = task_of(asked)
    assert state_of(task) == "input-required", task
    [done] = cli("send", "Rome", "--task-id", task["id"], "--context-id", task["contextId"])
    assert text_of(task_of(done)).endswith("to Rome"), done


async def subscribes_and_cancels(cli):
    [begun] = cli("send", "slow", "--async")
    task = task_of(begun)["id"]
    command = [BINARY, "task", "subscribe", task, "--stream", *cli.flags()]
    following = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    first = json.loads(following.stdout.readline())
    assert first["task"]["id"] == task, first
    [canceled] = cli("task", "cancel", task)
    assert state_of(canceled) == "canceled", canceled
    events, _ = following.communicate(timeout=30)
    assert "TASK_STATE_CANCELED" in events, events


async def cancels(cli):
    [begun] = cli("send", "slow", "--async")
    [canceled] = cli("task", "cancel", task_of(begun)["id"])
    assert state_of(canceled) == "canceled", canceled


async def errors_have_names(cli):
    [error] = cli("task", "get", "no-such-task", code=1)
    assert error["error"]["code"] == "TaskNotFoundError", error
    [sent] = cli("send", "count 1")
    task = task_of(sent)["id"]
    [error] = cli("task", "cancel", task, code=1)
    assert error["error"]["code"] == "TaskNotCancelableError", error
    [error] = cli("send", "x", "--task-id", task, code=1)
    assert error["error"]["code"].endswith("Error"), error


def main():
    with tempfile.TemporaryDirectory() as scratch:
        folder, port, grpc = pathlib.Path(scratch), free_port(), free_port()
        environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parent), "PYTHONDONTWRITEBYTECODE": "1"}
        with open(folder / "log", "w") as log:
            agent = subprocess.Popen([*COMMAND, str(port), scratch, str(grpc)], env=environment, stderr=log)
        url = f"http://127.0.0.1:{port}"
        try:
            deadline = time.monotonic() + 30
            while True:
                try:
                    urllib.request.urlopen(f"{url}/.well-known/agent-card.json", timeout=5).close()
                    break
                except OSError:
                    assert time.monotonic() < deadline and agent.poll() is None, (folder / "log").read_text()
                    time.sleep(0.05)
            cli = Cli(url, folder)
            # A subscription of 0.3 begins without the task: nothing says when it has begun.
            canceling = subscribes_and_cancels if VERSION == "1.0" else cancels
            stories = [sends_and_gets, streams, asks_and_takes_the_answer, canceling, errors_have_names]
            run(over(BINDINGS, cli.choose, [functools.wraps(story)(functools.partial(story, cli)) for story in stories]))
        finally:
            agent.kill()
            agent.wait()


main()
