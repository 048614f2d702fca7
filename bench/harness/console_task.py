"""One large task, and one large value, in a page."""

import random
import statistics
import time

from playwright.sync_api import Browser

from .console_browser import Tab
from .console_list import check, spread
from .console_server import ConsoleServer

SCROLLED_FRAMES = 240
PIXELS_A_FRAME = 1_700
# From the click on a large value to the end of what that begins.
SETTLES_S = 3.0


def tail(browser: Browser, server: ConsoleServer, task: str, count: int) -> dict:
    """Navigation to the last events painted, with the files in the cache."""
    last = server.row(task)["events"]
    times = []
    with Tab(browser, server.root) as tab:
        tab.go(f"{server.base}/tasks")
        tab.painted("nuncioBench.taskRows() > 0")
        for _ in range(count):
            tab.go(f"{server.base}/tasks/{task}/events")
            times.append(tab.since_navigation(tab.painted(f"nuncioBench.eventNumbers().includes({last})", 60)))
        check(tab)
    return spread(times, 95)


def whole_log(tab: Tab, server: ConsoleServer, task: str, reading: str) -> int:
    """Opens a task, and waits until its page holds every event."""
    last = server.row(task)["events"]
    tab.go(f"{server.base}/tasks/{task}/{reading}")
    tab.painted(f"nuncioBench.text('.facts').includes('1 to {last}, none missing')", 120)
    return last


def scrub(browser: Browser, server: ConsoleServer, task: str, reading: str, count: int) -> dict:
    """The slider to any event, to the task as of then painted. The task is folded in the page."""
    times = []
    with Tab(browser, server.root) as tab:
        last = whole_log(tab, server, task, reading)
        for _ in range(count):
            number = random.randint(1, last - 1)
            move = (
                "(() => { const slider = document.querySelector('.scrubber input');"
                f" slider.value = '{number}'; const at = nuncioBench.epoch();"
                f" const shown = nuncioBench.painted(() => nuncioBench.text('.as-of').startsWith('As of event {number} of'));"
                " slider.dispatchEvent(new Event('input', { bubbles: true })); return shown.then((painted) => painted - at); })()"
            )
            times.append(tab.run(move))
        check(tab)
    return spread(times, 95)


def scrolled(browser: Browser, server: ConsoleServer, task: str) -> dict:
    """A screenful with every frame through the list of events: rows in the DOM, times between frames, and the heap."""
    with Tab(browser, server.root) as tab:
        last = whole_log(tab, server, task, "events")
        tab.run("(document.querySelector('.events-rows').scrollTop = 0), new Promise((done) => setTimeout(done, 300))")
        done = tab.run(f"nuncioBench.scroll('.events-rows', {PIXELS_A_FRAME}, {SCROLLED_FRAMES})")
        check(tab)
        heap = tab.heap_mib()
    frames = done["frames"]
    return {
        "rows": done["most"],
        "frame_max_ms": max(frames),
        "frame_p50_ms": statistics.median(frames),
        "heap_mb": heap * (1 << 20) / 1e6,
        "bytes_per_event": heap * (1 << 20) / last,
    }


def large_value(browser: Browser, server: ConsoleServer, task: str, count: int) -> dict:
    """A click on the event of a large value to the beginning of that value painted, and the longest task of the page's
    thread from the click on. Beside it the longest task while the page of that log is opened."""
    size = max(one["size"] for one in server.events(task))
    first, whole, longest, opening = [], [], [], []
    for _ in range(count):
        with Tab(browser, server.root) as tab:
            tab.go(f"{server.base}/tasks/{task}/events")
            tab.painted("nuncioBench.text('.facts').includes('none missing')", 60)
            opening.append(max(tab.long_tasks(), default=0.0))
            tab.await_paint("document.querySelector('.event-detail pre, .event-detail .json')")
            tab.page.locator(".event-line", has_text="artifact").click()
            painted, began = tab.awaited_paint(60), tab.run("nuncioBench.inputAt")
            first.append(painted - began)
            whole.append(tab.painted("document.querySelector('.event-detail .json .json-key')", 60) - began)
            time.sleep(SETTLES_S)
            longest.append(max(tab.long_tasks(began), default=0.0))
            check(tab)
    return {
        "bytes": size,
        "first_ms": statistics.median(first),
        "tree_ms": statistics.median(whole),
        "long_task_ms": max(longest),
        "opening_long_task_ms": max(opening),
    }
