"""Journeys of an operator: acts on all tasks that match a filter, and deliveries of webhooks that failed."""

import json
import re
import urllib.parse

from playwright.sync_api import expect

from real_batches import without_load
from real_safety import payloads
from real_server import FULL, until
from webhook_receiver import WebhookReceiver, send_with_webhook

# The server of the journeys in WEBHOOKS: the receiver is on loopback.
FLAGS = ("--allow-private-webhooks",)
# Longer than any run. A process that waits for a file polls, which is much with hundreds of them.
HOLD = {"type": "sleep", "seconds": 3600}


def now(server):
    return server.api("me")["now"]


def states_of(server, filter):
    """The states of all tasks of a list, by id."""
    rows, cursor = {}, ""
    while cursor is not None:
        page = server.api(f"tasks?{filter}&limit=100{cursor and '&cursor=' + urllib.parse.quote(cursor)}")
        rows |= {row["taskId"]: row["state"] for row in page["rows"]}
        cursor = page["next"]
    return rows


def select_all(page):
    page.get_by_role("button", name="Act on all that match").click()
    panel = page.get_by_role("region", name="Act on all that match")
    expect(panel.locator("h2")).to_contain_text("as of")
    return panel


def batch_ended(page, server):
    """The page leads to the batch of the act, which is followed to its end."""
    expect(page).to_have_url(re.compile(r"/batches/[0-9a-f-]{36}$"))
    batch = page.url.rsplit("/", 1)[1]
    assert server.ended(batch, 120) == "completed"
    return batch


def cancel_all_that_match(page, server):
    """The count is frozen and typed; a task that comes after the selection is not canceled."""
    without_load(server)
    count, since = (1000 if FULL else 200), now(server)
    tasks = [server.play(f"Hold {n}", HOLD) for n in range(count)]
    filter = f"agent=scripted&since={since}"
    until(lambda: list(states_of(server, filter).values()).count("working") == count, "all work", 120)
    page.goto(f"{server.base}/tasks?state=working&{filter}")
    panel = select_all(page)
    expect(page).to_have_url(re.compile("act=all"))
    expect(panel.locator("h2")).to_contain_text(f"{count} tasks as of")
    expect(panel).to_contain_text(f"state working · agent scripted · of yours · since {since}")
    panel.locator("summary").click()
    expect(panel.locator(".examples li")).to_have_count(20)
    later = server.play("Came later", HOLD)
    until(lambda: server.state(later) == "working", "the later task works")
    cancel = panel.get_by_role("button", name=f"Cancel {count} tasks")
    again = panel.get_by_role("button", name=f"Run {count} tasks again")
    typed = panel.get_by_label(f"Type {count} to confirm")
    for text in ("", str(count + 1), "all"):
        typed.fill(text)
        expect(cancel).to_be_disabled()
        expect(again).to_be_disabled()
    typed.fill(str(count))
    cancel.click()
    batch_ended(page, server)
    until(lambda: all(state == "canceled" for task, state in states_of(server, filter).items() if task != later), "all are canceled", 60)
    after = states_of(server, filter)
    assert set(after) == {*tasks, later}, len(after)
    assert after[later] == "working", after[later]
    expect(page.locator(".facts")).to_contain_text(f"{count} of {count} succeeded")
    page.go_back()
    expect(panel.locator("h2")).to_contain_text("1 task as of")
    panel.get_by_role("button", name="Cancel 1 task").click()
    batch_ended(page, server)
    assert server.ended(later) == "canceled"
    print(f"    {count} tasks canceled by one act, the later one left alone until the next")


