"""What a hostile tenant does, each way bounded in count and time. A count is of what the server accepted."""

import json
import os
import resource
import socket
import threading
import time

import wire

MOST_TASKS = 20_000


def run(name, port, token, seconds, count, usages):
    """One way, until its time is up; then its own CPU time goes into `usages`."""

    # An attacker has machines of its own: here it takes only what the server and the other tenant leave.
    os.nice(19)

    def accepted(n=1):
        with count.get_lock():
            count.value += n

    try:
        ALL[name](port, token, time.monotonic() + seconds, accepted)
    finally:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        usages.put(usage.ru_utime + usage.ru_stime)


def refused_is_no_end(attack):
    """An attacker goes on when it is refused, and when its connection is closed."""

    def goes_on(port, token, ends, accepted):
        while time.monotonic() < ends:
            try:
                attack(port, token, ends, accepted)
            except (OSError, ValueError, wire.http.client.HTTPException):
                time.sleep(0.05)

    return goes_on


@refused_is_no_end
def plan_bomb(port, token, ends, accepted):
    """A plan of 200 plans, each of 200 long tasks, small because the inner one is a reference."""
    inner = {"name": "inner", "tasks": [{"id": f"t{n}", "agent": "long_running_agent"} for n in range(200)]}
    outer = {
        "name": "outer",
        "request": json.dumps(inner),
        "tasks": [{"id": f"p{n}", "agent": "orchestrator", "input": "{{ request }}"} for n in range(200)],
    }
    while time.monotonic() < ends:
        status, _ = wire.send(port, token, "orchestrator", json.dumps(outer), returnImmediately=True)
        accepted(status == 200)
        time.sleep(0.5)


@refused_is_no_end
def many_tasks(port, token, ends, accepted):
    """20,000 tasks that take long, as fast as four threads send them."""
    each = MOST_TASKS // 4

    def send():
        for _ in range(each):
            if time.monotonic() > ends:
                return
            try:
                status, _ = wire.send(port, token, "long_running_agent", "go", returnImmediately=True)
                accepted(status == 200)
            except (OSError, wire.http.client.HTTPException):
                time.sleep(0.05)

    threads = [threading.Thread(target=send, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    time.sleep(max(0, ends - time.monotonic()))


def begin(port, token, path, body, headers):
    """Sends a request on a connection of its own and reads nothing."""
    text = json.dumps(body).encode()
    heads = "".join(f"{name}: {value}\r\n" for name, value in headers)
    opened = socket.create_connection(("127.0.0.1", port), timeout=10)
    opened.sendall(
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(text)}\r\n{heads}\r\n".encode()
        + text
    )
    return opened


V1 = [("a2a-version", "1.0")]


@refused_is_no_end
def stream_hoard(port, token, ends, accepted):
    """Streams of long tasks, up to 500, held open and never read."""
    held = []
    while time.monotonic() < ends:
        if len(held) < 500:
            body = wire.request("SendStreamingMessage", {"message": wire.message([{"text": "go"}])})
            held.append(begin(port, token, "/agents/long_running_agent", body, V1))
            accepted()
        else:
            time.sleep(0.2)


@refused_is_no_end
def sessions(port, token, ends, accepted):
    """MCP sessions, begun and left alone."""
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "evil", "version": "1"}}
    while time.monotonic() < ends:
        heads = [("accept", "application/json, text/event-stream")]
        status, _ = wire.post(port, token, "/mcp", wire.request("initialize", hello), heads)
        accepted(status == 200)


@refused_is_no_end
def searches(port, token, ends, accepted):
    """Fills a namespace, then searches it by patterns that fit nothing and by words, from eight threads."""
    for n in range(2_000):
        if time.monotonic() > ends:
            return
        row = {"namespace": "heap", "key": f"{'ab' * 40}:{n}", "value": f"word{n} " * 20}
        wire.tool(port, token, "memory_store", row)

    def search():
        while time.monotonic() < ends:
            try:
                pattern = {"namespace": "heap", "pattern": "*a*b*a*b*a*b*z"}
                status, _ = wire.tool(port, token, "memory_search", pattern)
                accepted(status == 200)
            except (OSError, wire.http.client.HTTPException):
                time.sleep(0.05)

    threads = [threading.Thread(target=search, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@refused_is_no_end
def slow_readers(port, token, ends, accepted):
    """Tasks of two megabytes, listed by 24 connections at a time that do not read the answer."""
    for _ in range(20):
        wire.send(port, token, "echo", "x" * 2_000_000)
    held = []
    while time.monotonic() < ends:
        if len(held) >= 24:
            time.sleep(1)
            held.pop(0).close()
        body = wire.request("ListTasks", {"pageSize": 100, "includeArtifacts": True, "historyLength": 10})
        held.append(begin(port, token, "/agents/echo", body, V1))
        accepted()


ALL = {
    "plan_bomb": plan_bomb,
    "many_tasks": many_tasks,
    "stream_hoard": stream_hoard,
    "sessions": sessions,
    "searches": searches,
    "slow_readers": slow_readers,
}
