"""The official Inspector in its command-line mode (@modelcontextprotocol/inspector --cli), in both eras.

Each story is one command, as a person would type it. It has no answers to give: nobody is there to confirm a price.
"""

import json
import os
import subprocess
import sys

NODE, INSPECTOR, URL = os.environ["NODE"], os.environ["INSPECTOR"], sys.argv[1]
LONGEST_COMMAND = 60


def inspector(era, method, *words):
    """Runs one command; gives its exit code and what it printed, as JSON."""
    command = [NODE, INSPECTOR, "--cli", URL, "--protocol-era", era, "--format", "json", "--quiet", "--method", method]
    done = subprocess.run([*command, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=LONGEST_COMMAND)
    printed = (done.stdout.strip() or done.stderr.strip()).splitlines()
    assert printed, f"it printed nothing and ended with {done.returncode}"
    return done.returncode, json.loads(printed[-1])


def result(era, method, *words):
    code, printed = inspector(era, method, *words)
    assert code == 0, f"exit code {code}: {printed}"
    return printed["result"]


def call(era, tool, **arguments):
    called = result(era, "tools/call", "--tool-name", tool, "--tool-args-json", json.dumps(arguments))
    return "\n".join(block["text"] for block in called["content"] if block["type"] == "text")


def finds_the_agents(era):
    tools = {tool["name"] for tool in result(era, "tools/list")["tools"]}
    assert {"travel_agent", "research_agent", "long_running_agent"} <= tools, tools


def hears_its_echo(era):
    tools = {tool["name"] for tool in result(era, "tools/list")["tools"]}
    [echo] = {"echo", "echo_agent"} & tools
    assert "Hello?" in call(era, echo, text="Hello?")


def books_nothing_when_nobody_can_be_asked(era):
    text = call(era, "travel_agent", destination="Lisbon")
    assert "Price quoted, not booked" in text and "Lisbon" in text, text


def waits_for_long_work(era):
    text = call(era, "long_running_agent")
    assert "All 50 steps are done." in text, text


def lists_resources_and_templates(era):
    assert "resources" in result(era, "resources/list")
    assert "resourceTemplates" in result(era, "resources/templates/list")


def an_unknown_tool_is_an_error(era):
    code, printed = inspector(era, "tools/call", "--tool-name", "no_such_agent")
    assert code != 0 and "error" in printed, (code, printed)


def main():
    passed = failed = 0
    stories = [
        finds_the_agents,
        hears_its_echo,
        books_nothing_when_nobody_can_be_asked,
        waits_for_long_work,
        lists_resources_and_templates,
        an_unknown_tool_is_an_error,
    ]
    for era in ("legacy", "modern"):
        for story in stories:
            title = f"inspector/{era}/{story.__name__}"
            try:
                story(era)
                passed += 1
                print(f"ok {title}", flush=True)
            except Exception as error:
                failed += 1
                print(f"FAIL {title}: {type(error).__name__} {' '.join(str(error).split())[:500]}", flush=True)
    print(f"{passed} passed, {failed} failed", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