def run_failed_tasks_again(page, server):
    """Three failed tasks by filter, by keyboard: new tasks with the same message, and the old ones as they were."""
    without_load(server)
    since = now(server)
    failed = [server.play(f"Print page {n}", {"type": "failed", "text": "no paper"}) for n in range(3)]
    other = server.play("Print nothing", {"type": "done"})
    for task in (*failed, other):
        server.ended(task)
    events = [server.events(task) for task in failed]
    between = now(server)
    page.goto(f"{server.base}/tasks?state=failed&agent=scripted&since={since}&before={between}")
    expect(page.locator(".list-head")).to_have_text("3 tasks")
    page.get_by_role("button", name="Act on all that match").focus()
    page.keyboard.press("Enter")
    panel = page.get_by_role("region", name="Act on all that match")
    expect(panel.locator("h2")).to_contain_text("3 tasks as of")
    expect(panel.get_by_role("textbox")).to_have_count(0)
    page.keyboard.press("Escape")
    expect(panel).to_have_count(0)
    expect(page).not_to_have_url(re.compile("act="))
    page.keyboard.press("Enter")
    expect(panel).to_contain_text("3 new tasks of yours")
    again = panel.get_by_role("button", name="Run 3 tasks again")
    again.focus()
    page.keyboard.press("Enter")
    batch_ended(page, server)
    made = until(lambda: len(found := server.api(f"tasks?agent=scripted&since={between}")["rows"]) == 3 and found, "three new tasks")
    assert sorted(row["firstText"] for row in made) == [f"Print page {n}" for n in range(3)], made
    assert not {row["taskId"] for row in made} & {*failed, other}
    assert [server.events(task) for task in failed] == events, "an old task has changed"


def refused_acts(page, server):
    """A count that is not the server's, a filter that matches too much, an expired selection: refused where one acts."""
    without_load(server)
    # Tasks of the journeys before must not end meanwhile.
    until(lambda: not server.api("tasks?agent=scripted&state=working&state=submitted&limit=1")["rows"], "nothing runs", 60)
    since = now(server)
    for n in range(2):
        server.ended(server.play(f"Refuse {n}", {"type": "failed", "text": "no"}))
    changed = {"count": 1}

    def answer(route):
        fetched = route.fetch()
        route.fulfill(response=fetched, json={**fetched.json(), **changed})

    page.route("**/api/selections", answer)
    page.goto(f"{server.base}/tasks?state=failed&agent=scripted&since={since}&act=all")
    panel = page.get_by_role("region", name="Act on all that match")
    panel.get_by_role("button", name="Run 1 task again").click()
    expect(panel.locator(".problem")).to_contain_text("the selection has 2 tasks, not 1")
    assert server.api(f"tasks?agent=scripted&since={since}")["total"] in (None, 2)
    assert len(server.api(f"tasks?agent=scripted&since={since}")["rows"]) == 2, "an act on another count was done"
    changed.clear()
    panel.get_by_role("button", name="Retry").click()
    expect(panel.locator("h2")).to_contain_text("2 tasks as of")
    changed["id"] = "019a8f2e-0000-7000-8000-000000000000"
    panel.get_by_role("button", name="Select again").click()
    expect(panel.locator(".command")).to_contain_text("019a8f2e-0000")
    panel.get_by_role("button", name="Cancel 2 tasks").click()
    expect(panel.locator(".problem")).to_contain_text("select the tasks again")
    page.unroute("**/api/selections")
    limit = {"error": {"code": "bad_request", "message": "more than 10000 tasks match (console.selection)", "field": "filter"}}
    page.route("**/api/selections", lambda route: route.fulfill(status=400, json=limit))
    panel.get_by_role("button", name="Select again").click()
    expect(panel.locator(".problem")).to_contain_text("more than 10000 tasks match")
    page.unroute("**/api/selections")
    panel.get_by_role("button", name="Retry").click()
    expect(panel.locator("h2")).to_contain_text("2 tasks as of")
    page.goto(f"{server.base}/tasks?context=none&act=all")
    expect(panel).to_contain_text("No task matches now")
    expect(panel.get_by_role("button", name="Cancel")).to_have_count(0)


def dead(server, task):
    """The dead deliveries of a task."""
    return [one for one in server.api("deliveries?state=dead&limit=100")["deliveries"] if one["taskId"] == task]


def row_of(page, task, seq):
    return page.locator(".delivery", has=page.get_by_role("checkbox", name=f"event {seq} of task {task}"))


