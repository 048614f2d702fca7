"""An agent made with a2a-sdk 1.3.0, which does what it is told, over JSON-RPC; with GRPC_PORT also over REST and gRPC.
Usage: far_1_0.py PORT FOLDER [GRPC_PORT]"""

import asyncio
import sys

import uvicorn
from a2a.helpers.proto_helpers import new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandlerV2
from a2a.server.routes.agent_card_routes import create_agent_card_routes
from a2a.server.routes.jsonrpc_routes import create_jsonrpc_routes
from a2a.server.routes.rest_routes import create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types.a2a_pb2 import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part
from starlette.applications import Starlette

from far import Talk, note

PORT, FOLDER = int(sys.argv[1]), sys.argv[2]
GRPC_PORT = int(sys.argv[3]) if len(sys.argv) > 3 else None


class Executor(AgentExecutor):
    async def execute(self, context, event_queue):
        known = context.current_task
        if known is None:
            await event_queue.enqueue_event(new_task_from_user_message(context.message))
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        talk = Talk(FOLDER, updater, lambda text: Part(text=text))
        await talk.run(context.get_user_input(), continued=known is not None)

    async def cancel(self, context, event_queue):
        note(FOLDER, "cancel")
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def card():
    skill = AgentSkill(id="act", name="Act", description="Does what it is told.", tags=["acting"], examples=["count 3"])
    url = f"http://127.0.0.1:{PORT}/"
    bindings = [("JSONRPC", url)]
    if GRPC_PORT:
        bindings += [("HTTP+JSON", url), ("GRPC", f"127.0.0.1:{GRPC_PORT}")]
    return AgentCard(
        name="far",
        description="An agent made with a2a-sdk 1.3.0.",
        version="1",
        supported_interfaces=[
            AgentInterface(url=url, protocol_binding=binding, protocol_version="1.0") for binding, url in bindings
        ],
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[skill],
    )


handler = DefaultRequestHandlerV2(agent_executor=Executor(), task_store=InMemoryTaskStore(), agent_card=card())
routes = create_agent_card_routes(card()) + create_jsonrpc_routes(handler, "/")


async def serve():
    if GRPC_PORT:
        import grpc
        from a2a.server.request_handlers.grpc_handler import GrpcHandler
        from a2a.types.a2a_pb2_grpc import add_A2AServiceServicer_to_server

        routes.extend(create_rest_routes(handler))
        server = grpc.aio.server()
        server.add_insecure_port(f"127.0.0.1:{GRPC_PORT}")
        add_A2AServiceServicer_to_server(GrpcHandler(handler), server)
        await server.start()
    config = uvicorn.Config(Starlette(routes=routes), host="127.0.0.1", port=PORT, log_level="warning")
    await uvicorn.Server(config).serve()


asyncio.run(serve())
