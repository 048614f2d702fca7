"""Journeys through the memory bank: conflicts, search, TTL, following, clearing, export and import."""

import json
import re
from pathlib import Path

from playwright.sync_api import expect

from knowledge_client import address, entry_of, store, tool
from real_server import until


def conflict_of_versions(page, server):
    """An edit against a newer version shows both, keeps what was typed, and is decided: overwritten, or theirs is taken."""
    store(server, "conflict", "plan", {"city": "Lisbon", "days": 3, "exact": 1})
    page.goto(address(server, namespace="conflict"))
    page.locator(".key-row", has_text="plan").click()
    entry = page.locator("nuncio-memory-entry")
    expect(entry.locator(".facts")).to_contain_text("Version1")
    expect(entry.locator("nuncio-json")).to_contain_text("Lisbon")
    page.keyboard.press("e")
    mine = '{"city": "Porto", "days": 3, "exact": 12345678901234567890}'
    entry.get_by_label("Value as JSON").fill(mine)
    store(server, "conflict", "plan", {"city": "Faro", "days": 4, "exact": 1})
    if "live" in entry.locator(".followed").inner_text():
        expect(entry.locator(".as-of")).to_contain_text("Version 2 was stored meanwhile")
        expect(entry.get_by_label("Value as JSON")).to_be_focused()
    entry.get_by_role("button", name="Store", exact=True).click()
    conflict = entry.locator(".conflict")
    expect(conflict).to_contain_text("another caller has written version 2")
    expect(conflict.locator(".diff-removed")).to_contain_text(['"city": "Faro"', '"days": 4'])
    expect(conflict.locator(".diff-added").first).to_contain_text('"city": "Porto"')
    expect(conflict).to_contain_text("/city changed")
    expect(entry.get_by_label("Value as JSON")).to_have_value(mine)
    assert entry_of(server, "conflict", "plan")["metadata"]["version"] == 2
    entry.get_by_role("button", name="Overwrite version 2 with mine").click()
    expect(entry.locator(".conflict")).to_have_count(0)
    expect(entry.locator("nuncio-json")).to_contain_text("12345678901234567890")
    assert entry_of(server, "conflict", "plan")["metadata"]["version"] == 3
    # The other way: theirs is taken, and what was typed can be brought back.
    entry.get_by_role("button", name="Edit").click()
    entry.get_by_label("Value as JSON").fill('"mine again"')
    store(server, "conflict", "plan", "theirs")
    entry.get_by_role("button", name="Store", exact=True).click()
    entry.get_by_role("button", name="Take version 4").click()
    expect(entry.get_by_label("Value as JSON")).to_have_value('"theirs"')
    entry.get_by_role("button", name="Bring back what I typed").click()
    expect(entry.get_by_label("Value as JSON")).to_have_value('"mine again"')
    entry.get_by_role("button", name="Store", exact=True).click()
    expect(entry.locator("nuncio-json")).to_contain_text("mine again")
    assert entry_of(server, "conflict", "plan")["metadata"]["version"] == 5
    # A new entry is stored only where there is none.
    page.get_by_role("button", name="New entry").click()
    page.get_by_label("Key", exact=True).fill("plan")
    page.locator(".panel").get_by_label("Value as JSON").fill("0")
    page.locator(".panel").get_by_role("button", name="Store").click()
    expect(page.locator(".panel .conflict")).to_contain_text("version 5")


