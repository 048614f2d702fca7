"""The official Python client of A2A 1.0 (a2a-sdk 1.3.0), over JSON-RPC, REST and gRPC; it finds the agent by its card alone."""

import uuid

import grpc
import httpx
from a2a.client import ClientConfig, ClientFactory
from a2a.client.card_resolver import A2ACardResolver
from a2a.types.a2a_pb2 import (
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.errors import A2AError

from nuncio import Listener, over, run, server

BINDING = "JSONRPC"


def choose(binding):
    global BINDING
    BINDING = binding


def message(text, task="", context="", data=None):
    parts = [Part(text=text)]
    if data is not None:
        parts = [Part()]
        parts[0].data.struct_value.update(data)
    return Message(message_id=str(uuid.uuid4()), role=Role.ROLE_USER, parts=parts, task_id=task, context_id=context)


async def client_of(url, http, streaming=True):
    card = await A2ACardResolver(http, url).get_agent_card()
    config = ClientConfig(
        httpx_client=http,
        streaming=streaming,
        supported_protocol_bindings=[BINDING],
        grpc_channel_factory=grpc.aio.insecure_channel,
    )
    return card, ClientFactory(config).create(card)


async def send(client, **request):
    return [event async for event in client.send_message(SendMessageRequest(**request))]


async def finds_the_agent_and_sends():
    async with httpx.AsyncClient(timeout=30) as http:
        card, client = await client_of(URL, http, streaming=False)
        assert card.name == "echo", card
        [event] = await send(client, message=message("hello"))
        task = event.task
        assert task.status.state == TaskState.TASK_STATE_COMPLETED
        assert task.artifacts[0].parts[0].text == "hello"
        assert task.history[0].parts[0].text == "hello"


async def streams():
    async with httpx.AsyncClient(timeout=30) as http:
        _, client = await client_of(URL, http)
        events = await send(client, message=message("hello"))
        kinds = [event.WhichOneof("payload") for event in events]
        assert kinds == ["task", "status_update", "artifact_update", "status_update"], kinds
        assert events[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED


async def asks_and_takes_the_answer():
    async with httpx.AsyncClient(timeout=30) as http:
        _, client = await client_of(f"{URL}/agents/travel_agent", http)
        events = await send(client, message=message("Rome"))
        task = events[0].task.id
        last = events[-1].status_update.status
        assert last.state == TaskState.TASK_STATE_INPUT_REQUIRED, last
        assert "1200" in last.message.parts[0].text
        schema = last.message.parts[1].data.struct_value["schema"]
        assert "confirm" in schema["properties"]
        events = await send(client, message=message("", task=task, data={"confirm": True}))
        assert events[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED, events[-1]
        done = await client.get_task(GetTaskRequest(id=task))
        assert done.status.state == TaskState.TASK_STATE_COMPLETED
        assert done.artifacts


async def refuses_a_bad_answer_and_keeps_asking():
    async with httpx.AsyncClient(timeout=30) as http:
        _, client = await client_of(f"{URL}/agents/travel_agent", http, streaming=False)
        [event] = await send(client, message=message("Rome"))
        task = event.task
        try:
            await send(client, message=message("", task=task.id, data={"confirm": "perhaps"}))
            raise AssertionError("a bad answer was taken")
        except A2AError as error:
            assert "confirm" in str(error), error
        still = await client.get_task(GetTaskRequest(id=task.id))
        assert still.status.state == TaskState.TASK_STATE_INPUT_REQUIRED


async def gets_lists_and_limits_history():
    async with httpx.AsyncClient(timeout=30) as http:
        _, client = await client_of(URL, http, streaming=False)
        [first] = await send(client, message=message("one"))
        context = first.task.context_id
        [second] = await send(client, message=message("two", context=context))
        assert second.task.context_id == context
        task = await client.get_task(GetTaskRequest(id=first.task.id, history_length=0))
        assert not task.history
        listed = await client.list_tasks(ListTasksRequest(context_id=context))
        assert [task.id for task in listed.tasks] == [second.task.id, first.task.id]
        assert listed.total_size == 2 and not listed.tasks[0].artifacts
        page = await client.list_tasks(ListTasksRequest(context_id=context, page_size=1))
        assert page.next_page_token
        rest = await client.list_tasks(
            ListTasksRequest(context_id=context, page_size=1, page_token=page.next_page_token, include_artifacts=True)
        )
        assert [task.id for task in rest.tasks] == [first.task.id] and rest.tasks[0].artifacts
        assert rest.next_page_token == ""


async def cancels():
    async with httpx.AsyncClient(timeout=30) as http:
        _, client = await client_of(f"{URL}/agents/long_running_agent", http, streaming=False)
        configuration = SendMessageConfiguration(return_immediately=True)
        [event] = await send(client, message=message("go"), configuration=configuration)
        assert event.task.status.state in (TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING)
        task = await client.cancel_task(CancelTaskRequest(id=event.task.id))
        assert task.status.state == TaskState.TASK_STATE_CANCELED
        try:
            await client.cancel_task(CancelTaskRequest(id=event.task.id))
            raise AssertionError("a canceled task was canceled again")
        except A2AError:
            pass


async def resubscribes():
    async with httpx.AsyncClient(timeout=30) as http:
        _, client = await client_of(f"{URL}/agents/long_running_agent", http)
        task = None
        async for event in client.send_message(SendMessageRequest(message=message("go"))):
            task = task or event.task.id
            if event.HasField("status_update"):
                break
        events = [event async for event in client.subscribe(SubscribeToTaskRequest(id=task))]
        assert events[0].HasField("task"), events[0]
        assert events[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED
        try:
            [event async for event in client.subscribe(SubscribeToTaskRequest(id=task))]
            raise AssertionError("a finished task was subscribed to")
        except A2AError:
            pass


async def an_unknown_task_is_an_error_with_a_name():
    async with httpx.AsyncClient(timeout=30) as http:
        _, client = await client_of(URL, http)
        for attempt in (
            lambda: client.get_task(GetTaskRequest(id="no-such-task")),
            lambda: send(client, message=message("x", task="no-such-task")),
        ):
            try:
                await attempt()
                raise AssertionError("an unknown task was found")
            except A2AError as error:
                assert type(error).__name__ == "TaskNotFoundError", repr(error)


async def pushes():
    with Listener() as listener:
        async with httpx.AsyncClient(timeout=30) as http:
            _, client = await client_of(f"{URL}/agents/travel_agent", http, streaming=False)
            config = TaskPushNotificationConfig(id="mine", url=listener.url, token="secret-token")
            config.authentication.scheme = "Bearer"
            config.authentication.credentials = "credentials"
            configuration = SendMessageConfiguration(task_push_notification_config=config)
            [event] = await send(client, message=message("Oslo"), configuration=configuration)
            task = event.task.id
            wanted = lambda body: body.get("statusUpdate", {}).get("status", {}).get("state")
            (headers, body), _ = await listener.until(lambda body: wanted(body) == "TASK_STATE_INPUT_REQUIRED")
            assert body["statusUpdate"]["taskId"] == task
            lower = {name.lower(): value for name, value in headers.items()}
            assert lower["content-type"] == "application/a2a+json", lower
            assert lower["x-a2a-notification-token"] == lower["a2a-notification-token"] == "secret-token"
            assert lower["authorization"] == "Bearer credentials"
            assert lower["webhook-id"] and lower["webhook-timestamp"] and lower["webhook-signature"].startswith("v1,")
            read = await client.get_task_push_notification_config(
                GetTaskPushNotificationConfigRequest(task_id=task, id="mine")
            )
            assert read.url == listener.url and not read.token and not read.authentication.credentials
            other = await client.create_task_push_notification_config(
                TaskPushNotificationConfig(task_id=task, id="other", url=listener.url)
            )
            assert other.id == "other"
            listed = await client.list_task_push_notification_configs(
                ListTaskPushNotificationConfigsRequest(task_id=task)
            )
            assert sorted(config.id for config in listed.configs) == ["mine", "other"]
            await client.delete_task_push_notification_config(
                DeleteTaskPushNotificationConfigRequest(task_id=task, id="other")
            )
            await send(client, message=message("", task=task, data={"confirm": False}))
            await listener.until(lambda body: wanted(body) == "TASK_STATE_COMPLETED")


if __name__ == "__main__":
    with server("--allow-private-webhooks") as URL:
        run(over(["JSONRPC", "HTTP+JSON", "GRPC"], choose, [
            finds_the_agent_and_sends,
            streams,
            asks_and_takes_the_answer,
            refuses_a_bad_answer_and_keeps_asking,
            gets_lists_and_limits_history,
            cancels,
            resubscribes,
            an_unknown_task_is_an_error_with_a_name,
            pushes,
        ]))
