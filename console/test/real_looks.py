"""axe (WCAG 2.2 AA) and the width of every screen, and the pictures of the documentation."""

from playwright.sync_api import expect

import real_flows
import real_knowledge
import real_now
import real_operations
import real_server_screens
from axe_rules import axe_rules, WIDTHS
from real_log_file import export, open_text
from real_server import until


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
        "file": ".empty",
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
    with axe_rules(page, "screens") as rules:
        for path, ready in screens(server).items():
            for width in WIDTHS:
                rules.begin(width)
                rules.page.goto(f"{server.base}/{path}")
                expect(rules.page.locator(ready).first).to_be_visible()
                expect(rules.page.locator(".live")).to_have_text("live")
                rules.check(width, path)


def axe_on_what_is_opened(page, server):
    """What no address shows: named views, a proof, a log from a file, a refused file."""
    server.ended(server.play("Print it", {"type": "failed", "text": "the printer is on fire"}))
    with axe_rules(page, "what is opened") as rules:
        shown = rules.page
        for width in WIDTHS:
            rules.begin(width)
            shown.goto(f"{server.base}/tasks?state=failed")
            shown.locator(".views summary").click()
            shown.get_by_label("Name of the view").fill("Broken prints")
            shown.get_by_role("button", name="Save these filters").click()
            expect(shown.locator(".views li")).to_have_count(1)
            rules.check(width, "views")
            shown.get_by_role("link", name="the printer is on fire").first.click()
            shown.get_by_role("link", name="Raw").click()
            shown.get_by_role("button", name="Prove it").click()
            expect(shown.locator(".proof code")).to_be_visible()
            rules.check(width, "proof")
            file = export(shown).path()
            rules.check(width, "export")
            shown.goto(f"{server.base}/file")
            open_text(shown, "{")
            expect(shown.locator(".problem")).to_be_visible()
            rules.check(width, "refused file")
            shown.get_by_label("Open a log file").set_input_files(file)
            expect(shown.locator(".from-file")).to_be_visible()
            for tab, ready in {"Story": ".story", "Events": ".event-line", "Timeline": ".span", "Raw": ".json"}.items():
                shown.get_by_role("link", name=tab, exact=True).click()
                expect(shown.locator(ready).first).to_be_visible()
                rules.check(width, f"file {tab}")


JOURNEYS = [axe_on_every_screen, axe_on_what_is_opened]


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