def search_with_scores(page, server):
    """Search by pattern and by words, with scores, best first; the address is the view; an empty result names its limit."""
    for key, value in {"task:1:notes": "green tea", "task:22:notes": "black tea", "other": {"text": "Green coffee and green tea"}}.items():
        store(server, "search", key, value)
    page.goto(address(server, namespace="search"))
    expect(page.locator(".list-head")).to_contain_text("3 entries")
    page.get_by_label("Kind of search").select_option("pattern")
    page.get_by_role("searchbox").fill("task:*:notes")
    page.keyboard.press("Enter")
    expect(page.locator(".key-row .name")).to_have_text(["task:1:notes", "task:22:notes"])
    expect(page.locator(".key-row .score").first).to_have_text("0.9167")
    page.get_by_label("Kind of search").select_option("text")
    page.get_by_role("searchbox").fill("green tea")
    page.get_by_role("button", name="Search").click()
    expect(page.locator(".list-head")).to_contain_text("2 found")
    expect(page.locator(".key-row .words")).to_have_count(2)
    page.reload()
    expect(page.locator(".list-head")).to_contain_text("2 found")
    page.locator(".key-row", has_text="other").click()
    expect(page.locator("nuncio-memory-entry nuncio-json")).to_contain_text("Green coffee")
    page.goto(address(server, namespace="search", text="nothing-like-it"))
    expect(page.locator(".empty")).to_contain_text("search_words")
    page.goto(address(server, namespace="search", prefix="zz"))
    expect(page.locator(".empty")).to_contain_text("3 entries")
    page.goto(address(server, namespace="search", pattern="*" * 9))
    expect(page.locator(".problem")).to_contain_text("pattern_stars")


def ttl_counts_down(page, server):
    """The TTL runs down on the page, and an entry that has expired says so and stays on the page."""
    store(server, "ttl", "soon", "short-lived", ttl=6)
    page.goto(address(server, namespace="ttl", key="soon"))
    life = page.locator(".ttl")
    seen = []

    def runs_down():
        found = re.search(r"(\d+) s of 6 s left", life.inner_text())
        if found and int(found[1]) not in seen:
            seen.append(int(found[1]))
        return len(seen) >= 3

    until(runs_down, "the TTL runs down", 8)
    assert seen == sorted(seen, reverse=True), seen
    expect(page.locator(".as-of")).to_contain_text("This entry is gone", timeout=15_000)
    expect(page.locator("nuncio-memory-entry nuncio-json")).to_contain_text("short-lived")
    page.reload()
    expect(page.locator("nuncio-memory-entry .empty")).to_contain_text("There is no such entry")


def followed_entry(page, server):
    """What another client writes appears: at once where the server follows it, else when the page is read again."""
    store(server, "follow", "a", "first value")
    page.goto(address(server, namespace="follow", key="a"))
    entry = page.locator("nuncio-memory-entry")
    expect(entry.locator("nuncio-json")).to_contain_text("first value")
    expect(page.locator(".live")).to_have_text("live")
    reads = entry_of(server, "follow", "a")["metadata"]["accessCount"]
    assert reads == 2, f"the page has read the entry once, not {reads - 1} times"
    label = entry.locator(".followed")
    is_live = "live" in label.inner_text()
    print(f"    the entry is {'followed live' if is_live else 'read again on demand'}")
    store(server, "follow", "a", "second value")
    store(server, "follow", "b", 1)
    if not is_live:
        expect(label).to_contain_text("read at")
        for button in page.get_by_role("button", name="Read again").all():
            button.click()
    expect(entry.locator("nuncio-json")).to_contain_text("second value")
    expect(page.locator(".pill")).to_have_text("1 new")
    expect(page.locator(".key-row .name")).to_have_text(["a"])
    page.locator(".pill").click()
    expect(page.locator(".key-row .name")).to_have_text(["a", "b"])
    assert entry_of(server, "follow", "a")["metadata"]["accessCount"] == reads + 2, "a new version is read once"


