"""An agent of the kind `process` that does what the message tells it: each entry of its `script` is a line of the protocol.

Beside those: `{"repeat": n, "line": …}` writes a line n times, with `{n}` in its text replaced by the number, and
`{"wait": name}` goes on when the test has made the file of that name in the folder GATES. `{"tick": name}` reports progress
until then.
"""

import json
import os
import sys
import time
from pathlib import Path

GATES = Path(os.environ["GATES"])
ANSWERED = {"ask", "sample", "authorize", "step", "call", "sleep"}


def write(line):
    print(json.dumps(line), flush=True)
    if line["type"] in ANSWERED and not sys.stdin.readline():
        sys.exit(0)  # The server has ended.


def numbered(line, n):
    return {name: value.replace("{n}", str(n)) if isinstance(value, str) else value for name, value in line.items()}


def main():
    given = json.loads(sys.stdin.readline())
    for entry in (given["data"] or {}).get("script", []):
        if "repeat" in entry:
            for n in range(entry["repeat"]):
                write(numbered(entry["line"], n))
        elif "wait" in entry:
            while not (GATES / entry["wait"]).exists():
                time.sleep(0.01)
        elif "tick" in entry:
            done = 0
            while not (GATES / entry["tick"]).exists():
                done += 1
                write({"type": "log", "text": f"tick {done}"})
                time.sleep(0.02)
        else:
            write(entry)


main()
