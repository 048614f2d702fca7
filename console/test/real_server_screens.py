"""Journeys through Server, Audit and Access: what the operator sees of the pulse, the nodes, the settings, the audit and the tokens, and what others are refused."""

import json
import re
import urllib.parse

from playwright.sync_api import expect

from axe_rules import axe_rules, WIDTHS
from real_safety import payloads
from real_server import FULL, RealServer, until


def session_code(server):
    printed = server.command("console", "--no-open", "--data", str(server.data))
    return re.search(r"#code=(\S+)", printed).group(1)


def sign_in(page, server):
    """The page is the operator's, by a one-time code."""
    page.goto(f"{server.base}/#code={session_code(server)}")
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()


def operator(server):
    """The credentials of the operator, for requests beside the page."""
    status, _, text = server.request("POST", "/console/api/session", {"code": session_code(server)})
    assert status == 200, text
    return bearer(json.loads(text)["token"])


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def read(server, path, credentials):
    status, _, text = server.request("GET", f"/console/api/{path}", headers=credentials)
    assert status == 200, f"{path}: {status} {text[:300]}"
    return json.loads(text)


def token(server, name, *scopes, tenant="acme"):
    flags = [flag for scope in scopes for flag in ("--scope", scope)]
    made = server.command("token", "create", "--data", str(server.data), "--name", name, "--tenant", tenant, *flags, "--output", "json")
    return re.search(r"nun_[\w-]+", made).group(0)


def sign_in_with(page, server, secret):
    page.goto(f"{server.base}/tasks")
    page.get_by_label("Or paste a token").fill(secret)
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()


def looks(server):
    """The screens by their paths, and what is there when they are complete, for axe: as the local user, who may not administer."""
    return {
        "server": ".problem",
        "server/streams": "nuncio-server-streams .records li",
        "server/config": ".problem",
        "server/none": ".empty",
        "audit": ".problem",
        "access": ".problem",
    }


def operator_looks(server):
    """The same for the operator, with its page signed in first."""
    server.send("echo", "Hello")
    token(server, "looks", "read:memory:team-*")
    return {
        "server": ".pulse-chart",
        "server?agent=nobody": ".empty",
        "server/streams": "nuncio-server-streams .records li",
        "server/config?q=audit": ".setting",
        "server/config?q=nothing-has-this": ".empty",
        "audit": ".audit-line",
        "audit?follow=on": ".audit-line",
        "now": "a.tile svg",
        "audit?resource=nothing-has-this": ".empty",
        "audit?since=yesterday": ".problem",
        "access": ".token",
        "access?new=token": "form.token-form",
    }


def axe_for_the_operator(page, server):
    """axe and the width of the screens that only the operator sees; the list of real_looks is the local user's."""
    with axe_rules(page, "the operator's screens") as rules:
        sign_in(rules.page, server)
        for path, ready in operator_looks(server).items():
            for width in WIDTHS:
                rules.begin(width)
                rules.page.goto(f"{server.base}/{path}")
                expect(rules.page.locator(ready).first).to_be_visible()
                rules.check(width, path)


def pulse_is_live(page, server):
    """Sends that were just made are in the charts at the end of their interval, without a reload, and equal the API's figures."""
    credentials = operator(server)
    sign_in(page, server)
    page.goto(f"{server.base}/server")
    sends = page.locator(".pulse-chart", has_text="Sends").locator("strong")
    expect(sends).to_be_visible()
    expect(page.locator(".live-live", has_text="followed live")).to_be_visible()
    figure = lambda: int(re.sub(r"\D", "", sends.inner_text()) or 0)  # "not measured" in the first interval
    before = figure()
    for n in range(7):
        server.ended(server.send("echo", f"Hello {n}"))
    until(lambda: figure() >= before + 7 or page.wait_for_timeout(100), "the sends are shown", 14)
    pulse = read(server, "pulse", credentials)
    shown = {name: int(page.locator(".pulse-chart", has_text=label).locator("strong").inner_text()) for name, label in {"sends": "Sends", "events": "Events", "commits": "Commits", "failed": "Failures"}.items()}
    figures = {name: pulse["total"]["all"][name] for name in shown}
    assert shown == figures, (shown, figures)
    echo = next(one for one in pulse["agents"] if one["agent"] == "echo")["all"]
    row = page.locator(".pulse-row", has_text="echo")
    expect(row).to_contain_text(f"{echo['sends']} sends")
    expect(page.locator("nuncio-server-overview")).to_contain_text("not measured")
    assert page.locator(".pulse-gap").first.get_attribute("d").startswith("M0 0H"), "the time before the start is a gap"
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/server\?agent="))
    page.reload()
    expect(page.locator("h2", has_text="Pulse of this node:")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page).to_have_url(f"{server.base}/server")
    print(f"    pulse: {figures}, of echo {echo['sends']} sends")


