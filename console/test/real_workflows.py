"""Journeys through workflows: five phases by hand with gates, going back, two versions compared; a run by agents that ask."""

import json
import re

from playwright.sync_api import expect

from knowledge_client import tool


def workflow_through_its_phases(page, server):
    """Five phases by hand: a gate refuses with the place and passes; the tests fail and pass; back with a reason; two versions compared."""
    page.goto(f"{server.base}/sparc")
    page.get_by_role("button", name="Start a workflow").click()
    page.get_by_label("Goal").fill("A URL shortener whose links expire")
    page.get_by_label("Name", exact=True).fill("short")
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.locator(".phase[aria-current=page]")).to_contain_text("active")
    acts = page.locator("nuncio-workflow-acts")
    artifact = acts.get_by_label("Artifact as JSON")

    def submit():
        acts.get_by_role("button", name="Submit to the gate").click()

    acts.get_by_role("button", name="Begin with the example").click()
    expect(artifact).to_have_value(re.compile("acceptanceCriteria"))
    good = artifact.input_value()
    bad = json.loads(good)
    bad["acceptanceCriteria"][0]["requirement"] = "R99"
    artifact.fill(json.dumps(bad, indent=2))
    submit()
    verdict = acts.locator(".verdict")
    expect(verdict).to_contain_text("refused version 1")
    expect(verdict.locator("li").first).to_contain_text('there is no requirement "R99"')
    expect(artifact).to_have_value(re.compile("R99"))
    verdict.get_by_role("button", name="/acceptanceCriteria/0/requirement").click()
    expect(artifact).to_be_focused()
    page.keyboard.type('"R1",')
    submit()
    phase = page.locator(".phase")
    expect(phase.nth(0)).to_contain_text("passed")
    expect(phase.nth(1)).to_contain_text("active")
    for index, name in enumerate(["pseudocode", "architecture"], start=1):
        phase.nth(index).click()
        expect(acts.get_by_role("button", name="Submit to the gate")).to_be_visible()
        acts.get_by_role("button", name="Begin with the example").click()
        expect(artifact).to_have_value(re.compile("{"))
        submit()
        expect(phase.nth(index), name).to_contain_text("passed")
    phase.nth(3).click()
    acts.get_by_role("button", name="Begin with the example").click()
    expect(artifact).to_have_value(re.compile("{"))
    submit()
    expect(acts.locator(".verdict .output")).to_contain_text("testing short")
    expect(acts.locator(".verdict")).to_contain_text("exit code 1")
    server.open_gate("tests-pass")
    submit()
    expect(phase.nth(3)).to_contain_text("passed")
    phase.nth(4).click()
    acts.get_by_role("button", name="Begin with the example").click()
    expect(artifact).to_have_value(re.compile("{"))
    submit()
    expect(page.locator(".facts")).to_contain_text("all five phases have passed")
    # Back, with a reason, and the phases after it are pending again.
    page.locator("summary", has_text="Go back").click()
    page.get_by_label("To the phase").select_option("specification")
    page.get_by_role("button", name="Go back", exact=True).click()
    expect(acts.locator(".problem")).to_contain_text("a reason is needed")
    page.get_by_label("Reason").fill("links need owners")
    page.get_by_role("button", name="Go back", exact=True).click()
    expect(phase.nth(0)).to_contain_text("active")
    expect(phase.nth(4)).to_contain_text("pending")
    phase.nth(5).click()
    expect(page.locator("nuncio-workflow-history li").first).to_contain_text("links need owners")
    expect(page.locator("nuncio-workflow-history li")).to_have_count(9)
    # The difference of two versions of one artifact.
    phase.nth(0).click()
    page.get_by_label("compared with").select_option("1")
    expect(page.locator(".diff-removed")).to_have_text(re.compile("R99"))
    expect(page.locator(".diff-added")).to_have_text(re.compile("R1"))
    expect(page.locator("nuncio-diff")).to_contain_text("/acceptanceCriteria/0/requirement changed")
    page.reload()
    expect(page.locator(".diff-removed")).to_have_count(1)
    # A verdict leads to its place in the artifact.
    page.locator(".versions").get_by_role("link", name="Version 1").click()
    page.locator("nuncio-artifact .violations button").first.click()
    expect(page.locator("nuncio-artifact .json-found")).to_contain_text("R99")


def workflow_run_by_agents(page, server):
    """The agents go on from the page, ask in place, and what they ask is answered there."""
    tool(server, "sparc_start", contextId="asked", goal="A bicycle bell")
    page.goto(f"{server.base}/sparc/asked")
    page.get_by_role("button", name="Let the agents go on").click()
    asked = page.locator("nuncio-workflow-runs .asked")
    expect(asked).to_contain_text("researcher asks")
    expect(page.locator("nuncio-workflow-runs")).to_contain_text("input-required")
    expect(asked).to_contain_text("section 1 of 5")
    asked.get_by_label("Id").fill("R1")
    asked.get_by_label("Title").fill("Ring")
    asked.get_by_label("Description").fill("It rings when the lever is pressed.")
    asked.get_by_label("Priority").select_option(label="must")
    asked.get_by_role("button", name="Accept").click()
    expect(asked).to_contain_text("section 2 of 5")
    asked.get_by_role("button", name="Decline").click()
    expect(page.locator(".reason")).to_contain_text("was declined")
    expect(page.locator(".phase").first).to_contain_text("blocked")
    expect(page.locator("nuncio-workflow-runs .bar")).to_contain_text("failed")
    expect(asked).to_have_count(0)
    page.locator("nuncio-workflow-runs .bar a").first.click()
    expect(page.locator("h1")).to_contain_text("coordinator")


JOURNEYS = [workflow_through_its_phases, workflow_run_by_agents]
