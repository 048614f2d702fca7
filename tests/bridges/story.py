"""Questions through bridges while both sides are killed: a program here, an A2A agent and an MCP tool of another server,
and a plan over all three. Each asks one thing; the client answers each question that it sees with a word of its own.

    story.py [--runs N] [--kills N] [--seed N] [--full]

Both servers are killed (SIGKILL) and started again KILLS times in every run, at random moments. Told at the end, and an
error where it is not so: no program was told anything that the client did not say, no work was begun twice over there
for one task here, every task has ended. Run from the root, with the binary in NUNCIO; needs nothing but Python."""

import argparse
import itertools
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
BINARY = os.environ.get("NUNCIO", "target/debug/nuncio")
# Generous: others may be busy on the same machine. Nobody waits for it when all is well.
START_WITHIN, RUN_WITHIN = 60, 240
ENDED = {"TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED"}


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Server:
    def __init__(self, folder, port, config):
        self.folder, self.url = folder, f"http://127.0.0.1:{port}"
        folder.mkdir()
        (folder / "nuncio.toml").write_text(config)
        self.command = [BINARY, "serve", "--config", str(folder / "nuncio.toml"), "--listen", f"127.0.0.1:{port}"]
        self.command += ["--data", str(folder / "data")]
        self.process = None

    def start(self):
        with open(self.folder / "log", "a") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)
        deadline = time.monotonic() + START_WITHIN
        while True:
            try:
                urllib.request.urlopen(f"{self.url}/readyz", timeout=5).close()
                return
            except OSError:
                assert time.monotonic() < deadline, (self.folder / "log").read_text()[-3000:]
                time.sleep(0.02)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Client:
    """A2A 1.0 to one agent, patient with a server that is away."""

    def __init__(self, server, agent, until):
        self.url, self.until = f"{server.url}/agents/{agent}", until

    def call(self, method, params, key=None):
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
        headers = {"content-type": "application/json", "a2a-version": "1.0"}
        if key:
            headers["idempotency-key"] = key
        while True:
            assert time.monotonic() < self.until, f"{method}: the server is away for too long"
            try:
                request = urllib.request.Request(self.url, body, headers)
                with urllib.request.urlopen(request, timeout=10) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                if error.code < 500 and error.code != 429:
                    return json.load(error)
            except (OSError, ValueError):
                pass
            time.sleep(0.05)


