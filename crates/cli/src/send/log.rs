//! `nuncio send --log`: the log lines of the task's agent on the standard error, while the command waits for the task.

use std::{
    cell::{Cell, OnceCell},
    convert::Infallible,
    future::Future,
};

use serde_json::Value;

use crate::{
    connection::AgentConnection,
    console_client::{ConsoleClient, TaskEventReader},
    error::CliError,
    output::note,
    task::log_line,
};

/// Events of a page, the most that the console API has.
const PAGE: usize = 1000;
/// Bytes of a line that are shown.
const PREVIEW: usize = 64 * 1024;

/// Prints the log lines of one task, each once.
pub(super) struct LogPrinter<'a> {
    connection: &'a AgentConnection,
    console: OnceCell<ConsoleClient>,
    /// The number of the last event whose line was printed, if it has one.
    after: Cell<u64>,
    /// Whether the reason was printed why there are no lines.
    failed: Cell<bool>,
}

impl<'a> LogPrinter<'a> {
    /// Prints lines from now on. A task that is continued has lines of earlier turns, which are left out.
    pub(super) async fn new(connection: &'a AgentConnection, continued: Option<&str>) -> Self {
        let printer =
            Self { connection, console: OnceCell::new(), after: Cell::new(0), failed: Cell::new(false) };
        if let Some(task) = continued {
            match printer.details(task).await {
                Ok(details) => printer.after.set(details["row"]["events"].as_u64().unwrap_or(0)),
                Err(error) => printer.fail(&error),
            }
        }
        printer
    }

    /// Runs the work, and prints the lines meanwhile; all that are there at its end.
    pub(super) async fn beside<T>(&self, work: impl Future<Output = T>) -> T {
        let done = tokio::select! {
            done = work => done,
            never = self.follow() => match never {},
        };
        if let Some(task) = self.connection.resume_point().task
            && !self.failed.get()
            && let Err(error) = self.print_rest(&task).await
        {
            self.fail(&error);
        }
        done
    }

    async fn follow(&self) -> Infallible {
        let task = self.connection.recorded_task().await;
        if !self.failed.get()
            && let Err(error) = self.print_live(&task).await
        {
            self.fail(&error);
        }
        std::future::pending().await
    }

    async fn print_live(&self, task: &str) -> Result<(), CliError> {
        // So that a server that is restarted is waited for, and one that has no such API is not.
        self.details(task).await?;
        let console = self.console().await?;
        let mut reader = TaskEventReader::new(console, task, self.after.get(), PREVIEW);
        while let Some(events) = reader.next().await? {
            self.print(&events);
            self.after.set(reader.cursor());
        }
        Ok(())
    }

    async fn print_rest(&self, task: &str) -> Result<(), CliError> {
        let console = self.console().await?;
        loop {
            let query = [
                ("kind", "log".to_owned()),
                ("after", self.after.get().to_string()),
                ("limit", PAGE.to_string()),
                ("preview", PREVIEW.to_string()),
            ];
            let page: Value = console.get(&["tasks", task, "events"], &query).await?;
            self.print(page["events"].as_array().map(Vec::as_slice).unwrap_or_default());
            let (read, last) = (page["after"].as_u64().unwrap_or(0), page["last"].as_u64().unwrap_or(0));
            if read <= self.after.get() {
                return Ok(());
            }
            self.after.set(read);
            if read >= last {
                return Ok(());
            }
        }
    }

    fn print(&self, events: &[Value]) {
        events.iter().filter(|event| event["type"] == "log").for_each(|event| note(&log_line(event)));
    }

    async fn details(&self, task: &str) -> Result<Value, CliError> {
        self.console().await?.get(&["tasks", task], &[]).await
    }

    async fn console(&self) -> Result<&ConsoleClient, CliError> {
        if self.console.get().is_none() {
            let client = ConsoleClient::of_agent(self.connection).await?;
            let _ = self.console.set(client);
        }
        self.console.get().ok_or_else(|| CliError::Usage("there is no server to read the log of".to_owned()))
    }

    /// The task goes on without its lines.
    fn fail(&self, error: &CliError) {
        if !self.failed.replace(true) {
            note(&format!("warning: no log lines: {}", error.message()));
        }
    }
}
