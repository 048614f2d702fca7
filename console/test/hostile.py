"""Hostile texts where a real server refuses them: names of agents, owners, contexts, ids, links, schemas, frames of the wire.

    python hostile.py       as real.py, with the stand-in of the API; one task in six, or with NUNCIO_FULL=1 every one

Fields that a real server takes from callers and agents are tested with it, in real_safety.py.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

from real import FLAGS, watch
from real_server import FULL

HERE = Path(__file__).parent


def show_every_task(page, base):
    page.goto(base + "tasks")
    expect(page.locator(".row .task-row").first).to_be_visible()
    total = int(re.search(r"\d+", page.locator(".list-head").inner_text())[0])
    page.goto(base + "inbox")
    expect(page.locator(".asked.closed")).to_have_count(3)
    page.goto(base + "now")
    expect(page.locator("a.tile").first).to_be_visible()
    expect(page.locator(".tallies a.tally").nth(20)).to_be_visible()
    numbers = range(1, total + 1, 1 if FULL else 6)
    for n in numbers:
        page.goto(f"{base}tasks/019a8f2e-7d11-7c3a-9b1e-{n:012}")
        expect(page.locator(".story .said").first).to_be_visible()
        expect(page.locator(".facts")).to_contain_text("none missing")
        for tab, ready in {"Events": ".event-line", "Raw": ".json", "Wire": ".frame", "Timeline": ".seen li .why"}.items():
            page.get_by_role("link", name=tab, exact=True).click()
            expect(page.locator(ready).first).to_be_visible()
        assert re.fullmatch(r"\(\d+\) Nuncio", page.title()), page.title()
    return len(numbers)


def main():
    problems = []
    stand_in = subprocess.Popen(["node", str(HERE / "stand-in.mjs")], stdout=subprocess.PIPE, text=True)
    try:
        base = re.search(r"http://\S+", stand_in.stdout.readline()).group(0)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"), args=FLAGS.split())
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            watch(page, base.removesuffix("/console/"), problems, [])
            shown = show_every_task(page, base)
            browser.close()
    finally:
        stand_in.terminate()
        stand_in.wait(10)
    for problem in problems[:20]:
        print("PROBLEM", problem[:300])
    print(f"hostile names: {shown} tasks shown, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