def replay_a_dead_letter(page, server):
    """By keyboard alone: to the list, the payload, a replay that fails again, one that arrives, with the bytes that were shown."""
    page.goto(f"{server.base}/webhooks?state=dead")
    expect(page.locator(".empty-title")).to_have_text("All delivered")
    with WebhookReceiver() as receiver:
        task = receiver.task(server, "Tell them")
        until(lambda: len(dead(server, task)) == 3, "three dead letters")
        page.goto(f"{server.base}/tasks")
        expect(page.locator(".live")).to_have_text("live")
        page.keyboard.press("g")
        page.keyboard.press("h")
        expect(page.locator(".empty-title")).to_have_text("None is being retried")
        page.get_by_role("link", name="Some were given up").focus()
        page.keyboard.press("Enter")
        expect(page).to_have_url(re.compile("state=dead"))
        expect(page.locator(".delivery")).to_have_count(3)
        expect(page.locator(".list-head")).to_have_text(re.compile(r"read \d\d:\d\d:\d\d"))
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        expect(page).to_have_url(re.compile("open="))
        shown = page.locator(".delivery.selected")
        expect(shown).to_contain_text("the receiver answered 410 Gone")
        expect(shown).to_contain_text("1 attempt")
        expect(shown.locator("nuncio-json")).to_contain_text("TASK_STATE_COMPLETED")
        expect(shown).not_to_contain_text("s3cret")
        seq = dead(server, task)[0]["seq"]
        expect(shown.get_by_role("link", name=f"event {seq}")).to_have_attribute("href", f"/console/tasks/{task}/events?at={seq}")
        expect(shown.get_by_role("link", name="The event on the wire")).to_have_attribute("href", f"/console/tasks/{task}/wire?at={seq}")
        page.reload()
        expect(page.locator(".delivery.selected nuncio-json")).to_contain_text("TASK_STATE_COMPLETED")
        page.keyboard.press("r")
        expect(page.locator(".as-of")).to_contain_text("1 sent again now")
        expect(page.locator(".delivery.selected")).to_contain_text("2 attempts")
        expect(page.locator(".delivery.selected .state")).to_contain_text("dead")
        receiver.status = 200
        page.keyboard.press("r")
        expect(page.locator(".delivery.selected .state")).to_contain_text("delivered or discarded")
        expect(page.locator(".delivery")).to_have_count(3)
        [body] = receiver.accepted()
        assert json.loads(body) == json.loads(server.api(f"tasks/{task}/wire/{seq}?as=webhook")["frames"][0]["text"])
        page.keyboard.press("Escape")
        expect(page).not_to_have_url(re.compile("open="))
        for key in ("j", "x", "j", "x"):
            page.keyboard.press(key)
        expect(page.get_by_role("button", name="Replay 2 marked")).to_be_visible()
        page.keyboard.press("r")
        expect(page.locator(".as-of")).to_contain_text("2 sent again now")
        until(lambda: not dead(server, task), "all are delivered")
        expect(page.locator(".delivery.old")).to_have_count(3)
        assert len(receiver.accepted()) == 3, receiver.received
        page.reload()
        expect(page.locator(".empty-title")).to_have_text("All delivered")


