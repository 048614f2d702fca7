"""Journeys through Try and Agents: calls by form in every dialect, questions in place, keys, tools, remotes that go down, cards."""

import http.server
import json
import re
import subprocess
import threading
from contextlib import contextmanager

from playwright.sync_api import expect

from real_safety import payloads, token_of
from real_server import FULL, RealServer, until

ASK = {"type": "ask", "text": "Which seat?", "schema": {"type": "object", "properties": {"seat": {"type": "string", "minLength": 2, "title": "Seat"}}, "required": ["seat"]}}
DONE = {"type": "done", "text": "Have a good flight"}


def sends(page):
    """The messages that a page sends to agents."""
    sent = []
    page.on("request", lambda request: sent.append(request.url) if request.method == "POST" and "/agents/" in request.url else None)
    return sent


def send(page):
    page.get_by_role("button", name="Send", exact=True).click()


def expect_state(page, state):
    expect(page.locator(".answered > .bar .state")).to_contain_text(state)


def toml(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{toml(key)} = {toml(member)}" for key, member in value.items()) + " }"
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")


@contextmanager
def agents_added(server, *tables):
    """Adds tables to the configuration of a running server, which reads it again, and takes them out at the end."""
    before = server.config.read_text()
    lines = [f"\n[[agent]]\n{''.join(f'{key} = {toml(value)}' + chr(10) for key, value in table.items())}" for table in tables]
    server.config.write_text(before + "".join(lines))
    try:
        yield
    finally:
        server.config.write_text(before)


def is_served(server, name):
    agents = json.loads(server.request("GET", "/", None, {"Accept": "application/json"})[2])["agents"]
    return name in [agent["name"] for agent in agents]


def send_to_echo(page, server):
    """From the list by its filter to the form; the answer streams in; its curl makes the same answer; the task opens."""
    page.goto(f"{server.base}/try")
    expect(page.get_by_role("heading", name="Tools")).to_be_visible()
    page.get_by_label("Filter agents and tools").fill("unchanged, as one artifact")
    expect(page).to_have_url(re.compile(r"q=unchanged"))
    expect(page.locator(".target")).to_have_count(1)
    page.locator(".target").click()
    expect(page).to_have_url(f"{server.base}/try?agent=echo")
    page.get_by_label("Message").fill("It's a **test** for $HOME")
    expect(page.locator(".try-form .command code")).to_contain_text("--agent echo 'It'\\''s a **test** for $HOME'")
    send(page)
    expect_state(page, "completed")
    expect(page.locator(".answered .said")).to_contain_text("Artifact: echo")
    expect(page.locator(".answered .said strong", has_text="test")).to_be_visible()
    expect(page.locator(".sent-bytes")).to_contain_text('POST /agents/echo/message:stream HTTP/1.1')
    expect(page.locator(".received-bytes")).to_contain_text("HTTP 200")
    expect(page.locator(".received-bytes")).to_contain_text("TASK_STATE_COMPLETED")
    command = page.locator(".answered .command code").inner_text()
    again = subprocess.run(["bash", "-c", command], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True)
    task = re.search(r'"task":\{"id":"([^"]+)', page.locator(".received-bytes").inner_text())[1]
    assert task in again.stdout, "the curl has the same key, so it gets the same task: " + again.stdout + again.stderr
    page.get_by_role("link", name="Open the task").click()
    expect(page).to_have_url(f"{server.base}/tasks/{task}")
    expect(page.locator(".story")).to_contain_text("for $HOME")


