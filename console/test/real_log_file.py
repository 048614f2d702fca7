"""Journeys of a log as a file: exported whole, opened without the server, and files that are none."""

import hashlib
import json
import re

from playwright.sync_api import expect

from real_safety import payloads
from real_server import FULL


def rfc8785(value):
    """The canonical form, for values whose numbers are integers or short decimals."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key, ensure_ascii=False)}:{rfc8785(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return f"[{','.join(map(rfc8785, value))}]"
    return json.dumps(value, ensure_ascii=False)


def digest(events):
    lines = "".join(rfc8785({name: event[name] for name in ("seq", "timestamp", "type", "data")}) + "\n" for event in events)
    return hashlib.sha256(lines.encode()).hexdigest()


def export(page):
    with page.expect_download() as saved:
        page.get_by_role("button", name="Export").click()
    return saved.value


def open_text(page, text, name="a.json"):
    page.get_by_label("Open a log file").set_input_files({"name": name, "mimeType": "application/json", "buffer": text if isinstance(text, bytes) else text.encode()})


def log_as_a_file(page, server):
    """The file has every event whole, large ones too; its digest is that of the events; any reading shows it without the server."""
    script = [
        {"type": "progress", "done": 1, "total": 3.0, "text": "began"},
        {"repeat": 1500, "line": {"type": "log", "text": "line {n}", "level": "info"}},
        {"type": "artifact", "id": "b", "name": "Numbers", "data": {"price": 3.0, "list": [1, 2.5, None]}},
        {"type": "failed", "text": "the printer is on fire"},
    ]
    task = server.play("x" * 1_500_000, *script)
    server.ended(task, 60)
    page.goto(f"{server.base}/tasks/{task}")
    expect(page.locator(".facts")).to_contain_text("1 to")
    saved = export(page)
    assert saved.suggested_filename == f"task-{task}.log.json", saved.suggested_filename
    text = saved.path().read_text()
    file = json.loads(text)
    listed = server.events(task)
    assert ["message"] == [event["type"] for event in listed if "data" not in event], "one event is too large for a page"
    events = [event if "data" in event else server.api(f"tasks/{task}/events/{event['seq']}") for event in listed]
    assert file["events"] == events, "the events of the file are not those of the log"
    assert (file["format"], file["version"], file["taskId"], file["agent"]) == ("nuncio-task-log", 1, task, "scripted")
    # Numbers are as the server wrote them.
    assert '"total":3.0' in text and '"price":3.0' in text
    assert file["digest"]["value"] == digest(events)
    status = page.locator(".task-head [role=status]")
    expect(status).to_contain_text(f"{len(events)} events saved as")
    expect(status).to_contain_text(digest(events))
    # Opened again, nothing is asked of the server.
    page.goto(f"{server.base}/tasks")
    page.get_by_role("link", name="Open a log file").click()
    expect(page.locator(".empty")).to_contain_text("No file is open")
    asked = []
    page.on("request", lambda request: asked.append(request.url) if f"/api/tasks/{task}" in request.url or "/journal" in request.url else None)
    page.get_by_label("Open a log file").set_input_files(saved.path())
    expect(page.locator(".from-file")).to_contain_text("From a file")
    expect(page.locator(".from-file")).to_contain_text(f"The digest fits: SHA-256 {digest(events)}")
    expect(page.locator(".facts")).to_contain_text(f"1 to {len(events)}, none missing")
    expect(page.locator(".story")).to_contain_text("the printer is on fire")
    page.keyboard.press(".")
    expect(page).to_have_url(re.compile(r"/file/log/events\?at=\d+"))
    expect(page.locator(".row.selected .kind")).to_have_text("status")
    page.keyboard.press("Enter")
    expect(page.locator(".event-detail")).to_contain_text("the printer is on fire")
    expect(page.locator(".event-detail")).not_to_contain_text("Resume from here")
    page.get_by_label("Task as of event").fill("3")
    expect(page.locator(".as-of").last).to_contain_text(f"As of event 3 of {len(events)}")
    page.get_by_role("link", name="Raw").click()
    expect(page.locator(".json").first).to_contain_text("working")
    expect(page.get_by_role("button", name="Compare with the server")).to_have_count(0)
    page.get_by_role("link", name="Timeline").click()
    expect(page.locator(".lane .span").first).to_be_visible()
    expect(page.locator(".reading")).to_contain_text("not its runs and steps")
    assert not asked, asked
    # A reload ends it, and says so: an address cannot hold a file.
    page.reload()
    expect(page.locator(".empty")).to_contain_text("No file is open")
    # One letter changed after the export.
    open_text(page, text.replace("on fire", "in fire"))
    expect(page.locator(".from-file")).to_contain_text("The digest does not fit")


def bad_log_files(page, server):
    """Files that are no log, of another version, with gaps, too deep, too large or hostile: a clear sentence, or text and nothing else."""
    task = server.send("travel_agent", "Braga")
    page.goto(f"{server.base}/tasks/{task}")
    expect(page.locator(".story nuncio-question")).to_be_visible()
    good = json.loads(export(page).path().read_text())
    page.goto(f"{server.base}/file")

    def with_event(seq, **changes):
        return {**good, "events": [{**event, **changes} if event["seq"] == seq else event for event in good["events"]]}

    deep = "[" * 5000 + "]" * 5000
    cases = [
        ("", "not JSON"), (b"\xff\xfe\x00", "not JSON"), ("<html>", "not JSON"), ("[]", "not a log of a task"), ("null", "not a log of a task"), ('{"events": []}', "not a log of a task"),
        ({**good, "version": 2}, "version 2 of the format; this console reads version 1"), ({**good, "origin": {}}, "origin.id is not a text"),
        ({**good, "events": []}, "no events"), ({**good, "events": good["events"][1:]}, "gap: event 2 stands in the place of event 1"), ({**good, "events": [good["events"][0]] * 2}, "gap"),
        (with_event(1, timestamp="soon"), "event 1 has no time"), (with_event(1, data={"role": "user", "parts": [None]}), "event 1 does not have the data of message"),
        (with_event(1, type="artifact", data={"id": "a", "index": -1, "parts": []}), "data of artifact"), (with_event(2, type=7), "event 2 has no type"),
        (json.dumps(with_event(2, type="later")).replace('"type": "later"', '"type": "later", "more": ' + deep), "nested deeper than"),
    ]
    for content, why in cases:
        open_text(page, json.dumps(content) if isinstance(content, dict) else content, "bad <b>.json")
        expect(page.locator(".problem")).to_contain_text("bad <b>.json cannot be opened")
        expect(page.locator(".problem")).to_contain_text(why)
    huge = server.gates / "huge.json"
    with huge.open("wb") as written:
        written.truncate(64 * 1024 * 1024 + 1)
    page.get_by_label("Open a log file").set_input_files(huge)
    expect(page.locator(".problem")).to_contain_text("at most 64.0 MiB are opened")
    # The open question of a file is no form, and an agent's text is text.
    open_text(page, json.dumps(good))
    expect(page.locator(".from-file")).to_contain_text("The digest fits")
    expect(page.locator(".said-question")).to_be_visible()
    expect(page.locator("nuncio-question")).to_have_count(0)
    for text in payloads()[:: 1 if FULL else 5]:
        origin = {**good["origin"], "id": text, "context": text, "agent": text, "owner": text, "dialect": text}
        part = [{"text": text}, {"url": text}, {"data": {text: text}}, {"bytes": "PHN2Zz4=", "filename": text, "media_type": text}]
        kinds = [("message", {"id": text, "role": text, "parts": part}), ("status", {"state": text, "message": {"parts": part}}), ("artifact", {"id": text, "index": 0, "name": text, "parts": part}), ("progress", {"done": 1, "total": text, "text": text}), ("log", {"level": text, "text": text}), ("question", {"id": text, "text": text, "ask": {"authorization": {"url": text}}}), ("answer", {"question": text, "answer": text, "by": {"caller": text, "dialect": text}}), ("withdrawn", {"question": text}), (text[:64], text)]
        events = [{"seq": seq, "timestamp": "2026-11-18T05:13:50.000Z", "type": kind, "data": data} for seq, (kind, data) in enumerate(kinds, 1)]
        open_text(page, json.dumps({**good, "taskId": text, "serverVersion": text, "exportedAt": text, "origin": origin, "events": events}), f"{text[:20].replace('/', '_')}.json")
        expect(page.locator(".facts").first).to_contain_text("1 to 9, none missing")
        expect(page.locator(".from-file")).to_contain_text("does not fit")
        for tab in ("Events", "Timeline", "Raw", "Story"):
            page.get_by_role("link", name=tab, exact=True).click()
            expect(page.get_by_role("link", name=tab, exact=True)).to_have_attribute("aria-current", "page")
        assert page.locator("main :is(script, iframe, img, object, embed, [onerror], [onload])").count() == 0


def prove_a_log(page, server):
    """No gap, the fold of the server at the end and at samples, and the digest that the export has; it can be canceled."""
    task = server.play("Prove it", {"repeat": 400, "line": {"type": "artifact", "id": "a", "text": "piece {n} ", "append": True, "last": False}}, {"type": "done", "text": "all of it"})
    server.ended(task, 60)
    last = server.api(f"tasks/{task}")["row"]["events"]
    page.goto(f"{server.base}/tasks/{task}/raw")
    compared = []
    page.on("request", lambda request: compared.append(int(request.url.rsplit("/", 1)[1])) if "/at/" in request.url else None)
    proof = page.get_by_role("region", name="Proof")
    proof.get_by_role("button", name="Prove it").click()
    expect(proof.locator("li").nth(0)).to_have_text(f"✓ holds 1 to {last}, none missing.")
    expect(proof.locator("li").nth(1)).to_contain_text(f"✓ holds The fold here is the server's at event {last} and at", timeout=60_000)
    expect(proof.locator("li").nth(2)).to_contain_text(digest(server.events(task)))
    assert last > 200 and len(set(compared)) == len(compared) == 200 and {1, last} <= set(compared), (last, len(compared))
    # The server does not answer: the proof is canceled, and says how far it came.
    page.route("**/at/*", lambda route: None)
    proof.get_by_role("button", name="Prove it").click()
    expect(proof.locator("li")).to_have_text([f"✓ holds 1 to {last}, none missing."])
    proof.get_by_role("button", name="Cancel the proof").click()
    expect(proof).to_contain_text("Canceled: the rest was not checked.")
    expect(proof.get_by_role("button", name="Prove it")).to_be_visible()
    page.unroute("**/at/*")

    def wrong(route):
        """One fold in which one member differs."""
        response = route.fetch()
        answer = response.json()
        answer["task"]["state"] = "failed"
        route.fulfill(response=response, json=answer)

    page.route(f"**/at/{last}", wrong)
    proof.get_by_role("button", name="Prove it").click()
    expect(proof.locator("li").nth(1)).to_have_text(f"✕ fails At event {last} they differ: /state")


JOURNEYS = [log_as_a_file, bad_log_files, prove_a_log]