def node_is_listed(page, server):
    """This node, with its address, version and load, and a stream that a console opened."""
    credentials = operator(server)
    sign_in(page, server)
    page.goto(f"{server.base}/server")
    node = read(server, "nodes", credentials)["nodes"][0]
    row = page.locator(".node")
    expect(row).to_have_count(1)
    for text in (node["address"], "alive", "this node", f"Nuncio {node['version']}", node["node"], "Running", "Queued", "Heartbeat"):
        expect(row).to_contain_text(text)
    page.get_by_role("link", name="Streams").click()
    stream = page.locator("nuncio-server-streams .records li", has_text="console").first
    expect(stream).to_contain_text("home/local")
    page.keyboard.press("/")
    page.keyboard.type("no such client")
    expect(page.locator("nuncio-server-streams .records li")).to_have_count(0)
    expect(page).to_have_url(re.compile("q=no"))
    print(f"    node {node['address']}, streams with a filter in the address")


def settings_without_secrets(page, server):
    """A setting with its source; a secret in a flag, and the pattern that names it, are not on the page, nor in the copied diagnosis."""
    del server
    with RealServer("--redact", "hunter2-[a-z]+", "--log", "warn,hunter2-abc=info", "--max-running", "77") as own:
        context = page.context.browser.new_context(permissions=["clipboard-read", "clipboard-write"])
        shown = context.new_page()
        sign_in(shown, own)
        shown.goto(f"{own.base}/server/config")
        expect(shown.locator(".setting").nth(50)).to_be_visible()
        setting = shown.locator(".setting").filter(has=shown.locator("strong", has_text=re.compile("^max-running$")))
        expect(setting.locator("code")).to_have_text("77")
        expect(setting).to_contain_text("flag --max-running")
        expect(shown.locator(".setting").filter(has=shown.locator("strong", has_text=re.compile("^redact$")))).to_contain_text("[redacted]")
        assert "hunter2" not in shown.locator("body").inner_text()
        assert "hunter2" not in shown.content()
        shown.get_by_role("button", name="Copy diagnosis").click()
        expect(shown.locator("#announcer")).to_have_text("Copied")
        shown.keyboard.press("/")
        shown.keyboard.press("Control+v")
        copied = shown.get_by_label("Filter by").input_value()
        assert '"max-running"' in copied and '"nodes"' in copied and "hunter2" not in copied, copied[:300]
        shown.get_by_label("Filter by").fill("max-running")
        shown.get_by_role("button", name="not default").click()
        expect(shown.locator(".setting")).to_have_count(1)
        shown.reload()
        expect(shown.locator(".setting")).to_have_count(1)
        print(f"    max-running 77 of --max-running, a diagnosis of {len(copied)} characters without the secret")
        context.close()


def hostile_operations(page, server):
    """Hostile names in lines of the audit, scopes of tokens, clients of streams and filters are text: `watch` collects what must not happen."""
    credentials = operator(server)
    texts = [text for text in payloads() if not re.search(r"[\x00-\x1f]", text)]
    texts = texts if FULL else texts[::8]
    for n, text in enumerate(texts):
        scope = "read:memory:" + re.sub(r"[\s,]", "", text)[:100]
        server.request("POST", "/console/api/tokens", {"name": f"h{n}", "scopes": [scope]}, credentials)
        server.request("DELETE", f"/console/api/tokens/{urllib.parse.quote(text, safe='')}", headers=credentials)
        server.request("POST", f"/tasks/{urllib.parse.quote(text, safe='')}:cancel", {})
    tokens = read(server, "tokens", credentials)["tokens"]
    lines = read(server, "audit?limit=1000", credentials)["entries"]
    named = [one for one in tokens if "onerror" in str(one["scopes"]) or "<" in str(one["scopes"])]
    marked = [one for one in lines if "<" in str(one["resource"]) or "%3C" in str(one["resource"])]
    assert named and marked, (len(named), len(marked))
    sign_in(page, server)
    page.goto(f"{server.base}/access")
    expect(page.locator(".token")).to_have_count(len(tokens))
    expect(page.locator(".token", has_text=named[0]["id"])).to_contain_text(named[0]["scopes"][0])
    page.goto(f"{server.base}/audit?resource={urllib.parse.quote(marked[0]['resource'])}")
    expect(page.locator(".audit-line").first).to_contain_text(marked[0]["resource"])
    for text in texts[:: 1 if FULL else 4]:
        quoted = urllib.parse.quote(text, safe="")
        for path in (f"audit?caller={quoted}&resource={quoted}", f"audit?type={quoted}", f"access?q={quoted}", f"server?agent={quoted}", f"server/config?q={quoted}", f"server/{quoted}"):
            page.goto(f"{server.base}/{path}")
            expect(page.locator("main :is(.empty, .problem, .audit-line, .token, .setting, .pulse-chart)").first).to_be_visible()
    assert re.fullmatch(r"(\(\d+\) )?Nuncio", page.title()), page.title()
    expect(page.locator("main :is(iframe, script, object, embed, form[action], base, meta, link, img)")).to_have_count(0)
    print(f"    {len(texts)} hostile texts, {len(named)} tokens and {len(marked)} lines that name them")


