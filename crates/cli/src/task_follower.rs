//! The follower of a task for a command: reads the task's stream, opens it again when it is cut, and reports that
//! something has changed. The command then reads the status once; it never polls.
//!
//! A stream is opened again after the last event that was received. A server that stays unreachable, or that ends every
//! stream at once, is given up after [`FollowLimits::outage`].

use std::{collections::HashSet, time::Duration};

use nuncio_client::mcp::{
    ToolChange, ToolChanges, ToolError, ToolSubscription, ToolTaskQuestion, ToolTaskStatus, ToolTaskView,
};
use nuncio_outbound::Backoff;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use crate::{
    error::CliError,
    server_connection::{ServerConnection, may_pass},
};

/// The limits of a follower.
#[derive(Debug, Clone, Copy)]
struct FollowLimits {
    /// The least time between two reports, except of a question or the end. Changes meanwhile are one report.
    between_reports: Duration,
    /// The first and the longest pause before a stream is opened again.
    first_pause: Duration,
    longest_pause: Duration,
    /// How long the server may be unreachable.
    outage: Duration,
}

const LIMITS: FollowLimits = FollowLimits {
    between_reports: Duration::from_millis(200),
    first_pause: Duration::from_millis(200),
    longest_pause: Duration::from_secs(2),
    outage: Duration::from_secs(30),
};

/// Follows a task, or resources that change with one.
pub(crate) struct TaskFollower<'a> {
    connection: &'a ServerConnection,
    /// What is followed, with the cursor of the last event received.
    subscription: ToolSubscription,
    limits: FollowLimits,
    outage: Backoff,
    stream: Option<OpenChanges>,
    /// When to open the next stream, after one that failed.
    retry_at: Option<Instant>,
    /// Whether the task has to be read: it may have ended between a stream's last event and the next stream.
    is_stale: bool,
    was_open: bool,
    reported: Option<Instant>,
    /// Keys of questions that were answered: a task that was sent before the answer still lists them.
    answered: HashSet<String>,
}

struct OpenChanges {
    changes: ToolChanges,
    since: Instant,
}

impl<'a> TaskFollower<'a> {
    /// Follows the events of a task from the first one, and resources that change with it.
    pub(crate) fn of_task(connection: &'a ServerConnection, task: &str, resources: Vec<String>) -> Self {
        Self::new(connection, ToolSubscription { task: Some((task.to_owned(), 0)), resources }, LIMITS)
    }

    /// Follows resources. The reports carry no task, which for a batch would be as large as its result.
    pub(crate) fn of_resources(connection: &'a ServerConnection, resources: Vec<String>) -> Self {
        Self::new(connection, ToolSubscription { task: None, resources }, LIMITS)
    }

    fn new(connection: &'a ServerConnection, subscription: ToolSubscription, limits: FollowLimits) -> Self {
        Self {
            connection,
            subscription,
            limits,
            outage: Backoff::new(limits.first_pause, limits.longest_pause, limits.outage),
            stream: None,
            retry_at: None,
            is_stale: false,
            was_open: false,
            reported: None,
            answered: HashSet::new(),
        }
    }

    /// Waits until something has changed. The first report comes as soon as the stream is open, and another one whenever
    /// it was opened again. Returns the task, if the server has sent it since the last report.
    pub(crate) async fn next_change(&mut self) -> Result<Option<ToolTaskView>, CliError> {
        let mut task = self.receive().await?.map(|task| self.without_answered(task));
        let until = self.reported.map_or_else(Instant::now, |at| at + self.limits.between_reports);
        while !task.as_ref().is_some_and(is_urgent)
            && let Ok(received) = timeout_at(until, self.receive()).await
        {
            task = received?.map(|task| self.without_answered(task)).or(task);
        }
        self.reported = Some(Instant::now());
        Ok(task)
    }

