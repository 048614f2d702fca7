"""An agent behind an endpoint, with nothing but Python: `python3 weather.py [PORT]`.

It takes the input as JSON and answers with a stream of messages, one a line. A stream that ends without `done` is a
failure for the server, so that nothing half-done is taken for a result.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Weather(BaseHTTPRequestHandler):
    def do_POST(self):
        given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson")
        self.end_headers()
        city = given["text"].strip()
        if not city and not given["answers"]:
            # The answer comes with the next request.
            return self.say(type="ask", text="Which city?")
        if not city:
            answer = given["answers"][0]
            if answer["action"] != "accept":
                return self.say(type="rejected", text="No city, no weather.")
            city = answer["data"]["answer"]
        self.say(type="progress", done=1, total=2, text=f"looking out of the window in {city}")
        self.say(type="artifact", id="weather", data={"city": city, "sky": "blue", "celsius": 21})
        self.say(type="done", text=f"21 degrees in {city}, and no cloud.")

    def say(self, **message):
        self.wfile.write(json.dumps(message).encode() + b"\n")

    def log_message(self, *args):
        pass


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8099
    server = ThreadingHTTPServer(("127.0.0.1", port), Weather)
    print(f"listening on 127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
