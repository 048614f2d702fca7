//! What a dialect does not carry: the tables in the docs of `v0_1`, `v0_3` and `v1`, row by row, and nothing
//! else. `None` for a call: the dialect has no such method. [`proto_0_3`] has the rows of 0.3 over REST and gRPC.

use nuncio_engine::{
    content::{Artifact, Content, Message, Metadata, Part},
    event::ArtifactChunk,
    task::State,
    webhook::WebhookConfig,
};
use nuncio_wire::a2a::{A2aCall, ArtifactUpdate, Dialect, SendMessage, StatusUpdate, StreamEvent, TaskView};

use Dialect::{V0_1, V0_3, V1};

fn part(dialect: Dialect, part: &mut Part) {
    if dialect == V1 {
        return;
    }
    if matches!(part.content, Content::Text(_) | Content::Data(_)) {
        (part.filename, part.media_type) = (None, None);
    }
    let wrapped = matches!(&part.content, Content::Data(value) if !value.is_object());
    if wrapped && part.metadata.as_ref().is_some_and(Metadata::is_empty) {
        part.metadata = None;
    }
}

fn parts(dialect: Dialect, parts: &mut [Part]) {
    parts.iter_mut().for_each(|one| part(dialect, one));
}

fn message(dialect: Dialect, message: &mut Message) {
    parts(dialect, &mut message.parts);
    if dialect == V0_1 {
        message.id.clear();
        message.extensions.clear();
        message.reference_task_ids.clear();
    }
}

fn state(dialect: Dialect, state: State) -> State {
    match (dialect, state) {
        (V0_1, State::Rejected) => State::Failed,
        (V0_1, State::AuthRequired) => State::InputRequired,
        _ => state,
    }
}

fn artifact(dialect: Dialect, index: usize, artifact: &mut Artifact) {
    parts(dialect, &mut artifact.parts);
    if dialect == V0_1 {
        artifact.id = index.to_string();
        artifact.extensions.clear();
    } else {
        artifact.complete = false;
    }
}

fn chunk(dialect: Dialect, chunk: &mut ArtifactChunk) {
    parts(dialect, &mut chunk.parts);
    if dialect == V0_1 {
        chunk.id = chunk.index.to_string();
        chunk.extensions.clear();
    } else {
        chunk.index = 0;
    }
}

pub(crate) fn task(dialect: Dialect, mut task: TaskView) -> TaskView {
    task.state = state(dialect, task.state);
    task.message.iter_mut().chain(&mut task.history).for_each(|one| message(dialect, one));
    task.artifacts.iter_mut().enumerate().for_each(|(index, one)| artifact(dialect, index, one));
    task
}

pub(crate) fn event(dialect: Dialect, event: StreamEvent) -> StreamEvent {
    match event {
        StreamEvent::Status(mut update) => {
            update.state = state(dialect, update.state);
            update.message.iter_mut().for_each(|one| message(dialect, one));
            let context = update.context.filter(|_| dialect != V0_1);
            StreamEvent::Status(StatusUpdate { context, last: update.last && dialect != V1, ..update })
        }
        StreamEvent::Artifact(mut update) => {
            chunk(dialect, &mut update.chunk);
            let context = update.context.filter(|_| dialect != V0_1);
            StreamEvent::Artifact(ArtifactUpdate { context, ..update })
        }
        StreamEvent::Task(view) => StreamEvent::Task(Box::new(task(dialect, *view))),
        StreamEvent::Message(mut addressed) => {
            message(dialect, &mut addressed.message);
            StreamEvent::Message(addressed)
        }
    }
}

pub(crate) fn webhook(dialect: Dialect, mut config: WebhookConfig) -> WebhookConfig {
    match dialect {
        V0_1 => config.id.clear(),
        V0_3 => {}
        V1 => {
            config.authentication = config.authentication.filter(|given| !given.schemes.is_empty());
            config.authentication.iter_mut().for_each(|given| given.schemes.truncate(1));
        }
    }
    config
}

fn send(dialect: Dialect, mut send: SendMessage) -> SendMessage {
    message(dialect, &mut send.message);
    send.webhook = send.webhook.map(|config| webhook(dialect, config));
    if dialect == V0_1 {
        send.client_task_id = send.client_task_id.or(send.task_id.take());
        send.task_id = None;
        send.blocking = false;
        send.accepted_output_modes.clear();
    } else {
        send.client_task_id = None;
    }
    send
}

pub(crate) fn call(dialect: Dialect, call: A2aCall) -> Option<A2aCall> {
    Some(match call {
        A2aCall::List(_) if dialect != V1 => return None,
        A2aCall::ListWebhooks { .. } | A2aCall::DeleteWebhook { .. } | A2aCall::ExtendedCard
            if dialect == V0_1 =>
        {
            return None;
        }
        A2aCall::Send(given) => A2aCall::Send(Box::new(send(dialect, *given))),
        A2aCall::Stream(given) => A2aCall::Stream(Box::new(send(dialect, *given))),
        A2aCall::SetWebhook { task, config } => {
            A2aCall::SetWebhook { task, config: webhook(dialect, config) }
        }
        A2aCall::GetWebhook { task, .. } if dialect == V0_1 => A2aCall::GetWebhook { task, id: None },
        A2aCall::ListWebhooks { task, .. } if dialect == V0_3 => {
            A2aCall::ListWebhooks { task, page_size: None, page_token: None }
        }
        other => other,
    })
}

/// What 0.3 loses over REST and gRPC beside that.
pub(crate) mod proto_0_3 {
    use super::*;

    pub(crate) fn task(task: TaskView) -> TaskView {
        let mut task = super::task(V0_3, task);
        task.message.iter_mut().chain(&mut task.history).for_each(|one| one.reference_task_ids.clear());
        task
    }

    pub(crate) fn event(event: StreamEvent) -> StreamEvent {
        match super::event(V0_3, event) {
            StreamEvent::Task(view) => StreamEvent::Task(Box::new(task(*view))),
            StreamEvent::Status(mut update) => {
                update.message.iter_mut().for_each(|one| one.reference_task_ids.clear());
                StreamEvent::Status(update)
            }
            other => other,
        }
    }

    /// `binary`: as protobuf, which has no absence for numbers and lists.
    pub(crate) fn webhook(mut config: WebhookConfig, binary: bool) -> WebhookConfig {
        let says = |given: &nuncio_engine::webhook::Authentication| {
            !binary || !given.schemes.is_empty() || given.credentials.is_some()
        };
        config.authentication = config.authentication.filter(says);
        config
    }

    pub(crate) fn call(call: A2aCall, binary: bool) -> Option<A2aCall> {
        let number = |number: Option<usize>| number.filter(|number| !binary || *number > 0);
        let send = |mut send: Box<SendMessage>| {
            send.message.reference_task_ids.clear();
            send.history_length = number(send.history_length);
            send.webhook = send.webhook.map(|config| webhook(config, binary));
            send
        };
        // JSON-RPC loses the page, these bindings do not.
        if let A2aCall::ListWebhooks { .. } = call {
            return Some(call);
        }
        Some(match super::call(V0_3, call)? {
            A2aCall::Send(given) => A2aCall::Send(send(given)),
            A2aCall::Stream(given) => A2aCall::Stream(send(given)),
            A2aCall::Get { task, history_length } => {
                A2aCall::Get { task, history_length: number(history_length) }
            }
            A2aCall::Cancel { task, .. } => A2aCall::Cancel { task, metadata: None },
            A2aCall::SetWebhook { task, config } => {
                A2aCall::SetWebhook { task, config: webhook(config, binary) }
            }
            other => other,
        })
    }
}
