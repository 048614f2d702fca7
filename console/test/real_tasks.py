"""Journeys through lists and logs: finding a failure, a task while it runs, the scrubber, resuming, kills, cancel."""

import http.client
import json
import random
import re
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from playwright.sync_api import expect

from real_server import FULL, HERE, until

LOG = {"type": "log", "text": "line {n}", "level": "info"}
MIXED = [
    {"type": "progress", "done": 1, "total": 10, "text": "began"},
    {"repeat": 900, "line": LOG},
    {"type": "artifact", "id": "a", "name": "Report", "text": "begun ", "last": False},
    {"repeat": 700, "line": {"type": "artifact", "id": "a", "text": "piece {n} ", "append": True, "last": False}},
    {"repeat": 800, "line": {"type": "progress", "done": 2, "text": "at {n}"}},
    {"type": "artifact", "id": "b", "data": {"price": 3.0, "list": [1, 2.5, None]}},
    {"repeat": 700, "line": {"type": "artifact", "id": "a", "text": "more {n} ", "append": True, "last": False}},
    {"type": "done", "text": "all of it"},
]


def find_a_failure(page, server):
    """By keyboard alone: filter by agent, go to the failure, read why, go to its event, open it."""
    # The failure lies below more tasks than one page of the list has.
    failed = server.play("Print the invoice", LOG, {"type": "failed", "text": "the printer is on fire"})
    server.ended(failed)
    for n in range(130):
        server.send("echo", f"Hello {n}")
    page.goto(f"{server.base}/tasks")
    expect(page.locator(".task-row:not(.columns)").first).to_be_visible()
    expect(page.locator(".live")).to_have_text("live")
    page.keyboard.press("/")
    page.keyboard.type("scripted")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("agent=scripted"))
    expect(page.locator(".list-head")).to_have_text("1 task")
    page.keyboard.press("Escape")
    page.keyboard.press(".")
    expect(page.locator(".row.selected")).to_contain_text("the printer is on fire")
    page.keyboard.press("Enter")
    expect(page.locator(".reason")).to_have_text("the printer is on fire")
    expect(page.locator(".facts")).to_contain_text("none missing")
    page.keyboard.press(".")
    expect(page).to_have_url(re.compile(r"/events\?at=\d+"))
    expect(page.locator(".row.selected .kind")).to_have_text("status")
    page.keyboard.press("Enter")
    expect(page.locator(".event-detail")).to_contain_text("the printer is on fire")
    page.reload()
    expect(page.locator(".row.selected .kind")).to_have_text("status")
    page.get_by_role("link", name="Wire").click()
    expect(page.locator(".frame")).to_have_count(9)


def press_until_focused(page, key, wanted, most=80):
    """Presses a key until the wanted element has the focus, as a person does who cannot use a pointer."""
    for _ in range(most):
        page.keyboard.press(key)
        if page.locator(":focus").count() and wanted.and_(page.locator(":focus")).count():
            return
    raise AssertionError(f"{key} was pressed {most} times, and {wanted} has not the focus")


def failure_among_many(page, server):
    """By keyboard alone, among 100,000 tasks (NUNCIO_FULL; else 1,000): the failed one by its state, why it failed, and the same
    message sent again."""
    count = 100_000 if FULL else 1_000
    failed = server.play("Print the invoice", LOG, {"type": "failed", "text": "the printer is out of paper"})
    server.ended(failed)
    send_many(server, count)
    failures = server.api("tasks?state=failed&limit=1")["total"]
    page.goto(f"{server.base}/tasks")
    expect(page.locator(".live")).to_have_text("live")
    expect(page.locator(".list-head")).to_have_text(re.compile(r"^\d{4,} tasks"))
    page.keyboard.press("/")
    press_until_focused(page, "Tab", page.get_by_role("button", name=re.compile("^failed")))
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("state=failed"))
    expect(page.locator(".list-head")).to_have_text(f"{failures} task{'' if failures == 1 else 's'}")
    press_until_failure(page, "the printer is out of paper", failures)
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(failed))
    expect(page.locator(".reason")).to_have_text("the printer is out of paper")
    # The reason is in the task's row, and known before the log is there.
    expect(page.locator(".reading")).to_contain_text("the printer is out of paper")
    page.keyboard.press(".")
    expect(page.locator(".row.selected .kind")).to_have_text("status")
    press_until_focused(page, "Tab", page.get_by_role("button", name="Send again"))
    page.keyboard.press("Enter")
    expect(page).not_to_have_url(re.compile(failed))
    again = re.search(r"tasks/([0-9a-f-]{36})", page.url).group(1)
    expect(page.locator(".reason")).to_have_text("the printer is out of paper")
    assert server.ended(again) == "failed"
    assert server.api(f"tasks/{again}")["row"]["firstText"] == "Print the invoice"
    assert server.api("tasks?state=failed&limit=1")["total"] == failures + 1


