"""Does what the unit forbids, and fails where one of these succeeds. To be run by confined.py."""

import mmap
import os
import re
import resource
import socket
import sys
import tempfile
from pathlib import Path


def write_below(folder: str) -> None:
    tempfile.TemporaryFile(dir=folder)


def memory_that_is_written_and_executed() -> None:
    mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)


def raise_file_limit() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard + 1, hard + 1))


FORBIDDEN = {
    "write to /etc": lambda: write_below("/etc"),
    "write to /usr": lambda: write_below("/usr"),
    "write to /var/lib": lambda: write_below("/var/lib"),
    "read /root": lambda: os.listdir("/root"),
    "memory that is written and executed": memory_that_is_written_and_executed,
    "a socket of another family": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW),
    # To its own user, which the kernel allows to everybody.
    "a system call that is not in the filter": lambda: os.setuid(os.getuid()),
    "more open files": raise_file_limit,
}

broken = []
for name, act in FORBIDDEN.items():
    try:
        act()
        broken.append(name)
    except (OSError, ValueError):
        pass
# What it needs: its own folder, and /tmp.
write_below("/var/lib/nuncio")
write_below("/tmp")
status = dict(re.findall(r"^(\w+):\s*(\S+)", Path("/proc/self/status").read_text(), re.MULTILINE))
if status["CapBnd"].strip("0"):
    broken.append("capabilities")
if status["NoNewPrivs"] != "1":
    broken.append("privileges of set-uid programs")
sys.exit(f"possible under the unit's limits: {', '.join(broken)}" if broken else 0)
