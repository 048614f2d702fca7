"""A receiver of webhooks on loopback that answers with the status that the test sets, and records what it was sent."""

import http.server
import json
import os
import threading


class WebhookReceiver:
    def __init__(self, status=410):
        self.status, self.received = status, []
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                receiver.received.append((receiver.status, self.path, body))
                self.send_response(receiver.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.http.shutdown()
        self.http.server_close()

    def accepted(self):
        """The bodies that it took."""
        return [body for status, _, body in self.received if status == 200]

    def task(self, server, text, path="/hook", hook="h"):
        """Starts a task whose webhook is this receiver, and gives its id."""
        return send_with_webhook(server, text, self.url + path, hook)


def send_with_webhook(server, text, url, hook="h"):
    message = {"messageId": os.urandom(8).hex(), "role": "ROLE_USER", "parts": [{"text": text}]}
    webhook = {"id": hook, "url": url, "token": "s3cret-of-the-webhook"}
    body = {"message": message, "configuration": {"returnImmediately": True, "taskPushNotificationConfig": webhook}}
    status, _, answer = server.request("POST", "/agents/echo/message:send", body)
    assert status == 200, answer
    return json.loads(answer)["task"]["id"]
