"""The process that runs a plan over three servers is killed (SIGKILL) right after its first commit, its second, and so on,
and started again each time: the plan is completed, no finished part is done again, and what it came to is the same.

    killed.py PLAN_KILLED [EVERY]     after every commit whose number EVERY divides; all of them without it

Run from the root, with the binary in NUNCIO and the environments of scripts/test-interop in target/interop."""

import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from servers import PARTS, Servers, comes_to, plan  # noqa: E402

PROGRAM = sys.argv[1]
EVERY = int(sys.argv[2]) if len(sys.argv) > 2 else 1
# Everything takes 4 to 30 ms.
QUICK = 0.01


def host(folder, *commits):
    """Runs the program to its end, or its death. Gives what it said; None: it was killed."""
    command = [PROGRAM, folder / "data", folder / "agents.toml", folder / "plan.toml", *commits]
    ran = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
    if ran.returncode == -signal.SIGKILL and commits:
        return None
    assert ran.returncode == 0, (ran.returncode, ran.stderr[-3000:])
    said = json.loads(ran.stdout.splitlines()[-1])
    assert said["state"] == "completed", said
    return said


def fresh(servers, scratch, name):
    servers.forget()
    folder = scratch / name
    (folder / "data").mkdir(parents=True)
    (folder / "agents.toml").write_text(servers.tables())
    (folder / "plan.toml").write_text(plan(QUICK))
    return folder


def main():
    with tempfile.TemporaryDirectory(prefix="nuncio-killed-") as scratch, Servers(pathlib.Path(scratch)) as servers:
        scratch, began = pathlib.Path(scratch), time.monotonic()
        calm = host(fresh(servers, scratch, "calm"))
        commits, expected = calm["commits"], calm["result"]
        assert all(f"{comes_to(name)}\n\n_from agent {PARTS[name][2]}_" in expected for name in PARTS), expected
        assert sorted(servers.ledger("work")) == sorted(PARTS)
        deaths = finished = repeated = 0
        for commit in range(1, commits + 1):
            if commit % EVERY:
                continue
            folder = fresh(servers, scratch, f"after-{commit}")
            if host(folder, commit) is not None:
                # It was over with fewer commits: how they fall together differs from run to run.
                continue
            deaths += 1
            said = host(folder)
            assert said["result"] == expected, (commit, said["result"])
            begun, done = servers.ledger("work"), servers.ledger("done")
            parts = {part["task"]: part for part in said["parts"]}
            before = {name for name, part in parts.items() if part["taskId"] in said["endedBefore"]}
            finished += len(before)
            for name in PARTS:
                # Cut in its middle a part may be begun once more; what was finished is not.
                assert 1 <= begun.count(name) <= (1 if name in before else 2), (commit, name, begun, before)
                assert 1 <= done.count(name) <= begun.count(name), (commit, name, done)
            assert all(parts[name]["attempts"] == 1 for name in PARTS), (commit, parts)
            repeated += len(begun) - len(PARTS)
        assert deaths >= (commits // EVERY) * 3 // 4, (deaths, commits)
        print(f"  ok    {deaths} deaths by SIGKILL, after {'every commit' if EVERY == 1 else f'one commit in {EVERY}'} of "
              f"{commits}: the same synthesis each time; {finished} parts were finished before and not done again, "
              f"{repeated} of {deaths * len(PARTS) - finished} others were begun once more; "
              f"{time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