def press_until_failure(page, why, most):
    """`.` goes to the next failure; the wanted one may be below others."""
    # The focus is on the chip, and follows to the list: Enter opens the row and does not press the chip again.
    for _ in range(most):
        page.keyboard.press(".")
        expect(page.locator(".row.selected")).to_have_count(1)
        if why in page.locator(".row.selected").inner_text():
            return
    raise AssertionError(f"no failure with: {why}")


def send_many(server, count):
    """Echoes on connections that stay open, so that 100,000 take a minute and not an hour."""

    def send(each):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        for n in range(each):
            message = {"messageId": f"{threading.get_ident()}-{n}", "role": "ROLE_USER", "parts": [{"text": f"Hello {n}"}]}
            connection.request("POST", "/agents/echo/message:send", json.dumps({"message": message}), {"Content-Type": "application/json", "A2A-Version": "1.0"})
            response = connection.getresponse()
            assert response.status == 200, response.read()
            response.read()
        connection.close()

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(send, [count // 16 + 1] * 16))


def list_under_a_burst(page, server):
    """More tasks than one frame of rows has: the list is not read again and again, and no row of a later page is "new"."""
    reads = []
    page.on("request", lambda request: reads.append(request.url) if "/api/tasks" in request.url else None)
    for n in range(150):
        server.send("echo", f"Burst {n}")
    page.goto(f"{server.base}/tasks")
    expect(page.locator(".live")).to_have_text("live")
    last = server.send("echo", "After the burst")
    expect(page.locator(".pill")).to_have_text("1 new")
    page.locator(".pill").click()
    expect(page.locator(".row").first).to_contain_text("After the burst")
    expect(page.locator(".row").first).to_contain_text(last[-8:])
    assert len(reads) <= 8, f"the list was read {len(reads)} times"


def task_while_it_runs(page, server):
    """A row appears, its state changes in place, and the story grows while it is read."""
    server.send("echo", "A list that is not empty")
    page.goto(f"{server.base}/tasks")
    expect(page.locator(".live")).to_have_text("live")
    task = server.play(
        "Write the report",
        {"type": "progress", "done": 1, "total": 3, "text": "reading"},
        {"wait": "write"},
        {"type": "artifact", "id": "r", "name": "Report", "text": "# Findings\n\n- first", "last": False},
        {"wait": "more"},
        {"type": "artifact", "id": "r", "text": "\n- second", "append": True},
        {"wait": "end"},
        {"type": "done", "text": "It is written."},
    )
    expect(page.locator(".pill")).to_have_text("1 new")
    page.locator(".pill").click()
    row = page.locator(".row", has_text=task[-8:])
    expect(row).to_contain_text("working")
    row.get_by_role("link").click()
    story = page.locator(".story")
    expect(story).to_contain_text("reading")
    expect(page.locator("h1 .state")).to_contain_text("working")
    server.open_gate("write")
    expect(story).to_contain_text("first")
    server.open_gate("more")
    expect(story).to_contain_text("second")
    page.go_back()
    expect(page.locator(".row", has_text=task[-8:])).to_contain_text("working")
    server.open_gate("end")
    expect(page.locator(".row", has_text=task[-8:])).to_contain_text("completed")
    page.go_forward()
    expect(page.locator(".story")).to_contain_text("It is written.")
    expect(page.get_by_role("button", name="Cancel task")).to_have_count(0)


def scrub(page, server):
    """The task as of any event: the fold of the page is that of the server."""
    task = server.play("Make many events", *MIXED)
    server.ended(task, 60)
    count = 2000 if FULL else 200
    compared = subprocess.run(["node", str(HERE / "compare-folds.mjs"), f"{server.base}/api", task, str(count)], capture_output=True, text=True)
    assert compared.returncode == 0, compared.stderr
    print("   ", compared.stdout.strip())
    last = server.api(f"tasks/{task}")["row"]["events"]
    page.goto(f"{server.base}/tasks/{task}/raw")
    expect(page.locator(".facts")).to_contain_text(f"1 to {last}, none missing")
    numbers = [random.randint(1, last - 1) for _ in range(4)]
    for seq in numbers:
        page.goto(f"{server.base}/tasks/{task}/raw?at={seq}")
        expect(page.locator(".as-of")).to_contain_text(f"As of event {seq} of {last}")
        expect(page.locator(".facts")).to_contain_text("none missing")
        page.get_by_role("button", name="Compare with the server").click()
        expect(page.locator(".reading [role=status]").first).to_have_text(f"At event {seq} the fold here and the fold of the server are the same.")
        expect(page.locator(".json-found")).to_have_count(0)
        expect(page.get_by_role("button", name="Cancel task")).to_have_count(0)
    page.get_by_role("link", name="Story").click()
    page.keyboard.press("[")
    expect(page.locator(".as-of")).to_contain_text(f"As of event {numbers[-1] - 1} of")
    slider = page.get_by_label("Task as of event")
    slider.focus()
    page.keyboard.press("End")
    expect(page.locator(".as-of")).to_have_count(0)
    expect(page.locator(".story")).to_contain_text("all of it")
    slider.fill(str(last // 2))
    expect(page.locator(".as-of")).to_be_visible()


def resume_from_an_event(page, server):
    """The command that is shown gives the rest of the stream, byte for byte."""
    task = server.play("Resume", {"repeat": 30, "line": {"type": "artifact", "id": "a", "text": "piece {n}", "append": True, "last": False}}, {"type": "done"})
    server.ended(task)
    whole = subprocess.run(
        ["curl", "-sN", f"{server.root}/tasks/{task}:subscribe", "-H", "A2A-Version: 1.0", "-H", "Last-Event-ID: 0"], capture_output=True, check=True
    ).stdout
    for seq in (5, 17):
        page.goto(f"{server.base}/tasks/{task}/events?at={seq}")
        expect(page.locator(".row.selected")).to_be_visible()
        page.keyboard.press("Enter")
        command = page.locator(".event-detail .command code").inner_text()
        assert f"Last-Event-ID: {seq}" in command, command
        rest = subprocess.run(["bash", "-c", command.replace("curl ", "curl -s ")], capture_output=True, check=True).stdout
        assert rest.startswith(f"id: {seq + 1}\n".encode()), rest[:200]
        assert whole.endswith(rest) and len(rest) < len(whole), f"the rest after {seq} differs"


def kill_under_a_live_page(page, server):
    """SIGKILL while events are written: every event once, and live again within 3 s after the server is up."""
    task = server.play("Tick", {"tick": "ticks"}, {"type": "done", "text": "ticked"})
    page.goto(f"{server.base}/tasks/{task}/events")
    slowest = 0.0
    for _ in range(20 if FULL else 5):
        # The inbox's count may be live before the task is shown at all.
        expect(page.locator(".facts")).to_contain_text("none missing")
        expect(page.locator(".live")).to_have_text("live")
        before = server.api(f"tasks/{task}")["row"]["events"]
        server.kill()
        expect(page.locator(".live")).to_contain_text("cut since")
        server.start()
        up = time.monotonic()
        expect(page.locator(".live")).to_have_text("live", timeout=3000)
        slowest = max(slowest, time.monotonic() - up)
        until(lambda: server.api(f"tasks/{task}")["row"]["events"] > before + 15, "the task goes on", 20)
    server.open_gate("ticks")
    server.ended(task)
    events = server.events(task)
    last = len(events)
    assert [event["seq"] for event in events] == list(range(1, last + 1))
    expect(page.locator(".facts")).to_contain_text(f"1 to {last}, none missing")
    expect(page.locator(".filters [role=status]")).to_have_text(f"{last} events")
    # The rows of the tail, as the live stream brought them.
    shown = page.locator(".events-rows .row .seq").all_text_contents()
    assert shown == [str(n) for n in range(int(shown[0]), int(shown[0]) + len(shown))], shown
    page.get_by_role("link", name="Raw").click()
    page.get_by_role("button", name="Compare with the server").click()
    expect(page.locator(".reading [role=status]").first).to_contain_text("are the same")
    print(f"    {last} events, live again after at most {slowest:.1f} s")


def cancel_a_task(page, server):
    task = server.play("Wait for ever", {"type": "progress", "text": "waiting"}, {"wait": "all"})
    page.goto(f"{server.base}/tasks/{task}")
    expect(page.locator(".story")).to_contain_text("waiting")
    page.get_by_role("button", name="Cancel task").click()
    expect(page.locator("h1 .state")).to_contain_text("canceled")
    expect(page.get_by_role("button", name="Cancel task")).to_have_count(0)
    assert server.ended(task) == "canceled"


JOURNEYS = [find_a_failure, list_under_a_burst, task_while_it_runs, scrub, resume_from_an_event, cancel_a_task, kill_under_a_live_page, failure_among_many]
