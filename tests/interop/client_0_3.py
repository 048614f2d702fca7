"""The official Python client of A2A 0.3 (a2a-sdk 0.3.26), over JSON-RPC, REST and gRPC; it finds the agent by its card alone."""

import uuid

import grpc
import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientHTTPError, A2AClientJSONRPCError
from a2a.types import (
    DataPart,
    GetTaskPushNotificationConfigParams,
    Message,
    MessageSendConfiguration,
    Part,
    PushNotificationAuthenticationInfo,
    PushNotificationConfig,
    Role,
    TaskIdParams,
    TaskPushNotificationConfig,
    TaskQueryParams,
    TaskState,
    TextPart,
)

from nuncio import Listener, over, run, server

BINDING = "JSONRPC"


def choose(binding):
    global BINDING
    BINDING = binding


ERRORS = (A2AClientJSONRPCError, A2AClientHTTPError, grpc.aio.AioRpcError)


def refused(error, code, status, grpc_code):
    """Whether the error is the one of that code; over REST and gRPC this client knows the status alone."""
    if BINDING == "JSONRPC":
        return isinstance(error, A2AClientJSONRPCError) and error.error.code == code
    if BINDING == "GRPC":
        return isinstance(error, grpc.aio.AioRpcError) and error.code() == grpc_code
    return isinstance(error, A2AClientHTTPError) and error.status_code == status


def at(agent):
    """Where an agent is. Over gRPC 0.3 has nothing that names one: there it is the default agent of a server of its own."""
    return OWN[agent] if BINDING == "GRPC" else f"{URL}/agents/{agent}"


def message(text, task=None, context=None, data=None):
    part = Part(root=TextPart(text=text)) if data is None else Part(root=DataPart(data=data))
    return Message(message_id=str(uuid.uuid4()), role=Role.user, parts=[part], task_id=task, context_id=context)


async def client_of(url, http, streaming=True, polling=False, pushes=()):
    card = await A2ACardResolver(http, url).get_agent_card()
    config = ClientConfig(
        httpx_client=http,
        streaming=streaming,
        polling=polling,
        push_notification_configs=list(pushes),
        supported_transports=[BINDING],
        grpc_channel_factory=grpc.aio.insecure_channel,
    )
    return card, ClientFactory(config).create(card)


async def send(client, sent):
    return [event async for event in client.send_message(sent)]


async def finds_the_agent_and_sends():
    async with httpx.AsyncClient(timeout=30) as http:
        card, client = await client_of(URL, http, streaming=False)
        assert card.name == "echo" and card.protocol_version.startswith("0.3"), card
        [(task, _)] = await send(client, message("hello"))
        assert task.status.state == TaskState.completed
        assert task.artifacts[0].parts[0].root.text == "hello"
        assert task.history[0].parts[0].root.text == "hello"


async def streams():
    async with httpx.AsyncClient(timeout=30) as http:
        _, client = await client_of(URL, http)
        events = await send(client, message("hello"))
        kinds = [update.kind if update else "task" for _, update in events]
        assert kinds == ["task", "status-update", "artifact-update", "status-update"], kinds
        task, last = events[-1]
        assert last.final and task.status.state == TaskState.completed
        assert task.artifacts[0].parts[0].root.text == "hello"


async def asks_and_takes_the_answer():
    async with httpx.AsyncClient(timeout=30) as http:
        _, client = await client_of(at("travel_agent"), http)
        events = await send(client, message("Rome"))
        task, last = events[-1]
        assert last.final and last.status.state == TaskState.input_required
        assert "1200" in last.status.message.parts[0].root.text
        assert "confirm" in last.status.message.parts[1].root.data["schema"]["properties"]
        events = await send(client, message("", task=task.id, context=task.context_id, data={"confirm": True}))
        assert events[-1][0].status.state == TaskState.completed, events[-1]
        done = await client.get_task(TaskQueryParams(id=task.id))
        assert done.artifacts


async def an_error_of_a_stream_reaches_the_caller():
    async with httpx.AsyncClient(timeout=30) as http:
        _, client = await client_of(URL, http)
        try:
            await send(client, message("x", task="no-such-task"))
            raise AssertionError("an unknown task was found")
        except ERRORS as error:
            assert refused(error, -32001, 404, grpc.StatusCode.NOT_FOUND), error


async def works_without_waiting_and_cancels():
    async with httpx.AsyncClient(timeout=30) as http:
        _, client = await client_of(at("long_running_agent"), http, streaming=False, polling=True)
        [(task, _)] = await send(client, message("go"))
        assert task.status.state in (TaskState.submitted, TaskState.working)
        task = await client.cancel_task(TaskIdParams(id=task.id))
        assert task.status.state == TaskState.canceled
        try:
            await client.cancel_task(TaskIdParams(id=task.id))
            raise AssertionError("a canceled task was canceled again")
        except ERRORS as error:
            assert refused(error, -32002, 409, grpc.StatusCode.FAILED_PRECONDITION), error


async def resubscribes():
    async with httpx.AsyncClient(timeout=30) as http:
        _, client = await client_of(at("long_running_agent"), http)
        async for task, update in client.send_message(message("go")):
            if update:
                break
        events = [event async for event in client.resubscribe(TaskIdParams(id=task.id))]
        assert events[-1][0].status.state == TaskState.completed


async def pushes():
    with Listener() as listener:
        async with httpx.AsyncClient(timeout=30) as http:
            inline = PushNotificationConfig(
                id="mine",
                url=listener.url,
                token="secret-token",
                authentication=PushNotificationAuthenticationInfo(schemes=["Bearer"], credentials="credentials"),
            )
            _, client = await client_of(at("travel_agent"), http, streaming=False, pushes=[inline])
            [(task, _)] = await send(client, message("Oslo"))
            state = lambda body: body["status"]["state"]
            (headers, body), _ = await listener.until(lambda body: state(body) == "input-required")
            assert body["kind"] == "task" and body["id"] == task.id
            lower = {name.lower(): value for name, value in headers.items()}
            assert lower["x-a2a-notification-token"] == "secret-token"
            assert lower["authorization"] == "Bearer credentials"
            read = await client.get_task_callback(
                GetTaskPushNotificationConfigParams(id=task.id, push_notification_config_id="mine")
            )
            assert read.push_notification_config.url == listener.url
            assert not read.push_notification_config.token
            await client.set_task_callback(
                TaskPushNotificationConfig(
                    task_id=task.id, push_notification_config=PushNotificationConfig(id="other", url=listener.url)
                )
            )
            await send(client, message("", task=task.id, data={"confirm": False}))
            await listener.until(lambda body: state(body) == "completed")


if __name__ == "__main__":
    flags = ["--allow-private-webhooks"]
    with (
        server(*flags) as URL,
        server(*flags, "--default-agent", "travel_agent") as travel,
        server(*flags, "--default-agent", "long_running_agent") as long_running,
    ):
        OWN = {"travel_agent": travel, "long_running_agent": long_running}
        run(over(["JSONRPC", "HTTP+JSON", "GRPC"], choose, [
            finds_the_agent_and_sends,
            streams,
            asks_and_takes_the_answer,
            an_error_of_a_stream_reaches_the_caller,
            works_without_waiting_and_cancels,
            resubscribes,
            pushes,
        ]))
