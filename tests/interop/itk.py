"""Two processes of examples/a2a_itk that call each other by nested instructions, as the A2A integration test kit does.

usage: itk.py PROGRAM
"""

import base64
import contextlib
import json
import re
import subprocess
import sys
import threading
import urllib.request


def field(number, value):
    """A field of protobuf's encoding: a flag, a text, or bytes."""
    if isinstance(value, bool):
        return bytes([number << 3, value])
    value = value.encode() if isinstance(value, str) else value
    length, rest = bytearray(), len(value)
    while rest >= 0x80:
        length.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([number << 3 | 2, *length, rest]) + value


def respond(text, hold):
    return field(2, field(1, text) + field(2, hold))


def hop(url, transport, streaming, token, instruction, hold):
    """Says the token, then calls the agent at the URL with the instruction."""
    behaviour = field(7, b"") if hold else field(5, b"")
    call = field(1, transport) + field(2, url) + field(3, instruction) + field(4, streaming) + behaviour
    return field(3, field(1, respond(token, hold)) + field(1, field(1, call)))


def send(url, instruction, streaming, wanted):
    """Sends the instruction, and reads until the wanted text is there or the response has ended."""
    part = {"raw": base64.b64encode(instruction).decode(), "mediaType": "application/x-protobuf"}
    params = {"message": {"messageId": "kit", "role": "ROLE_USER", "parts": [part]}}
    method = "SendStreamingMessage" if streaming else "SendMessage"
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    headers = {"A2A-Version": "1.0", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/jsonrpc/", json.dumps(body).encode(), headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    got = ""
    with opener.open(request, timeout=30) as response:
        for line in response:
            got += line.decode()
            if wanted in got:
                return
    raise AssertionError(f"{wanted!r} is not in {got}")


@contextlib.contextmanager
def agent(program):
    process = subprocess.Popen([program, "--httpPort", "0", "--grpcPort", "0"], stdout=subprocess.PIPE, text=True)
    try:
        url = re.match(r"http://127\.0\.0\.1:\d+", process.stdout.readline())[0]
        threading.Thread(target=process.stdout.read, daemon=True).start()
        yield url
    finally:
        process.terminate()
        process.wait(25)


def main(program):
    with agent(program) as one, agent(program) as other:
        for transport in ["jsonrpc", "http_json", "grpc"]:
            for name, streaming, hold in [("send", False, False), ("stream", True, False), ("resubscribe", True, True)]:
                done = f"traversal-completed:{transport}"
                back = hop(one, transport, streaming, "back", respond(done, hold), hold)
                there = hop(other, transport, streaming, "there", back, hold)
                send(one, there, streaming, f"there\\nback\\n{done}")
                print(f"ok: {name} over {transport}")


main(sys.argv[1])
