"""Runs the official MCP conformance suite against a server, and judges it by every check that it wrote down.

The suite's own exit code looks at the scored scenarios alone: extensions (tasks) and those that its reference servers
do not pass yet are run and reported, and forgiven. Nothing is forgiven here. What the suite wrote stays in
target/interop/mcp-conformance/results, one folder for each revision.
"""

import argparse
import collections
import json
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import urllib.parse

INTEROP = pathlib.Path(__file__).resolve().parents[1]
HOME = INTEROP.parents[1] / "target/interop/mcp-conformance"
RESULTS = HOME / "results"
# What a server gets that fails nothing, skips nothing, and streams where the suite would rather have a stream.
FULL_MARKS = "2025-11-25=84,2026-07-28=197"
LONGEST_MESSAGE = 200
LONGEST_RUN = 30 * 60


def main():
    options = arguments()
    reach(options.url)
    install()
    RESULTS.mkdir(exist_ok=True)
    verdicts = []
    for revision, wanted in options.at_least.items():
        known = scenarios(revision)
        if options.scenario is None:
            found = run_all(options.url, revision)
            short = sum(check["status"] == "SUCCESS" for _, check in found) < wanted
            for scenario, check in found:
                # What was not applicable is told where passes are missing: it may be what cost them.
                if check["status"] in ("FAILURE", "WARNING") or short and remark(check):
                    print(line(revision, scenario, check))
        elif options.scenario in known:
            wanted = 0
            found = run_one(options.url, revision, options.scenario)
            for _, check in found:
                print(detail(revision, check))
        else:
            continue
        verdicts.append((revision, collections.Counter(check["status"] for _, check in found), wanted))
    if not verdicts:
        sys.exit(f"no revision here has a scenario {options.scenario}; {', '.join(options.at_least)} have:\n  "
                 + "\n  ".join(sorted({name for revision in options.at_least for name in scenarios(revision)})))
    sys.exit(0 if all([summary(*verdict) for verdict in verdicts]) else 1)


def arguments():
    parser = argparse.ArgumentParser(prog="scripts/mcp-conformance", description=__doc__.split("\n")[0])
    parser.add_argument("url", metavar="URL", help="the MCP endpoint, on localhost: http://127.0.0.1:PORT/mcp")
    parser.add_argument("--scenario", metavar="NAME", help="run this one alone, and show all of it")
    parser.add_argument("--revision", action="append", help="run this one alone (may be repeated)")
    parser.add_argument("--at-least", type=marks, default=FULL_MARKS, metavar="REVISION=PASSED,...",
                        help=f"passes below which the run fails (default: {FULL_MARKS})")
    options = parser.parse_args()
    for revision in options.revision or ():
        if revision not in marks(FULL_MARKS):
            parser.error(f"the suite has no requirements for {revision}")
    if options.revision:
        options.at_least = {revision: options.at_least.get(revision, 0) for revision in options.revision}
    return options


def marks(text):
    """`2025-11-25=84,...` as a dictionary."""
    return {revision: int(passed) for revision, passed in (pair.split("=") for pair in text.split(","))}


def reach(url):
    """Says so when there is no server, where the suite would report a hundred failures."""
    at = urllib.parse.urlsplit(url)
    try:
        socket.create_connection((at.hostname, at.port or 80), timeout=10).close()
    except OSError as error:
        sys.exit(f"nobody listens at {url}: {error}")


def install():
    """Gets the suite, and a Node that is new enough for it, from npm; once."""
    subprocess.run([INTEROP / "environments"], check=True)
    if not node().exists():
        sys.exit("npm did not run the install script of the package node, so there is no Node 22")


def node():
    return HOME.parent / "mcp-node/node_modules/node/bin/node"


def suite(*words):
    """Runs the suite's command; gives what it printed. Its exit code says too little to be looked at."""
    command = [node(), HOME / "node_modules/.bin/conformance", *words]
    done = subprocess.run(command, cwd=HOME, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=LONGEST_RUN)
    return done.stdout


def scenarios(revision):
    """The server scenarios that the suite runs for a revision, scored or not."""
    listed = suite("list", "--server", "--requirements", revision)
    scored, _, rest = listed.partition("Run and reported")
    scored = scored.partition("Server scenarios")[2].partition("Client scenarios")[0]
    return re.findall(r"^ +- (\S+)$", scored, re.M) + re.findall(r"^ +- (\S+) \[server\]$", rest, re.M)


def run_all(url, revision):
    """Every check of a revision, as pairs of scenario and check."""
    folder = emptied(RESULTS / revision)
    printed = suite("server", "--url", url, "--requirements", revision, "-o", str(folder))
    (RESULTS / f"{revision}.log").write_text(printed)
    return checks(folder, scenarios(revision), printed)


def run_one(url, revision, scenario):
    """The same of one scenario; `--force` because extensions belong to no revision of the suite's own."""
    folder = emptied(RESULTS / f"{revision}-{scenario}")
    printed = suite("server", "--url", url, "--scenario", scenario, "--spec-version", revision, "--force",
                    "-o", str(folder))
    return checks(folder, [scenario], printed)


def emptied(folder):
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def checks(folder, expected, printed):
    """Reads what was written. A scenario that wrote nothing has failed: it threw, or never began."""
    found = []
    for scenario in expected:
        # Folders are named for the scenario and the time. Some scenarios' names begin with another's.
        name = re.compile(rf"server-{re.escape(scenario)}-\d{{4}}-\d\d-\d\dT.*")
        written = [path for path in folder.glob("*/checks.json") if name.fullmatch(path.parent.name)]
        for path in written:
            found += [(scenario, check) for check in json.loads(path.read_text())]
        if not written:
            why = printed.partition(f"Failed to run scenario {scenario}:")[2] or printed[-400:]
            message = f"the suite wrote no results: {why.strip()}"
            found.append((scenario, {"id": "no-results", "status": "FAILURE", "errorMessage": message}))
    return found


def remark(check):
    """What a check says of itself. Most that are INFO only log traffic and say nothing."""
    return check.get("errorMessage") or check.get("details", {}).get("message")


def line(revision, scenario, check):
    words = " ".join((remark(check) or check.get("description", "")).split())
    if len(words) > LONGEST_MESSAGE:
        words = words[:LONGEST_MESSAGE] + " …"
    kind = {"FAILURE": "FAIL", "WARNING": "warn", "SKIPPED": "skip"}.get(check["status"], "info")
    return f"{kind}  {revision}  {scenario}  {check['id']}: {words}"


def detail(revision, check):
    text = f"{check['status']:8}{revision}  {check['id']}: {check.get('description', '')}"
    if check.get("errorMessage"):
        text += "\n        " + check["errorMessage"].replace("\n", "\n        ")
    if check.get("details"):
        shown = json.dumps(check["details"], indent=2, ensure_ascii=False)
        text += "\n        " + shown.replace("\n", "\n        ")
    return text


def summary(revision, counts, wanted):
    """Prints the counts of a revision; gives whether they are good enough."""
    passed, failed = counts["SUCCESS"], counts["FAILURE"]
    print(f"{revision}: {passed} passed, {failed} failed, {counts['WARNING']} warnings, {counts['SKIPPED']} skipped",
          flush=True)
    if passed < wanted:
        print(f"{revision}: {wanted} passes are wanted", flush=True)
    return failed == 0 and passed >= wanted


if __name__ == "__main__":
    main()
