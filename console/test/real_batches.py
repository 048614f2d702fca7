"""Journeys through Batches: a pause in which nothing begins, failed operations again, a question, the cap."""

import json
import re

from playwright.sync_api import expect

DONE = {"type": "done", "text": "ready"}


def waits(count, prefix="w", **more):
    return [{"id": f"{prefix}{n}", "type": "wait", "args": {"ms": 30}, **more} for n in range(count)]


def gated(name, **more):
    return {"id": name, "type": "agent.call", "args": {"agent": "scripted", "input": {"script": [{"wait": name}, DONE]}}, **more}


def without_load(server):
    """This machine may be busy, and its load is not what is tested."""
    server.command("batch", "-a", server.root, "config", "--set", "resourceMonitoring=false")


def submit(page, server, batch):
    page.goto(f"{server.base}/batches?new=")
    page.get_by_label("Batch as JSON").fill(json.dumps(batch))
    page.get_by_role("button", name="Submit").click()
    expect(page).to_have_url(re.compile(r"/batches/[0-9a-f-]{36}$"))
    return page.url.rsplit("/", 1)[1]


def operation(page, name):
    return page.locator(".row .op-line").filter(has=page.locator(".op-id", has_text=re.compile(f"^{name}$")))


def pause_and_resume_a_batch(page, server):
    """A paused batch begins nothing more, also in the log; resumed, it ends, and the chart has every operation."""
    without_load(server)
    batch = {"operations": [gated("hold"), *waits(6)], "maxConcurrency": 1, "sequentialSample": 0}
    task = submit(page, server, batch)
    expect(page.locator("h1 > .state")).to_contain_text("working")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("h1 .paused")).to_contain_text("paused")
    expect(page.locator(".as-of")).to_contain_text("no further operation begins")
    server.open_gate("hold")
    expect(operation(page, "hold")).to_contain_text("succeeded")
    expect(page.get_by_role("button", name="pending 6")).to_be_visible()
    events = len(server.events(task))
    page.goto(f"{server.base}/batches")
    row = page.locator(".row a").first
    expect(row).to_contain_text("paused")
    expect(row).to_contain_text("1 of 7")
    expect(page.locator(".panel")).to_contain_text("1 of at most 100")
    row.click()
    expect(page.locator("h1 .paused")).to_contain_text("paused")
    expect(operation(page, "w0")).to_contain_text("pending")
    assert len(server.events(task)) == events, "something began while the batch was paused"
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("h1 > .state")).to_contain_text("completed")
    expect(page.locator("h1 .paused")).to_have_count(0)
    expect(page.locator(".bar-box.bar-succeeded")).to_have_count(7)
    expect(page.locator(".chart")).to_contain_text("at most 1 beside each other · the cap is 1 now")
    expect(page.locator(".facts")).to_contain_text("Speedup")
    assert server.ended(task) == "completed"


