"""A real nuncio server, a webhook listener, and the few lines that run stories and count them."""

import asyncio
import contextlib
import http.server
import json
import os
import queue
import re
import subprocess
import tempfile
import threading
import traceback

BINARY = os.environ["NUNCIO"]


@contextlib.contextmanager
def server(*flags, data=None):
    """Starts `nuncio serve` on a free port and a new data folder, or this one; gives its base URL."""
    with contextlib.nullcontext(data) if data else tempfile.TemporaryDirectory() as data:
        command = [BINARY, "serve", "--listen", "127.0.0.1:0", "--data", data, "--agent-step", "20ms", *flags]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            for line in process.stdout:
                found = re.search(r"(http://127\.0\.0\.1:\d+)/\.well-known/agent-card\.json", line)
                if found:
                    break
            else:
                raise RuntimeError("nuncio ended before it printed its card's URL")
            # What it prints later must not fill the pipe.
            threading.Thread(target=process.stdout.read, daemon=True).start()
            yield found.group(1)
        finally:
            process.terminate()
            process.wait(25)


class Listener:
    """A webhook receiver that keeps what it got."""

    def __enter__(self):
        got = self.got = queue.Queue()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                got.put((dict(self.headers), json.loads(body)))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/hook"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.http.shutdown()

    async def until(self, wanted, within=20):
        """Waits for a notification that is as wanted; gives it and all that came before it."""
        seen = []
        while True:
            item = await asyncio.to_thread(self.got.get, True, within)
            seen.append(item)
            if wanted(item[1]):
                return item, seen


def over(bindings, choose, stories):
    """The stories once for every binding: `choose` sets it before each."""

    def told(binding, story):
        async def chosen():
            choose(binding)
            await story()

        chosen.__name__ = f"{story.__name__} ({binding})"
        return chosen

    return [told(binding, story) for binding in bindings for story in stories]


def run(stories):
    """Runs every story, prints the count, and exits accordingly."""
    failed = 0
    for story in stories:
        try:
            asyncio.run(asyncio.wait_for(story(), 60))
            print(f"ok      {story.__name__}", flush=True)
        except Exception:
            failed += 1
            print(f"FAILED  {story.__name__}", flush=True)
            traceback.print_exc()
    print(f"{len(stories) - failed} passed, {failed} failed", flush=True)
    raise SystemExit(1 if failed else 0)
