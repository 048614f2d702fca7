"""The MCP peer against servers made with the official SDKs, and the reference server, over HTTP and pipes.

    host.py MCP_CALL ENVIRONMENTS [WORD]

MCP_CALL is the example of that name, ENVIRONMENTS the folder that `run` has installed the SDKs into; with a WORD only
stories whose line has it are told. Prints a line for every story; ends with 0 when none failed.
"""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
# Long, because others may be busy on the same machine; nobody waits for it when all is well.
LONGEST = 60
OLD, NEW = "2025-11-25", "2026-07-28"

CALL, ENVIRONMENTS = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
ONLY = (sys.argv + [""])[3]
NODE = ENVIRONMENTS / "mcp-node/node_modules/node/bin/node"
EVERYTHING = ENVIRONMENTS / "mcp-everything/node_modules/@modelcontextprotocol/server-everything/dist/index.js"


def call(place, *arguments, version=None, leaves=False):
    """What happened, as a list of (kind, value)."""
    insist = ["--version", version] if version else []
    done = subprocess.run([CALL, place, *arguments, *insist], capture_output=True, text=True, timeout=LONGEST)
    happened = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode in ((9,) if leaves else (0, 1, 3)), f"{done.returncode}: {happened} {done.stderr}"
    return [next(iter(one.items())) if "error" not in one or "answered" in one else ("error", one) for one in happened]


def tool(place, name, arguments=None, *more, **options):
    return call(place, name, json.dumps(arguments or {}), *more, **options)


def of(happened, kind):
    return [value for name, value in happened if name == kind]


def parts(happened):
    assert not of(happened, "error"), happened
    return [part for chunk in of(happened, "artifact") for part in chunk["parts"]]


def text(happened):
    return "\n".join(part["text"] for part in parts(happened) if "text" in part)


def answers(*given):
    return "--answers", json.dumps(given)


def equal(got, wanted):
    assert got == wanted, f"{got!r} is not {wanted!r}"


# Stories of the servers here, which have the same tools in every SDK.


def structured(place, version):
    equal([part["data"] for part in parts(tool(place, "add", {"a": 2, "b": 3}, version=version)) if "data" in part],
          [{"sum": 5}])


def picture(place, version):
    equal(parts(tool(place, "picture", version=version)), [{"bytes": "YWJj", "media_type": "image/png"}])


def progress(place, version):
    happened = tool(place, "tell", {"count": 4}, version=version)
    equal([step["done"] for step in of(happened, "progress")], [1, 2, 3, 4])
    equal(text(happened), "told 4")


def let_go(place, version):
    """The server closes the stream half-way, and the rest is taken from another."""
    happened = tool(place, "tell", {"count": 4, "let_go": True}, version=version)
    equal([step["done"] for step in of(happened, "progress")], [1, 2, 3, 4])
    equal(text(happened), "told 4")


def form(place, version):
    equal(text(tool(place, "greet", {}, *answers({"name": "Ada"}), version=version)), "Hello, Ada.")
    equal(text(tool(place, "greet", {}, *answers("decline"), version=version)), "Hello, whoever (decline).")
    equal(text(tool(place, "greet", {}, *answers("cancel"), version=version)), "Hello, whoever (cancel).")


def link(place, version):
    happened = tool(place, "visit", {}, *answers({}), version=version)
    equal(of(happened, "asks")[0]["ask"], {"authorization": {"url": "https://example.com/there"}})
    equal(text(happened), "visited: accept")


def sample(place, version):
    happened = tool(place, "sample", {}, *answers({"text": "something"}), version=version)
    equal(of(happened, "asks")[0]["ask"], {"sample": {"system": "Be brief.", "max_tokens": 50}})
    equal(text(happened), "something")


def failure(place, version):
    ended = of(tool(place, "fail", version=version), "ended")[0]
    equal(ended["state"], "failed")
    assert "for a reason" in json.dumps(ended["message"]), ended


def unknown(place, version):
    equal(of(tool(place, "nobody", version=version), "error")[0]["error"], "refused")


def taken_up(place, version):
    """The process dies when it is asked, and another one answers."""
    left = tool(place, "greet", {}, "--leave", "asks", version=version, leaves=True)
    happened = call(place, "--handle", json.dumps(of(left, "kept")[-1]), *answers({"name": "Eve"}))
    equal(text(happened), "Hello, Eve.")


def taken_up_half_way(place, version):
    """The process dies after some progress, and another one hears the rest."""
    left = tool(place, "tell", {"count": 6, "let_go": True}, "--leave", "progress", version=version, leaves=True)
    happened = call(place, "--handle", json.dumps(of(left, "kept")[-1]))
    seen = [step["done"] for step in of(left, "progress") + of(happened, "progress")]
    equal(sorted(set(seen)), [1, 2, 3, 4, 5, 6])
    equal(text(happened), "told 6")


EVERYWHERE = (structured, picture, progress, form, sample, failure, unknown)


# Stories of the reference server.


def everything_tools(place, version):
    offers = set(of(call(place, "--offers", version=version), "offer"))
    assert {"echo", "get-sum", "trigger-long-running-operation"} <= offers, offers
    equal(text(tool(place, "echo", {"message": "hello"}, version=version)), "Echo: hello")


def everything_long(place, version):
    happened = tool(place, "trigger-long-running-operation", {"duration": 1, "steps": 4}, version=version)
    equal([step["done"] for step in of(happened, "progress")], [1, 2, 3, 4])
    assert "completed" in text(happened), happened