def discard_deliveries(page, server):
    """Rows stay in their places while others come; the second press discards, a double click does not; a retry is passed over."""
    with WebhookReceiver() as receiver:
        task = receiver.task(server, "First")
        until(lambda: len(dead(server, task)) == 3, "three dead letters")
        page.goto(f"{server.base}/webhooks?state=dead")
        expect(page.locator(".delivery")).to_have_count(3)
        second = receiver.task(server, "Second")
        expect(page.locator(".pill")).to_have_text("3 not shown")
        expect(page.locator(".delivery")).to_have_count(3)
        page.locator(".pill").click()
        expect(page.locator(".delivery")).to_have_count(6)
        seqs = [one["seq"] for one in dead(server, task)]
        for seq in seqs[:2]:
            row_of(page, task, seq).get_by_role("checkbox").check()
        page.get_by_role("button", name="Discard 2 marked").dblclick()
        expect(page.get_by_role("button", name="Press again: never sent")).to_be_visible()
        assert len(dead(server, task)) == 3, "a double click has discarded"
        page.get_by_role("button", name="Press again: never sent").click()
        expect(page.locator(".as-of")).to_contain_text("2 discarded: never sent")
        assert [one["seq"] for one in dead(server, task)] == seqs[2:]
        row = row_of(page, task, seqs[2])
        # Another client is first: the act says that it changed nothing.
        server.request("POST", "/console/api/deliveries/discard", {"ids": [dead(server, task)[0]["id"]]})
        row.get_by_role("button", name="Replay").click()
        expect(page.locator(".as-of")).to_contain_text("0 sent again now · 1 ")
        until(lambda: len(dead(server, second)) == 3, "the second task's are there")
        receiver.status = 500
        retried = receiver.task(server, "Retried")
        waiting = lambda: [one for one in server.api("deliveries?state=retrying")["deliveries"] if one["taskId"] == retried]
        until(waiting, "a retry")
        page.goto(f"{server.base}/webhooks")
        row = page.locator(".delivery", has_text=retried[-8:])
        expect(row).to_contain_text("the receiver answered 500 Internal Server Error")
        expect(row).to_contain_text("failing since")
        receiver.status = 200
        seq = waiting()[0]["seq"]
        row.get_by_role("button", name="Discard").click()
        row.get_by_role("button", name="Press again: never sent").click()
        # Where an attempt was under way at that moment it was not discarded, and has arrived: the page says which.
        expect(page.locator(".as-of")).to_have_text(re.compile("1 discarded: never sent|0 discarded.*1 unchanged"))
        if "1 discarded" in page.locator(".as-of").inner_text():
            until(lambda: len([body for body in receiver.accepted() if retried.encode() in body]) == 2, "the events after it arrive")
            passed = server.api(f"tasks/{retried}/wire/{seq}?as=webhook")["frames"][0]["text"]
            assert json.loads(passed) not in [json.loads(body) for body in receiver.accepted()], "a discarded delivery was sent"
        expect(row.locator(".state")).to_contain_text("delivered, discarded or given up")