    /// Records that these questions were answered.
    pub(crate) fn record_answered<'q>(&mut self, questions: impl IntoIterator<Item = &'q ToolTaskQuestion>) {
        self.answered.extend(questions.into_iter().map(|question| question.key.clone()));
    }

    /// One change. It may be dropped while it waits: nothing is lost.
    async fn receive(&mut self) -> Result<Option<ToolTaskView>, CliError> {
        loop {
            if let (true, Some((task, _))) = (self.is_stale, &self.subscription.task) {
                let task = self.connection.task(task).await?;
                self.is_stale = false;
                return Ok(Some(task));
            }
            let Some(open) = &mut self.stream else {
                if let Some(at) = self.retry_at {
                    sleep_until(at).await;
                }
                let began = Instant::now();
                match self.open().await {
                    Ok(changes) => {
                        self.stream = Some(OpenChanges { changes, since: Instant::now() });
                        self.is_stale = std::mem::replace(&mut self.was_open, true);
                        return Ok(None);
                    }
                    Err(error) => self.record_failure(began, error)?,
                }
                continue;
            };
            let ended = match open.changes.next().await {
                Ok(Some(change)) => {
                    match change {
                        // No progress by itself: a new stream may begin with the task as it is.
                        ToolChange::Task(task) => return Ok(Some(*task)),
                        ToolChange::Event(number) => {
                            if let Some((_, after)) = &mut self.subscription.task
                                && number > *after
                            {
                                *after = number;
                                self.outage.reset();
                            }
                        }
                        ToolChange::Resource(_) => self.outage.reset(),
                        ToolChange::Acknowledged { .. } => {}
                    }
                    return Ok(None);
                }
                Ok(None) => self.connection.cut("the server ended the stream"),
                Err(error) => error,
            };
            // A server that ends every stream at once is as good as unreachable.
            if open.since.elapsed() > self.limits.longest_pause {
                self.outage.reset();
            }
            self.stream = None;
            self.record_failure(Instant::now(), ended)?;
        }
    }

    /// Opens a stream, up to its acknowledgement.
    async fn open(&self) -> Result<ToolChanges, ToolError> {
        let tools = self.connection.tools();
        let opening = async {
            let mut changes = tools.subscribe(&self.subscription).await?;
            let Some(ToolChange::Acknowledged { tasks, resources }) = changes.next().await? else {
                return Err(ToolError::Malformed("a stream without an acknowledgement".to_owned()));
            };
            if let Some((task, _)) = self.subscription.task.as_ref().filter(|(task, _)| !tasks.contains(task))
            {
                // The error says why.
                tools.task(task).await?;
                return Err(ToolError::Malformed(format!("task {task} is not followed")));
            }
            if self.subscription.task.is_none() && resources.is_empty() {
                let wanted = self.subscription.resources.join(", ");
                return Err(ToolError::Malformed(format!("{wanted}: not followed")));
            }
            Ok(changes)
        };
        let limit = self.outage.attempt_limit();
        match timeout(limit, opening).await {
            Ok(opened) => opened,
            Err(_) => Err(self.connection.cut(&format!("no stream within {} s", limit.as_secs()))),
        }
    }

    /// A stream failed: schedules the next one, unless another attempt does not help or the outage has lasted too long.
    fn record_failure(&mut self, began: Instant, error: ToolError) -> Result<(), CliError> {
        let wanted = match &error {
            ToolError::TooFast { retry_after, .. } => *retry_after,
            _ => None,
        };
        let was_reached =
            self.was_open || self.connection.was_reached() || matches!(error, ToolError::TooFast { .. });
        if !was_reached || !(may_pass(&error) || self.connection.renew_token(&error)) {
            return Err(self.connection.failed(error));
        }
        let Some(pause) = self.outage.fail(began, wanted) else { return Err(self.connection.failed(error)) };
        self.retry_at = Some(Instant::now() + pause);
        Ok(())
    }

    /// The task without the questions that were answered.
    fn without_answered(&self, mut task: ToolTaskView) -> ToolTaskView {
        if let ToolTaskStatus::Asks(questions) = &mut task.status {
            let asked = questions.len();
            questions.retain(|question| !self.answered.contains(&question.key));
            if questions.is_empty() && asked > 0 {
                task.status = ToolTaskStatus::Working;
            }
        }
        task
    }
}

