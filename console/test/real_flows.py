"""Journeys through Plans: a plan to its synthesis, a circle, a cancel; and through Plans and Batches by keyboard and with hostile texts."""

import json
import re

from playwright.sync_api import expect

import real_batches
from real_batches import DONE, operation, submit, waits, without_load
from real_safety import payloads
from real_server import FULL, until


def script(*lines):
    """An input for the scripted agent."""
    return {"text": "Do it", "data": {"script": list(lines)}}


def plan_with_everything():
    """A question, a subtask that is tried twice and done by another agent, one that fails, and one that waits for a gate."""
    failed = {"type": "failed", "text": "the printer is on fire"}
    return {
        "name": "autumn release",
        "request": "What has to be ready?",
        "synthesis": "Booked: {{ tasks.booking.text }}. Printed by {{ tasks.print.agent }}. Paper: {{ tasks.paper.state }}.",
        "tasks": [
            {"id": "booking", "agent": "travel_agent", "input": {"data": {"destination": "Lisbon"}}},
            {"id": "print", "agent": "scripted", "retry": {"attempts": 2, "backoff": "50ms"}, "fallbacks": ["echo"], "input": script(failed)},
            {"id": "paper", "agent": "scripted", "optional": True, "input": script({"type": "failed", "text": "no paper"})},
            {"id": "bind", "agent": "scripted", "needs": ["print", "paper"], "input": script({"wait": "bind"}, DONE)},
            {"id": "ship", "agent": "echo", "needs": ["booking", "bind"], "input": "Ship {{ tasks.booking.text }}"},
        ],
    }


def box(page, subtask):
    return page.locator(f".box[data-id={subtask}]")


def item(page, subtask):
    return page.locator(f".subtask[data-id={subtask}]")


def fill_plan(page, plan):
    page.get_by_label("Plan as TOML or JSON").fill(plan if isinstance(plan, str) else json.dumps(plan, indent=2))


def follow_a_plan_to_its_synthesis(page, server):
    """Checked, run and followed in the page: a question is answered in place, one subtask is rerouted and one fails."""
    page.goto(f"{server.base}/plans")
    expect(page.locator(".empty, nuncio-rows").first).to_be_visible()
    page.get_by_role("button", name="New plan").click()
    fill_plan(page, plan_with_everything())
    page.get_by_role("button", name="Check").click()
    expect(page.locator(".checked")).to_contain_text("Valid: 5 subtasks")
    expect(page.locator(".checked")).to_contain_text("longest way: print → bind → ship")
    expect(page.locator(".checked .box")).to_have_count(5)
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page).to_have_url(re.compile(r"/plans/[0-9a-f-]{36}$"))
    task = page.url.rsplit("/", 1)[1]
    expect(page.locator("h1")).to_contain_text("autumn release")
    expect(box(page, "print")).to_contain_text("done")
    expect(box(page, "print")).to_contain_text("echo · try 3")
    expect(item(page, "print")).to_contain_text("not by scripted: the printer is on fire")
    expect(item(page, "paper")).to_contain_text("failed")
    expect(item(page, "paper")).to_contain_text("no paper")
    expect(box(page, "booking")).to_contain_text("asks")
    expect(item(page, "booking").get_by_role("link", name="Open task")).to_be_visible()
    expect(box(page, "bind")).to_contain_text("working")
    expect(item(page, "bind").get_by_role("link", name="Open task")).to_be_visible()
    expect(box(page, "ship")).to_contain_text("waiting")
    expect(page.locator(".facts")).to_contain_text("2 of 5 over")
    asked = page.locator(".asked")
    expect(asked).to_contain_text("booking · travel_agent asks")
    asked.get_by_label("Confirm").check()
    asked.get_by_role("button", name="Accept").click()
    expect(asked).to_have_count(0)
    expect(box(page, "booking")).to_contain_text("done")
    box(page, "bind").click()
    expect(page).to_have_url(re.compile("task=bind"))
    expect(item(page, "bind").locator(".subtask-detail")).to_contain_text("planned for scripted")
    page.reload()
    expect(item(page, "bind").locator(".subtask-detail")).to_contain_text("planned for scripted")
    expect(page.locator(".live")).to_have_text("live")
    server.open_gate("bind")
    expect(page.locator("h1 > .state")).to_contain_text("completed")
    expect(page.locator(".facts")).to_contain_text("none missing")
    page.get_by_role("link", name="Result").click()
    expect(page.locator(".said")).to_contain_text("by the template of the plan")
    expect(page.locator(".said")).to_contain_text("Printed by echo. Paper: failed.")
    sources = page.locator(".subtask")
    expect(sources).to_have_count(5)
    expect(sources.filter(has_text="print")).to_contain_text("from echo")
    expect(sources.filter(has_text="print")).to_contain_text("not by scripted: the printer is on fire")
    page.get_by_role("link", name="File", exact=True).click()
    expect(page.locator("nuncio-json")).to_contain_text("autumn release")
    page.get_by_role("link", name="Subtasks").click()
    item(page, "print").get_by_role("link", name="Open task").click()
    expect(page.locator("h1")).to_contain_text("echo")
    page.goto(f"{server.base}/plans?new={task}")
    expect(page.get_by_label("Plan as TOML or JSON")).to_have_value(re.compile("autumn release"))
    assert server.ended(task) == "completed"


