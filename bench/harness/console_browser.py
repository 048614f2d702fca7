"""A Chromium with pages that can be measured under the console's own policy.

`page.evaluate` goes through eval, which the policy refuses; the debugger's `Runtime.evaluate` does not. Every page has
`console_probe.js`, and every request to another host is counted.
"""

import json
import os
from pathlib import Path

from playwright.sync_api import Browser, Page, Playwright

PROBE = Path(__file__).with_name("console_probe.js")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
# High enough for 50 rows of the list, which are 34 px each.
VIEW = {"width": 1280, "height": 2000}
ANSWERS_WITHIN_MS = 60_000


def late(within_s: float, what: str) -> str:
    """A promise that is refused after some time."""
    message = json.dumps(f"not painted within {within_s:g} s: {what}")
    return f"new Promise((_, no) => setTimeout(() => no(new Error({message})), {within_s * 1000:g}))"


def launch(playwright: Playwright) -> Browser:
    return playwright.chromium.launch(executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"), args=FLAGS.split())


class Tab:
    """One page in a context: a context of its own has an empty cache."""

    def __init__(self, browser: Browser, root: str, context=None, script: str = ""):
        self.owns_context = context is None
        self.context = context or browser.new_context(viewport=VIEW)
        if self.owns_context:
            self.context.set_default_timeout(ANSWERS_WITHIN_MS)
        self.page: Page = self.context.new_page()
        self.page.add_init_script(script=PROBE.read_text() + script)
        self.debugger = self.context.new_cdp_session(self.page)
        self.requests: list = []
        self.outside: list[str] = []
        self.errors: list[str] = []
        self.page.on("request", self.noted(root))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))

    def noted(self, root: str):
        def note(request) -> None:
            self.requests.append(request)
            if not request.url.startswith((root, "blob:", "about:")):
                self.outside.append(request.url)

        return note

    def __enter__(self) -> "Tab":
        return self

    def __exit__(self, *_) -> None:
        if self.owns_context:
            self.context.close()
        else:
            self.page.close()

    def run(self, expression: str):
        """The value of an expression in the page; promises are awaited."""
        asked = {"expression": expression, "awaitPromise": True, "returnByValue": True}
        answer = self.debugger.send("Runtime.evaluate", asked)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise RuntimeError(f"in the page: {details.get('exception', {}).get('description', details['text'])[:400]}")
        return answer["result"].get("value")

    def painted(self, condition: str, within_s: float = 20.0) -> float:
        """When a condition on the DOM is painted, in milliseconds since 1970."""
        return self.run(f"Promise.race([nuncioBench.painted(() => {condition}), {late(within_s, condition)}])")

    def await_paint(self, condition: str) -> None:
        """Begins to wait for a paint, before that which causes it: asked afterwards, a quick one would seem late."""
        self.run(f"(globalThis.nuncioNext = nuncioBench.painted(() => {condition})), 0")

    def awaited_paint(self, within_s: float = 20.0) -> float:
        return self.run(f"Promise.race([nuncioNext, {late(within_s, 'what was awaited')}])")

    def since_navigation(self, at: float) -> float:
        return at - self.run("performance.timeOrigin")

    def go(self, address: str) -> None:
        """A navigation that reuses no document. Not awaited to its end: the probe says when something is painted."""
        self.page.goto("about:blank")
        self.page.goto(address, wait_until="commit")

    def long_tasks(self, since: float = 0.0) -> list[float]:
        # The observer is called some time after the task.
        self.run("new Promise((done) => setTimeout(done, 300))")
        return [task["ms"] for task in self.run("nuncioBench.longTasks") if task["at"] + task["ms"] >= since]

    def heap_mib(self) -> float:
        """The heap of the page's scripts after a collection."""
        self.debugger.send("HeapProfiler.enable")
        self.debugger.send("HeapProfiler.collectGarbage")
        return self.debugger.send("Runtime.getHeapUsage")["usedSize"] / (1 << 20)

    def resources(self) -> list[dict]:
        """What the page has loaded, with times since the navigation and the bytes as they were sent."""
        names = "{ name, startTime, requestStart, responseStart, responseEnd, encodedBodySize, transferSize }"
        return self.run(f"performance.getEntriesByType('resource').map(({names}) => ({names}))")
