"""Journeys through Now: a fresh server, figures that lead to their lists and change while they are looked at, and missing scopes."""

import re

from playwright.sync_api import expect

from real_server import until
from real_server_screens import sign_in, sign_in_with, token
from real_try import agents_added
from webhook_receiver import WebhookReceiver

# The receiver of the dead letter is on loopback.
FLAGS = ("--allow-private-webhooks",)


def tile(page, name):
    return page.locator(".tile", has=page.get_by_text(name, exact=True)).first


def now_on_a_fresh_server(page, server):
    """By keyboard: without tasks there are commands to paste, and a first message is sent right here."""
    page.goto(f"{server.base}/tasks")
    expect(page.locator(".empty")).to_be_visible()
    page.keyboard.press("g")
    page.keyboard.press("n")
    expect(page).to_have_url(re.compile("/console/now$"))
    first = page.get_by_role("region", name="No task yet")
    expect(first.locator(".command")).to_have_count(3)
    command = first.locator(".command code").first.inner_text()
    assert re.fullmatch(r"nuncio send -a '\S+' --agent echo \"Hello\"", command), command
    page.keyboard.press("/")
    page.keyboard.type("Good morning <b>")
    page.keyboard.press("Enter")
    sent = first.get_by_role("link", name="Sent: open the task")
    expect(sent).to_be_visible()
    expect(page.get_by_role("heading", name="Your tasks 1")).to_be_visible()
    sent.click()
    expect(page.locator(".story")).to_contain_text("Good morning <b>")
    page.go_back()
    expect(page.get_by_role("heading", name="Your tasks 1")).to_be_visible()
    expect(first).to_have_count(0)


def now_while_things_happen(page, server):
    """Every figure changes without a reload, and leads to the list with the same number."""
    page.goto(f"{server.base}/now")
    expect(page.locator(".live")).to_have_text("live")
    expect(tile(page, "Questions")).to_contain_text("nothing waits")
    expect(tile(page, "Failures").locator("strong")).to_have_text("✓0")
    asks = server.send("travel_agent", "Braga")
    until(lambda: server.state(asks) == "input-required", "the task asks")
    expect(tile(page, "Questions").locator("strong")).to_have_text("?1")
    expect(tile(page, "Questions")).to_contain_text("the oldest asked")
    for n in range(2):
        server.ended(server.play(f"Print {n}", {"type": "failed", "text": "the printer is on fire"}))
    expect(tile(page, "Failures").locator("strong")).to_have_text("✕2")
    failed = page.get_by_role("group", name="By state").get_by_role("link", name="failed")
    expect(failed).to_contain_text("2")
    expect(page.get_by_role("group", name="By agent").get_by_role("link", name="scripted")).to_contain_text("2")
    # Each figure is a link to its list, with the filter in the address.
    tile(page, "Failures").click()
    expect(page).to_have_url(re.compile(r"/tasks\?state=failed&state=rejected&since=20"))
    expect(page.locator(".list-head")).to_contain_text("2 tasks")
    page.go_back()
    page.get_by_role("group", name="By state").get_by_role("link", name="failed").click()
    expect(page).to_have_url(re.compile(r"/tasks\?state=failed$"))
    page.go_back()
    tile(page, "Questions").click()
    expect(page.locator(".asked")).to_have_count(1)
    page.go_back()
    expect(page.get_by_role("heading", name="Now", exact=True)).to_be_visible()
    with agents_added(server, {"name": "far", "kind": "a2a", "url": "http://127.0.0.1:9"}):
        expect(tile(page, "Remote agents")).to_contain_text("unhealthy: far", timeout=40_000)
    with WebhookReceiver(410) as receiver:
        task = receiver.task(server, "Tell the receiver")
        until(lambda: [one for one in server.api("deliveries?state=dead")["deliveries"] if one["taskId"] == task], "a dead letter", 30)
    page.keyboard.press("r")
    expect(tile(page, "Dead letters").locator("strong")).to_contain_text("✕")
    tile(page, "Dead letters").click()
    expect(page).to_have_url(re.compile(r"/webhooks\?state=dead$"))
    expect(page.locator(".delivery").first).to_contain_text("echo")


def now_of_the_operator(page, server):
    """Nodes and pulse are the operator's; to the local user they are grey, with the scope's name, and nothing is asked in vain."""
    page.goto(f"{server.base}/now")
    expect(tile(page, "Nodes")).to_contain_text("Needs the scope read:admin:server")
    expect(page.get_by_role("region", name="Pulse")).to_contain_text("Needs the scope read:admin:server")
    expect(page.locator(".problem")).to_have_count(0)
    sign_in(page, server)
    page.goto(f"{server.base}/now")
    expect(tile(page, "Nodes").locator("strong")).to_have_text("✓1")
    sends = tile(page, "Sends")
    expect(sends.locator("svg")).to_have_count(1)
    expect(page.locator(".live")).to_have_text("live")
    # The first interval of a server is over after 10 s.
    expect(sends.locator("strong")).to_have_text(re.compile(r"^\d+$"), timeout=15_000)
    before = int(sends.locator("strong").inner_text())
    server.send("echo", "One more")
    # Sends of the interval that was not over when the page was read may come with it.
    until(lambda: int(sends.locator("strong").inner_text()) > before, "the next interval is shown", 25)
    sends.click()
    expect(page).to_have_url(re.compile("/server$"))


def now_of_a_reader(page, server):
    """A token without a scope sees what it lacks by name, and no error."""
    sign_in_with(page, server, token(server, "reader", "read:memory:team-*"))
    page.goto(f"{server.base}/now")
    for name in ("Questions", "Failures", "Dead letters"):
        expect(tile(page, name)).to_contain_text("Needs the scope read:a2a:tasks")
    expect(tile(page, "Nodes")).to_contain_text("Needs the scope read:admin:server")
    expect(tile(page, "Batches")).to_contain_text("Needs the scope")
    expect(tile(page, "Remote agents")).to_contain_text("Needs the scope")
    expect(page.locator(".problem")).to_have_count(0)


def looks(server):
    return {"now": ".tile strong"}


EXPECTED = {"now_of_a_reader": ["status of 401", "status of 403"]}
JOURNEYS = [now_on_a_fresh_server, now_while_things_happen, now_of_the_operator]
CLOSED = [now_of_a_reader]