def audit_of_a_task(page, server):
    """The lines about one task by its id: one allowed, one refused, with a link to the task; the filters are the address."""
    writer, reader = token(server, "writer", "read,write,execute:a2a"), token(server, "reader", "read:memory")
    task = server.send("scripted", "Wait", {"script": [{"type": "ask", "text": "Go on?"}]}, headers=bearer(writer))
    assert server.request("POST", f"/tasks/{task}:cancel", {}, bearer(reader))[0] >= 400
    assert server.request("POST", f"/tasks/{task}:cancel", {}, bearer(writer))[0] == 200
    sign_in(page, server)
    page.goto(f"{server.base}/audit")
    expect(page.locator(".audit-line").first).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type(task)
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"resource={task}"))
    lines = page.locator(".audit-line")
    expect(lines.filter(has_text="acme/writer").filter(has_text="allowed")).to_have_count(1)
    refused = lines.filter(has_text="acme/reader").filter(has_text="refused")
    expect(refused).to_have_count(1)
    count = lines.count()
    expect(refused.locator(".why")).to_be_visible()
    expect(refused).to_contain_text("from 127.0.0.1")
    expect(page.locator("nuncio-audit > .command")).to_contain_text(f"nuncio audit --resource '{task}'")
    page.get_by_role("button", name="refused only").click()
    expect(lines).to_have_count(1)
    page.reload()
    expect(lines).to_have_count(1)
    expect(page.locator("nuncio-audit")).to_contain_text("read at")
    lines.get_by_role("link").click()
    expect(page.locator(".facts").first).to_contain_text(task[-8:])
    page.go_back()
    page.goto(f"{server.base}/audit?since=yesterday")
    expect(page.locator(".problem")).to_contain_text("yesterday")
    expect(page.get_by_label("Since")).to_have_value("yesterday")
    print(f"    {count} lines about the task, 1 refused")


def older_lines(page, server):
    """More lines than a page has: the older ones follow by the cursor, none twice."""
    credentials = operator(server)
    for n in range(115):
        server.request("POST", f"/tasks/older-{n}:cancel", {}, bearer("nun_none"))
        server.request("DELETE", f"/console/api/tokens/older{n}", headers=credentials)
    total = len(read(server, "audit?limit=1000&resource=older", credentials)["entries"])
    assert total > 100, total
    sign_in(page, server)
    page.goto(f"{server.base}/audit?resource=older")
    lines = page.locator(".audit-line")
    expect(lines).to_have_count(100)
    page.get_by_role("button", name="Older lines").click()
    expect(lines).to_have_count(min(total, 200))
    resources = lines.locator("code").all_inner_texts()
    assert len(set(resources)) == len(resources), "a line is shown twice"
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(lines.nth(1)).to_be_focused()
    print(f"    {len(resources)} of {total} lines")


def token_is_shown_once(page, server):
    """A token is created and works; its secret is gone after that; revoked by a second press, it is refused."""
    sign_in(page, server)
    page.goto(f"{server.base}/access")
    page.get_by_role("button", name="New token").click()
    page.get_by_label("Name of the caller").fill("not a name")
    page.get_by_role("button", name="Create token").click()
    expect(page.locator(".problem")).to_contain_text("is no name")
    expect(page.get_by_label("Name of the caller")).to_have_value("not a name")
    page.get_by_label("Name of the caller").fill("grace")
    page.get_by_label("Tenant", exact=True).fill("acme")
    page.get_by_label("Scopes, one a line").fill("read,execute:a2a\nread:memory:team-*")
    page.get_by_role("button", name="Create token").click()
    secret = page.locator(".token-secret").inner_text()
    assert re.fullmatch(r"nun_\w{12}_[\w-]+", secret), secret
    expect(page.locator("nuncio-token-form")).to_contain_text("shown only now")
    expect(page.get_by_role("button", name="Copy token")).to_be_visible()
    row = page.locator(".token", has_text="acme/grace")
    expect(row).to_contain_text("may read memory team-*")
    expect(row).to_contain_text("active")
    assert json.loads(server.request("GET", "/console/api/me", headers=bearer(secret))[2])["caller"] == {"name": "grace", "tenant": "acme"}
    page.get_by_role("button", name="I have stored it").click()
    expect(page.locator(".token-secret")).to_have_count(0)
    assert secret not in page.content()
    page.reload()
    expect(row).to_be_visible()
    assert secret not in page.content() and secret not in page.url
    assert secret not in json.dumps(page.context.storage_state()), "the secret is stored"
    expect(row).not_to_contain_text("never")
    row.get_by_role("button", name="Revoke").click()
    assert server.request("GET", "/console/api/me", headers=bearer(secret))[0] == 200, "one press is not enough"
    row.get_by_role("button", name="Press again to revoke").click()
    expect(row).to_contain_text("revoked")
    assert server.request("GET", "/console/api/me", headers=bearer(secret))[0] == 401
    print("    created, used, revoked, refused")