/// Whether the command has to react at once.
fn is_urgent(task: &ToolTaskView) -> bool {
    task.is_over() || matches!(task.status, ToolTaskStatus::Asks(_))
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use serde_json::{Value, json};
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    /// A server that acknowledges every subscription, sends the changes of the next one and closes the connection.
    async fn closing_server(changes: Vec<Value>) -> (String, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let opened = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&opened);
        tokio::spawn(async move {
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                let mut request = vec![];
                while !request.ends_with(b"}") {
                    let mut piece = [0; 4096];
                    let read = socket.read(&mut piece).await.unwrap();
                    request.extend_from_slice(&piece[..read]);
                }
                let number = count.fetch_add(1, Ordering::SeqCst);
                let acknowledged = json!({
                    "jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
                    "params": { "notifications": { "resourceSubscriptions": ["a:b"] } },
                });
                let mut answer =
                    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
                        .to_owned();
                for message in [Some(&acknowledged), changes.get(number)].into_iter().flatten() {
                    answer.push_str(&format!("data: {message}\n\n"));
                }
                socket.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        (url, opened)
    }

    fn follower(connection: &ServerConnection) -> TaskFollower<'_> {
        let limits = FollowLimits {
            between_reports: Duration::ZERO,
            first_pause: Duration::from_millis(10),
            longest_pause: Duration::from_secs(5),
            outage: Duration::from_millis(300),
        };
        let subscription = ToolSubscription { task: None, resources: vec!["a:b".to_owned()] };
        TaskFollower::new(connection, subscription, limits)
    }

    #[tokio::test]
    async fn a_server_that_ends_every_stream_at_once_is_given_up() {
        let updated = json!({
            "jsonrpc": "2.0", "method": "notifications/resources/updated", "params": { "uri": "a:b" },
        });
        let (url, opened) = closing_server(vec![updated]).await;
        let connection = ServerConnection::to(&url);
        let mut follower = follower(&connection);
        let began = Instant::now();
        let error = loop {
            match follower.next_change().await {
                Ok(task) => assert_eq!(task, None),
                Err(error) => break error,
            }
            assert!(began.elapsed() < Duration::from_secs(60), "it is never given up");
        };
        assert!(
            matches!(&error, CliError::Tool { error, .. } if matches!(**error, ToolError::Cut { .. })),
            "{error:?}"
        );
        let opened = opened.load(Ordering::SeqCst);
        assert!((3..=12).contains(&opened), "the pauses grow: {opened} streams");
    }

    #[tokio::test]
    async fn a_server_that_was_never_reached_is_not_waited_for() {
        let connection = ServerConnection::to("http://127.0.0.1:1");
        let error = follower(&connection).next_change().await.unwrap_err();
        let CliError::Tool { error, .. } = error else { panic!("{error:?}") };
        assert!(matches!(*error, ToolError::Unreachable { .. }), "{error}");
    }

    #[test]
    fn a_question_that_was_answered_is_not_asked_again() {
        let connection = ServerConnection::to("http://127.0.0.1:1");
        let mut follower = follower(&connection);
        let question = |key: &str| ToolTaskQuestion {
            key: key.to_owned(),
            method: "elicitation/create".to_owned(),
            params: Value::Null,
        };
        let asking = |questions: Vec<ToolTaskQuestion>| ToolTaskView {
            id: "t".to_owned(),
            status: ToolTaskStatus::Asks(questions),
            message: None,
            poll: Duration::ZERO,
        };
        follower.record_answered([&question("one")]);
        let status = |questions| follower.without_answered(asking(questions)).status;
        assert_eq!(status(vec![question("one")]), ToolTaskStatus::Working);
        assert_eq!(
            status(vec![question("one"), question("two")]),
            ToolTaskStatus::Asks(vec![question("two")])
        );
        assert_eq!(status(vec![]), ToolTaskStatus::Asks(vec![]), "it asks what this client cannot show");
    }
}
