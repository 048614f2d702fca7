"""An agent made with a2a-sdk 0.3.26, which does what it is told. Usage: far_0_3.py PORT FOLDER"""

import sys

import uvicorn
from a2a.server.agent_execution import AgentExecutor
from a2a.server.apps import A2AStarletteApplication
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentSkill, Part, TextPart
from a2a.utils import new_task

from far import Talk, note

PORT, FOLDER = int(sys.argv[1]), sys.argv[2]


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
    url=f"http://127.0.0.1:{PORT}/",
    capabilities=AgentCapabilities(streaming=True),
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain"],
    skills=[AgentSkill(id="act", name="Act", description="Does what it is told.", tags=["acting"], examples=["count 3"])],
)
handler = DefaultRequestHandler(agent_executor=Executor(), task_store=InMemoryTaskStore())
app = A2AStarletteApplication(agent_card=card, http_handler=handler).build()
uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="warning")
