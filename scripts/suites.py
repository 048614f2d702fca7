"""Runs the test programs that cargo has built, two at a time: most tests wait, for servers and for each other.

    suites.py <messages          every program, and the suites that run on PostgreSQL too
    suites.py NAME … <messages   those of these names, such as cli or server-on-postgres

`messages` is what `cargo test --no-run --message-format=json` printed. What a program printed is shown when it has
ended: its summary if it passed, all of it if it failed. Ends with 1 if one failed, after all have run, with what the
failed tests printed as the last lines: the end of a long log is what is read, and often all that is stored of it.

With a file in NUNCIO_UNSTABLE, up to REPEATED failed tests are run once more at the end, each by itself. What passes then is
written to that file and is no failure; it is a test to repair.
"""

import json
import os
import re
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
POSTGRES = str(REPO / "scripts" / "postgres")
AT_ONCE = 2

# Of each failed program, printed once more at the end.
REPORT_CHARACTERS = 12_000

# More failed tests than these are no coincidence.
REPEATED = 5

# The longest first. All others follow in the order in which they were built.
LONGEST = ["cli", "server-on-postgres", "flows", "engine-on-postgres", "engine", "server"]

# What runs a second time, on PostgreSQL. Of the engine's tests not those that cut a server off and start it again at
# once: there every lease would have to run out first.
ON_POSTGRES = {
    "server": [],
    "engine": "cancel:: caps:: follow:: listing:: questions:: random::whatever sending:: states:: webhooks::".split(),
    "flows": ["memory::", "--skip", "memory::scale"],
}


@dataclass
class Suite:
    name: str
    package: str
    folder: Path
    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)


def built(messages) -> list[Suite]:
    """One for each program, named after its crate: integration tests by the crate alone."""
    suites = []
    for line in messages:
        said = json.loads(line)
        if said["reason"] != "compiler-artifact" or not said["executable"] or not said["profile"]["test"]:
            continue
        # A benchmark is built to be linted, and is no test.
        if said["target"]["kind"] == ["bench"]:
            continue
        folder = Path(said["manifest_path"]).parent
        integration = said["target"]["kind"] == ["test"]
        name = folder.name if integration else f"{folder.name}-unit"
        # Such as path+file:///…/crates/flows#nuncio-flows@0.1.0; without a name where the folder has the same.
        package, named, _ = said["package_id"].rpartition("#")[2].partition("@")
        package = package if named else folder.name
        suites.append(Suite(name, package, folder, [said["executable"]]))
        if integration and folder.name in ON_POSTGRES:
            command = [said["executable"], *ON_POSTGRES[folder.name]]
            environment = {"NUNCIO_TEST_STORE": "postgres"}
            suites.append(Suite(f"{name}-on-postgres", package, folder, command, environment))
    return suites


@dataclass
class Run:
    code: int
    output: str
    seconds: float
    # Of the processor: of the program and of all that it started and waited for. What is far below `seconds` waits.
    processor: float

    def times(self) -> str:
        return f"({self.seconds:.0f} s, {self.processor:.0f} s of the processor)"


def run(suite: Suite) -> Run:
    # What cargo sets when it runs them itself.
    package = {"CARGO_MANIFEST_DIR": str(suite.folder), "CARGO_PKG_NAME": suite.package}
    environment = {**os.environ, **package, **suite.environment}
    began = time.monotonic()
    # Each has a PostgreSQL of its own, so that none waits for another's locks.
    process = subprocess.Popen(
        [POSTGRES, "run", *suite.command],
        cwd=suite.folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    output = process.stdout.read()
    # In place of process.wait(), which does not say what was used.
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return Run(process.returncode, output, time.monotonic() - began, used.ru_utime + used.ru_stime)


def failures(output: str) -> str:
    """What the failed tests of a program printed, from libtest's list of them; without one, the end of the output."""
    listed = output.rfind("\nfailures:\n\n---- ")
    return output[listed + 1 :] if listed >= 0 else output[-REPORT_CHARACTERS:]


def failed_tests(report: str) -> list[str]:
    """The names in libtest's list of what failed; none where the program ended without one."""
    return re.findall(r"^---- (\S+) stdout ----$", report, re.MULTILINE)


def pass_when_repeated(suite: Suite, tests: list[str]) -> bool:
    """Whether each of these tests passes by itself. Writes down that they needed it."""
    for test in tests:
        # The first word of the command is the program; the others choose tests.
        alone = Suite(suite.name, suite.package, suite.folder, [suite.command[0], "--exact", test], suite.environment)
        done = run(alone)
        print(f"{suite.name}: {test}, once more: {'passed' if done.code == 0 else 'failed'} {done.times()}", flush=True)
        # A name that matches no test would pass.
        if done.code != 0 or "1 passed" not in done.output:
            return False
    with open(os.environ["NUNCIO_UNSTABLE"], "a") as unstable:
        unstable.writelines(f"{suite.name}: {test}\n" for test in tests)
    return True


def main() -> int | str:
    suites = built(sys.stdin)
    wanted = sys.argv[1:]
    unknown = set(wanted) - {suite.name for suite in suites}
    if unknown:
        return f"no such suite: {', '.join(sorted(unknown))}"
    waiting = [suite for suite in suites if not wanted or suite.name in wanted]
    if not waiting:
        return "cargo has built no tests"
    waiting.sort(key=lambda suite: LONGEST.index(suite.name) if suite.name in LONGEST else len(LONGEST))
    failed, passed, lock = {}, 0, threading.Lock()

    def work() -> None:
        nonlocal passed
        while True:
            with lock:
                if not waiting:
                    return
                suite = waiting.pop(0)
            done = run(suite)
            summary = re.findall(r"^test result: .*$", done.output, re.MULTILINE)
            with lock:
                if done.code != 0:
                    failed[suite.name] = failures(done.output)
                    print(done.output)
                passed += sum(int(count) for count in re.findall(r"(\d+) passed", " ".join(summary)))
                print(f"{suite.name}: {'; '.join(summary) or f'ended with {done.code}'} {done.times()}", flush=True)

    workers = [threading.Thread(target=work) for _ in range(AT_ONCE)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(f"{passed} tests passed")
    tests = {name: failed_tests(report) for name, report in failed.items()}
    if os.environ.get("NUNCIO_UNSTABLE") and sum(map(len, tests.values())) <= REPEATED:
        for suite in suites:
            if tests.get(suite.name) and pass_when_repeated(suite, tests[suite.name]):
                del failed[suite.name]
    for name, report in failed.items():
        print(f"\n== what failed in {name}\n{report[:REPORT_CHARACTERS]}", flush=True)
    return f"failed: {', '.join(failed)}" if failed else 0


if __name__ == "__main__":
    sys.exit(main())