def cyclic_plan_is_refused(page, server):
    """A circle is shown as its path, another problem beside it; nothing runs, and what was typed stays."""
    before = server.api("tasks?agent=orchestrator")["total"]
    page.goto(f"{server.base}/plans?new=")
    plan = {"name": "round", "tasks": [{"id": one, "agent": agent, "needs": [need]} for one, agent, need in (("a", "echo", "c"), ("b", "ecco", "a"), ("c", "echo", "b"))]}
    fill_plan(page, plan)
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator(".problem-title")).to_have_text("2 problems")
    expect(page.locator(".circle code")).to_have_text(["a", "c", "b", "a"])
    expect(page.locator(".problems")).to_contain_text('there is no agent "ecco"; is "echo" meant?')
    expect(page.get_by_label("Plan as TOML or JSON")).to_have_value(re.compile('"round"'))
    fill_plan(page, "name = \n")
    expect(page.locator(".problem-title")).to_contain_text("before the last change")
    page.get_by_role("button", name="Check").click()
    expect(page.locator(".problems")).to_contain_text("it is not TOML")
    fill_plan(page, 'name = "line"\n[[tasks]]\nid = "a"\nagent = "echo"\n')
    page.get_by_role("button", name="Check").click()
    expect(page.locator(".checked")).to_contain_text("Valid: 1 subtask")
    expect(page.locator(".checked pre")).to_contain_text("line (1 task")
    page.get_by_label("Request in words").fill("Research agent protocols (research_agent), then echo the results")
    page.get_by_role("button", name="Make").click()
    expect(page.get_by_label("Plan as TOML or JSON")).to_have_value(re.compile("research_agent"))
    assert server.api("tasks?agent=orchestrator")["total"] == before


def cancel_a_plan(page, server):
    """The list shows a plan that begins, and its state as it changes; canceling asks once more and ends all of it."""
    page.goto(f"{server.base}/plans?state=working&state=canceled")
    expect(page.locator(".live")).to_have_text("live")
    plan = {"name": "long wait", "tasks": [{"id": "w", "agent": "scripted", "input": script({"wait": "never"})}]}
    task = server.send("orchestrator", data={"plan": plan})
    pill = page.locator(".pill")
    row = page.locator(".row a").filter(has_text="long wait")
    expect(pill.or_(row).first).to_be_visible()
    if pill.is_visible():
        pill.click()
    expect(row).to_contain_text("working")
    expect(row).to_contain_text("0 of 1")
    row.click()
    expect(page.locator("h1")).to_contain_text("long wait")
    page.get_by_role("button", name="Cancel plan").click()
    expect(page.locator(".as-of")).to_contain_text("This ends the plan, and the subtask at work.")
    page.get_by_role("button", name="Cancel the plan").click()
    expect(page.locator("h1 > .state")).to_contain_text("canceled")
    assert server.ended(task) == "canceled"
    page.go_back()
    expect(row).to_contain_text("canceled")


