"""Journeys through the console in a real Chromium, with the CSP on, against a real server.

    python real.py [--pictures FOLDER] [--only NAME] [--at-once N]
                                                        NUNCIO: the binary; CHROMIUM, else /usr/bin/chromium;
                                                        AXE: axe.min.js of axe-core 4
                                                        NUNCIO_PAGES=disk: the pages on disk, not the binary's

Two groups of journeys at a time, each with a server and a browser of its own: a journey mostly waits.

Only locators are used: `page.evaluate` goes through eval, which the CSP refuses. Every console error, request to another
host and CSP report fails the run. NUNCIO_FULL=1 runs the larger counts.

With a file in NUNCIO_UNSTABLE, up to REPEATED failed journeys are run once more at the end, each with a server of its own. What
passes then is written to that file and is no failure; it is a journey to repair.
"""

import argparse
import os
import sys
import time
import traceback
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

import real_audit
import real_flows
import real_knowledge
import real_log_file
import real_looks
import real_now
import real_operations
import real_questions
import real_safety
import real_seen
import real_server_screens
import real_tasks
import real_timeline
import real_try
import real_views
from real_server import RealServer

FLAGS = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update --disable-sync"
# A browser logs requests that fail: those of the journeys that expect them are no problem.
EXPECTED = {
    "kill_under_a_live_page": ["ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET", "ERR_SOCKET_NOT_CONNECTED", "ERR_EMPTY_RESPONSE"],
    "answer_from_the_inbox": ["status of 422"],
    "sign_in_by_code": ["status of 401"],
    "sign_in_by_token": ["status of 401", "status of 403"],
    "foreign_page": None,
    "lives_on_the_timeline": ["ERR_CONNECTION_REFUSED"],
    "compare_two_tasks": ["status of 404"],
    **real_audit.EXPECTED,
    **real_knowledge.EXPECTED,
    **real_now.EXPECTED,
    **real_operations.EXPECTED,
    **real_server_screens.EXPECTED,
    **real_try.EXPECTED,
}
# Each group has a server of its own, with these flags.
GROUPS = [
    ([], [*real_questions.JOURNEYS, *real_tasks.JOURNEYS, *real_safety.OPEN]),
    ([], [*real_timeline.JOURNEYS, *real_flows.JOURNEYS, *real_views.JOURNEYS, *real_log_file.JOURNEYS]),
    ([], real_knowledge.JOURNEYS),
    ([], real_try.JOURNEYS),
    ([], real_operations.JOURNEYS),
    (real_operations.FLAGS, real_operations.WEBHOOKS),
    ([], real_server_screens.JOURNEYS),
    (real_now.FLAGS, [*real_now.JOURNEYS, *real_seen.JOURNEYS]),
    ([], real_looks.JOURNEYS),
    ([], [real_safety.hostile_texts]),
    (["--auth", "on"], [*real_safety.CLOSED, *real_knowledge.CLOSED, *real_try.CLOSED, *real_operations.CLOSED, *real_server_screens.CLOSED, *real_now.CLOSED, *real_audit.CLOSED]),
]


# More failed journeys than these are no coincidence.
REPEATED = 3


class Run:
    """Journeys one after another in one browser."""

    def __init__(self, browser, pictures, only):
        self.browser, self.pictures, self.only = browser, pictures, only
        self.passed, self.failed = 0, []

    def group(self, flags, journeys):
        with RealServer(*flags) as server:
            for journey in journeys:
                if not self.journey(journey, server):
                    self.failed.append((flags, journey))

    def journey(self, journey, server):
        """Whether it passed."""
        name = getattr(journey, "__name__", "pictures")
        if self.only and self.only not in name:
            return True
        began = time.monotonic()
        context = self.browser.new_context(viewport={"width": 1280, "height": 800})
        context.set_default_timeout(10_000)
        page = context.new_page()
        problems = []
        watch(page, server.root, problems, EXPECTED.get(name, []))
        try:
            journey(page, server)
            assert not problems, problems[:5]
            self.passed += 1
            print(f"ok      {name}  {time.monotonic() - began:.1f} s", flush=True)
            return True
        except Exception:
            print(f"FAILED  {name}  at {page.url}", flush=True)
            traceback.print_exc()
            for problem in problems[:5]:
                print("        ", problem[:300])
            if self.pictures:
                page.screenshot(path=str(Path(self.pictures) / f"failed-{name}.png"))
            return False
        finally:
            context.close()


def watch(page, root, problems, expected):
    """Collects what must not happen; `expected` has texts of errors that may, None: all."""

    def console(message):
        if message.type in ("error", "warning") and expected is not None and not any(text in message.text for text in expected):
            problems.append(f"console: {message.text}")

    page.on("console", console)
    page.on("pageerror", lambda error: problems.append(f"error: {error}"))
    page.on("dialog", lambda dialog: problems.append("a dialog opened") or dialog.dismiss())
    page.on("request", lambda request: None if expected is None or request.url.startswith((root, "blob:")) else problems.append(f"request out: {request.url}"))


def run_groups(groups, pictures, only):
    """Takes groups until none is left. Playwright's objects stay in the thread that made them."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"), args=FLAGS.split())
        run = Run(browser, pictures, only)
        while groups:
            try:
                flags, journeys = groups.popleft()
            except IndexError:
                break
            run.group(flags, journeys)
        browser.close()
    return run


def shoot(pictures, page, name):
    page.screenshot(path=str(Path(pictures) / f"{name}.png"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pictures")
    parser.add_argument("--only")
    parser.add_argument("--at-once", type=int, default=2)
    arguments = parser.parse_args()
    # Two browsers, two servers and the official clients share what the machine has.
    expect.set_options(timeout=20_000)
    only, pictures, at_once = arguments.only, arguments.pictures, arguments.at_once
    groups = deque(group for group in GROUPS if not only or any(only in journey.__name__ for journey in group[1]))
    if pictures and not only:
        groups.append(([], [partial(real_looks.pictures, shoot=partial(shoot, pictures))]))
    with ThreadPoolExecutor(at_once) as pool:
        runs = list(pool.map(lambda _: run_groups(groups, pictures, only), range(at_once)))
    passed, failed = sum(run.passed for run in runs), [journey for run in runs for journey in run.failed]
    if failed and len(failed) <= REPEATED and os.environ.get("NUNCIO_UNSTABLE"):
        again = run_groups(deque((flags, [journey]) for flags, journey in failed), None, None)
        with open(os.environ["NUNCIO_UNSTABLE"], "a") as unstable:
            unstable.writelines(f"console: {journey.__name__}\n" for flags, journey in failed if (flags, journey) not in again.failed)
        passed, failed = passed + again.passed, again.failed
    print(f"console in Chromium: {passed} journeys passed, {len(failed)} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
