"""An agent made with a2a-sdk 0.3.26, which does what it is told, over JSON-RPC; with GRPC_PORT also over REST and gRPC.
Usage: far_0_3.py PORT FOLDER [GRPC_PORT]"""

import asyncio
import sys

import uvicorn
from a2a.server.agent_execution import AgentExecutor
from a2a.server.apps import A2AStarletteApplication
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part, TextPart
from a2a.utils import new_task

from far import Talk, note

PORT, FOLDER = int(sys.argv[1]), sys.argv[2]
GRPC_PORT = int(sys.argv[3]) if len(sys.argv) > 3 else None
URL = f"http://127.0.0.1:{PORT}/"
OTHERS = [("HTTP+JSON", URL), ("GRPC", f"127.0.0.1:{GRPC_PORT}")] if GRPC_PORT else []


class Executor(AgentExecutor):
    async def execute(self, context, event_queue):
        known = context.current_task
        if known is None:
            await event_queue.enqueue_event(new_task(context.message))
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        talk = Talk(FOLDER, updater, lambda text: Part(root=TextPart(text=text)))
        await talk.run(context.get_user_input(), continued=known is not None)

    async def cancel(self, context, event_queue):
        note(FOLDER, "cancel")
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


card = AgentCard(
    name="far",
    description="An agent made with a2a-sdk 0.3.26.",
    version="1",
    url=URL,
    additional_interfaces=[AgentInterface(transport=binding, url=url) for binding, url in OTHERS],
    capabilities=AgentCapabilities(streaming=True),
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain"],
    skills=[AgentSkill(id="act", name="Act", description="Does what it is told.", tags=["acting"], examples=["count 3"])],
)
handler = DefaultRequestHandler(agent_executor=Executor(), task_store=InMemoryTaskStore())
app = A2AStarletteApplication(agent_card=card, http_handler=handler).build()


async def serve():
    if GRPC_PORT:
        import grpc
        from a2a.grpc.a2a_pb2_grpc import add_A2AServiceServicer_to_server
        from a2a.server.apps.rest.rest_adapter import RESTAdapter
        from a2a.server.request_handlers import GrpcHandler
        from starlette.routing import Route

        for (path, method), answer in RESTAdapter(agent_card=card, http_handler=handler).routes().items():
            app.router.routes.append(Route(path, answer, methods=[method]))
        server = grpc.aio.server()
        server.add_insecure_port(f"127.0.0.1:{GRPC_PORT}")
        add_A2AServiceServicer_to_server(GrpcHandler(card, handler), server)
        await server.start()
    await uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=PORT, log_level="warning")).serve()


asyncio.run(serve())