def hostile_deliveries(page, server):
    """Hostile addresses and ids from a real server, and hostile texts in every field of an answer, are text."""
    texts = payloads()
    texts = texts if FULL else texts[::6]
    with WebhookReceiver() as receiver:
        tasks = []
        for n, text in enumerate(texts):
            path = "/" + urllib.parse.quote(text, safe="<>\"'=&;:()") + "?q=" + urllib.parse.quote(text, safe="<>'=;:()")
            hook = re.sub(r"[\x00-\x1f]", "", text)[:60] or "h"
            try:
                tasks.append(receiver.task(server, text, path[:1000], hook))
            except AssertionError:
                continue  # The server refuses some ids and addresses.
        assert len(tasks) > len(texts) / 2, len(tasks)
        until(lambda: len(dead(server, tasks[-1])) == 3, "dead letters")
        page.goto(f"{server.base}/webhooks?state=dead")
        expect(page.locator(".delivery").nth(20)).to_be_visible()
        rows = page.locator(".delivery").count()
    template = server.api("deliveries?state=dead")["deliveries"][0]
    made = [{**template, "id": f"{n} {text}", "agent": text, "owner": text, "webhookId": text, "address": text, "reason": text, "dialect": text, "state": text} for n, text in enumerate(texts)]
    page.route("**/api/deliveries?*", lambda route: route.fulfill(json={"deliveries": made, "next": "x", "own": True, "now": now(server)}))
    page.route("**/wire/*", lambda route: route.fulfill(json={"frames": [{"text": json.dumps(texts), "why": None, "headers": {texts[0]: texts[-1]}}]}))
    page.goto(f"{server.base}/webhooks?state=dead&open={urllib.parse.quote(made[3]['id'])}")
    expect(page.locator(".delivery")).to_have_count(len(made))
    expect(page.locator(".delivery nuncio-json .json-toggle").first).to_be_visible()
    for one in (0, len(made) // 2, len(made) - 1):
        squeezed = " ".join(texts[one].split())[:40]
        expect(page.locator(".delivery").nth(one).locator(".why")).to_contain_text(squeezed)
    page.get_by_role("link", name="Older").click()
    expect(page).to_have_url(re.compile("cursor=x"))
    expect(page.locator("main :is(iframe, script, object, embed, form[action], base, meta, link, img)")).to_have_count(0)
    page.goto(f"{server.base}/tasks?context={urllib.parse.quote(texts[0])}&owner={urllib.parse.quote(texts[-1][:80])}&act=all")
    expect(page.locator("nuncio-bulk-acts .panel > *").first).to_be_visible()
    print(f"    {rows} rows of a real server and {len(made)} made ones with hostile texts")


def operations_of_a_reader(page, server):
    """A token that may only read: acts are greyed with the scope; one that may not read tasks is told which scope it lacks."""
    def token(name, *scopes):
        flags = [flag for scope in scopes for flag in ("--scope", scope)]
        made = server.command("token", "create", "--data", str(server.data), "--name", name, "--tenant", "acme", *flags, "--output", "json")
        return re.search(r"nun_[\w-]+", made).group(0)

    writer = token("nora", "read,write,execute:a2a")
    task = server.send("echo", "Hello", headers={"Authorization": f"Bearer {writer}"})
    page.goto(f"{server.base}/tasks?act=all")
    page.get_by_label("Or paste a token").fill(token("nora", "read:a2a"))
    page.keyboard.press("Enter")
    panel = page.get_by_role("region", name="Act on all that match")
    expect(panel.locator("h2")).to_contain_text("1 task as of")
    expect(panel).to_contain_text(task[-8:])
    for name, scope in (("Cancel 1 task", "write:a2a:tasks"), ("Run 1 task again", "execute:batchtools:batchtools")):
        expect(panel.get_by_role("button", name=name)).to_be_disabled()
        expect(panel).to_contain_text(f"Needs the scope {scope}.")
    delivery = {"id": f"{task}.h.2", "taskId": task, "agent": "echo", "owner": "acme/nora", "webhookId": "h", "seq": 2, "state": "dead", "address": "https://a.example/", "dialect": "a2a/1.0", "attempts": 1, "nextAt": None, "since": None, "reason": "no", "payload": f"tasks/{task}/wire/2?as=webhook"}
    page.route("**/api/deliveries?*", lambda route: route.fulfill(json={"deliveries": [delivery, {**delivery, "id": "2", "owner": "acme/bob"}], "next": None, "own": True, "now": delivery["since"]}))
    page.goto(f"{server.base}/webhooks?state=dead")
    for n, scope in enumerate(("write:a2a:tasks", "write:admin:webhooks")):
        row = page.locator(".delivery").nth(n)
        expect(row.get_by_role("button", name="Replay")).to_be_disabled()
        expect(row).to_contain_text(f"Needs the scope {scope}")
    page.unroute("**/api/deliveries?*")
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("Or paste a token").fill(token("nobody", "read:memory:team-*"))
    page.keyboard.press("Enter")
    page.goto(f"{server.base}/webhooks?state=dead")
    expect(page.locator(".problem-title")).to_have_text("Not allowed")
    expect(page.locator(".problem")).to_contain_text("Missing scope: read:")


def looks(server):
    """The screens by their paths, and what is there when they are complete, for axe."""
    server.ended(server.send("echo", "One that matches"))
    # A name that never resolves (RFC 6761): the delivery is retried on a server with any flags.
    task = send_with_webhook(server, "Not delivered", "https://receiver.invalid/hook")
    [failed] = until(lambda: [one for one in server.api("deliveries")["deliveries"] if one["taskId"] == task], "a delivery that is retried")
    return {
        "tasks?act=all": "nuncio-bulk-acts .bar .main",
        "tasks?context=none&act=all": "nuncio-bulk-acts .panel .bar",
        "webhooks": ".delivery",
        f"webhooks?open={urllib.parse.quote(failed['id'])}": "nuncio-delivery-payload .json",
        "webhooks?state=dead": ".empty",
    }


# A browser logs requests that fail: those of a journey that expects them are no problem.
EXPECTED = {"refused_acts": ["status of 409", "status of 404", "status of 400"], "operations_of_a_reader": ["status of 401", "status of 403"], "hostile_deliveries": ["status of 403", "status of 400", "status of 404"]}
JOURNEYS = [cancel_all_that_match, run_failed_tasks_again, refused_acts]
# With a server that has FLAGS.
WEBHOOKS = [replay_a_dead_letter, discard_deliveries, hostile_deliveries]
# With a server that requires tokens.
CLOSED = [operations_of_a_reader]