def clear_by_typed_name(page, server):
    """A namespace is cleared only after its name was typed; an entry is deleted after a second press."""
    for n in range(3):
        store(server, "clear-me", f"k{n}", n)
    page.goto(address(server, namespace="clear-me", key="k1"))
    entry = page.locator("nuncio-memory-entry")
    entry.get_by_role("button", name="Delete").click()
    assert len(tool(server, "memory_list", namespace="clear-me")["keys"]) == 3
    entry.locator(".confirm").get_by_role("button", name="Delete").click()
    expect(entry.locator(".as-of")).to_contain_text("gone")
    until(lambda: len(tool(server, "memory_list", namespace="clear-me")["keys"]) == 2, "the key is deleted")
    page.goto(address(server, namespace="clear-me"))
    page.locator("summary", has_text="Clear").click()
    button = page.get_by_role("button", name="Clear the namespace")
    expect(page.locator("details[open]")).to_contain_text("2 as of")
    page.get_by_label("Type the name of the namespace").fill("clear-m")
    expect(button).to_be_disabled()
    page.keyboard.press("Enter")
    page.get_by_label("Type the name of the namespace").fill("clear-me")
    button.click()
    expect(page.locator(".transfer [role=status]")).to_have_text("Deleted 2 entries of clear-me.")
    expect(page.locator(".empty")).to_contain_text("The namespace is empty")
    page.goto(f"{server.base}/memory?prefix=clear")
    expect(page.locator(".empty")).to_contain_text("No such namespace")


def export_then_import(page, server):
    """An export that is imported elsewhere gives the same entries, exact numbers and TTLs included; a bad file writes nothing."""
    for n in range(1200):
        if n % 400 == 0:
            lines = "".join(json.dumps({"key": f"k{m:04}", "value": {"n": m, "text": "é" * 10}, "ttl": 3600 if m % 2 else None}) + "\n" for m in range(n, n + 400))
            tool(server, "memory_import", namespace="from", lines=lines, mode="fail")
    tool(server, "memory_import", namespace="from", lines='{"key": "exact", "value": 12345678901234567890}\n', mode="fail")
    page.goto(address(server, namespace="from"))
    with page.expect_download() as download:
        page.get_by_role("button", name="Export").click()
    expect(page.locator(".transfer [role=status]")).to_have_text("Exported 1201 entries to from.jsonl.")
    assert download.value.suggested_filename == "from.jsonl"
    exported = Path(download.value.path())
    page.goto(f"{server.base}/memory")
    page.locator("summary", has_text="Import").click()
    page.get_by_label("Into the namespace").fill("to")
    page.get_by_label("File of JSON Lines").set_input_files(exported)
    page.locator("details").get_by_role("button", name="Import").click()
    expect(page.locator(".transfer [role=status]")).to_have_text("Imported into to: 1201 written, 0 kept as they were.")

    def entries(namespace):
        lines, after = [], {}
        while after is not None:
            part = tool(server, "memory_export", namespace=namespace, **after)
            lines += [re.sub(r',"created":"[^"]*"|"created":"[^"]*",', "", line) for line in part["lines"].splitlines()]
            after = {"after": part["next"]} if part.get("next") else None
        return lines

    assert entries("to") == entries("from")
    assert any("12345678901234567890" in line for line in entries("to"))
    print(f"    {len(entries('to'))} entries exported and imported")
    # The same again: mode fail refuses, and says which lines.
    page.locator("details").get_by_role("button", name="Import").click()
    expect(page.locator(".refused li").first).to_contain_text("is there already")
    page.get_by_label("Keys that are there already").select_option("keep")
    page.locator("details").get_by_role("button", name="Import").click()
    expect(page.locator(".transfer [role=status]")).to_contain_text("0 written, 1201 kept")
    page.get_by_label("File of JSON Lines").set_input_files({"name": "bad.jsonl", "mimeType": "text/plain", "buffer": b'{"key": "x", "value": 1}\n\n{"key": 2}\n'})
    page.locator("details").get_by_role("button", name="Import").click()
    expect(page.locator(".refused li")).to_contain_text("line 3")
    expect(page.locator(".transfer .problem")).to_contain_text("refused")


JOURNEYS = [conflict_of_versions, search_with_scores, ttl_counts_down, followed_entry, clear_by_typed_name, export_then_import]