def every_dialect_asks_in_place(page, server):
    """A question in A2A 1.0 (REST and JSON-RPC, stream and wait), 0.3 and MCP is answered in place, and the answer goes on."""
    value = json.dumps({"text": "A flight", "script": [{"type": "progress", "done": 1, "total": 2, "text": "Looking"}, ASK, {"type": "artifact", "id": "a", "name": "Ticket", "parts": [{"text": "Seat taken"}]}, DONE]})
    for where in ("as=a2a-1.0-rest", "as=a2a-1.0-rpc", "as=a2a-0.3-rpc", "as=mcp-2026-07-28", "as=a2a-1.0-rest&how=wait"):
        page.goto(f"{server.base}/try?agent=scripted&{where}")
        page.get_by_role("button", name="As JSON").click()
        page.get_by_label("Value as JSON").fill(value)
        page.get_by_role("button", name="As form").click()
        expect(page.get_by_label("Message")).to_have_value("A flight")
        expect(page.get_by_label("Further members")).to_have_value(re.compile('"script"'))
        send(page)
        asked = page.locator(".answered .asked")
        expect(asked).to_contain_text("Which seat?")
        expect_state(page, "input-required")
        asked.get_by_label("Seat").fill("1")
        asked.get_by_role("button", name="Accept").click()
        expect(asked.locator(".field-problem")).to_have_text("at least 2 characters")
        asked.get_by_label("Seat").fill("12A")
        asked.get_by_role("button", name="Accept").click()
        expect_state(page, "completed")
        expect(page.locator(".answered .story")).to_contain_text("Seat taken")
        expect(page.locator(".answered .asked")).to_have_count(0)
        expect(page.locator(".answered summary")).to_have_count(2)
    # A question that is answered elsewhere leaves the page as well.
    page.goto(f"{server.base}/try?agent=scripted")
    page.get_by_role("button", name="As JSON").click()
    page.get_by_label("Value as JSON").fill(value)
    send(page)
    expect(page.locator(".answered .asked")).to_have_count(1)
    task = server.api("questions")["questions"][0]["taskId"]
    server.command("send", "-a", server.root, "--agent", "scripted", "--task-id", task, "--data", '{"seat": "7C"}')
    expect_state(page, "completed")
    expect(page.locator(".answered .asked")).to_have_count(0)


def refused_answer_stays(page, server):
    """An answer that only the server can judge is refused in its words, over MCP and A2A; what was typed stays, and is sent again."""
    ask = {"type": "ask", "text": "Which seat?", "schema": {"type": "object", "properties": {"seat": {"type": "string", "title": "Seat", "pattern": "^[0-9]+[A-F]$"}}, "required": ["seat"]}}
    for where in ("mcp-2026-07-28", "a2a-1.0-rpc"):
        page.goto(f"{server.base}/try?agent=scripted&as={where}")
        page.get_by_role("button", name="As JSON").click()
        page.get_by_label("Value as JSON").fill(json.dumps({"text": "Go", "script": [ask, DONE]}))
        send(page)
        asked = page.locator(".answered .asked")
        asked.get_by_label("Seat").fill("window")
        asked.get_by_role("button", name="Accept").click()
        expect(asked.locator(".problem, .field-problem")).to_contain_text("does not match")
        expect(asked.get_by_label("Seat")).to_have_value("window")
        asked.get_by_label("Seat").fill("12A")
        asked.get_by_role("button", name="Accept").click()
        expect_state(page, "completed")


def cut_stream_continues(page, server):
    """The server is killed under a stream of Try: the page says so, and continues after the last event when it is up again."""
    page.goto(f"{server.base}/try?agent=long_running_agent")
    page.get_by_label("steps").fill("120")
    send(page)
    expect(page.locator(".said-progress")).to_contain_text(re.compile(r"[Ss]tep"))
    server.kill()
    expect(page.locator(".answered .problem")).to_contain_text("the task is made once")
    server.start()
    page.get_by_role("button", name=re.compile(r"Continue after event \d+")).click()
    expect_state(page, "completed")
    pages = page.locator(".received-bytes")
    page.locator(".answered summary").nth(1).click()
    expect(pages).to_have_count(2)
    ids = [int(number) for n in range(2) for number in re.findall(r"(?m)^id: (\d+)$", pages.nth(n).inner_text())]
    assert ids == sorted(set(ids)), "an event is missing or doubled"


