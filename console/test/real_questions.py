"""Journeys through the inbox: answering, a question that is answered elsewhere, and one that plans passed on."""

import re

from playwright.sync_api import expect

from real_server import until


def plan_of(agent, given):
    return {"plan": {"name": f"ask {agent}", "tasks": [{"id": "step", "agent": agent, "input": given}]}}


def answer_from_the_inbox(page, server):
    """By keyboard: to the inbox, into the form, a refused answer as JSON, then the right one."""
    page.goto(f"{server.base}/tasks")
    expect(page.locator(".empty")).to_contain_text(f"nuncio send -a {server.public_url} --agent echo")
    task = server.send("travel_agent", "Lisbon")
    expect(page.locator(".count")).to_have_text("1")
    expect(page).to_have_title(re.compile(r"^\(1\) Nuncio"))
    page.keyboard.press("g")
    page.keyboard.press("i")
    asked = page.locator(".asked")
    expect(asked).to_have_count(1)
    expect(asked).to_contain_text("Lisbon")
    page.get_by_role("button", name="As JSON").click()
    asked.get_by_label("Answer as JSON").fill('{"confirm": "perhaps"}')
    asked.get_by_role("button", name="Accept").click()
    expect(asked.locator(".problem")).to_contain_text("confirm")
    expect(asked.get_by_label("Answer as JSON")).to_have_value('{"confirm": "perhaps"}')
    asked.get_by_label("Answer as JSON").fill('{"confirm": false}')
    page.get_by_role("button", name="As form").click()
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("a")
    page.keyboard.press("Space")
    expect(asked.get_by_label("Confirm")).to_be_checked()
    page.keyboard.press("Tab")
    page.keyboard.type("By the window")
    page.keyboard.press("Enter")
    expect(asked.locator(".sent").first).to_contain_text("Closed: answered")
    expect(page.locator(".count")).to_have_count(0)
    assert server.ended(task) == "completed"
    asked.get_by_role("link", name="travel_agent").click()
    expect(page.locator(".story")).to_contain_text("By the window")
    page.goto(f"{server.base}/inbox")
    expect(page.locator(".empty")).to_contain_text("No question is open")


def answered_elsewhere(page, server):
    """A question that the command line answers is greyed under the eyes of the reader, and what was typed stays."""
    task = server.send("travel_agent", "Porto")
    until(lambda: server.state(task) == "input-required", "the task asks")
    page.goto(f"{server.base}/inbox")
    asked = page.locator(".asked")
    expect(asked).to_have_count(1)
    asked.get_by_label("Notes").fill("half typed")
    server.command("send", "-a", server.root, "--agent", "travel_agent", "--task-id", task, "--data", '{"confirm": true}')
    expect(asked).to_have_class(re.compile("closed"))
    expect(asked.locator(".sent")).to_have_text("Closed: answered by local (a2a/1.0)")
    expect(asked.get_by_label("Notes")).to_have_value("half typed")
    expect(asked.get_by_label("Notes")).to_be_focused()
    expect(page.locator(".count")).to_have_count(0)
    page.reload()
    expect(page.locator(".empty")).to_contain_text("No question is open")


def question_of_a_plan_in_a_plan(page, server):
    """The question that a task two plans below asks is listed once, with its path, and is answered at the outermost task."""
    task = server.send("orchestrator", data=plan_of("orchestrator", {"data": plan_of("travel_agent", {"text": "Madeira"})}))
    page.goto(f"{server.base}/inbox")
    asked = page.locator(".asked")
    expect(asked).to_contain_text("Madeira")
    expect(asked.locator(".said-head a")).to_have_text(["orchestrator", "orchestrator", "travel_agent"])
    until(lambda: server.api("tasks?state=input-required")["total"] == 3, "all three tasks wait")
    expect(asked).to_have_count(1)
    expect(asked).not_to_have_class(re.compile("closed"))
    page.reload()
    expect(asked).to_have_count(1)
    expect(page.locator(".count")).to_have_text("1")
    asked.get_by_label("Confirm").check()
    asked.get_by_role("button", name="Accept").click()
    expect(asked.locator(".sent").first).to_contain_text("Closed")
    expect(page.locator(".count")).to_have_count(0)
    assert server.ended(task) == "completed"
    expect(asked).to_have_count(1)
    expect(asked).to_have_class(re.compile("closed"))
    asked.get_by_role("link", name="travel_agent").click()
    expect(page.locator("h1")).to_contain_text("travel_agent")
    page.get_by_role("link", name="Family").click()
    expect(page.locator(".family a")).to_have_text(["orchestrator", "orchestrator"])
    page.locator(".family a").first.click()
    expect(page.locator("h1")).to_contain_text("orchestrator")
    page.get_by_role("link", name="Family").click()
    expect(page.get_by_role("heading", name="Called 1")).to_be_visible()
    expect(page.locator(".family li")).to_contain_text(["completed"])


def fork_at_a_question(page, server):
    """A task that was booked is forked at its question and declined there; both are compared."""
    task = server.send("travel_agent", "Evora")
    until(lambda: server.state(task) == "input-required", "the task asks")
    server.command("send", "-a", server.root, "--agent", "travel_agent", "--task-id", task, "--data", '{"confirm": true}')
    assert server.ended(task) == "completed"
    page.goto(f"{server.base}/tasks/{task}")
    page.get_by_role("button", name="Fork here with another answer").click()
    page.get_by_role("button", name="Decline").click()
    other = page.get_by_role("link", name="the new task").get_attribute("href").rsplit("/", 1)[-1]
    assert server.api(f"tasks/{other}")["forkedFrom"]["taskId"] == task
    ended = server.ended(other)
    # What the agent did before the question is in both, and what it did after it is not.
    (booked, declined), kept = (server.events(task), server.events(other)), 0
    while booked[kept]["data"] == declined[kept]["data"] and booked[kept]["type"] != "question":
        kept += 1
    assert booked[kept]["type"] == declined[kept]["type"] == "question", (kept, ended)
    page.get_by_role("link", name="compare both").click()
    expect(page.locator("main")).to_contain_text("The first difference is at")
    page.goto(f"{server.base}/tasks/{other}")
    expect(page.locator(".story")).to_contain_text("Evora")


JOURNEYS = [answer_from_the_inbox, answered_elsewhere, question_of_a_plan_in_a_plan, fork_at_a_question]