def missing_scopes_by_name(page, server):
    """A caller without the scopes reads their names; one that may only list tokens cannot press."""
    sign_in_with(page, server, token(server, "plain", "read,execute:a2a"))
    for path, scope in {"server": "read:admin:server", "server/config": "read:admin:server", "audit": "read:admin:audit", "access": "read:admin:tokens"}.items():
        page.goto(f"{server.base}/{path}")
        expect(page.locator(".problem-title")).to_have_text("Not allowed")
        expect(page.locator(".problem code")).to_contain_text(scope)
    page.goto(f"{server.base}/server/streams")
    expect(page.locator("nuncio-server-streams")).to_contain_text("read:admin:tasks")
    expect(page.locator("nuncio-server-streams .records li").first).to_contain_text("acme/plain")
    page.get_by_role("button", name="Sign out").click()
    sign_in_with(page, server, token(server, "lister", "read:admin:tokens"))
    page.goto(f"{server.base}/access")
    expect(page.get_by_role("button", name="New token")).to_be_disabled()
    expect(page.locator("nuncio-access > .bar")).to_contain_text("write:admin:tokens")
    expect(page.locator(".token").get_by_role("button", name="Revoke").first).to_be_disabled()


def another_tenant_sees_nothing(page, server):
    """An administrator of another tenant sees its own lines and tokens, and neither those of the first nor the server."""
    token(server, "alice", "read,execute:a2a", tenant="first")
    server.send("echo", "Of the first", headers=bearer(token(server, "anna", "read,execute:a2a", tenant="first")))
    secret = token(server, "zoe", "read,execute:a2a", "read,write:admin:*", tenant="second")
    server.send("echo", "Of the second", headers=bearer(secret))
    sign_in_with(page, server, secret)
    page.goto(f"{server.base}/audit")
    expect(page.locator(".audit-line", has_text="second/zoe").first).to_be_visible()
    page.goto(f"{server.base}/audit?caller=first%2Fanna")
    expect(page.locator(".empty")).to_contain_text("Nothing matches")
    page.goto(f"{server.base}/access")
    expect(page.locator(".token")).to_have_count(1)
    expect(page.locator(".token")).to_contain_text("second/zoe")
    page.goto(f"{server.base}/server/streams")
    expect(page.locator("nuncio-server-streams .records li").first).to_contain_text("second/zoe")
    for path in ("audit", "access", "server/streams"):
        page.goto(f"{server.base}/{path}")
        expect(page.locator(".audit-line, .token, nuncio-server-streams .records li").first).to_be_visible()
        assert not re.search(r"first/|home/", page.locator("main").inner_text()), path
    for path in ("server", "server/config"):
        page.goto(f"{server.base}/{path}")
        expect(page.locator(".problem")).to_be_visible()
        expect(page.locator(".pulse-chart, .node, .setting")).to_have_count(0)


# A browser logs requests that fail: those of a journey that expects them are no problem.
EXPECTED = {
    "audit_of_a_task": ["status of 400"],
    # A filter can be longer than the head of a request may be: the page says so.
    "hostile_operations": ["status of 400", "status of 431"],
    "token_is_shown_once": ["status of 400"],
    "missing_scopes_by_name": ["status of 401", "status of 403"],
    "another_tenant_sees_nothing": ["status of 401", "status of 403"],
}
JOURNEYS = [pulse_is_live, node_is_listed, settings_without_secrets, hostile_operations, axe_for_the_operator]
# With a server that requires tokens.
CLOSED = [audit_of_a_task, older_lines, token_is_shown_once, missing_scopes_by_name, another_tenant_sees_nothing]