def invalid_is_refused_before_sending(page, server):
    """At the field of a form, and by the name of the field in JSON; what the form cannot have stays JSON; nothing is sent."""
    sent = sends(page)
    page.goto(f"{server.base}/try?agent=long_running_agent")
    steps = page.get_by_label("steps")
    expect(steps).to_have_value("50")
    for wrong, why in {"many": "a number such as 12 or 0.5", "1.5": "a whole number", "0": "at least 1", "1001": "at most 1000"}.items():
        steps.fill(wrong)
        send(page)
        expect(page.locator(".field-problem")).to_have_text(why)
        expect(steps).to_be_focused()
        expect(steps).to_have_attribute("aria-invalid", "true")
    page.get_by_role("button", name="As JSON").click()
    text = page.get_by_label("Value as JSON")
    for wrong, why in {"{": "not JSON", '{"steps": "2"}': "steps: a whole number is expected", '{"steps": 0}': "steps: at least 1", "[1]": "an object is needed"}.items():
        text.fill(wrong)
        send(page)
        expect(page.locator(".try-form .problem")).to_contain_text(why)
    text.fill('{"steps": "2"}')
    page.get_by_role("button", name="As form").click()
    expect(page.locator(".try-form .problem")).to_contain_text("steps")
    expect(text).to_have_value('{"steps": "2"}')
    expect(page.locator("nuncio-try-answer")).to_have_count(0)
    assert sent == [], sent
    text.fill('{"steps": 2}')
    page.get_by_role("button", name="As form").click()
    expect(steps).to_have_value("2")
    send(page)
    expect_state(page, "completed")
    assert len(sent) == 1, sent


def same_key_is_the_same_task(page, server):
    """Sent three times under one Idempotency-Key it is one task, also in the background and over MCP; a new send is another."""
    for where in ("as=a2a-1.0-rest", "as=a2a-0.3-rpc&how=background", "as=mcp-2026-07-28"):
        before = server.api("tasks?agent=echo")["total"]
        page.goto(f"{server.base}/try?agent=echo&{where}")
        page.get_by_label("Message").fill("Once")
        send(page)
        link = page.get_by_role("link", name="Open the task")
        first = link.get_attribute("href")
        for times in (2, 3):
            page.get_by_role("button", name="Send again, same Idempotency-Key").click()
            expect(page.locator(".answered .sent")).to_contain_text(f"The same task came back: the server has seen this key {times} times")
            expect(link).to_have_attribute("href", first)
        assert server.api("tasks?agent=echo")["total"] == before + 1
        send(page)
        expect(link).not_to_have_attribute("href", first)
        expect(page.locator(".answered .sent")).to_have_count(0)
        assert server.api("tasks?agent=echo")["total"] == before + 2


def call_a_tool(page, server):
    """A plain tool by its form, with a number of twenty digits; its refusal in its own words; it takes no key."""
    page.goto(f"{server.base}/try?tool=memory_store")
    expect(page.get_by_label("Speak").locator("option")).to_have_text(["MCP 2026-07-28"])
    send(page)
    expect(page.locator(".field-problem")).to_have_text(["a value is needed"] * 3)
    field = lambda name: page.locator(".try-form label", has=page.get_by_text(re.compile(rf"^{name}( \*)?$"))).locator("input, textarea")
    field("namespace").fill("team")
    field("key").fill("digits")
    field("value").fill('{"n": 12345678901234567890}')
    page.get_by_role("button", name="As JSON").click()
    expect(page.get_by_label("Value as JSON")).to_have_value(re.compile("12345678901234567890"))
    page.get_by_role("button", name="As form").click()
    send(page)
    expect_state(page, "completed")
    expect(page.locator(".answered .said")).to_contain_text("version 1")
    expect(page.locator(".try-form")).to_contain_text("takes no Idempotency-Key")
    expect(page.get_by_role("link", name="Open the task")).to_have_count(0)
    page.goto(f"{server.base}/try?tool=memory_get")
    field("namespace").fill("team")
    field("key").fill("digits")
    send(page)
    expect(page.locator(".received-bytes")).to_contain_text("12345678901234567890")
    field("key").fill("absent")
    send(page)
    expect_state(page, "failed")
    expect(page.locator(".answered .problem")).to_contain_text("absent")