def plans_and_batches_by_keyboard(page, server):
    """No pointer: to the plans, a new one, its question, its failure and its task; then a batch and its failed operation."""
    without_load(server)
    press = page.keyboard.press
    page.goto(f"{server.base}/tasks")
    expect(page.locator(".live")).to_have_text("live")
    press("g")
    press("p")
    expect(page.get_by_role("heading", name="Plans")).to_be_visible()
    press("n")
    area = page.get_by_label("Plan as TOML or JSON")
    expect(area).to_be_visible()
    area.focus()
    press("Control+a")
    tasks = [{"id": "book", "agent": "travel_agent", "input": {"data": {"destination": "Evora"}}}, {"id": "fail", "agent": "scripted", "optional": True, "input": script({"type": "failed", "text": "out of ink"})}]
    page.keyboard.insert_text(json.dumps({"name": "typed", "tasks": tasks}))
    press("Tab")
    press("Tab")
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_focused()
    press("Enter")
    expect(page.locator("h1")).to_contain_text("typed")
    expect(page.locator(".asked form")).to_be_visible()
    press("a")
    expect(page.get_by_label("Confirm")).to_be_focused()
    press("Space")
    press("Tab")
    page.keyboard.type("By the sea")
    press("Enter")
    expect(page.locator("h1 > .state")).to_contain_text("completed")
    expect(page.locator("h1")).to_be_focused()
    press(".")
    expect(page).to_have_url(re.compile("task=fail"))
    expect(item(page, "fail")).to_contain_text("out of ink")
    press("Enter")
    expect(page.locator(".reason")).to_contain_text("out of ink")
    press("g")
    press("b")
    expect(page.get_by_role("heading", name="Batches")).to_be_visible()
    press("n")
    area = page.get_by_label("Batch as JSON")
    expect(area).to_be_visible()
    area.focus()
    press("Control+a")
    page.keyboard.insert_text(json.dumps([*waits(3), {"id": "gone", "type": "memory.get", "args": {"namespace": "flows", "key": "never"}}]))
    press("Tab")
    press("Tab")
    press("Enter")
    expect(page.locator("h1 > .state")).to_contain_text("completed")
    expect(operation(page, "gone")).to_contain_text("failed")
    press(".")
    expect(page.locator(".row.selected")).to_contain_text("gone")
    press("Enter")
    expect(page.locator(".event-detail")).to_contain_text('there is no key "never"')
    press("Escape")
    press("Escape")
    expect(page.get_by_role("heading", name="Batches")).to_be_visible()
    press("j")
    expect(page.locator(".row.selected")).to_have_count(1)


def hostile_plan(text, n):
    """A plan with this text in every field that takes any text, and in all that its agent says."""
    # A reference is part of a plan's own language, and not what is tested.
    plain = text.replace("{{", "\\{{")
    end = {"type": "ask" if n % 3 == 0 else "failed", "text": plain}
    said = {"type": "artifact", "id": "a", "name": plain, "parts": [{"text": plain}, {"data": {"key": plain}}]}
    tasks = [{"id": "one", "agent": "scripted", "optional": True, "fallbacks": ["echo"] if n % 3 == 1 else [], "input": script(said, end)}, {"id": "two", "agent": "echo", "input": plain}]
    return {"name": text, "request": text, "synthesis": plain + " {{ tasks.two.text }}", "tasks": tasks}


