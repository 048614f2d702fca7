"""The agent for the official A2A conformance kit, as a program: it does what the prefix of the message's id names.

Start it with `nuncio serve` in this folder. The same agent in Rust is beside it.
"""

import base64
import json
import os
import sys


def say(**message):
    print(json.dumps(message), flush=True)


def hear():
    line = sys.stdin.readline()
    return json.loads(line) if line else sys.exit(0)


def text(content):
    return lambda: say(type="artifact", text=content)


def chunks():
    say(type="artifact", text="chunk-1 ", last=False)
    say(type="artifact", text="chunk-2", append=True)


def file():
    content = base64.b64encode(b"File content from TCK").decode()
    say(type="artifact", file=content, filename="output.txt", mediaType="text/plain")


def file_url():
    say(type="artifact", url="https://example.com/output.txt", filename="output.txt", mediaType="text/plain")


def data():
    say(type="artifact", data={"key": "value", "count": 42})


def ask():
    # Started again after each answer, so that the ids of all answers are known by then; the last question has none.
    for answer_id in [*ANSWER_IDS, ""]:
        say(type="ask", text="What else?")
        answer = hear()
        if not answer_id.startswith("tck-input-required"):
            return {"type": "done", "text": "You said: %s" % (answer.get("data") or {}).get("answer", "")}


def keep_asking():
    while True:
        say(type="ask", text="What else?")
        hear()


def work_long():
    say(type="progress", done=0, text="working")
    say(type="sleep", seconds=5)
    hear()


# The ids of what the caller has said after the first message. One may ask for another question.
ANSWER_IDS = []

COMPLETE = {"type": "done", "text": "Hello from TCK"}

# What a prefix stands for: an end, or work that may return one. The longest prefix that fits counts.
PREFIXES = {
    "tck-": COMPLETE,
    "tck-artifact-text": text("Generated text content"),
    "tck-artifact-file": file,
    "tck-artifact-file-url": file_url,
    "tck-artifact-data": data,
    "tck-message-response": {"type": "reply", "text": "Direct message response"},
    "tck-input-required": ask,
    "tck-cancel-001": ask,
    "tck-reject-task": {"type": "rejected", "text": "rejected"},
    "tck-stream-001": text("Stream hello from TCK"),
    "tck-stream-002": {"type": "done"},
    "tck-stream-003": text("Stream task lifecycle"),
    "tck-stream-ordering-001": text("Ordered output"),
    "tck-stream-artifact-text": text("Streamed text content"),
    "tck-stream-artifact-file": file,
    "tck-stream-artifact-chunked": chunks,
    "test-resubscribe-message-id": work_long,
}


def main():
    task = hear()
    message_id = task["messageId"]
    ANSWER_IDS.extend(message["messageId"] for message in task["messages"][1:])
    known = [prefix for prefix in PREFIXES if message_id.startswith(prefix)]
    other = keep_asking if os.environ.get("ASK_BY_DEFAULT") else COMPLETE
    chosen = PREFIXES[max(known, key=len)] if known else other
    end = chosen() if callable(chosen) else chosen
    say(**(end or {"type": "done"}))


main()