def background_and_named_calls(page, server):
    """A call in the background is followed on demand; it is kept under a name in this browser, opened from it, and forgotten."""
    page.goto(f"{server.base}/try?agent=long_running_agent")
    page.get_by_label("Answer").select_option("in the background")
    expect(page).to_have_url(re.compile("how=background"))
    page.get_by_label("Speak").select_option("A2A 1.0, JSON-RPC")
    page.get_by_label("steps").fill("5")
    send(page)
    expect(page.locator(".sent-bytes")).to_contain_text('"returnImmediately":true')
    page.get_by_role("button", name="Follow the task").click()
    expect_state(page, "completed")
    page.get_by_label("Name of this call").fill("five <b>steps")
    page.get_by_role("button", name="Keep in this browser").click()
    expect(page.locator(".try-form [role=status]")).to_contain_text("Kept as five <b>steps, in this browser")
    expect(page).to_have_url(re.compile("call=five"))
    expect_state(page, "completed")
    kept = page.url
    page.reload()
    expect(page.get_by_label("steps")).to_have_value("5")
    page.goto(f"{server.base}/try")
    call = page.locator(".targets li", has_text="five <b>steps")
    call.get_by_role("link").click()
    expect(page).to_have_url(kept)
    expect(page.get_by_label("steps")).to_have_value("5")
    expect(page.get_by_label("Speak")).to_have_value("a2a-1.0-rpc")
    page.get_by_role("link", name="All agents and tools").click()
    page.get_by_role("button", name="Forget five <b>steps").click()
    expect(call).to_have_count(0)
    page.goto(kept)
    expect(page.locator(".try-form [role=status]")).to_contain_text("This browser has no call named five")
    page.goto(f"{server.base}/try?agent=nobody")
    expect(page.locator(".empty")).to_contain_text("There is no agent named nobody here")


def probe_until(page, row, health):
    """A probe within a second after another has its result, and on a busy machine the first may take too long."""
    for _ in range(20):
        row.get_by_role("button", name="Probe").click()
        expect(row.get_by_role("button", name="Probe")).to_have_text("Probe")
        if health in row.locator(".health").inner_text():
            break
        page.wait_for_timeout(300)
    expect(row.locator(".health")).to_have_text(re.compile(health))


def remote_agent_goes_down(page, server):
    """Agents elsewhere, served and only listed: healthy, called, then killed; a probe says so at once, with the error."""
    page.goto(f"{server.base}/agents")
    expect(page.locator(".agent-row").first).to_be_visible()
    expect(page.locator(".empty")).to_contain_text('kind = "a2a"')
    with RealServer() as far, agents_added(server, {"name": "far", "kind": "a2a", "url": f"{far.root}/agents/echo"}):
        until(lambda: is_served(server, "far"), "the new agent is served", 20)
        page.goto(f"{server.base}/agents?q=far")
        row = page.locator(".agent-row", has=page.get_by_role("link", name="far", exact=True))
        probe_until(page, row, "✓ healthy")
        expect(row).to_contain_text("breaker closed")
        expect(row).to_contain_text("last reached")
        row.get_by_role("link", name="Try").click()
        page.get_by_label("Message").fill("Over there")
        send(page)
        expect_state(page, "completed")
        expect(page.locator(".answered .said").first).to_contain_text("Over there")
        page.goto(f"{server.base}/agents?q=far")
        expect(row.locator(".tally")).to_contain_text("completed")
        far.kill()
        probe_until(page, row, "✕ unhealthy")
        expect(row.locator(".why")).to_contain_text("cannot be reached")
        page.get_by_role("button", name="unhealthy").click()
        expect(page).to_have_url(re.compile("health=unhealthy"))
        row.get_by_role("link", name="far", exact=True).click()
        expect(page.locator("h1 .health")).to_contain_text("unhealthy")
        expect(page.locator(".reason")).to_contain_text("cannot be reached")
        expect(page.locator(".reading .tally")).to_contain_text("completed")
        far.start()
        page.get_by_role("button", name="Probe").click()
        until(lambda: page.get_by_role("button", name="Probe").click() or "✓" in page.locator("h1 .health").inner_text(), "it is healthy again", 15)
        page.get_by_role("link", name="Tasks", exact=True).last.click()
        expect(page).to_have_url(f"{server.base}/tasks?agent=far")
        expect(page.locator(".row .task-row")).to_have_count(1)


