"""From a commit to the screen: the next event of a task, a row that changes, a new row; and the heap of pages under load.

The time of a commit is what the server wrote as the event's or the status's own time, which is before the commit: what is
measured has the fsync in it, and is never too short.
"""

import random
import threading
import time

from playwright.sync_api import Browser

from .console_browser import Tab
from .console_list import check, spread
from .console_server import ConsoleServer, epoch_ms

# Apart by a random time, so that they do not fall in step with the server's quarter seconds.
PAUSE_S = (0.15, 0.75)


def event(browser: Browser, shown_at: ConsoleServer, runs_at: ConsoleServer, count: int, rate: float = 7.0) -> dict:
    """Events of a task at work, each from its own time to its row in the list of events."""
    seconds = count / rate + 3
    task = runs_at.send("maker", f"ticks {rate:.1f} {seconds:.1f}")
    runs_at.wait_for(task, ("working",), 20)
    with Tab(browser, shown_at.root) as tab:
        tab.go(f"{shown_at.base}/tasks/{task}/events")
        tab.painted("nuncioBench.text('.live') === 'live' && nuncioBench.eventNumbers().length > 0")
        tab.run("nuncioBench.watch(nuncioBench.eventNumbers)")
        # What is in the page by now was not seen when it came.
        known = runs_at.row(task)["events"]
        runs_at.completed(task, seconds + 30)
        last = runs_at.row(task)["events"]
        tab.painted(f"nuncioBench.eventNumbers().includes({last})")
        painted = {number: at for number, at in tab.run("[...nuncioBench.seen]") if at}
        check(tab)
    written = {one["seq"]: epoch_ms(one["timestamp"]) for one in runs_at.events(task)}
    missing = [number for number in range(known + 1, last + 1) if number not in painted]
    if missing:
        raise RuntimeError(f"{len(missing)} events were never painted, such as {missing[0]}")
    return spread([painted[number] - written[number] for number in range(known + 1, last + 1)], 95, 99)


def changed_row(browser: Browser, shown_at: ConsoleServer, acts_at: ConsoleServer, count: int) -> dict:
    """Rows of tasks that wait for an answer, each from the commit of its cancelation to the word on the screen."""
    tasks = acts_at.send_many("maker", "ask", count)
    for task in tasks:
        acts_at.wait_for(task, ("input-required",), 60)
    with Tab(browser, shown_at.root) as tab:
        tab.go(f"{shown_at.base}/tasks?state=input-required&state=canceled&agent=maker")
        tab.painted("nuncioBench.text('.live') === 'live' && nuncioBench.taskRows() > 0")
        # Rows that are in the DOM: they stay, since nothing moves in the list.
        shown = tab.run("[...document.querySelectorAll('nuncio-rows .task-row')].map((row) => row.getAttribute('href').split('/').at(-1))")
        wanted = [task for task in tasks if task in shown]
        random.shuffle(wanted)
        times = []
        for task in wanted:
            condition = f"document.querySelector('nuncio-rows a[href$=\"{task}\"] .state')?.textContent.includes('canceled')"
            times.append(painted_after(tab, condition, lambda: acts_at.api(f"tasks/{task}/cancel", {}), lambda: acts_at.row(task)))
        check(tab)
    return spread(times, 95, 99)


def new_row(browser: Browser, shown_at: ConsoleServer, acts_at: ConsoleServer, count: int) -> dict:
    """New tasks, each from its status to the count in the pill: a new row moves nothing, it is counted."""
    sent: list[str] = []
    with Tab(browser, shown_at.root) as tab:
        tab.go(f"{shown_at.base}/tasks")
        tab.painted("nuncioBench.text('.live') === 'live' && nuncioBench.taskRows() > 0")
        times = []
        for number in range(1, count + 1):
            condition = f"nuncioBench.text('.pill').startsWith('{number} new')"
            act = lambda: sent.append(acts_at.send("echo", "hello"))  # noqa: E731
            times.append(painted_after(tab, condition, act, lambda: acts_at.api(f"tasks/{sent[-1]}/events?limit=1"), created))
        check(tab)
    return spread(times, 95, 99)


def created(page: dict) -> float:
    return epoch_ms(page["events"][0]["timestamp"])


def painted_after(tab: Tab, condition: str, act, read, when=lambda row: epoch_ms(row["statusAt"])) -> float:
    """Milliseconds from the commit that `act` makes to the paint of a condition, which is awaited before the act."""
    time.sleep(random.uniform(*PAUSE_S))
    tab.await_paint(condition)
    act()
    painted = tab.awaited_paint()
    return painted - when(read())


def soak(browser: Browser, server: ConsoleServer, seconds: float, rate: int = 100) -> dict:
    """The heap of two pages while `rate` events a second come to each: one shows the list, in which tasks are made and end;
    the other follows one task after the other, since a page holds the log of the task that it shows. Measured after the
    first quarter and at the end."""
    rounds = max(4, round(seconds / 3600) * 4)
    each = seconds / rounds
    stop, sent = threading.Event(), []
    made = threading.Thread(target=make_tasks, args=(server, rate / 2, stop, sent), daemon=True)
    with Tab(browser, server.root) as listing, Tab(browser, server.root) as following:
        listing.go(f"{server.base}/tasks")
        listing.painted("nuncioBench.text('.live') === 'live' && nuncioBench.taskRows() > 0")
        heaps = []
        began = time.monotonic()
        made.start()
        try:
            following.go(f"{server.base}/tasks")
            for _ in range(rounds):
                task = server.send("maker", f"ticks {rate:.1f} {each:.1f}")
                # Within the page, not by a navigation: what the task before held must be let go by the page itself.
                following.run(f"history.pushState(null, '', '/console/tasks/{task}/events'), dispatchEvent(new Event('popstate'))")
                events = server.completed(task, each * 2 + 60)["events"]
                following.painted(f"nuncioBench.eventNumbers().includes({events})", 60)
                following.run("history.pushState(null, '', '/console/inbox'), dispatchEvent(new Event('popstate'))")
                following.painted("!document.querySelector('nuncio-task')")
                heaps.append((listing.heap_mib(), following.heap_mib()))
        finally:
            stop.set()
            made.join(10)
        lasted = time.monotonic() - began
        check(listing)
        check(following)
    if len(sent) < 0.8 * lasted * rate / 2:
        raise RuntimeError(f"only {len(sent)} tasks in {lasted:.0f} s: the machine is too slow for this load")
    quarter, end = heaps[rounds // 4 - 1], heaps[-1]
    return {"list_mb": end[0] - quarter[0], "task_mb": end[1] - quarter[1], "list_heap_mib": end[0], "task_heap_mib": end[1], "rounds": rounds, "tasks_per_s": len(sent) / lasted}


def make_tasks(server: ConsoleServer, rate: float, stop: threading.Event, sent: list[None]) -> None:
    """Tasks of echo: each row changes twice, when it comes and when it ends."""
    start = time.monotonic()
    while not stop.wait(max(0.0, start + len(sent) / rate - time.monotonic())):
        server.send("echo", "hello")
        sent.append(None)
