"""A terminal for one page: a shell in a network and a process namespace of its own, in a folder of its own.

So 127.0.0.1:8080 is free for every page, pages run side by side, and what a page started ends with it.
"""

import fcntl
import os
import pathlib
import re
import select
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
COMMAND_SECONDS = 60
# How long a command in the background may take until it listens, or prints what the page shows.
BACKGROUND_SECONDS = 20

# Waits until a command in the background listens on another port than those before, or has ended.
UNTIL_IT_LISTENS = """
for _ in $(seq 200); do
    [ "$(cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -c ' 0A ')" -gt "$LISTENING" ] && break
    kill -0 $! 2>/dev/null || break
    sleep 0.05
done
"""


def namespaces():
    """The command that makes the namespaces; exits with a message where they are not allowed."""
    command = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid() != 0:
        command[1:1] = ["--user", "--map-current-user", "--keep-caps"]
    try:
        tried = subprocess.run([*command, "true"], capture_output=True, text=True, timeout=20)
        problem = tried.returncode and tried.stderr.strip()
    except FileNotFoundError:
        problem = "there is no `unshare` (util-linux)"
    if problem:
        raise SystemExit(
            f"docs: the pages need a network namespace each, and this machine allows none ({problem}).\n"
            "Run this as root, or where user namespaces are allowed (sysctl kernel.unprivileged_userns_clone=1); "
            "in a container with --cap-add SYS_ADMIN."
        )
    return command


def loopback_up():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        name, up = b"lo", 1
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", name, up))  # SIOCSIFFLAGS


class Ended(Exception):
    """The shell has ended, or a command has not."""


class Terminal:
    def __init__(self, unshare, binary):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="nuncio-docs-"))
        # PostgreSQL runs as another user, who has to reach its folder.
        self.folder.chmod(0o755)
        self.notes = self.folder / "notes"
        self.work = self.folder / "nuncio"
        for made in (self.notes, self.work, self.folder / "home", self.folder / "bin"):
            made.mkdir()
        self.furnish(binary)
        reading, writing = os.pipe()
        self.status, self.count = os.fdopen(reading, "rb", buffering=0), 0
        self.shell = subprocess.Popen(
            [*unshare, sys.executable, HERE / "terminal.py", "bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            cwd=self.work, env=self.environment(writing), pass_fds=[writing],
        )
        os.close(writing)

    def furnish(self, binary):
        """What a checkout has after the build: the binary, the examples, the scripts."""
        for place in (self.folder / "bin", self.work / "target/release"):
            place.mkdir(parents=True, exist_ok=True)
            (place / "nuncio").symlink_to(binary)
        for shim in (HERE / "shims").iterdir():
            # The programs that a server starts have little of its environment, so the paths are written into them.
            text = shim.read_text().replace("@PYTHON@", sys.executable).replace("@INTEROP@", str(ROOT / "target/interop"))
            (self.folder / "bin" / shim.name).write_text(text)
            (self.folder / "bin" / shim.name).chmod(0o755)
        shutil.copytree(ROOT / "examples", self.work / "examples")
        (self.work / "scripts").symlink_to(ROOT / "scripts")

    def environment(self, status):
        """Nothing of the caller's: no settings, no home, no secrets."""
        folders = [self.folder / "bin", pathlib.Path(sys.executable).parent, *NODE_FOLDERS]
        system = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
        return {
            "PATH": ":".join(map(str, folders)) + ":" + system,
            "HOME": str(self.folder / "home"),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "PYTHONDONTWRITEBYTECODE": "1",
            # The agents to practise with work for 2 s a step, and batches wait while a machine is busy.
            "NUNCIO_AGENT_STEP": "200ms",
            "NUNCIO_BATCH_RESOURCE_MONITORING": "false",
            "DOCS_STATUS": str(status),
        }

    def write(self, name, text):
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run(self, text, is_server=False):
        """Runs a command in the shell; gives its exit code, and a function that reads what it has printed."""
        self.count += 1
        script, output = self.notes / f"command-{self.count}", self.notes / f"output-{self.count}"
        in_background = is_server or re.search(r"&\s*(#.*)?$", text)
        if is_server:
            text += " &"
        script.write_text(text + "\n" + (UNTIL_IT_LISTENS if in_background else ""))
        count = "cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -c ' 0A '"
        line = f"LISTENING=$({count}); . {script} >{output} 2>&1 </dev/null; echo $? >&$DOCS_STATUS\n"
        if in_background:
            line = line.replace("echo $?", "echo 0")
        try:
            self.shell.stdin.write(line.encode())
            self.shell.stdin.flush()
        except BrokenPipeError as error:
            raise Ended("the shell has ended") from error
        return self.exit_code(), in_background, lambda: self.printed(output)

    def exit_code(self):
        got, deadline = b"", time.monotonic() + COMMAND_SECONDS
        while not got.endswith(b"\n"):
            if not select.select([self.status], [], [], max(0, deadline - time.monotonic()))[0]:
                raise Ended(f"it has not ended after {COMMAND_SECONDS} s")
            piece = self.status.read(64)
            if not piece:
                raise Ended("the shell has ended with it")
            got += piece
        return int(got)

    def printed(self, output):
        text = output.read_text(errors="replace") if output.exists() else ""
        text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text)
        # The shell's own lines about its jobs.
        lines = [line.rstrip() for line in text.splitlines() if f"{self.notes}/command-" not in line]
        while lines and not lines[-1]:
            lines.pop()
        return "".join(line + "\n" for line in lines)

    def last_lines(self):
        """The last output of all, for a failure of which nothing else is known."""
        return self.printed(self.notes / f"output-{self.count}")

    def close(self):
        self.shell.kill()
        self.shell.wait(20)
        self.shell.stdin.close()
        self.status.close()
        for _ in range(50):
            shutil.rmtree(self.folder, ignore_errors=True)
            if not self.folder.exists():
                break
            time.sleep(0.1)  # A process of the namespace may still have been writing.


def node_folders():
    """The folder of the newest Node that the environments have, before that of the machine."""
    own = ROOT / "target/interop/mcp-node/node_modules/node/bin"
    return [own] if own.is_dir() else []


NODE_FOLDERS = node_folders()

if __name__ == "__main__":
    loopback_up()
    os.execvp(sys.argv[1], sys.argv[1:])
