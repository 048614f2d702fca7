"""What open consoles cost the server: idle ones, and ten beside a load."""

import time

from playwright.sync_api import Browser

from .console_browser import Tab
from .console_list import FIRST_LIST
from .console_server import ConsoleServer, OpenConsoles
from .workloads import CONNECTIONS, UNBOUNDED

IDLE_CONSOLES = 50
LIVE_CONSOLES = 10
SETTLE_S = 3.0


def topics_of_a_page(browser: Browser, server: ConsoleServer) -> str:
    """The body of the last live request of a page that shows the list: the topics that it stays with."""
    with Tab(browser, server.root) as tab:
        tab.go(f"{server.base}/tasks")
        tab.painted("nuncioBench.text('.live') === 'live' && nuncioBench.taskRows() > 0")
        asked = [request.post_data for request in tab.requests if request.url.endswith("/api/live")]
    if not asked or '"rows"' not in asked[-1]:
        raise RuntimeError(f"a page of the list follows no rows: {asked[-1:]}")
    return asked[-1]


def consoles(server: ConsoleServer, body: str, count: int) -> OpenConsoles:
    return OpenConsoles(server, body, count, f"/console/api/{FIRST_LIST}")


def idle(browser: Browser, server: ConsoleServer, seconds: float) -> dict:
    """CPU of the server with 50 streams on which nothing happens, and memory of each. What the server takes without any stands
    beside it and is not subtracted: it wanders by as much as is measured."""
    body = topics_of_a_page(browser, server)
    with consoles(server, body, IDLE_CONSOLES // 10):
        time.sleep(SETTLE_S)  # What the first streams ever take is not taken again.
    time.sleep(SETTLE_S)
    without = cpu_percent(server, seconds)
    before = server.rss_kib()
    with consoles(server, body, IDLE_CONSOLES) as opened:
        time.sleep(SETTLE_S)
        percent = cpu_percent(server, seconds)
        grown = server.rss_kib() - before
        if opened.ended or not opened.thread.is_alive():
            raise RuntimeError(f"{opened.ended} streams ended")
    return {"cpu_percent": percent, "without_percent": without, "kib_each": grown / IDLE_CONSOLES, "gaps": opened.gaps}


def cpu_percent(server: ConsoleServer, seconds: float) -> float:
    """Of one core."""
    before, start = server.cpu_s(), time.monotonic()
    time.sleep(seconds)
    return 100 * (server.cpu_s() - before) / (time.monotonic() - start)


def sends(browser: Browser, server: ConsoleServer, rep: int, seconds: float) -> dict[int, dict]:
    """`send` as in bench/run, without consoles and with ten; each repeat begins with the other one."""
    body = topics_of_a_page(browser, server)
    figures: dict[int, dict] = {}
    order = [0, LIVE_CONSOLES] if rep % 2 == 0 else [LIVE_CONSOLES, 0]
    for count in order:
        with consoles(server, body, count) as opened:
            figures[count] = server.load("send", conns=CONNECTIONS["send"], count=UNBOUNDED, secs=seconds)
        figures[count].update(console_bytes=opened.received, gaps=opened.gaps)
        if opened.ended:
            figures[count] = {"error": f"{opened.ended} of {count} streams ended"}
    return figures