class Story:
    def __init__(self, scratch, run, kills, seed):
        self.random, self.kills, self.run = random.Random(seed), kills, run
        folder = scratch / f"run-{run}"
        folder.mkdir()
        self.ledger = folder / "ledger"
        self.ledger.touch()
        command = json.dumps([sys.executable, str(HERE / "asker.py"), str(self.ledger)])
        program = f'[[agent]]\nname = "%s"\nkind = "process"\ncommand = {command}\ndescription = "Asks."\n\n'
        far, near = free_port(), free_port()
        self.far = Server(folder / "far", far, program % "asker")
        bridges = f'[[agent]]\nname = "a2a"\nkind = "a2a"\nurl = "http://127.0.0.1:{far}/agents/asker"\n\n'
        bridges += f'[[agent]]\nname = "mcp"\nkind = "mcp"\nurl = "http://127.0.0.1:{far}/mcp"\ntools = ["asker"]\n'
        self.near = Server(folder / "near", near, program % "program" + bridges)
        self.told, self.wrong, self.tasks, self.killed = {}, [], 0, threading.Event()

    def ask_all(self):
        """Brings one task of each kind after another to its end, beside each other, for as long as servers are killed."""
        until = time.monotonic() + RUN_WITHIN
        threads = [threading.Thread(target=self.guard, args=(kind, until)) for kind in ("program", "a2a", "mcp", "plan")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def guard(self, kind, until):
        try:
            for number in itertools.count():
                self.bring_to_its_end(kind, number, until)
                self.tasks += 1
                if self.killed.is_set():
                    return
        except Exception as error:  # noqa: BLE001 (told with all the others)
            self.wrong.append(f"{kind}: {error}")

    def bring_to_its_end(self, kind, number, until):
        tag = f"{kind}-{self.run}-{number}"
        if kind == "plan":
            tasks = [{"id": name, "agent": name, "input": {"data": {"text": f"{tag}-{name}"}}} for name in ("program", "a2a", "mcp")]
            # A plan tries once unless it says more, and now and then all of its agents are away at once.
            retry = {"attempts": 5, "backoff": "1s"}
            part, agent = {"data": {"plan": {"name": tag, "retry": retry, "tasks": tasks}}}, "orchestrator"
        else:
            part, agent = {"data": {"text": tag}}, kind
        client = Client(self.near, agent, until)
        message = {"messageId": f"m-{tag}", "role": "ROLE_USER", "parts": [part]}
        sent = client.call("SendMessage", {"message": message, "configuration": {"returnImmediately": True}}, f"k-{tag}")
        assert "result" in sent, sent
        task = sent["result"]["task"]["id"]
        answered = set()
        while True:
            seen = client.call("GetTask", {"id": task})
            assert "result" in seen, seen
            status = seen["result"]["status"]
            if status["state"] in ENDED:
                assert status["state"] == "TASK_STATE_COMPLETED", (status["state"], status.get("message"))
                return
            question = next((p["data"]["questionId"] for p in status.get("message", {}).get("parts", []) if "questionId" in p.get("data", {})), None)
            if status["state"] == "TASK_STATE_INPUT_REQUIRED" and question:
                if question not in answered:
                    # A person takes a moment.
                    time.sleep(self.random.uniform(0, 0.6))
                    answered.add(question)
                word = f"word-{task[-6:]}-{len(answered)}"
                self.told.setdefault(word, question)
                data = {"questionId": question, "action": "accept", "content": {"word": word}}
                reply = {"messageId": f"a-{word}", "role": "ROLE_USER", "taskId": task, "parts": [{"data": data}]}
                client.call("SendMessage", {"message": reply, "configuration": {"returnImmediately": True}}, f"a-{word}")
            time.sleep(0.05)

    def kill_both(self):
        killed = {self.near: 0, self.far: 0}
        while min(killed.values()) < self.kills:
            time.sleep(self.random.uniform(0.02, 0.8))
            server = self.random.choice([one for one in killed if killed[one] < self.kills])
            server.kill()
            time.sleep(self.random.uniform(0, 0.2))
            server.start()
            killed[server] += 1
        self.killed.set()
        return sum(killed.values())

    def tell(self):
        self.far.start()
        self.near.start()
        asks = threading.Thread(target=self.ask_all)
        asks.start()
        try:
            kills = self.kill_both()
            asks.join()
        finally:
            self.far.kill()
            self.near.kill()
        lines = [json.loads(line) for line in self.ledger.read_text().splitlines()]
        for line in lines:
            if "action" in line and (line["action"] != "accept" or line["data"]["word"] not in self.told):
                self.wrong.append(f"an answer that nobody gave: {line}")
        for tag in {line["tag"] for line in lines}:
            tasks = {line["task"] for line in lines if line["tag"] == tag}
            if len(tasks) > 1:
                self.wrong.append(f"carried out {len(tasks)} times: {tag}")
        return kills


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--kills", type=int, default=8)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--full", action="store_true", default=os.environ.get("NUNCIO_FULL") == "1")
    said = parser.parse_args()
    runs, failed, kills, tasks, began = (200 if said.full else said.runs), 0, 0, 0, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="nuncio-bridges-") as scratch:
        for run in range(runs):
            story = Story(pathlib.Path(scratch), run, said.kills, said.seed + run)
            kills += story.tell()
            tasks += story.tasks
            for wrong in story.wrong:
                print(f"run {run} (seed {said.seed + run}): {wrong}", flush=True)
            failed += bool(story.wrong)
    print(f"{runs} runs, {tasks} tasks that ended, {kills} kills, {failed} failed, {time.monotonic() - began:.0f} s (seed {said.seed})")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
