"""A plan of ten parts over three servers: one of ours, a Python A2A agent, an MCP server. It takes as long as its longest
way; and whichever of them is killed in its middle, the others do what that one had not done.

Run from the root, with the binary in NUNCIO and the environments of scripts/test-interop in target/interop."""

import datetime
import json
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from nuncio import BINARY, run  # noqa: E402
from servers import PARTS, Server, Servers, comes_to, critical_path, plan, until  # noqa: E402

# How much longer than its longest way a plan may take.
SLACK = 1.15
# Long, so that what it costs to start a command (unoptimized, on a machine of two cores) does not count for much.
SLOW = 1.6
# The plans in which somebody is killed are quicker.
QUICK = 0.5


class Orchestrator(Server):
    """The server that runs the plans."""

    def __init__(self, folder, tables):
        super().__init__(folder, "host")
        # Looked at often, so that whoever is killed is missed soon.
        registry = '[registry]\ninterval = "400ms"\nlongest-pause = "1s"\n'
        (self.folder / "nuncio.toml").write_text(registry + tables)

    def command(self):
        place = ["--listen", f"127.0.0.1:{self.port}", "--data", str(self.folder / "data")]
        return [BINARY, "serve", "--config", str(self.folder / "nuncio.toml"), *place]

    def look_at(self):
        return f"http://127.0.0.1:{self.port}/.well-known/agent-card.json"

    def nuncio(self, *arguments):
        command = [BINARY, *arguments, "--data", str(self.folder / "data"), "-o", "json"]
        ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
        assert ran.returncode == 0, (arguments, ran.returncode, ran.stdout, ran.stderr)
        return json.loads(ran.stdout)

    def until_all_are_well(self):
        """Waits until the registry has seen all three, and knows what they can do."""
        def well():
            known = {one["agentType"]: one for one in self.nuncio("agents")["agents"]}
            return all(known[name]["status"] == "healthy" and "work" in known[name]["capabilities"] for name in
                       ("ours", "python", "tools"))

        until(well, every=0.2)


class World:
    def __enter__(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="nuncio-plan-")
        self.folder = pathlib.Path(self.scratch.name)
        self.servers = Servers(self.folder).__enter__()
        self.host = Orchestrator(self.folder, self.servers.tables())
        self.host.start()
        self.host.until_all_are_well()
        return self

    def __exit__(self, *_):
        self.host.kill()
        self.servers.__exit__()
        self.scratch.cleanup()

    def file(self, scale):
        path = self.folder / "plan.toml"
        path.write_text(plan(scale))
        return str(path)


def check(ended):
    """A plan that came to what it should, and says who did each part. Gives the parts."""
    assert ended["state"] == "completed", ended
    parts = {part["task"]: part for part in ended["provenance"]["parts"]}
    for name in PARTS:
        said = f"## {name}\n\n{comes_to(name)}\n\n_from agent {parts[name]['agent']}_\n"
        assert said in ended["result"], (said, ended["result"])
    return parts


def took(ended):
    """From the first to the last thing that happened, in seconds."""
    begun = [part["startedAt"] for part in ended["provenance"]["parts"]]
    ends = [seconds(part["startedAt"]) + part["durationMs"] / 1000 for part in ended["provenance"]["parts"]]
    return max(ends) - seconds(min(begun))


def seconds(iso):
    return datetime.datetime.fromisoformat(iso.replace("Z", "+00:00")).timestamp()


async def takes_as_long_as_its_longest_way():
    longest = critical_path(SLOW)
    for chance in ("", " (once more: the machine was busy)"):
        WORLD.servers.forget()
        began = time.monotonic()
        ended = WORLD.host.nuncio("plan", "run", WORLD.file(SLOW))
        command = time.monotonic() - began
        parts = check(ended)
        assert {name: part["agent"] for name, part in parts.items()} == {name: PARTS[name][2] for name in PARTS}
        assert sorted(WORLD.servers.ledger("work")) == sorted(PARTS), "each was done once"
        whole = took(ended)
        print(f"        longest way {longest:.2f} s; the plan took {whole:.2f} s ({whole / longest:.3f}), the command "
              f"{command:.2f} s ({command / longest:.3f}){chance}", flush=True)
        if command <= longest * SLACK:
            break
    assert longest <= whole <= longest * SLACK and command <= longest * SLACK, (whole, command)


def killed(victim, done, after, at_work):
    """Somebody is killed who has done a part (one after it was begun, so that is known), is at another, and was to do
    more."""
    async def story():
        server, host = WORLD.servers[victim], WORLD.host
        WORLD.servers.forget()
        plan_id = host.nuncio("plan", "run", WORLD.file(QUICK), "--detach")["planId"]
        until(lambda: after in WORLD.servers.ledger("work") and at_work in server.ledger("work"))
        server.kill()
        ended = host.nuncio("plan", "run", "--attach", plan_id)
        parts = check(ended)
        moved = [name for name, part in parts.items() if part["agent"] != PARTS[name][2]]
        assert parts[done]["agent"] == victim and at_work in moved, parts
        for name in moved:
            assert PARTS[name][2] == victim, (name, parts[name])
            assert parts[name]["reroutedFrom"][0]["agent"] == victim, parts[name]
        begun = WORLD.servers.ledger("work")
        again = [name for name in PARTS if begun.count(name) > 1]
        assert set(again) <= set(moved), (again, moved)
        assert all(WORLD.servers.ledger("done").count(name) >= 1 for name in PARTS)
        print(f"        {victim} killed: {', '.join(moved)} went to others; the plan took {took(ended):.1f} s, "
              f"its longest way {critical_path(QUICK):.1f} s", flush=True)
        server.start()
        host.until_all_are_well()

    story.__name__ = f"goes_on_without_{victim}"
    return story


if __name__ == "__main__":
    with World() as WORLD:
        run([
            takes_as_long_as_its_longest_way,
            killed("ours", done="b", after="f", at_work="d"),
            killed("python", done="c", after="j", at_work="j"),
            killed("tools", done="a", after="d", at_work="g"),
        ])
