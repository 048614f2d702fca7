"""Journeys through the console in a real Chromium, with the CSP on, against a real server.

    python real.py [--pictures FOLDER] [--only NAME]    NUNCIO: the binary; CHROMIUM, else /usr/bin/chromium;
                                                        AXE: axe.min.js of axe-core 4
                                                        NUNCIO_PAGES=disk: the pages on disk, not the binary's

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
    def __init__(self, browser, pictures, only):
        self.browser, self.pictures, self.only = browser, pictures, only
        self.passed, self.failed = 0, []

    def wants(self, journeys):
        return not self.only or any(self.only in journey.__name__ for journey in journeys)

    def group(self, flags, journeys):
        with RealServer(*flags) as server:
            for journey in journeys:
                if not self.journey(journey, server):
                    self.failed.append((flags, journey))

    def repeat(self):
        """Runs what failed once more, and retains what failed again."""
        if len(self.failed) > REPEATED:
            return
        failed, self.failed = self.failed, []
        for flags, journey in failed:
            self.group(flags, [journey])
            if not self.failed or self.failed[-1] != (flags, journey):
                with open(os.environ["NUNCIO_UNSTABLE"], "a") as unstable:
                    unstable.write(f"console: {journey.__name__}\n")

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

    def shoot(self, page, name):
        if self.pictures:
            page.screenshot(path=str(Path(self.pictures) / f"{name}.png"))


def watch(page, root, problems, expected):
    """Collects what must not happen; `expected` has texts of errors that may, None: all."""

    def console(message):
        if message.type in ("error", "warning") and expected is not None and not any(text in message.text for text in expected):
            problems.append(f"console: {message.text}")

    page.on("console", console)
    page.on("pageerror", lambda error: problems.append(f"error: {error}"))
    page.on("dialog", lambda dialog: problems.append("a dialog opened") or dialog.dismiss())
    page.on("request", lambda request: None if expected is None or request.url.startswith((root, "blob:")) else problems.append(f"request out: {request.url}"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pictures")
    parser.add_argument("--only")
    arguments = parser.parse_args()
    expect.set_options(timeout=10_000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"), args=FLAGS.split())
        run = Run(browser, arguments.pictures, arguments.only)
        for flags, journeys in GROUPS:
            if run.wants(journeys):
                run.group(flags, journeys)
        if arguments.pictures:
            run.group([], [partial(real_looks.pictures, shoot=run.shoot)])
        if run.failed and os.environ.get("NUNCIO_UNSTABLE"):
            run.repeat()
        browser.close()
    print(f"console in Chromium: {run.passed} journeys passed, {len(run.failed)} failed")
    return 1 if run.failed or not run.passed else 0


if __name__ == "__main__":
    sys.exit(main())
