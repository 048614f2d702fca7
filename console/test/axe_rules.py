"""axe (WCAG 2.2 AA) and the width of a page, dark and light, 1280 and 320 px wide.

These pages run with `bypass_csp`, because axe itself is a script from elsewhere; all others run with the CSP on.
"""

import os
from contextlib import contextmanager
from pathlib import Path

TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
WIDTHS = (1280, 320)


class AxeRules:
    def __init__(self, page):
        self.page, self.source = page, Path(os.environ["AXE"]).read_text()
        self.found, self.checked = [], 0

    def begin(self, width):
        self.page.set_viewport_size({"width": width, "height": 800})
        self.page.emulate_media(color_scheme="light")

    def check(self, width, name):
        """Checks what is shown."""
        wide = self.page.evaluate("document.documentElement.scrollWidth")
        if wide > width:
            self.found.append(f"{width} {name}: {wide} px wide")
        self.page.evaluate(self.source)
        # The rules beside contrast read the same document in both schemes.
        for scheme, run_only in (("light", TAGS), ("dark", ["color-contrast"])):
            self.page.emulate_media(color_scheme=scheme)
            self.checked += 1
            for violation in self.page.evaluate("wanted => axe.run({runOnly: wanted})", run_only)["violations"]:
                node = violation["nodes"][0]
                self.found.append(f"{scheme} {width} {name}: {violation['id']}: {node['html'][:160]} {node['failureSummary'][:300]}")


@contextmanager
def axe_rules(page, what):
    """A page of its own for axe; at the end there is no violation."""
    context = page.context.browser.new_context(bypass_csp=True)
    rules = AxeRules(context.new_page())
    yield rules
    context.close()
    print(f"    axe: {rules.checked} checks of {what}, {len(rules.found)} violations")
    assert not rules.found, "\n".join(rules.found)
