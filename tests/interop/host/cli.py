"""Our command line against an agent made with an official SDK, over every binding that the agent has.

Usage: cli.py BINDING,… COMMAND …, with the binary in NUNCIO. The command starts the agent with PORT FOLDER GRPC_PORT."""

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

BINDINGS, COMMAND = sys.argv[1].split(","), sys.argv[2:]


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

    def __call__(self, *args, code=0):
        command = [BINARY, *args, "-a", self.url, "--transport", self.binding, "-o", "json"]
        home = {**os.environ, "HOME": str(self.folder), "XDG_STATE_HOME": str(self.folder)}
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=self.folder, env=home)
        assert ran.returncode == code, f"{args}: {ran.returncode}\n{ran.stdout}\n{ran.stderr}"
        return [json.loads(line) for line in ran.stdout.splitlines()]


def text_of(task):
    return "".join(part["text"] for artifact in task["artifacts"] for part in artifact["parts"])


async def sends_and_gets(cli):
    [sent] = cli("send", "count 3")
    task = sent["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED", task
    assert text_of(task) == "1 2 3 ", task
    [got] = cli("task", "get", task["id"], "--history", "1")
    assert (got["id"], text_of(got)) == (task["id"], "1 2 3 "), got


async def streams(cli):
    events = cli("send", "count 3", "--stream")
    kinds = [next(iter(event)) for event in events]
    assert kinds[0] == "task" and kinds.count("artifactUpdate") == 3, kinds
    last = [event for event in events if "statusUpdate" in event][-1]
    assert last["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED", last


async def asks_and_takes_the_answer(cli):
    [asked] = cli("send", "book")
    task = asked["task"]
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED", task
    [done] = cli("send", "Rome", "--task-id", task["id"], "--context-id", task["contextId"])
    assert text_of(done["task"]).endswith("to Rome"), done


async def subscribes_and_cancels(cli):
    [begun] = cli("send", "slow", "--async")
    task = begun["task"]["id"]
    command = [BINARY, "task", "subscribe", task, "-a", cli.url, "--transport", cli.binding, "--stream", "-o", "json"]
    following = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    first = json.loads(following.stdout.readline())
    assert first["task"]["id"] == task, first
    [canceled] = cli("task", "cancel", task)
    assert canceled["status"]["state"] == "TASK_STATE_CANCELED", canceled
    events, _ = following.communicate(timeout=30)
    assert "TASK_STATE_CANCELED" in events, events


async def errors_have_names(cli):
    [error] = cli("task", "get", "no-such-task", code=1)
    assert error["error"]["code"] == "TaskNotFoundError", error
    [sent] = cli("send", "count 1")
    [error] = cli("task", "cancel", sent["task"]["id"], code=1)
    assert error["error"]["code"] == "TaskNotCancelableError", error
    [error] = cli("send", "x", "--task-id", sent["task"]["id"], code=1)
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
            stories = [sends_and_gets, streams, asks_and_takes_the_answer, subscribes_and_cancels, errors_have_names]
            run(over(BINDINGS, cli.choose, [functools.wraps(story)(functools.partial(story, cli)) for story in stories]))
        finally:
            agent.kill()
            agent.wait()


main()
