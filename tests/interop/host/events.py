"""The events of all streams of a server, in memory: what lets the Python SDK take up a stream again."""

try:
    from mcp.server.streamable_http import EventMessage, EventStore
except ImportError:
    raise SystemExit("the Python SDK has no event store")


class Events(EventStore):
    def __init__(self):
        self.events = []

    async def store_event(self, stream_id, message):
        self.events.append((stream_id, message))
        return str(len(self.events))

    async def replay_events_after(self, last_event_id, send_callback):
        last = int(last_event_id)
        if not 0 < last <= len(self.events):
            return None
        stream = self.events[last - 1][0]
        for number, (of, message) in enumerate(self.events[last:], last + 1):
            if of == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream
