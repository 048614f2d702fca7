"""Journeys of a guarded console: sign-in, pages of other origins, and hostile texts in everything that a caller or an agent says."""

import http.server
import json
import re
import subprocess
import threading

from playwright.sync_api import expect

from real_server import FULL, HERE, until


def open_without_sign_in(page, server):
    """Where no token is needed, the console opens at once, at the root for a browser as well."""
    page.goto(server.root)
    expect(page).to_have_url(f"{server.base}/")
    expect(page.locator(".who")).to_have_text("home/local")
    expect(page.get_by_role("button", name="all callers")).to_have_count(0)
    expect(page.get_by_role("button", name="Sign out")).to_have_count(0)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("next failure")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def address_with_code(server):
    printed = server.command("console", "--no-open", "--data", str(server.data))
    return re.search(r"http://\S+#code=\S+", printed).group(0)


def token_of(server, name):
    made = server.command("token", "create", "--data", str(server.data), "--name", name, "--tenant", "acme", "--scope", "read,execute:a2a", "--output", "json")
    return re.search(r"nun_[\w-]+", made).group(0)


def tasks_of_others(page, server):
    """The operator finds a task of another tenant, reads it while it runs, and cancels it."""
    token = token_of(server, "eve")
    script = {"script": [{"type": "ask", "text": "May Eve go on?"}]}
    task = server.send("scripted", "A task of Eve", script, headers={"Authorization": f"Bearer {token}"})
    page.goto(address_with_code(server))
    page.get_by_role("button", name="all callers").click()
    row = page.locator(".row", has_text=task[-8:])
    expect(row).to_contain_text("acme/eve")
    row.get_by_role("link").click()
    expect(page.locator(".story")).to_contain_text("May Eve go on?")
    expect(page.locator("nuncio-question")).to_have_count(0)
    expect(page.locator(".live")).to_have_text("live")
    page.get_by_role("button", name="Cancel task").click()
    expect(page.locator("h1 .state")).to_contain_text("canceled")


def sign_in_by_code(page, server):
    """The address that the command prints signs in once; the code leaves the address; a sign-out ends the session."""
    page.goto(f"{server.base}/tasks?state=failed")
    expect(page.get_by_role("heading", name="Sign in to Nuncio")).to_be_visible()
    page.goto("about:blank")
    page.goto(f"{server.base}/#code=nuncc_wrong.code")
    expect(page.locator(".problem")).to_contain_text("run nuncio console again")
    address = address_with_code(server)
    page.goto("about:blank")
    page.goto(address)
    expect(page.locator(".empty")).to_contain_text("No task yet")
    assert "code" not in page.url, page.url
    page.reload()
    expect(page.locator(".who")).to_have_text("home/local")
    expect(page.locator(".live")).to_have_text("live")
    assert page.context.cookies() == []
    other = page.context.new_page()
    other.goto(address)
    expect(other.locator(".problem")).to_contain_text("run nuncio console again")
    other.close()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in to Nuncio")).to_be_visible()
    page.reload()
    expect(page.get_by_role("heading", name="Sign in to Nuncio")).to_be_visible()


def sign_in_by_token(page, server):
    """A token with few rights: its own tasks, the missing scope by name, and back to the sign-in when it is revoked."""
    token = token_of(server, "ada")
    page.goto(f"{server.base}/tasks")
    page.get_by_label("Or paste a token").fill("nun_wrong")
    page.keyboard.press("Enter")
    expect(page.locator(".problem")).to_have_text("This token is not accepted.")
    page.get_by_label("Or paste a token").fill(token)
    page.keyboard.press("Enter")
    expect(page.locator(".who")).to_have_text("acme/ada")
    expect(page.locator(".live")).to_have_text("live")
    server.send("echo", "Hello of Ada", headers={"Authorization": f"Bearer {token}"})
    # In an empty list a new task is shown at once.
    page.locator(".row").get_by_role("link").click()
    page.get_by_role("link", name="Events").click()
    page.locator(".event-line").first.click()
    command = page.locator(".event-detail .command code").inner_text()
    assert "$NUNCIO_TOKEN" in command and token not in command, command
    done = subprocess.run(["bash", "-c", command], env={"NUNCIO_TOKEN": token, "PATH": "/usr/bin:/bin"}, capture_output=True, text=True)
    assert "Hello of Ada" in done.stdout, done
    page.goto(f"{server.base}/tasks?owner=all")
    expect(page.locator(".problem")).to_contain_text("read:admin:tasks")
    expect(page.locator(".problem-title")).to_have_text("Not allowed")
    page.goto(f"{server.base}/tasks")
    expect(page.locator(".live")).to_have_text("live")
    identifier = token.split("_")[1]
    server.command("token", "revoke", "--data", str(server.data), identifier)
    expect(page.get_by_role("heading", name="Sign in to Nuncio")).to_be_visible()
    expect(page.locator(".problem")).to_contain_text("not accepted any more")


FOREIGN_PAGE = """<!doctype html><title>foreign</title><ul id=tried></ul><iframe id=frame src="BASE/tasks"></iframe><script>
const show = (name, text) => { const item = document.createElement('li'); item.textContent = name + ': ' + text; document.getElementById('tried').append(item); };
const attempt = (name, path, options) => fetch('BASE/' + path, options).then(async (r) => show(name, 'READ ' + r.type + ' ' + r.status + ' ' + (await r.text()).length), () => show(name, 'refused'));
(async () => {
  await attempt('me', 'api/me');
  await attempt('tasks', 'api/tasks', { credentials: 'include' });
  await attempt('live', 'api/live', { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{"topics":[{"key":"q","topic":"questions"}]}' });
  await attempt('plain post', 'api/live', { method: 'POST', headers: { 'content-type': 'text/plain' }, body: '{"topics":[{"key":"q","topic":"questions"}]}' });
  await attempt('page', 'tasks');
  const opaque = await fetch('BASE/api/me', { mode: 'no-cors' }).then((r) => r.type + ' ' + r.status, () => 'refused');
  show('opaque', opaque);
  let inside; try { inside = document.getElementById('frame').contentDocument?.body.textContent ?? 'refused'; } catch { inside = 'refused'; }
  show('frame', inside);
  show('end', 'of attempts');
})();
</script>"""


def foreign_page(page, server):
    """Requests with a foreign origin are refused before their credentials, and a page of another port reads nothing."""
    own = {"Origin": server.root}
    foreign = [
        {"Origin": f"http://127.0.0.1:{server.port + 1}"}, {"Origin": f"http://localhost:{server.port}"}, {"Origin": "null"}, {"Origin": "https://example.org"},
        {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Sec-Fetch-Site": "cross-site", **own}, {"Sec-Fetch-Site": "same-site", **own},
    ]
    checked = 0
    for headers in foreign:
        for method, path, body in [("GET", "me", None), ("GET", "tasks", None), ("GET", "questions", None), ("POST", "live", {"topics": []}), ("POST", "session", {"code": "x"})]:
            status, answered, text = server.request(method, f"/console/api/{path}", body, headers)
            assert status == 403, f"{headers} {method} {path}: {status} {text[:200]}"
            assert not [name for name in answered if name.lower().startswith("access-control")], answered
            checked += 1
    for headers in [{}, own, {"Sec-Fetch-Site": "same-origin", **own}, {"Sec-Fetch-Site": "none"}]:
        assert server.request("GET", "/console/api/me", None, headers)[0] == 200, headers
    status, _, _ = server.request("GET", "/console/api/me", None, {"Host": "rebound.example"})
    assert status in (403, 421), status
    status, _, text = server.request("POST", "/console/api/live", {"topics": [{"key": "q", "topic": "questions"}, {"key": "t", "topic": "task", "id": "none"}]})
    assert (status, json.loads(text)["error"]["field"]) == (404, "topics/1"), text
    with OtherSite(FOREIGN_PAGE.replace("BASE", server.base)) as site:
        page.goto(site)
        tried = page.locator("#tried li")
        expect(tried.last).to_have_text("end: of attempts")
        for text in tried.all_text_contents()[:-1]:
            assert text.endswith(": refused") or text == "frame: ", text
            checked += 1
        expect(page.frame_locator("#frame").locator(".task-row")).to_have_count(0)
    print(f"    {checked} attempts of other origins refused")


class OtherSite:
    """A page on another port of this machine."""

    def __init__(self, content):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.send_header("content-type", "text/html")
                self.end_headers()
                self.wfile.write(content.encode())

            def log_message(self, *_):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def __enter__(self):
        return f"http://127.0.0.1:{self.http.server_address[1]}/"

    def __exit__(self, *_):
        self.http.shutdown()


def payloads():
    source = "import('./payloads.mjs').then(({ PAYLOADS }) => console.log(JSON.stringify(PAYLOADS)))"
    return json.loads(subprocess.run(["node", "-e", source], cwd=HERE, capture_output=True, text=True, check=True).stdout)


def play_hostile(server, group):
    """A task with these texts in every field that its caller and its agent choose."""
    asked = group[0]
    lines = []
    for n, text in enumerate(group):
        lines += [
            {"type": "log", "text": text},
            {"type": "progress", "done": n, "text": text},
            {"type": "artifact", "id": f"a{n}", "name": text, "description": text, "parts": [{"text": text, "filename": text}, {"data": {text: text}}, {"file": "PGI+", "filename": text, "mediaType": "text/html"}]},
        ]
    schema = {"type": "object", "properties": {"field": {"type": "string", "title": asked, "description": asked}, "choice": {"type": "string", "enum": [asked, "b"]}}}
    return server.play(asked, *lines, {"type": "ask", "text": asked, "schema": schema})


def hostile_texts(page, server):
    """No script runs, nothing is requested from elsewhere, no CSP report: `watch` collects those."""
    texts = payloads()
    size = 1 if FULL else 12
    groups = [texts[at : at + size] for at in range(0, len(texts), size)]
    tasks = [play_hostile(server, group) for group in groups]
    for task in tasks:
        until(lambda: server.state(task) != "working", f"{task} asks", 60)
    wrong = {task: server.state(task) for task in tasks if server.state(task) != "input-required"}
    assert not wrong, {task: server.api(f"tasks/{task}")["row"] for task in wrong}
    page.goto(f"{server.base}/tasks")
    expect(page.locator(".list-head")).to_have_text(f"{len(tasks)} tasks")
    page.goto(f"{server.base}/inbox")
    expect(page.locator(".asked")).to_have_count(len(tasks))
    for task in tasks:
        page.goto(f"{server.base}/tasks/{task}")
        expect(page.locator(".facts")).to_contain_text("none missing")
        expect(page.locator(".story nuncio-question")).to_have_count(1)
        for tab, ready in {"Events": ".event-line", "Raw": ".json", "Wire": ".frame"}.items():
            page.get_by_role("link", name=tab, exact=True).click()
            expect(page.locator(ready).first).to_be_visible()
        assert re.fullmatch(r"\(\d+\) Nuncio", page.title()), page.title()
    expect(page.locator("main :is(iframe, script, object, embed, form[action], base, meta, link, img[src^=http])")).to_have_count(0)
    print(f"    {len(texts)} hostile texts in {len(tasks)} tasks")


OPEN = [open_without_sign_in, foreign_page]
CLOSED = [sign_in_by_code, sign_in_by_token, tasks_of_others]
