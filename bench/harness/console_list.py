"""The list of tasks, measured: the first one, the change of a filter, bytes, and a ninth tab beside eight."""

import gzip
import math
import statistics
import time
from pathlib import Path

from playwright.sync_api import Browser

from .console_browser import VIEW, Tab, late
from .console_server import ConsoleServer

FIRST_LIST = "tasks?limit=100"
FIRST = f"Promise.race([nuncioBench.firstList, {late(60, 'the first list')}])"
# A hidden tab closes its stream after this; see console/app.js.
HIDDEN_CLOSES_S = 10.0
# A page of headless Chromium is always visible. This lets the bench say which tab is in front, as a window of tabs does.
VISIBILITY = """
;(() => {
  let state = 'INITIAL';
  Object.defineProperty(document, 'visibilityState', { get: () => state });
  nuncioBench.show = (next) => ((state = next), document.dispatchEvent(new Event('visibilitychange')));
})();
"""


def percentile(values: list[float], part: float) -> float:
    """The smallest value that is not exceeded by `part` of all."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * part) - 1)]


def spread(values: list[float], *parts: int) -> dict:
    figures = {"p50_ms": statistics.median(values), "max_ms": max(values), "samples": len(values)}
    return {**figures, **{f"p{part}_ms": percentile(values, part / 100) for part in parts}}


def first_list(browser: Browser, server: ConsoleServer, count: int) -> dict:
    """Navigation to 50 rows painted, each time with an empty cache."""
    return spread_of_lists([one for _ in range(count) for one in load_lists(browser, server, 1)])


def list_again(browser: Browser, server: ConsoleServer, count: int) -> dict:
    """The same with all files in the cache: the first navigation fills it and does not count."""
    return spread_of_lists(load_lists(browser, server, count + 1)[1:])


def load_lists(browser: Browser, server: ConsoleServer, count: int) -> list[tuple[float, float]]:
    """Of each navigation in one context: milliseconds to the paint, and those that the browser waited for the list."""
    loaded = []
    with Tab(browser, server.root) as tab:
        for _ in range(count):
            tab.go(f"{server.base}/tasks")
            painted = tab.since_navigation(tab.run(FIRST))
            asked = next(one for one in tab.resources() if one["name"].endswith(f"/api/{FIRST_LIST}"))
            loaded.append((painted, asked["responseStart"] - asked["requestStart"]))
        check(tab)
    return loaded


def spread_of_lists(loaded: list[tuple[float, float]]) -> dict:
    painted, asked = zip(*loaded)
    return {**spread(list(painted), 95), "list_request_p50_ms": statistics.median(asked)}


def check(tab: Tab) -> None:
    if tab.errors:
        raise RuntimeError(f"an error in the page: {tab.errors[0]}")


def list_request(server: ConsoleServer, count: int) -> dict:
    """The page's list request by a plain client: what the server has of the time, with the loopback."""
    times = []
    for _ in range(count + count // 10):
        began = time.perf_counter()
        server.api(FIRST_LIST)
        times.append((time.perf_counter() - began) * 1000)
    return spread(times[count // 10 :], 95, 99)


def filters(browser: Browser, server: ConsoleServer, count: int) -> dict:
    """A click on a chip to the rows of the other filter, painted. Each list differs from the one before in all its rows."""
    facets = server.api("tasks?limit=1")["facets"]["state"]
    total = sum(facets.values())
    with Tab(browser, server.root) as tab:
        tab.go(f"{server.base}/tasks")
        tab.run(FIRST)
        times = []
        for number in range(count):
            state = ("failed", "completed")[number % 2]
            chip = tab.page.locator(".chip", has_text=state).first
            for tasks, pressed in ((facets[state], "true"), (total, "false")):
                expected = f"nuncioBench.text('.list-head').startsWith('{tasks} task')"
                shown = f"nuncioBench.text('nuncio-rows .task-row .state').includes('{state}')" if pressed == "true" else "true"
                tab.await_paint(f"{expected} && {shown}")
                chip.click()
                times.append(tab.awaited_paint() - tab.run("nuncioBench.inputAt"))
        check(tab)
    return spread(times, 95)


def sizes(browser: Browser, server: ConsoleServer, console: Path) -> dict:
    """Bytes as they are sent: of the scripts that a page asks for before its list is painted, and of all files."""
    with Tab(browser, server.root) as tab:
        tab.go(f"{server.base}/tasks")
        painted = tab.since_navigation(tab.run(FIRST))
        time.sleep(1.0)  # What comes after the list comes within this; none of it may leave this host.
        loaded = tab.resources()
        first = [one for one in loaded if one["name"].endswith(".js") and one["startTime"] < painted]
        folder = next(one["name"] for one in loaded if one["name"].endswith("/app.js")).removeprefix(server.root).removesuffix("app.js")
        outside = len(tab.outside)
        check(tab)
    if any(one["encodedBodySize"] == 0 for one in first):
        raise RuntimeError("a script came from the cache, so that its size is unknown")
    files = [file.relative_to(console).as_posix() for file in console.rglob("*") if "test" not in file.relative_to(console).parts]
    sent = {name: compressed(server, folder + name) for name in files if name.endswith((".js", ".css"))}
    kinds = {kind: sum(size for name, size in sent.items() if name.endswith(kind)) / 1024 for kind in (".js", ".css")}
    first_kib = sum(one["encodedBodySize"] for one in first) / 1024
    return {"first_js_kib": first_kib, "first_scripts": len(first), "all_js_kib": kinds[".js"], "css_kib": kinds[".css"], "outside": outside}


def compressed(server: ConsoleServer, path: str) -> int:
    status, headers, content = server.request("GET", path, headers={"Accept-Encoding": "gzip"})
    if status != 200:
        raise RuntimeError(f"{path}: {status}; is the binary of this commit?")
    if headers.get("content-encoding") == "gzip":
        gzip.decompress(content)
    return len(content)


def ninth_tab(browser: Browser, server: ConsoleServer, how: str) -> dict:
    """Eight tabs, then a ninth, in front. A browser allows six connections to a host on HTTP/1.1, and a live stream holds one.

    hidden: each tab is hidden by the next, and the ninth is opened when all have been so for some time; at-once: the same
    without a pause; background: the eight are opened behind another page, as by a click with Ctrl; windows: all are in view.
    """
    context = browser.new_context(viewport=VIEW)
    context.set_default_timeout(20_000)
    tabs: list[Tab] = []
    try:
        for number in range(1, 10):
            if number == 9 and how == "hidden":
                time.sleep(HIDDEN_CLOSES_S + 1)
            if tabs and how in ("hidden", "at-once"):
                tabs[-1].run("nuncioBench.show('hidden')")
            initial = "hidden" if how == "background" and number < 9 else "visible"
            tabs.append(Tab(browser, server.root, context, VISIBILITY.replace("INITIAL", initial)))
            tabs[-1].go(f"{server.base}/tasks")
            listed = tabs[-1].run(f"Promise.race([nuncioBench.firstList, {late(15, f'the list of tab {number}')}])")
            ms = tabs[-1].since_navigation(listed)
        return {"ms": ms}
    finally:
        context.close()
