"""Journeys through the memory bank and workflows together: by keyboard, with hostile texts, with few scopes; and all of both."""

import re
import urllib.parse

from playwright.sync_api import expect

import real_memory
import real_workflows
from knowledge_client import address, entry_of, example, mcp, store, tool
from real_safety import payloads
from real_server import FULL


def looks(server):
    """The screens by their paths, and what is there when they are complete, for axe."""
    store(server, "looks", "plan", {"city": "Lisbon", "days": 3})
    store(server, "looks", "cost", 1200, ttl=3600)
    tool(server, "sparc_start", contextId="looks", goal="A URL shortener whose links expire")
    artifact = example(server, "specification")
    artifact["acceptanceCriteria"][0]["requirement"] = "R99"
    for version in ({"x": 1}, artifact):
        tool(server, "sparc_submit", contextId="looks", artifact=version)
    return {
        "memory": ".records li",
        "memory?namespace=looks": ".key-row",
        "memory?namespace=looks&key=cost": "nuncio-memory-entry .json",
        "memory?namespace=looks&pattern=*": ".score",
        "memory?namespace=none": ".empty",
        "sparc": ".records li",
        "sparc/looks": "nuncio-artifact .violations",
        "sparc/looks/specification?version=2&compare=1": ".diff",
        "sparc/looks/history": "nuncio-workflow-history li",
        "sparc/none": ".empty",
    }


def knowledge_by_keyboard(page, server):
    """By keyboard alone: to the memory bank, a new entry, its edit, back; to the workflows, one started."""
    store(server, "keys", "one", 1)
    page.goto(f"{server.base}/tasks")
    expect(page.locator(".live")).to_have_text("live")
    page.keyboard.press("g")
    page.keyboard.press("m")
    expect(page.locator("h1")).to_have_text("Memory")
    page.keyboard.press("/")
    page.keyboard.type("keys")
    page.keyboard.press("Enter")
    expect(page.locator(".records li")).to_have_count(1)
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator(".key-row")).to_have_count(1)
    page.keyboard.press("n")
    page.keyboard.press("Tab")
    page.keyboard.type("two")
    page.keyboard.press("Tab")
    page.keyboard.type("[2]")
    page.keyboard.press("Tab")
    page.keyboard.type("2h")
    page.keyboard.press("Enter")
    entry = page.locator("nuncio-memory-entry")
    expect(entry.locator(".facts")).to_contain_text("of 2 h left")
    expect(entry.locator("nuncio-json")).to_contain_text("[ ] 1")
    page.keyboard.press("e")
    expect(entry.get_by_label("Value as JSON")).to_be_focused()
    page.keyboard.press("Control+a")
    page.keyboard.type('"edited"')
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(entry.locator("nuncio-json")).to_contain_text("edited")
    assert entry_of(server, "keys", "two")["value"] == "edited"
    expect(entry.get_by_role("button", name="Edit")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("nuncio-memory-entry")).to_have_count(0)
    page.keyboard.press("j")
    expect(page.locator(".row.selected")).to_contain_text("one")
    page.keyboard.press("Enter")
    expect(entry.locator("h2")).to_contain_text("one")
    page.keyboard.press("g")
    page.keyboard.press("w")
    expect(page.locator("h1")).to_have_text("Workflows")
    page.keyboard.press("n")
    page.keyboard.type("By keyboard")
    page.keyboard.press("Tab")
    page.keyboard.type("by-keyboard")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text("by-keyboard")
    page.keyboard.press("]")
    expect(page.locator(".phase[aria-current=page]")).to_contain_text("pseudocode")
    page.keyboard.press("Escape")
    expect(page.locator("h1")).to_have_text("Workflows")