def retry_failed_operations(page, server):
    """Checked before it is sent; what failed and was skipped runs again as a new batch, after what was missing is there."""
    without_load(server)
    page.goto(f"{server.base}/batches?new=")
    fill = page.get_by_label("Batch as JSON").fill
    fill('[{"id": "a", "type": "wait", "needs": ["b"]}, {"id": "b", "type": "wait", "needs": ["a"]}]')
    page.get_by_role("button", name="Submit").click()
    expect(page.locator(".problems")).to_have_text("needs: these wait for each other: a → b → a")
    fill('[{"id": "a", "type": "sing"}]')
    page.get_by_role("button", name="Submit").click()
    expect(page.locator(".problem")).to_contain_text("sing")
    expect(page.get_by_label("Batch as JSON")).to_have_value('[{"id": "a", "type": "sing"}]')
    get = {"id": "look", "type": "memory.get", "args": {"namespace": "flows", "key": "late"}, "retries": 1}
    fill(json.dumps([get, {"id": "after", "type": "wait", "args": {"ms": 5}, "needs": ["look"]}, *waits(2)]))
    page.get_by_role("button", name="Submit").click()
    expect(page.locator("h1 > .state")).to_contain_text("completed")
    first = page.url.rsplit("/", 1)[1]
    expect(page.locator(".facts")).to_contain_text("2 of 4 succeeded, 1 failed, 1 skipped")
    expect(operation(page, "look")).to_contain_text("2 of 2")
    expect(operation(page, "after")).to_contain_text("needs look")
    page.get_by_role("button", name="failed 1", exact=True).click()
    expect(page).to_have_url(re.compile("status=failed"))
    expect(page.locator(".row .op-line")).to_have_count(1)
    operation(page, "look").click()
    expect(page.locator(".event-detail")).to_contain_text('there is no key "late"')
    expect(page.locator(".event-detail")).to_contain_text("at most 2 tries")
    server.command("memory", "-a", server.root, "set", "flows", "late", '"here"')
    page.get_by_role("button", name="Retry 2 failed or skipped").click()
    expect(page).not_to_have_url(re.compile(first))
    expect(page.locator("h1 > .state")).to_contain_text("completed")
    expect(page.locator(".facts")).to_contain_text("2 of 2 succeeded")
    expect(page.locator(".row .op-line")).to_have_count(2)
    page.get_by_role("link", name="Edit and submit again").click()
    expect(page.get_by_label("Batch as JSON")).to_have_value(re.compile('"late"'))


def question_of_a_batch(page, server):
    """What a called agent asks is answered in the batch's page."""
    without_load(server)
    call = {"id": "trip", "type": "agent.call", "args": {"agent": "travel_agent", "input": {"destination": "Faro"}}}
    submit(page, server, {"operations": [call]})
    asked = page.locator(".asked")
    expect(asked).to_contain_text("Faro")
    asked.get_by_label("Confirm").check()
    asked.get_by_role("button", name="Accept").click()
    expect(page.locator("h1 > .state")).to_contain_text("completed")
    expect(asked).to_have_count(0)


def change_the_cap(page, server):
    """A value that the form refuses, one that changes what is in force, and a running batch whose chart shows the new cap."""
    without_load(server)
    page.goto(f"{server.base}/batches?settings=open")
    settings = page.get_by_label("Settings of batches")
    cap = settings.get_by_label("Operations at once")
    expect(cap).to_have_value("5")
    cap.fill("0")
    settings.get_by_role("button", name="Save").click()
    expect(settings.locator(".field-problem")).to_have_text("at least 1")
    cap.fill("3")
    settings.get_by_role("button", name="Save").click()
    expect(settings.locator(".sent")).to_have_text("In force now: maxConcurrency = 3.")
    expect(settings.locator(".in-force")).to_contain_text("3 operations at once")
    expect(page.locator(".panel .facts")).to_contain_text("3 on each node")
    settings.get_by_role("button", name="Save").click()
    expect(settings.locator(".sent")).to_have_text("Nothing differs from what is in force.")
    # Zero passes the form, and is refused by the server with its own words.
    settings.get_by_label("Threshold of CPU").fill("0")
    settings.get_by_role("button", name="Save").click()
    expect(settings.locator(".problem")).to_contain_text("cpuUsage")
    expect(settings.get_by_label("Threshold of CPU")).to_have_value("0")
    submit(page, server, {"operations": [{"id": f"c{n}", "type": "wait", "args": {"ms": 150}} for n in range(9)], "sequentialSample": 0})
    expect(page.locator("h1 > .state")).to_contain_text("completed")
    expect(page.locator(".chart")).to_contain_text("at most 3 beside each other · the cap is 3 now")
    server.command("batch", "-a", server.root, "config", "--set", "maxConcurrency=5")


JOURNEYS = [pause_and_resume_a_batch, retry_failed_operations, question_of_a_batch, change_the_cap]
