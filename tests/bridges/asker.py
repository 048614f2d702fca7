"""A program as an agent: it asks one thing, writes down that it did its work and what it was told, and ends with that.

    asker.py LEDGER"""

import json
import sys


def say(**message):
    print(json.dumps(message), flush=True)


def hear():
    line = sys.stdin.readline()
    return json.loads(line) if line else sys.exit(0)


def note(**what):
    with open(sys.argv[1], "a") as ledger:
        ledger.write(json.dumps(what) + "\n")


given = hear()
tag = (given["data"] or {}).get("text") or given["text"]
note(tag=tag, task=given["task"])
schema = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
say(type="ask", text=f"Which word for {tag}?", schema=schema)
answer = hear()
note(tag=tag, task=given["task"], action=answer["action"], data=answer["data"])
say(type="done", text=json.dumps({"action": answer["action"], "data": answer["data"]}))