def hostile_knowledge(page, server):
    """Hostile keys, namespaces, values, patterns, goals, reasons and artifacts are text: `watch` collects what must not happen."""
    texts = [text for text in payloads() if not re.search(r"[\x00-\x1f]", text)]
    texts = texts if FULL else texts[::12] + ["..", ".", "a/b", "__proto__"]
    shown = 0
    for n, text in enumerate(texts):
        namespace, key = text.encode()[:120].decode(errors="ignore"), text.encode()[:500].decode(errors="ignore")
        store(server, namespace, key, {text: [text, {"__proto__": text}]})
        page.goto(address(server, namespace=namespace, key=key))
        expect(page.locator("nuncio-memory-entry .name")).to_contain_text(key[:40])
        expect(page.locator("nuncio-memory-entry nuncio-json .json-toggle").first).to_be_visible()
        expect(page.locator(".key-row .name").first).to_have_text(key)
        if n % 6 == 0:
            page.goto(address(server, namespace=namespace, pattern="*"))
            expect(page.locator(".key-row .words").first).to_be_visible()
        shown += 1
    page.goto(f"{server.base}/memory")
    expect(page.locator(".records li").nth(5)).to_be_visible()
    # A name begins one workflow: some texts differ only after its end.
    names = {text.encode()[:200].decode(errors="ignore"): text for text in texts[:: 1 if FULL else 4]}
    for name, text in names.items():
        tool(server, "sparc_start", contextId=name, goal=text.encode()[:8192].decode(errors="ignore"))
        artifact = {text: text, "requirements": [{text: text}]}
        tool(server, "sparc_submit", contextId=name, artifact=artifact)
        tool(server, "sparc_submit", contextId=name, artifact={**artifact, "x": text})
        path = f"sparc?id={name}" if name in (".", "..") else f"sparc/{urllib.parse.quote(name, safe='')}"
        page.goto(f"{server.base}/{path}")
        expect(page.locator("h1")).to_contain_text(name[:40])
        expect(page.locator("nuncio-artifact .violations li").first).to_be_visible()
        page.get_by_label("compared with").select_option("1")
        expect(page.locator(".diff-added").first).to_be_visible()
        page.locator(".phase").last.click()
        expect(page.locator("nuncio-workflow-history li")).to_have_count(3)
        shown += 1
    page.goto(f"{server.base}/sparc")
    expect(page.locator(".records li").first).to_be_visible()
    assert re.fullmatch(r"(\(\d+\) )?Nuncio", page.title()), page.title()
    expect(page.locator("main :is(iframe, script, object, embed, form[action], base, meta, link, img)")).to_have_count(0)
    print(f"    {shown} records with hostile texts")


def knowledge_of_a_reader(page, server):
    """A token that may only read team-*: acts are greyed with the scope, a foreign namespace names the scope that is missing."""
    def token(name, *scopes):
        flags = [flag for scope in scopes for flag in ("--scope", scope)]
        made = server.command("token", "create", "--data", str(server.data), "--name", name, "--tenant", "acme", *flags, "--output", "json")
        return re.search(r"nun_[\w-]+", made).group(0)

    writer = {"Authorization": f"Bearer {token('writer', 'read,write:memory', 'read,write:sparc')}"}
    for namespace in ("team-a", "secret"):
        mcp(server, "tools/call", {"name": "memory_store", "arguments": {"namespace": namespace, "key": "k", "value": "shared"}}, writer)
    mcp(server, "tools/call", {"name": "sparc_start", "arguments": {"contextId": "team-w", "goal": "A bell"}}, writer)
    page.goto(f"{server.base}/memory")
    page.get_by_label("Or paste a token").fill(token("reader", "read:memory:team-*", "read:sparc:team-*"))
    page.keyboard.press("Enter")
    expect(page.locator(".records a")).to_have_text(["team-a"])
    page.locator(".records a").click()
    page.locator(".key-row").click()
    entry = page.locator("nuncio-memory-entry")
    expect(entry.locator("nuncio-json")).to_contain_text("shared")
    expect(entry.get_by_role("button", name="Edit")).to_be_disabled()
    expect(entry.locator(".acts")).to_contain_text("write:memory:team-a")
    page.get_by_role("button", name="New entry").click()
    page.get_by_label("Key", exact=True).fill("mine")
    page.get_by_label("Value as JSON").fill("1")
    page.get_by_role("button", name="Store").click()
    expect(page.locator(".panel .problem")).to_contain_text("write:memory:team-a")
    expect(page.get_by_label("Value as JSON")).to_have_value("1")
    page.goto(address(server, namespace="secret"))
    expect(page.locator(".problem").first).to_contain_text("read:memory:secret")
    expect(page.locator(".problem-title").first).to_have_text("Not allowed")
    page.goto(f"{server.base}/sparc/team-w")
    expect(page.get_by_role("button", name="Submit to the gate")).to_be_disabled()
    expect(page.locator("nuncio-workflow-acts")).to_contain_text("write:sparc:team-w")


# A browser logs requests that fail: those of a journey that expects them are no problem.
EXPECTED = {"knowledge_of_a_reader": ["status of 401", "status of 403"]}
# With a server that requires tokens.
CLOSED = [knowledge_of_a_reader]
JOURNEYS = [*real_memory.JOURNEYS, *real_workflows.JOURNEYS, knowledge_by_keyboard, hostile_knowledge]
