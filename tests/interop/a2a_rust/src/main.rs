//! The official Rust client of A2A 1.0 (a2a-client-lf), over the bindings that it has; it finds the agent by its card.
//!
//!   a2a-stories URL

use a2a::{
    A2AError, CancelTaskRequest, GetTaskRequest, Message, Part, Role, SendMessageConfiguration,
    SendMessageRequest, SendMessageResponse, StreamResponse, Task, TaskState,
};
use a2a_client::{A2AClient, A2AClientFactory, Transport, agent_card::AgentCardResolver};
use futures::StreamExt as _;

type Client = A2AClient<Box<dyn Transport>>;

const BINDINGS: [&str; 2] = ["JSONRPC", "HTTP+JSON"];
const TASK_NOT_FOUND: i32 = -32001;

async fn client_at(url: &str, binding: &str) -> Result<Client, A2AError> {
    let mut card = AgentCardResolver::new(None).resolve(url).await?;
    card.supported_interfaces.retain(|interface| interface.protocol_binding == binding);
    A2AClientFactory::builder().build().create_from_card(&card).await
}

fn request(text: &str) -> SendMessageRequest {
    let message = Message::new(Role::User, vec![Part::text(text)]);
    SendMessageRequest { message, configuration: None, metadata: None, tenant: None }
}

fn task_of(response: SendMessageResponse) -> Task {
    match response {
        SendMessageResponse::Task(task) => task,
        SendMessageResponse::Message(message) => panic!("expected a task: {message:?}"),
    }
}

async fn sends_and_gets(url: &str, binding: &str) -> Result<(), A2AError> {
    let client = client_at(url, binding).await?;
    let task = task_of(client.send_message(&request("hello")).await?);
    assert_eq!(task.status.state, TaskState::Completed);
    let artifacts = task.artifacts.unwrap_or_default();
    assert_eq!(artifacts[0].parts[0].as_text(), Some("hello"));
    let get = GetTaskRequest { id: task.id.clone(), history_length: Some(0), tenant: None };
    assert_eq!(client.get_task(&get).await?.id, task.id);
    Ok(())
}

async fn streams(url: &str, binding: &str) -> Result<(), A2AError> {
    let client = client_at(url, binding).await?;
    let mut events = client.send_streaming_message(&request("hello")).await?;
    let mut last = None;
    let mut kinds = vec![];
    while let Some(event) = events.next().await {
        match event? {
            StreamResponse::Task(_) => kinds.push("task"),
            StreamResponse::Message(_) => kinds.push("message"),
            StreamResponse::ArtifactUpdate(_) => kinds.push("artifact"),
            StreamResponse::StatusUpdate(update) => {
                kinds.push("status");
                last = Some(update.status.state);
            }
        }
    }
    assert_eq!((kinds, last), (vec!["task", "status", "artifact", "status"], Some(TaskState::Completed)));
    Ok(())
}

async fn cancels(url: &str, binding: &str) -> Result<(), A2AError> {
    let client = client_at(&format!("{url}/agents/long_running_agent"), binding).await?;
    let mut request = request("go");
    request.configuration = Some(SendMessageConfiguration {
        accepted_output_modes: None,
        task_push_notification_config: None,
        history_length: None,
        return_immediately: Some(true),
    });
    let task = task_of(client.send_message(&request).await?);
    let cancel = CancelTaskRequest { id: task.id, metadata: None, tenant: None };
    assert_eq!(client.cancel_task(&cancel).await?.status.state, TaskState::Canceled);
    assert!(client.cancel_task(&cancel).await.is_err(), "it has ended");
    Ok(())
}

async fn an_unknown_task_is_an_error_with_a_code(url: &str, binding: &str) -> Result<(), A2AError> {
    let get = GetTaskRequest { id: "no-such-task".to_owned(), history_length: None, tenant: None };
    let error = client_at(url, binding).await?.get_task(&get).await.unwrap_err();
    assert_eq!(error.code, TASK_NOT_FOUND, "{error:?}");
    Ok(())
}

#[tokio::main]
async fn main() {
    let url = std::env::args().nth(1).expect("the URL of a server");
    let mut passed = 0;
    for binding in BINDINGS {
        // Each panics or returns an error if it fails, which ends the program.
        let told = |name: &str, ended: Result<(), A2AError>| {
            ended.unwrap_or_else(|error| panic!("{name} ({binding}): {error:?}"));
            println!("ok      {name} ({binding})");
        };
        told("sends_and_gets", sends_and_gets(&url, binding).await);
        told("streams", streams(&url, binding).await);
        told("cancels", cancels(&url, binding).await);
        told("an_unknown_task_is_an_error", an_unknown_task_is_an_error_with_a_code(&url, binding).await);
        passed += 4;
    }
    println!("{passed} passed");
}
