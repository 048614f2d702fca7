"""The agent of kind `process` that makes what bench/console looks at. The message says what: `events COUNT`,
`value BYTES`, `ticks RATE SECONDS` or `ask`."""

import json
import sys
import time

TEXT = "a line of some sixty bytes, as agents write them while they work"


def write(**line) -> None:
    print(json.dumps(line), flush=True)


def compact(value) -> str:
    return json.dumps(value, separators=(",", ":"))


def events(count: int) -> None:
    """A log of so many events: beside these lines it has the message and two of status."""
    for number in range(count - 3):
        if number % 10 == 3:
            write(type="progress", done=number, total=count, text=f"at {number}")
        elif number % 10 == 7:
            first = number == 7
            write(type="artifact", id="report", text=f"piece {number} ", append=not first, last=False)
        else:
            write(type="log", text=f"{number}: {TEXT}", level="info")
    write(type="done", text="all of it")


def value(size: int) -> None:
    """One artifact whose data has that many bytes as JSON: records, as a query gives them."""
    record = {"id": 0, "name": TEXT, "price": 12.5, "tags": ["a", "b", "c"], "inner": {"ok": True, "at": "2026-11-18T05:14:00Z"}}
    each = len(compact(record)) + 8  # A comma, and the digits of larger ids.
    records = [{**record, "id": number} for number in range(size // each)]
    rest = size - len(compact({"records": records, "rest": ""}))
    write(type="artifact", id="table", data={"records": records, "rest": "x" * max(0, rest)})
    write(type="done")


def ticks(rate: float, seconds: float) -> None:
    start = time.monotonic()
    for number in range(int(rate * seconds)):
        time.sleep(max(0.0, start + number / rate - time.monotonic()))
        write(type="log", text=f"tick {number}", level="info")
    write(type="done", text="ticked")


def ask() -> None:
    write(type="ask", text="May it go on?")
    sys.stdin.readline()
    write(type="done")


def main() -> None:
    what, *numbers = json.loads(sys.stdin.readline())["text"].split()
    {"events": events, "value": value, "ticks": ticks, "ask": ask}[what](*(type_of(number) for number in numbers))


def type_of(number: str):
    return float(number) if "." in number else int(number)


main()
