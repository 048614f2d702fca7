"""The bench agent on a2a-sdk 1.3.0, the official Python SDK: JSON-RPC and REST on one port of uvicorn, or with --grpc
gRPC on it instead.

    server.py PORT [--grpc]

Tasks are in memory. It is one process, on uvloop and httptools where uvicorn serves.
"""

import asyncio
import logging
import sys

import grpc
import uvicorn
from a2a.helpers.proto_helpers import new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
from a2a.server.routes.jsonrpc_routes import create_jsonrpc_routes
from a2a.server.routes.rest_routes import create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types.a2a_pb2 import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part
from a2a.types.a2a_pb2_grpc import add_A2AServiceServicer_to_server
from starlette.applications import Starlette

CHUNKS = 100
CHUNK_BYTES = 200
WAIT = 600.0


class Bench(AgentExecutor):
    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        await event_queue.enqueue_event(new_task_from_user_message(context.message))
        task = TaskUpdater(event_queue, context.task_id, context.context_id)
        await task.start_work()
        text = context.get_user_input()
        if text.startswith("stream"):
            for n in range(1, CHUNKS + 1):
                parts = [Part(text="x" * CHUNK_BYTES)]
                await task.add_artifact(parts, artifact_id="out", append=n > 1, last_chunk=n == CHUNKS)
        elif text.startswith("wait"):
            await asyncio.sleep(WAIT)
        else:
            await task.add_artifact([Part(text=text)], artifact_id="out", last_chunk=True)
        await task.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def card(port: int) -> AgentCard:
    url = f"http://127.0.0.1:{port}/"
    bindings = ("JSONRPC", "HTTP+JSON", "GRPC")
    return AgentCard(
        name="bench",
        description="For measurements.",
        version="1",
        supported_interfaces=[
            AgentInterface(url=url, protocol_binding=binding, protocol_version="1.0") for binding in bindings
        ],
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="bench", name="Bench", description="Echoes text.", tags=["benchmark"])],
    )


async def serve_grpc(handler: DefaultRequestHandler, port: int) -> None:
    server = grpc.aio.server()
    server.add_insecure_port(f"127.0.0.1:{port}")
    add_A2AServiceServicer_to_server(GrpcHandler(handler), server)
    await server.start()
    await server.wait_for_termination()


def main() -> None:
    # A line for every request would be measured as well.
    logging.disable(logging.WARNING)
    port = int(sys.argv[1])
    handler = DefaultRequestHandler(agent_executor=Bench(), task_store=InMemoryTaskStore(), agent_card=card(port))
    if "--grpc" in sys.argv[2:]:
        asyncio.run(serve_grpc(handler, port))
    else:
        app = Starlette(routes=create_jsonrpc_routes(handler, "/") + create_rest_routes(handler))
        uvicorn.run(app, host="127.0.0.1", port=port, log_level="error", access_log=False)


main()
