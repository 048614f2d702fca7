"""Journeys through the audit: followed, exported, and named after an act."""

import json
import re

from playwright.sync_api import expect

from real_server import until
from real_server_screens import bearer, operator, read, sign_in, sign_in_with, token


def follow_the_audit(page, server):
    """New lines are counted behind a pill, rows do not move, and its own readings are not counted."""
    credentials = operator(server)
    sign_in(page, server)
    page.goto(f"{server.base}/audit")
    first = page.locator(".audit-line").first
    expect(first).to_be_visible()
    page.get_by_role("button", name="follow").click()
    expect(page).to_have_url(re.compile(r"follow=on"))

    def read_twice():
        """The page reads the audit twice, and every reading is a line of the audit."""
        for _ in range(2):
            with page.expect_response(re.compile(r"/api/audit$")):
                pass

    read_twice()
    # A line of what was done before this journey may be written late: it is new, and not a reading of its own.
    if page.locator(".pill").count():
        page.locator(".pill").click()
        read_twice()
    expect(page.locator(".pill")).to_have_count(0)
    top = first.inner_text()
    task = server.send("scripted", "Wait", {"script": [{"wait": "all"}]}, headers=credentials)
    assert server.request("POST", f"/tasks/{task}:cancel", {}, credentials)[0] == 200
    expect(page.locator(".pill")).to_have_text("2 new")
    assert first.inner_text() == top, "a row moved under the pointer"
    page.locator(".pill").click()
    expect(page.locator(".audit-line").filter(has_text=task)).to_have_count(1)
    expect(page.locator(".pill")).to_have_count(0)
    # With a filter that nothing matched, a line appears by itself.
    page.goto(f"{server.base}/audit?resource=followed-by-nobody&follow=on")
    expect(page.locator(".empty")).to_be_visible()
    server.request("POST", "/tasks/followed-by-nobody:cancel", {}, bearer("nun_none"))
    server.request("DELETE", "/console/api/tokens/followed-by-nobody", headers=credentials)
    expect(page.locator(".audit-line").first).to_contain_text("followed-by-nobody")


def export_the_audit(page, server):
    """Every line that matches once, as JSON lines; more than the limit is cut, and it says so."""
    credentials = operator(server)
    for n in range(1150):
        server.request("DELETE", f"/console/api/tokens/exported{n}", headers=credentials)
    until(lambda: read(server, "audit?limit=1000&resource=exported", credentials)["next"], "more than a page has")
    sign_in(page, server)
    page.goto(f"{server.base}/audit?resource=exported")
    expect(page.locator(".audit-line").first).to_be_visible()
    with page.expect_download() as saved:
        page.get_by_role("button", name="Export").click()
    assert re.fullmatch(r"audit-[\dT-]+\.jsonl", saved.value.suggested_filename), saved.value.suggested_filename
    lines = [json.loads(line) for line in saved.value.path().read_text().splitlines()]
    numbers = [line["number"] for line in lines]
    assert numbers == sorted(set(numbers), reverse=True) and {line["resource"] for line in lines} >= {f"admin://tokens/exported{n}" for n in range(1150)}, len(lines)
    status = page.locator(".bar [role=status]")
    expect(status).to_contain_text(f"{len(lines)} lines saved as audit-")
    # An audit without end: the server is asked for no more than the limit.
    entry, asked = json.dumps(lines[0]), []

    def endless(route):
        asked.append(route.request.url)
        route.fulfill(status=200, headers={"content-type": "application/json"}, body=f'{{"entries": [{",".join([entry] * 1000)}], "next": "7", "now": null}}')

    page.route("**/api/audit?*limit=1000*", endless)
    with page.expect_download() as saved:
        page.get_by_role("button", name="Export").click()
    assert saved.value.suggested_filename.endswith("-cut.jsonl")
    expect(status).to_contain_text("100000 lines saved")
    expect(status).to_contain_text("It was cut")
    assert len(asked) == 100, len(asked)
    # One that is stopped saves nothing, and one that fails says why.
    page.unroute("**/api/audit?*limit=1000*")
    page.route("**/api/audit?*limit=1000*", lambda route: None)
    page.get_by_role("button", name="Export").click()
    page.get_by_role("button", name="Stop the export").click()
    expect(status).to_have_text("Stopped: nothing was saved.")
    page.unroute("**/api/audit?*limit=1000*")
    page.route("**/api/audit?*limit=1000*", lambda route: route.abort())
    page.get_by_role("button", name="Export").click()
    expect(status).to_have_text("Nothing was saved: the server is unreachable")


def audit_line_of_an_act(page, server):
    """After a cancel, an answer and a send the page names the line of the audit, and leads to the lines about the same."""
    credentials = operator(server)
    sign_in(page, server)
    page.goto(f"{server.base}/tasks/{server.send('scripted', 'Wait', {'script': [{'wait': 'all'}]}, headers=credentials)}")
    page.get_by_role("button", name="Cancel task").click()
    note = page.locator("nuncio-audit-note")
    expect(note).to_contain_text("task.cancel by home/local")
    task = page.url.rsplit("/", 1)[1]
    note.get_by_role("link", name="in the audit").click()
    expect(page).to_have_url(re.compile(rf"/audit\?resource={task}"))
    expect(page.locator(".audit-line").filter(has_text="task.cancel")).to_have_count(1)
    page.go_back()
    page.get_by_role("button", name="Send again").click()
    expect(page).not_to_have_url(re.compile(task))
    expect(note).to_contain_text("task.send by home/local")
    # An answer in the task, and one in the inbox.
    asks = server.send("scripted", "Ask", {"script": [{"type": "ask", "text": "Go on?"}, {"type": "done"}]}, headers=credentials)
    page.goto(f"{server.base}/tasks/{asks}")
    page.locator("nuncio-question").get_by_role("button", name="Decline").click()
    expect(note).to_contain_text("by home/local")
    note.get_by_role("link").click()
    expect(page).to_have_url(re.compile(rf"/audit\?resource={asks}"))
    expect(page.locator(".audit-line").filter(has_text="write").first).to_be_visible()


def no_audit_line_for_others(page, server):
    """A caller that may not read the audit is not told of it, and the audit is not asked."""
    writer = token(server, "author", "read,write,execute:a2a")
    asked = []
    page.on("request", lambda request: asked.append(request.url) if "/api/audit" in request.url else None)
    sign_in_with(page, server, writer)
    task = server.send("scripted", "Wait", {"script": [{"wait": "all"}]}, headers=bearer(writer))
    page.goto(f"{server.base}/tasks/{task}")
    page.get_by_role("button", name="Cancel task").click()
    expect(page.locator("h1 .state")).to_contain_text("canceled")
    expect(page.locator("nuncio-audit-note")).to_have_count(0)
    assert not asked, asked


EXPECTED = {"follow_the_audit": ["status of 401"], "export_the_audit": ["status of 401", "ERR_FAILED"], "audit_line_of_an_act": ["status of 401"], "no_audit_line_for_others": ["status of 401"]}
CLOSED = [follow_the_audit, export_the_audit, audit_line_of_an_act, no_audit_line_for_others]