def card_raw_and_parsed(page, server):
    """The card as parsed and as served, byte for byte, and its three generations with what differs."""
    page.goto(f"{server.base}/agents/echo/card")
    parsed = page.locator(".frame", has_text="As parsed")
    expect(parsed).to_contain_text("JSONRPC 1.0")
    expect(parsed).to_contain_text("HTTP+JSON 0.3")
    expect(parsed).to_contain_text("Canstreaming, pushNotifications")
    expect(page.locator(".frame", has_text="As served").locator(".json")).to_contain_text("supportedInterfaces")
    page.get_by_role("link", name="Generations").click()
    expect(page).to_have_url(f"{server.base}/agents/echo/generations")
    frames = page.locator(".frame")
    expect(frames.locator("h2")).to_contain_text(["A2A 0.1", "A2A 0.3", "A2A 1.0"])
    expect(frames.nth(0).locator(".json")).not_to_contain_text("protocolVersion")
    expect(frames.nth(1).locator(".json")).to_contain_text("preferredTransport")
    expect(frames.nth(2).locator(".json")).to_contain_text("supportedInterfaces")
    frames.nth(2).locator("summary").click()
    expect(frames.nth(2).locator(".changes")).to_contain_text("+ /supportedInterfaces added")
    expect(frames.nth(2).locator(".changes")).to_contain_text("− /preferredTransport removed")
    command = frames.nth(0).locator(".command code").inner_text()
    served = subprocess.run(["bash", "-c", command], capture_output=True, text=True).stdout
    assert json.loads(served) == json.loads(server.request("GET", "/agents/echo/.well-known/agent.json")[2]), command
    page.goto(f"{server.base}/agents/none")
    expect(page.locator(".empty")).to_contain_text("There is no agent named none here")