def everything_content(place, version):
    kinds = [sorted(set(part) & {"text", "bytes", "url", "data"}) for part in
             parts(tool(place, "get-tiny-image", version=version))]
    assert ["bytes"] in kinds, kinds
    linked = parts(tool(place, "get-resource-links", {"count": 3}, version=version))
    equal(sum("url" in part for part in linked), 3)
    assert any("data" in part for part in parts(
        tool(place, "get-structured-content", {"location": "New York"}, version=version)))


def everything_asks(place, version):
    happened = tool(place, "trigger-sampling-request", {"prompt": "Say something.", "maxTokens": 20},
                    *answers({"text": "something"}), version=version)
    assert "something" in text(happened), happened
    happened = tool(place, "trigger-elicitation-request", {}, *answers("decline"), version=version)
    assert of(happened, "asks")[0]["ask"]["form"]["schema"]["properties"], happened
    equal(of(happened, "ended")[0]["state"], "completed")


def everything_link(place, version):
    happened = tool(place, "trigger-url-elicitation", {"url": "https://example.com/there", "message": "Go there."},
                    *answers({}), version=version)
    equal(of(happened, "asks")[0]["ask"], {"authorization": {"url": "https://example.com/there"}})
    equal(of(happened, "ended")[0]["state"], "completed")


def everything_task(place, version):
    """A task that asks; its words on the way come by its status."""
    happened = tool(place, "simulate-research-query", {"topic": "peers", "ambiguous": True},
                    *answers({"interpretation": "technical"}), version=version)
    assert any("task" in kept for kept in of(happened, "kept")), happened
    assert len(of(happened, "said")) > 2, happened
    assert "technical" in text(happened), happened


def everything_task_taken_up(place, version):
    """The process dies when the task asks, and another one goes on with it."""
    left = tool(place, "simulate-research-query", {"topic": "peers", "ambiguous": True}, "--leave", "asks",
                version=version, leaves=True)
    happened = call(place, "--handle", json.dumps(of(left, "kept")[-1]), *answers({"interpretation": "technical"}))
    assert "technical" in text(happened), happened


def everything_requests(place, version):
    listed = call(place, "--request", "resources/list", version=version)
    assert listed[0][1]["resources"], listed
    prompt = call(place, "--request", "prompts/get", json.dumps({"name": "simple-prompt"}), version=version)
    assert prompt[0][1]["messages"], prompt


REFERENCE = (everything_tools, everything_long, everything_content, everything_asks, everything_link,
             everything_task, everything_requests)


@contextlib.contextmanager
def serving(command, path, env=None):
    """The URL of a server that is given its port as the last argument, or in PORT."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = os.environ | {"PORT": str(port), "PYTHONDONTWRITEBYTECODE": "1"} | (env or {})
    command = [str(word).replace("{port}", str(port)) for word in command]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment) as process:
        try:
            deadline = time.monotonic() + LONGEST
            while True:
                assert process.poll() is None, f"{command} ended with {process.returncode}"
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                    break
                assert time.monotonic() < deadline, f"{command} does not start"
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}{path}"
        finally:
            process.kill()


def tell(name, place, version, stories):
    failed = 0
    for story in stories:
        line = f"{name}, {version or 'as it speaks'}: {story.__name__}"
        if ONLY not in line:
            continue
        try:
            story(place, version)
            print(f"  ok    {line}", flush=True)
        except (AssertionError, IndexError, KeyError, subprocess.TimeoutExpired) as error:
            failed += 1
            print(f"  FAIL  {line}: {str(error)[:1500]}", flush=True)
    return failed


def main():
    failed = 0
    for name, major, eras in (("mcp 2.3.0", "2", (NEW, OLD)), ("mcp 1.30.0", "1", (OLD,))):
        python = ENVIRONMENTS / f"mcp-{name.split()[1]}/bin/python"
        script = HERE / f"server_v{major}.py"
        pipes = json.dumps([str(python), "-B", str(script), "stdio"])
        links = (link,) if major == "1" else ()
        with serving([python, "-B", script, "http", "{port}"], "/mcp") as url:
            for era in eras:
                resumes = () if era == NEW else (let_go, taken_up_half_way, *links)
                failed += tell(f"{name} over HTTP", url, era, (*EVERYWHERE, *resumes, taken_up))
            failed += tell(f"{name} over HTTP", url, None, (progress, form))
        for era in eras:
            failed += tell(f"{name} on pipes", pipes, era, EVERYWHERE)
        failed += tell(f"{name} on pipes", pipes, None, (progress, form))
        with serving([python, "-B", script, "sse", "{port}"], "/sse") as url:
            failed += tell(f"{name} over HTTP+SSE", url, None, (structured, progress, failure))
    script = ENVIRONMENTS / "mcp-typescript-1.32.2/host_server.mjs"
    with serving([NODE, script, "http", "{port}"], "/mcp") as url:
        failed += tell("TypeScript 1.32.2 over HTTP", url, OLD, (*EVERYWHERE, let_go, taken_up, taken_up_half_way))
    failed += tell("TypeScript 1.32.2 on pipes", json.dumps([str(NODE), str(script), "stdio"]), OLD, EVERYWHERE)
    pipes = json.dumps([str(NODE), str(EVERYTHING), "stdio"])
    failed += tell("server-everything on pipes", pipes, None, REFERENCE)
    with serving([NODE, EVERYTHING, "streamableHttp"], "/mcp") as url:
        failed += tell("server-everything over HTTP", url, None, (*REFERENCE, everything_task_taken_up))
    with serving([NODE, EVERYTHING, "sse"], "/sse") as url:
        failed += tell("server-everything over HTTP+SSE", url, None, (everything_tools, everything_long))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
