"""A far A2A agent made with an official SDK (../host/far_*.py), in a process that may be killed, and the nuncio server
that publishes it twice: with a lost call made again, and not."""

import contextlib
import os
import pathlib
import subprocess
import tempfile

import world

HOST = world.HERE.parent / "host"


class Far:
    def __init__(self, folder, version):
        script = {"1": "far_1_0.py", "0": "far_0_3.py"}[version[0]]
        python = world.INTEROP / f"a2a-sdk-{version}/bin/python"
        self.folder, self.port = pathlib.Path(folder), world.free_port()
        self.command = [str(python), str(HOST / script), str(self.port), str(folder)]
        self.url = f"http://127.0.0.1:{self.port}/"
        self.begin = 0

    def start(self):
        environment = os.environ | {"PYTHONPATH": str(HOST), "PYTHONDONTWRITEBYTECODE": "1"}
        self.process = subprocess.Popen(self.command, env=environment, stderr=subprocess.DEVNULL)
        world.until(lambda: world.fetch(f"{self.url}.well-known/agent-card.json"))

    def again(self):
        world.kill(self.process)
        self.start()

    def anew(self):
        """From here on the ledger counts; slow work waits again."""
        (self.folder / "go").unlink(missing_ok=True)
        self.begin = len(self.lines())

    def go(self):
        (self.folder / "go").touch()

    def ledger(self):
        return self.lines()[self.begin:]

    def lines(self):
        path = self.folder / "ledger"
        return path.read_text().splitlines() if path.exists() else []


@contextlib.contextmanager
def published(version):
    """The far agent and the server that stands for it."""
    with tempfile.TemporaryDirectory(prefix="nuncio-bridge-") as folder:
        far = Far(folder, version)
        try:
            far.start()
            table = '[[agent]]\nname = "{}"\nkind = "a2a"\nurl = "{}"\nlost = "{}"\n'
            tables = table.format("far", far.url, "again") + table.format("far_once", far.url, "fail")
            with world.nuncio(tables) as server:
                yield far, server
        finally:
            world.kill(far.process)