class HostileCard:
    """An agent elsewhere whose card has a hostile text in every member."""

    def __init__(self, texts):
        card = hostile_card(texts)

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                body = json.dumps(card).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        card["supportedInterfaces"] = [{"url": f"http://127.0.0.1:{self.http.server_address[1]}/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def __enter__(self):
        return f"http://127.0.0.1:{self.http.server_address[1]}/"

    def __exit__(self, *_):
        self.http.shutdown()


def hostile_card(texts):
    skills = [{"id": text, "name": text, "description": text, "tags": [text], "examples": [text]} for text in texts]
    extension = {"uri": texts[0], "description": texts[1]}
    provider = {"organization": texts[2], "url": "https://provider.example"}
    return {"name": texts[0], "description": "\n".join(texts), "version": texts[1], "provider": provider, "documentationUrl": "javascript:alert(1)", "iconUrl": "https://icon.example/x.png", "capabilities": {"streaming": True, "extensions": [extension], texts[3]: True}, "defaultInputModes": texts[:5], "defaultOutputModes": texts[5:9], "skills": skills, texts[4]: texts[5]}


def hostile_cards_and_descriptions(page, server):
    """Cards of remotes, descriptions, skills and input schemas of agents are shown as text, on every screen that has them."""
    texts = payloads()[:: 1 if FULL else 3]
    schema = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string", "title": texts[0], "description": texts[1]}, texts[2]: {"type": "string", "enum": [texts[3], "b"]}, texts[4]: {"description": texts[5]}}}
    skill = {"id": texts[6], "name": texts[7], "description": texts[8], "tags": [texts[9]], "examples": [texts[10]]}
    own = {"name": "hostile", "kind": "process", "command": ["true"], "description": f"{texts[0]}\n{texts[7]}", "skills": [skill], "input-schema": schema}
    with HostileCard(texts) as remote, agents_added(server, own, {"name": "listed", "kind": "a2a", "url": remote, "serve": False}):
        # A remote that is only listed is read at the start.
        server.kill()
        server.start()
        page.goto(f"{server.base}/agents")
        expect(page.locator(".agent-row", has=page.get_by_role("link", name="hostile", exact=True))).to_contain_text(texts[0].strip()[:20])
        row = page.locator(".agent-row", has=page.get_by_role("link", name="listed", exact=True))
        row.get_by_role("button", name="Probe").click()
        expect(row.locator(".health")).to_contain_text("healthy")
        for agent in ("hostile", "listed"):
            for tab, ready in {"": "h2", "/card": ".frame .json", "/generations": ".frame, .empty"}.items():
                page.goto(f"{server.base}/agents/{agent}{tab}")
                expect(page.locator(ready).first).to_be_visible()
        page.goto(f"{server.base}/agents/listed/card")
        expect(page.locator(".frame", has_text="As parsed")).to_contain_text("javascript:alert(1)")
        expect(page.locator('main a[href^="javascript"]')).to_have_count(0)
        page.goto(f"{server.base}/try?q=hostile")
        expect(page.locator(".target").first).to_be_visible()
        page.goto(f"{server.base}/try?agent=hostile")
        expect(page.locator(".try-form label", has_text=texts[0][:20]).first).to_be_visible()
        page.get_by_role("button", name="As JSON").click()
        page.get_by_label("Value as JSON").fill(json.dumps({"text": texts[0], texts[2]: texts[3], texts[4]: {texts[1]: texts[2]}, texts[6]: texts[7]}))
        page.get_by_role("button", name="As form").click()
        send(page)
        expect_state(page, "failed")
        page.goto(f"{server.base}/try?agent={texts[0].replace('#', '').replace('&', '').replace('%', '')}&call={texts[1].replace('#', '').replace('&', '').replace('%', '')}")
        expect(page.locator(".empty")).to_contain_text("There is no agent named")
    expect(page.locator("main :is(iframe, script, object, embed, form[action], base, meta, link, img)")).to_have_count(0)
    print(f"    {len(texts)} hostile texts in cards, skills, descriptions, schemas and values")


def hostile_answers(page, server):
    """What an agent says, makes and asks through Try is text, in every dialect."""
    texts = payloads()[:: 1 if FULL else 5]
    lines = [{"type": "artifact", "id": f"a{n}", "name": text, "parts": [{"text": text}, {"data": {text: text}}, {"file": "PGI+", "filename": text, "mediaType": "text/html"}]} for n, text in enumerate(texts)]
    ask = {"type": "ask", "text": texts[0], "schema": {"type": "object", "properties": {"f": {"type": "string", "title": texts[1], "description": texts[2]}}}}
    value = json.dumps({"text": texts[3], "script": [*lines, ask, DONE]})
    for where in ("a2a-1.0-rest", "a2a-0.3-rpc", "mcp-2026-07-28"):
        page.goto(f"{server.base}/try?agent=scripted&as={where}")
        page.get_by_role("button", name="As JSON").click()
        page.get_by_label("Value as JSON").fill(value)
        send(page)
        expect(page.locator(".answered .asked form")).to_be_visible()
        page.locator(".answered .asked").get_by_role("button", name="Decline").click()
        expect_state(page, "completed")
        expect(page.locator("main :is(iframe, script, object, embed, form[action], base, meta, link, img)")).to_have_count(0)
    print(f"    {len(texts)} hostile texts in answers")


def all_by_keyboard(page, server):
    """To Try, to an agent, into its form, sent, answered and opened without a pointer."""
    page.goto(f"{server.base}/tasks")
    expect(page.locator(".live")).to_have_text("live")
    for key in ("g", "y"):
        page.keyboard.press(key)
    expect(page.get_by_role("heading", name="Agents")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("books only after a yes")
    expect(page.locator(".target")).to_have_count(1)
    for key in ("Escape", "j", "Enter"):
        page.keyboard.press(key)
    expect(page).to_have_url(re.compile(r"agent=travel_agent"))
    expect(page.get_by_label("destination")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.press("Control+a")
    page.keyboard.type("Évora")
    page.keyboard.press("Enter")
    expect(page.locator(".answered .asked")).to_contain_text("Évora")
    page.keyboard.press("Escape")
    page.keyboard.press("a")
    page.keyboard.press("Space")
    page.keyboard.press("Tab")
    page.keyboard.type("By the window")
    page.keyboard.press("Enter")
    expect_state(page, "completed")
    page.keyboard.press("o")
    expect(page).to_have_url(re.compile(r"/tasks/[\w-]+$"))
    expect(page.locator(".story")).to_contain_text("By the window")
    for key in ("g", "a"):
        page.keyboard.press(key)
    expect(page.locator(".agent-row").first).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("echo")
    for key in ("Escape", "j", "p"):
        page.keyboard.press(key)
    expect(page.locator("#announcer")).to_have_text("echo is healthy")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{server.base}/agents/echo")
    expect(page.locator("h1 .health")).to_contain_text("healthy")
    page.keyboard.press("y")
    expect(page).to_have_url(f"{server.base}/try?agent=echo")


def sign_in(page, token):
    page.get_by_label("Or paste a token").fill(token)
    page.keyboard.press("Enter")


def token_is_named_not_shown(page, server):
    """With a token: it is in no byte that is shown and in no address; the curl runs with it from the environment."""
    token = token_of(server, "tom")
    page.goto(f"{server.base}/try?agent=echo")
    sign_in(page, token)
    page.get_by_label("Message").fill("Of Tom")
    send(page)
    expect_state(page, "completed")
    expect(page.locator(".sent-bytes")).to_contain_text("Authorization: Bearer $NUNCIO_TOKEN")
    assert token not in page.locator("main").inner_text() and token not in page.url
    command = page.locator(".answered .command code").inner_text()
    done = subprocess.run(["bash", "-c", command], env={"NUNCIO_TOKEN": token, "PATH": "/usr/bin:/bin"}, capture_output=True, text=True)
    assert "Of Tom" in done.stdout, done


def refused_for_a_missing_scope(page, server):
    """A caller who may only read sees agents and cards; a call and a probe are refused at their place, and what was typed stays."""
    made = server.command("token", "create", "--data", str(server.data), "--name", "rita", "--tenant", "acme", "--scope", "read:a2a", "--output", "json")
    page.goto(f"{server.base}/try?agent=echo")
    sign_in(page, re.search(r"nun_[\w-]+", made)[0])
    page.get_by_label("Message").fill("May I?")
    send(page)
    expect_state(page, "failed")
    expect(page.locator(".answered .problem")).to_contain_text("execute:a2a:echo")
    expect(page.get_by_label("Message")).to_have_value("May I?")
    page.goto(f"{server.base}/agents/echo")
    expect(page.locator("h1 .health")).to_contain_text("healthy")
    page.get_by_role("button", name="Probe").click()
    expect(page.locator(".problem")).to_contain_text("execute:a2a:registry")
    page.get_by_role("link", name="Generations").click()
    expect(page.locator(".frame h2")).to_have_count(3)


JOURNEYS = [
    send_to_echo, every_dialect_asks_in_place, refused_answer_stays, cut_stream_continues, invalid_is_refused_before_sending, same_key_is_the_same_task, call_a_tool, background_and_named_calls,
    remote_agent_goes_down, card_raw_and_parsed, all_by_keyboard, hostile_answers, hostile_cards_and_descriptions,
]
# With a server that requires tokens.
CLOSED = [token_is_named_not_shown, refused_for_a_missing_scope]
# Errors that the browser logs and that these journeys expect.
CUT = ["ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET", "ERR_SOCKET_NOT_CONNECTED", "ERR_EMPTY_RESPONSE"]
EXPECTED = {"refused_answer_stays": ["status of 422"], "cut_stream_continues": CUT, "token_is_named_not_shown": ["status of 401"], "refused_for_a_missing_scope": ["status of 401", "status of 403"]}
