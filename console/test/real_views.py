"""Journeys through the named views of the list of tasks."""

import json
import re

from playwright.sync_api import expect

from real_safety import payloads


def views_of_the_list(page, server):
    """By keyboard: save, apply, rename and delete; the address stays the truth, and a reload keeps both."""
    server.ended(server.send("echo", "Hello"))
    server.ended(server.play("Print it", {"type": "failed", "text": "the printer is on fire"}))
    found = server.api("tasks?state=failed&agent=scripted&limit=1")["total"]
    page.goto(f"{server.base}/tasks?state=failed&agent=scripted")
    expect(page.locator(".list-head")).to_have_text(re.compile(rf"^{found} tasks?$"))
    summary = page.locator(".views summary")
    expect(summary).to_have_text("Views")
    page.keyboard.press("v")
    page.keyboard.type("Broken <b>prints</b>")
    page.keyboard.press("Enter")
    expect(summary).to_have_text("View: Broken <b>prints</b>")
    page.keyboard.press("Escape")
    expect(summary).to_be_focused()
    # Another filter is another view, and no view changes by itself.
    page.goto(f"{server.base}/tasks?agent=echo")
    expect(summary).to_have_text("Views (1)")
    page.keyboard.press("v")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/tasks\?state=failed&agent=scripted$"))
    expect(page.locator(".list-head")).to_have_text(re.compile(rf"^{found} tasks?$"))
    page.reload()
    expect(summary).to_have_text("View: Broken <b>prints</b>")
    page.go_back()
    expect(page).to_have_url(re.compile(r"/tasks\?agent=echo$"))
    expect(summary).to_have_text("Views (1)")
    # A second tab has it as soon as it is stored.
    other = page.context.new_page()
    other.goto(f"{server.base}/tasks?agent=echo")
    expect(other.locator(".views summary")).to_have_text("Views (1)")
    page.keyboard.press("v")
    page.get_by_label("Name of the view").fill("Echoes")
    page.get_by_role("button", name="Save these filters").click()
    expect(other.locator(".views summary")).to_have_text("View: Echoes")
    other.close()
    page.get_by_role("button", name="Rename Echoes").click()
    page.get_by_label("New name of Echoes").fill("Broken <b>prints</b>")
    page.keyboard.press("Enter")
    expect(page.locator(".views .problem")).to_contain_text("already")
    page.get_by_label("New name of Echoes").fill("All echoes")
    page.keyboard.press("Enter")
    expect(summary).to_have_text("View: All echoes")
    page.get_by_role("button", name="Delete All echoes").click()
    expect(summary).to_have_text("Views (1)")
    page.get_by_role("button", name="Delete Broken").click()
    expect(summary).to_have_text("Views")


def bad_views_break_nothing(page, server):
    """Whatever stands in the browser's storage: the list is there, and what fits is shown as text. At most 50 are stored."""
    hostile = [{"name": text, "query": f"agent={text}&state={text}&act=all"} for text in payloads()[:40]]
    odd = [None, 3, {"name": 1}, {"name": "", "query": ""}, {"name": "x"}, {"name": "long", "query": "a" * 5000}, {"name": "twice", "query": ""}, {"name": "twice", "query": "state=failed"}]
    for stored, count in (("{", 0), ("null", 0), (json.dumps({"name": "x"}), 0), (json.dumps(odd), 1), (json.dumps(hostile), len({one["name"] for one in hostile})), (json.dumps([{"name": f"view {n}", "query": "state=failed"} for n in range(60)]), 50)):
        context = page.context.browser.new_context()
        context.add_init_script(f"localStorage.setItem('nuncio.console.views', {json.dumps(stored)})")
        shown = context.new_page()
        errors = []
        shown.on("pageerror", lambda error: errors.append(str(error)))
        shown.goto(f"{server.base}/tasks?agent=echo")
        expect(shown.locator(".views summary")).to_have_text(f"Views ({count})" if count else "Views")
        shown.locator(".views summary").click()
        expect(shown.locator(".views li")).to_have_count(count)
        assert not shown.locator(".views :is(b, img, svg, script, iframe)").count()
        if count == 50:
            shown.get_by_label("Name of the view").fill("One more")
            shown.get_by_role("button", name="Save these filters").click()
            expect(shown.locator(".views .problem")).to_contain_text("at most 50 views")
        # A view is filters and nothing else: it opens no act.
        for address in shown.locator(".views li a").all():
            assert "act=" not in address.get_attribute("href")
        assert not errors, errors
        context.close()


JOURNEYS = [views_of_the_list, bad_views_break_nothing]