def hostile_plans_and_batches(page, server):
    """Texts that would be scripts, in every field of plans and operations that a caller or an agent sets, are shown as text."""
    without_load(server)
    texts = payloads()[:: 1 if FULL else 9]
    for n, text in enumerate(texts):
        task = server.send("orchestrator", data={"plan": hostile_plan(text, n)})
        until(lambda: server.state(task) in ("completed", "input-required"), f"the plan of {text!r} ends or asks")
        page.goto(f"{server.base}/plans/{task}")
        expect(page.locator("h1")).to_contain_text(" ".join(text.split()))
        expect(item(page, "two")).to_contain_text("done")
        expect(page.locator(["nuncio-question", ".rerouted", ".why"][n % 3])).to_have_count(1)
        box(page, "one").click()
        expect(page.locator(".subtask-detail")).to_be_visible()
        page.get_by_role("link", name="Result").click()
        expect(page.locator(".said, .empty").first).to_be_visible()
        page.get_by_role("link", name="File", exact=True).click()
        expect(page.locator("nuncio-json")).to_be_visible()
    page.goto(f"{server.base}/plans")
    expect(page.locator(".row a").first).to_be_visible()
    page.goto(f"{server.base}/plans?new=")
    fill_plan(page, {"name": texts[0], "tasks": [{"id": texts[0], "agent": texts[1], "needs": [texts[2]]}]})
    page.get_by_role("button", name="Check").click()
    expect(page.locator(".problems li").first).to_be_visible()
    store = [{"id": f"s{n}", "type": "memory.store", "args": {"namespace": "hostile", "key": f"k{n}", "value": {text: text}}} for n, text in enumerate(texts)]
    fail = [{"id": f"f{n}", "type": "memory.get", "args": {"namespace": "hostile", "key": " ".join(text.split())[:100]}} for n, text in enumerate(texts)]
    submit(page, server, {"operations": fail + store})
    expect(page.locator("h1 > .state")).to_contain_text("completed")
    for n in range(4):
        operation(page, f"f{n}").click()
    expect(page.locator(".event-detail")).to_have_count(4)
    page.goto(f"{server.base}/batches?new=")
    page.get_by_label("Batch as JSON").fill(json.dumps([{"id": texts[0], "type": texts[1]}, {"id": "a", "type": texts[2], "needs": [texts[3]]}]))
    page.get_by_role("button", name="Submit").click()
    expect(page.locator(".problems li").first).to_be_visible()
    page.get_by_label("Batch as JSON").fill(json.dumps([{"id": "a", "type": texts[1]}]))
    page.get_by_role("button", name="Submit").click()
    expect(page.locator(".problem").first).to_be_visible()
    assert re.fullmatch(r"(\(\d+\) )?Nuncio", page.title()), page.title()
    expect(page.locator("main :is(iframe, script, object, embed, form[action], base, meta, link, img[src^=http])")).to_have_count(0)
    print(f"    {len(texts)} hostile texts in as many plans, and in twice as many operations")


JOURNEYS = [follow_a_plan_to_its_synthesis, cyclic_plan_is_refused, cancel_a_plan, *real_batches.JOURNEYS, plans_and_batches_by_keyboard, hostile_plans_and_batches]


def looks(server):
    """These screens by their paths, and what is there when they are complete: for axe, and for the width."""
    without_load(server)
    plan = server.send("orchestrator", data={"plan": plan_with_everything()})
    until(lambda: server.state(plan) == "input-required", "the plan asks")
    done = server.send("orchestrator", data={"plan": {"name": "one step", "tasks": [{"id": "say", "agent": "echo", "input": "hello"}]}})
    server.ended(done)
    batch = server.send("batch", data={"operations": [*waits(8), {"id": "gone", "type": "memory.get", "args": {"namespace": "flows", "key": "never"}}, *waits(1, "after", needs=["gone"])]})
    server.ended(batch)
    return {
        "plans": ".row .plan-row",
        "plans?state=rejected": ".empty",
        "plans?new=": ".editor textarea",
        f"plans/{plan}?task=print": ".subtask-detail",
        f"plans/{done}/result": ".said .markdown",
        f"plans/{done}/file": ".json",
        "plans/none": ".problem",
        "batches": ".row .plan-row",
        "batches?new=": ".editor textarea",
        "batches?settings=open": ".editor .in-force",
        f"batches/{batch}?operation=gone": ".row.selected",
        f"batches/{batch}?status=failed": ".row .op-line",
        f"batches/{done}": ".empty",
    }
