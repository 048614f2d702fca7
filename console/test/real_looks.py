"""axe (WCAG 2.2 AA) and the width of every screen, dark and light, 1280 and 320 px wide.

These pages run with `bypass_csp`, because axe itself is a script from elsewhere; all others run with the CSP on.
"""

import os
from pathlib import Path

from playwright.sync_api import expect

import real_flows
import real_knowledge
import real_now
import real_operations
import real_server_screens
from real_server import until

TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]


def screens(server):
    """The screens by their paths, and what is there when they are complete."""
    task = server.send("travel_agent", "Braga")
    until(lambda: server.state(task) == "input-required", "the task asks")
    failed = server.play("Print it", {"type": "failed", "text": "the printer is on fire"})
    server.ended(failed)
    return {
        "tasks": ".row .task-row",
        "tasks?context=none": ".empty",
        f"tasks/{task}": ".story nuncio-question form",
        f"tasks/{failed}": ".reason",
        f"tasks/{task}/events?at=2": ".row.selected",
        f"tasks/{task}/wire": ".frame",
        f"tasks/{task}/raw": ".json",
        f"tasks/{task}/family": ".empty",
        "tasks/none": ".problem",
        "inbox": ".asked form",
        "try": ".target",
        "try?agent=echo": ".try-form textarea",
        "try?tool=memory_store": ".try-form textarea",
        "try?agent=nobody": ".empty",
        "agents": ".agent-row",
        "agents/echo": ".reading .family",
        "agents/echo/card": ".frame .json",
        "agents/echo/generations": ".frame .json",
        "nothing": ".empty",
        **real_flows.looks(server),
        **real_knowledge.looks(server),
        **real_now.looks(server),
        **real_operations.looks(server),
        **real_server_screens.looks(server),
        f"tasks/{task}/timeline": ".lane .span",
        f"compare?a={task}&b={failed}": ".compared li",
        "compare": ".empty",
    }


def axe_on_every_screen(page, server):
    axe = Path(os.environ["AXE"]).read_text()
    context = page.context.browser.new_context(bypass_csp=True)
    shown = context.new_page()
    found, checked = [], 0
    for path, ready in screens(server).items():
        for width in (1280, 320):
            shown.set_viewport_size({"width": width, "height": 800})
            shown.emulate_media(color_scheme="light")
            shown.goto(f"{server.base}/{path}")
            expect(shown.locator(ready).first).to_be_visible()
            expect(shown.locator(".live")).to_have_text("live")
            wide = shown.evaluate("document.documentElement.scrollWidth")
            if wide > width:
                found.append(f"{width} {path}: {wide} px wide")
            shown.evaluate(axe)
            # The rules beside contrast read the same document in both schemes.
            for scheme, run_only in (("light", TAGS), ("dark", ["color-contrast"])):
                shown.emulate_media(color_scheme=scheme)
                result = shown.evaluate("wanted => axe.run({runOnly: wanted})", run_only)
                checked += 1
                for violation in result["violations"]:
                    node = violation["nodes"][0]
                    found.append(f"{scheme} {width} {path}: {violation['id']}: {node['html'][:160]} {node['failureSummary'][:300]}")
    context.close()
    print(f"    axe: {checked} checks of screens, {len(found)} violations")
    assert not found, "\n".join(found)


JOURNEYS = [axe_on_every_screen]


def pictures(page, server, shoot):
    """The pictures of docs/console.md."""
    for topic in ("Durable execution", "Agent protocols", "SQLite in production", "Event logs", "Webhooks that arrive"):
        server.ended(server.send("research_agent", topic))
    failed = server.play("Print the invoice of November", {"type": "progress", "done": 1, "total": 3, "text": "Opening the printer"}, {"type": "log", "level": "error", "text": "no answer from the printer for 5 s"}, {"type": "failed", "text": "The printer does not answer: is it switched on?"})
    server.ended(failed)
    plan = {"plan": {"name": "A trip", "tasks": [{"id": "trip", "agent": "travel_agent", "input": {"text": "Lisbon"}}]}}
    outer = server.send("orchestrator", "Plan my trip", plan)
    server.ended(server.send("echo", "Good morning"))
    until(lambda: server.state(outer) == "input-required", "the plan asks")
    server.play("Watch the stock of paper", {"type": "progress", "done": 2, "total": 5, "text": "Counting"}, {"wait": "all"})
    report = server.api("tasks?agent=research_agent")["rows"][0]
    at = report["events"] - 3
    wanted = {
        "tasks": ("tasks", ".row .task-row"),
        "inbox": ("inbox", ".asked form"),
        "story": (f"tasks/{report['taskId']}?at={at}", ".story"),
        "events": (f"tasks/{failed}/events?at=4", ".row.selected"),
        "wire": (f"tasks/{report['taskId']}/wire?at={at}", ".frame"),
    }
    page.set_viewport_size({"width": 1200, "height": 720})
    for scheme, names in {"light": ["tasks", "story", "wire"], "dark": ["inbox", "events"]}.items():
        page.emulate_media(color_scheme=scheme)
        for name in names:
            path, ready = wanted[name]
            page.goto(f"{server.base}/{path}")
            expect(page.locator(ready).first).to_be_visible()
            expect(page.locator(".live")).to_have_text("live")
            if name == "events":
                page.keyboard.press("Enter")
                expect(page.locator(".event-detail")).to_be_visible()
            shoot(page, name)
    page.set_viewport_size({"width": 360, "height": 720})
    page.goto(f"{server.base}/tasks")
    expect(page.locator(".row .task-row").first).to_be_visible()
    expect(page.locator(".live")).to_have_text("live")
    shoot(page, "narrow")
