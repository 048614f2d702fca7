"""Three servers that do parts of plans: one of ours, an A2A agent made with a2a-sdk, an MCP server made with the
Python SDK. Each writes down what it begins and what it has done, and may be killed and started again."""

import os
import pathlib
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

BINARY = os.environ["NUNCIO"]
HERE = pathlib.Path(__file__).parent
INTEROP = pathlib.Path("target/interop")

# Ten parts: what each needs, how long it takes, who does it. The longest way through them is b, f, h, i.
PARTS = {
    "a": ([], 0.8, "tools"),
    "b": ([], 1.6, "ours"),
    "c": ([], 0.4, "python"),
    "d": (["a"], 1.8, "ours"),
    "e": (["a", "c"], 0.6, "python"),
    "f": (["b"], 1.8, "python"),
    "g": (["d", "e"], 1.0, "tools"),
    "h": (["f"], 0.8, "tools"),
    "i": (["g", "h"], 1.4, "ours"),
    "j": (["c"], 3.0, "python"),
}


def plan(scale):
    """The plan as a file, in which everything takes so many times as long; what a part came to goes into those that
    need it."""
    text = 'name = "ten parts"\nretry = { attempts = 2, backoff = "100ms" }\n'
    for name, (needs, seconds, agent) in PARTS.items():
        of = "+".join(f"{{{{ tasks.{need}.text }}}}" for need in needs)
        text += f'[[tasks]]\nid = "{name}"\nagent = "{agent}"\nneeds = {needs}\n'
        text += f'input = "work {name} {seconds * scale:.3f} {of}"\n'
    return text


def comes_to(name):
    """What a part comes to, wherever it is done."""
    return f"{name}({'+'.join(comes_to(need) for need in PARTS[name][0])})"


def critical_path(scale):
    def takes(name):
        needs, seconds, _ = PARTS[name]
        return seconds + max((takes(need) for need in needs), default=0)

    return scale * max(takes(name) for name in PARTS)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def until(what, within=60, every=0.02):
    deadline = time.monotonic() + within
    while True:
        try:
            found = what()
            if found:
                return found
        except OSError:
            pass
        if time.monotonic() > deadline:
            raise AssertionError("this should have come long ago")
        time.sleep(every)


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except urllib.error.HTTPError:
        # Whoever refuses is there.
        return True


class Server:
    """A program that serves at a port, and writes down what it does in its folder."""

    def __init__(self, folder, name):
        self.name, self.folder, self.port = name, folder / name, free_port()
        self.folder.mkdir()
        self.process = None

    def start(self):
        environment = {**os.environ, "PYTHONPATH": str(HERE.parent / "host"), "PYTHONDONTWRITEBYTECODE": "1"}
        log = open(self.folder / "log", "a")
        self.process = subprocess.Popen(self.command(), env=environment, stdout=log, stderr=log)
        until(lambda: self.process.poll() is None and answers(self.look_at()))

    def kill(self):
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def ledger(self, word):
        """The parts that it has begun (work), or done (done), each as often as it wrote that down."""
        path = self.folder / "ledger"
        lines = [line.split(" ") for line in path.read_text().splitlines()] if path.exists() else []
        return [line[1] for line in lines if line[0] == word]


class Ours(Server):
    WORK = """read -r verb name seconds of
echo "work $name" >>"$LEDGER"
sleep "$seconds"
echo "done $name" >>"$LEDGER"
echo "$name($of)"
"""

    def command(self):
        config = self.folder / "nuncio.toml"
        config.write_text(f"""
[[agent]]
name = "worker"
kind = "process"
speaks = "lines"
command = ["sh", "-c", '''{self.WORK}''']
env = {{ LEDGER = "{self.folder}/ledger" }}
skills = [{{ id = "work" }}]
""")
        place = ["--listen", f"127.0.0.1:{self.port}", "--data", str(self.folder / "data")]
        return [BINARY, "serve", "--config", str(config), *place]

    def look_at(self):
        return f"http://127.0.0.1:{self.port}/agents/worker/.well-known/agent-card.json"

    def table(self):
        return f'kind = "a2a"\nurl = "http://127.0.0.1:{self.port}/agents/worker"\n'


class PythonAgent(Server):
    def command(self):
        python = INTEROP / "a2a-sdk-1.3.0/bin/python"
        return [str(python), str(HERE.parent / "host/far_1_0.py"), str(self.port), str(self.folder)]

    def look_at(self):
        return f"http://127.0.0.1:{self.port}/.well-known/agent-card.json"

    def table(self):
        return f'kind = "a2a"\nurl = "http://127.0.0.1:{self.port}/"\nskills = [{{ id = "work" }}]\n'


class Tools(Server):
    def command(self):
        return [str(INTEROP / "mcp-2.3.0/bin/python"), str(HERE / "tools.py"), str(self.port), str(self.folder)]

    def look_at(self):
        return f"http://127.0.0.1:{self.port}/mcp"

    def table(self):
        return f'kind = "mcp"\nurl = "http://127.0.0.1:{self.port}/mcp"\n'


class Servers:
    """All three."""

    def __init__(self, folder):
        self.all = [Ours(folder, "ours"), PythonAgent(folder, "python"), Tools(folder, "tools")]

    def __getitem__(self, name):
        return next(server for server in self.all if server.name == name)

    def __enter__(self):
        for server in self.all:
            server.start()
        return self

    def __exit__(self, *_):
        for server in self.all:
            server.kill()

    def tables(self):
        """The agents that stand for them, as configuration."""
        table = '[[agent]]\nname = "{}"\nlost = "again"\n{}'
        return "".join(table.format(server.name, server.table()) for server in self.all)

    def ledger(self, word):
        return [name for server in self.all for name in server.ledger(word)]

    def forget(self):
        for server in self.all:
            (server.folder / "ledger").unlink(missing_ok=True)
