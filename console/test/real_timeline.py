"""Journeys through time: the lives of a task on its timeline, two tasks compared, a message sent again, the palette."""

import re

from playwright.sync_api import expect

from real_server import until


def lives_on_the_timeline(page, server):
    """A task whose server is killed in a step, which then asks and is answered: each run is drawn with how it ended."""
    task = server.send("long_running_agent", data={"steps": 40})
    until(lambda: any(effect["kind"] == "step" for effect in server.api(f"tasks/{task}/journal")["effects"]), "a step ended")
    server.kill()
    server.start()
    server.ended(task, 60)
    journal = server.api(f"tasks/{task}/journal")
    assert [run["end"] for run in journal["runs"]] == ["lost", "ended"], journal["runs"]
    page.goto(f"{server.base}/tasks/{task}/timeline")
    runs = page.get_by_role("region", name="Runs").locator(".span")
    expect(runs).to_have_count(2)
    expect(runs.nth(0)).to_have_class(re.compile("run-lost"))
    expect(runs.nth(1)).to_have_class(re.compile("run-ended"))
    steps = sum(effect["kind"] == "step" for effect in journal["effects"])
    expect(page.get_by_role("region", name="Steps").locator(".lane-name")).to_contain_text(str(steps))
    # The range is in the address, and a reload shows the same.
    page.get_by_role("button", name="Zoom in").click()
    expect(page).to_have_url(re.compile(r"zoom=\d+-\d+"))
    page.reload()
    expect(page.get_by_role("region", name="Steps")).to_be_visible()
    page.keyboard.press("0")
    expect(page).not_to_have_url(re.compile("zoom="))
    page.get_by_role("region", name="State").get_by_role("button").last.click()
    expect(page).to_have_url(re.compile(r"/events\?at=\d+"))


def idle_time_is_folded_on_wish(page, server):
    """A task that waited for a person: the wait is drawn as it was, and folded only when that is asked for."""
    task = server.send("travel_agent", "Braga")
    until(lambda: server.state(task) == "input-required", "it asks")
    parked = until(lambda: [run for run in server.api(f"tasks/{task}/journal")["runs"] if run["end"] == "parked"], "it is parked")
    assert len(parked) == 1, parked
    page.goto(f"{server.base}/tasks/{task}/timeline")
    expect(page.get_by_role("region", name="Runs").locator(".run-parked")).to_have_count(1)
    expect(page.get_by_role("region", name="Questions").locator(".span")).to_have_count(1)
    assert page.locator(".gap").count() == 0
    page.get_by_label("Fold idle times").check()
    expect(page).to_have_url(re.compile("idle=fold"))
    expect(page.locator(".gap").first).to_be_attached()


def send_a_failed_task_again(page, server):
    """By keyboard: find the failure, send its message again, and compare both."""
    failed = server.play("Print again", {"type": "log", "text": "warming up"}, {"wait": "paper"}, {"type": "failed", "text": "no paper"})
    server.open_gate("paper")
    server.ended(failed)
    page.goto(f"{server.base}/tasks/{failed}")
    expect(page.locator(".reason")).to_have_text("no paper")
    page.get_by_role("button", name="Send again").focus()
    page.keyboard.press("Enter")
    expect(page).not_to_have_url(re.compile(failed))
    expect(page.locator(".reason")).to_have_text("no paper")
    again = re.search(r"/tasks/([0-9a-f-]{36})", page.url).group(1)
    first, second = (server.events(task)[0]["data"]["parts"] for task in (failed, again))
    assert first == second
    page.goto(f"{server.base}/compare?a={failed}&b={again}")
    expect(page.get_by_role("status").filter(has_text="differs")).to_contain_text("Nothing differs")


def compare_two_tasks(page, server):
    """The first difference of two runs is found in their typed logs; the marked ones come from the list by keys."""
    same = [{"type": "log", "text": "one"}, {"type": "progress", "done": 1, "total": 2, "text": "half"}]
    a = server.play("Compare me", *same, {"type": "done", "text": "well"})
    b = server.play("Compare me", *same, {"type": "log", "text": "an extra line"}, {"type": "failed", "text": "badly"})
    for task in (a, b):
        server.ended(task)
    page.goto(f"{server.base}/tasks?agent=scripted")
    expect(page.locator(".live")).to_have_text("live")
    for key in ("j", "x", "j", "x"):
        page.keyboard.press(key)
    expect(page.locator(".task-row.marked")).to_have_count(2)
    page.get_by_role("link", name="Compare the two marked tasks").focus()
    page.keyboard.press("Enter")
    # The newest first: A is the second of them.
    expect(page.locator(".verdict")).to_contain_text("The first difference is at")
    before = page.url
    page.keyboard.press("s")
    expect(page).not_to_have_url(before)
    page.goto(f"{server.base}/compare?a={a}&b={b}")
    # Their first messages hold different scripts; the extra line and the ends differ.
    expect(page.locator(".compare-only-b").filter(has_text="an extra line")).to_have_count(1)
    expect(page.locator(".compare-only-a").filter(has_text="well")).to_have_count(1)
    expect(page.locator(".compare-only-b").filter(has_text="badly")).to_have_count(1)
    page.goto(f"{server.base}/compare?a={a}&b=none")
    expect(page.locator(".problem")).to_contain_text("Not found, or not yours")


def go_anywhere_by_the_palette(page, server):
    """Ctrl K: a screen by its name, a task by the beginning of its id."""
    task = server.send("echo", "Find me")
    server.ended(task)
    page.goto(f"{server.base}/inbox")
    expect(page.locator(".live")).to_have_text("live")
    page.keyboard.press("Control+k")
    # Only the first time it may have to be loaded; from then on nothing that is typed after its key is lost.
    expect(page.get_by_role("combobox", name="Go to")).to_be_focused()
    page.keyboard.type("mem")
    expect(page.locator(".palette [aria-selected=true]")).to_contain_text("Memory")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/console/memory"))
    page.keyboard.press("Control+k")
    page.keyboard.type(task[:23])
    expect(page.locator(".palette li").filter(has_text=task)).to_be_visible()
    while task not in (page.locator(".palette [aria-selected=true]").text_content() or ""):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(task))
    page.keyboard.press("Control+k")
    page.keyboard.type("zzz")
    expect(page.locator(".palette")).to_contain_text("Nothing found")
    page.keyboard.press("Escape")
    expect(page.locator(".palette")).to_have_count(0)


JOURNEYS = [lives_on_the_timeline, idle_time_is_folded_on_wish, send_a_failed_task_again, compare_two_tasks, go_anywhere_by_the_palette]
