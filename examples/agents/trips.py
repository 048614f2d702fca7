"""An agent in Python: progress, a step that is done once, and a question. It needs nothing but Python.

Kill it, kill the server, or let the question wait for a week: it begins again from the top, and what it did before is
replayed. What touches the world stands in a step; everything else it just says again, in the same order.
"""

import json
import sys


def say(**message):
    print(json.dumps(message), flush=True)


def hear():
    line = sys.stdin.readline()
    if not line:
        sys.exit("the server is gone")
    return json.loads(line)


def step(name, work):
    """Does a piece of work once: after a crash its result comes back, and it is not done again."""
    say(type="step", name=name)
    told = hear()
    if told["type"] == "done-before":
        return told["result"]
    result = work(told["key"])
    say(type="step-done", name=name, result=result)
    return result


def ask(text, **fields):
    schema = {"type": "object", "properties": fields, "required": list(fields)}
    say(type="ask", text=text, schema=schema)
    return hear()


def hold_a_seat(city, key):
    # Whatever it is that must not happen twice. A service that takes an idempotency key gets this one.
    with open("bookings.log", "a") as log:
        log.write(f"{key}: a seat to {city}\n")
    return {"city": city, "price": 120}


given = hear()
city = given["text"].strip() or (given["data"] or {}).get("city")
if not city:
    say(type="rejected", text="Where to? Say the name of a city.")
    sys.exit()

say(type="progress", done=1, total=3, text=f"looking for seats to {city}")
seat = step("hold", lambda key: hold_a_seat(city, key))

say(type="progress", done=2, total=3, text="a seat is held")
answer = ask(f"A seat to {city} costs {seat['price']}. Which class?", kind={"type": "string", "enum": ["first", "second"]})
if answer["action"] != "accept":
    say(type="done", text="Not booked.")
    sys.exit()

say(type="progress", done=3, total=3, text="booked")
say(type="done", text=f"Booked: {city}, {answer['data']['kind']} class.", data=seat | answer["data"])
