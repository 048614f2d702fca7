"""Journeys of who has seen what: cursors of followers and webhooks on the timeline, and a dead letter at its event."""

import http.client
import re

from playwright.sync_api import expect

from real_server import until
from webhook_receiver import WebhookReceiver

# The receivers are on loopback.
FLAGS = ("--allow-private-webhooks",)


def subscribed(server, task):
    """An open A2A stream of a task, as another client has it."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("GET", f"/tasks/{task}:subscribe", headers={"A2A-Version": "1.0", "User-Agent": "probe/1 <b>", "Last-Event-ID": "0"})
    response = connection.getresponse()
    assert response.status == 200, response.read()
    return connection, response


def followers_on_the_timeline(page, server):
    """A stream of another client has a mark at its cursor, which moves with the log and goes with the stream."""
    task = server.play("Wait for the gate", {"type": "progress", "done": 1, "text": "one"}, {"wait": "seen"}, {"type": "progress", "done": 2, "text": "two"}, {"wait": "all"}, {"type": "done"})
    page.goto(f"{server.base}/tasks/{task}/timeline")
    seen = page.get_by_role("region", name="Who has seen what")
    row = seen.get_by_role("listitem").filter(has_text="probe/1")
    expect(row).to_have_count(0)
    connection, response = subscribed(server, task)
    expect(row).to_contain_text("has all")
    first = server.api(f"tasks/{task}")["row"]["events"]
    expect(row).to_contain_text(f"event {first} of {first}")
    lane = page.get_by_role("region", name="Followers", exact=True)
    expect(lane.locator(".seen-all").first).to_be_visible()
    server.open_gate("seen")
    last = until(lambda: (events := server.api(f"tasks/{task}")["row"]["events"]) > first and events, "the log grows")
    expect(row).to_contain_text(f"event {last} of {last}")
    row.get_by_role("link").click()
    expect(page).to_have_url(re.compile(rf"/events\?at={last}$"))
    page.go_back()
    response.close()
    connection.close()
    expect(row).to_have_count(0)
    # This page itself follows the task, too.
    expect(seen.get_by_role("listitem").filter(has_text="console")).to_have_count(1)


def dead_letter_at_its_event(page, server):
    """A webhook that took everything, and one whose deliveries were given up, each at its event with the reason."""
    with WebhookReceiver(410) as gone, WebhookReceiver(200) as good:
        task = gone.task(server, "Tell the receiver")
        dead = until(lambda: [one for one in server.api("deliveries?state=dead")["deliveries"] if one["taskId"] == task], "a dead letter", 30)
        fine = good.task(server, "Tell the other one")
        server.ended(fine)
        until(lambda: all(one["state"] == "idle" for one in server.api(f"tasks/{fine}/webhooks")["webhooks"]), "all is delivered", 30)
        page.goto(f"{server.base}/tasks/{task}/timeline")
        seen = page.get_by_role("region", name="Who has seen what")
        letter = seen.get_by_role("listitem").filter(has_text="dead letter of h").first
        expect(letter).to_contain_text("410")
        seqs = sorted(one["seq"] for one in dead)
        expect(seen.get_by_role("link", name=f"event {seqs[0]} of")).not_to_have_count(0)
        mark = page.get_by_role("region", name="Webhooks", exact=True).locator(".seen-dead").first
        expect(mark.get_by_role("img")).to_have_attribute("aria-label", re.compile(r"dead letter of h: event \d+.*410"))
        letter.get_by_role("link").click()
        expect(page).to_have_url(re.compile(r"/events\?at=\d+$"))
        page.goto(f"{server.base}/tasks/{fine}/timeline")
        expect(seen.get_by_role("listitem").filter(has_text="webhook")).to_contain_text("has all")
        expect(page.locator(".seen-dead")).to_have_count(0)


JOURNEYS = [followers_on_the_timeline, dead_letter_at_its_event]
