//! `nuncio audit`: the audit log, for the operator.

use std::time::Duration;

use clap::Args;
use nuncio_engine::clock::{Clock as _, SystemClock};
use nuncio_server::audit;
use nuncio_wire::timestamp;
use serde_json::{Map, Value};

use super::{
    error::CliError,
    operator::{OperatorBackend, OperatorFlags},
    output::{self, Format},
    server,
    table::table,
};
use crate::duration;

/// The poll interval of `--follow`.
const AGAIN: Duration = Duration::from_secs(1);

#[derive(Args)]
pub(crate) struct AuditFlags {
    /// Only what happened in this tenant
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// Only what this caller did: NAME, or TENANT/NAME
    #[arg(long, value_name = "CALLER")]
    caller: Option<String>,
    /// Only actions on resources of this type: a2a, memory, sparc, batchtools or admin
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Only what was done to resources with this text in their address, such as a task's id
    #[arg(long, value_name = "TEXT")]
    resource: Option<String>,
    /// Only requests that were refused
    #[arg(long)]
    refused: bool,
    /// Only what happened within this time, such as 1h
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    since: Option<Duration>,
    /// The number of lines to show: the newest ones
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
    /// Keep running and show new lines as they arrive; with `-o json`, one JSON object per line
    #[arg(long)]
    follow: bool,
    #[command(flatten)]
    flags: OperatorFlags,
}

impl AuditFlags {
    pub(crate) fn format(&self) -> Format {
        self.flags.format
    }

    pub(crate) async fn run(self) -> Result<(), CliError> {
        let backend = OperatorBackend::find(&server::configured_for(self.flags.data.clone())).await?;
        let done = match self.follow {
            false => self.page(&backend).await,
            true => tokio::select! {
                done = self.follow(&backend) => done,
                _ = tokio::signal::ctrl_c() => Ok(()),
            },
        };
        backend.close().await;
        done
    }

    async fn page(&self, backend: &OperatorBackend) -> Result<(), CliError> {
        let page = self.read(backend).await?;
        match self.format() {
            Format::Json => output::json_text(&page.to_string()),
            Format::Text => output::text(&show(&oldest_first(&page), true)),
        }
    }

    async fn follow(&self, backend: &OperatorBackend) -> Result<(), CliError> {
        let mut last = None;
        let mut page = self.read(backend).await?;
        loop {
            let is_new = |line: &Value| line["number"].as_u64() > last;
            let lines: Vec<Value> = oldest_first(&page).into_iter().filter(is_new).collect();
            match self.format() {
                Format::Json => lines.iter().try_for_each(|line| output::json_text(&line.to_string()))?,
                Format::Text if lines.is_empty() => {}
                Format::Text => output::text(&show(&lines, last.is_none()))?,
            }
            last = lines.last().and_then(|line| line["number"].as_u64()).or(last);
            tokio::time::sleep(AGAIN).await;
            // New lines are among the newest: older ones are not searched again.
            page = self.read_page(backend, self.query()).await?;
        }
    }

    /// As many lines as were asked for. A server ends a page early when it has read many lines for it.
    async fn read(&self, backend: &OperatorBackend) -> Result<Value, CliError> {
        let mut page = self.read_page(backend, self.query()).await?;
        loop {
            let (found, next) = (page["entries"].as_array().map_or(0, Vec::len), page["next"].as_u64());
            let Some(next) = next.filter(|_| found < self.limit) else { return Ok(page) };
            let mut query = self.query();
            query.retain(|(name, _)| *name != "limit");
            query.extend([("limit", (self.limit - found).to_string()), ("before", next.to_string())]);
            let mut more = self.read_page(backend, query).await?;
            if let (Some(entries), Some(older)) =
                (page["entries"].as_array_mut(), more["entries"].as_array_mut())
            {
                entries.append(older);
            }
            page["next"] = more["next"].take();
        }
    }

    async fn read_page(
        &self,
        backend: &OperatorBackend,
        query: Vec<(&'static str, String)>,
    ) -> Result<Value, CliError> {
        match backend {
            OperatorBackend::Server(server) => server.get("/admin/audit", &query).await,
            OperatorBackend::Store(store) => {
                let arguments: Map<String, Value> =
                    query.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
                let query = audit::read_query(&arguments).map_err(CliError::Usage)?;
                let page = store.knowledge().audit(&query).await;
                let page = page.map_err(|error| CliError::Store(error.to_string()))?;
                Ok(audit::page(&page))
            }
        }
    }

    fn query(&self) -> Vec<(&'static str, String)> {
        let since = self.since.map(|ago| timestamp::format(SystemClock.now().before(ago)));
        let refused = self.refused.then(|| "true".to_owned());
        let given = [
            ("tenant", self.tenant.clone()),
            ("caller", self.caller.clone()),
            ("type", self.kind.clone()),
            ("resource", self.resource.clone()),
            ("refused", refused),
            ("since", since),
            ("limit", Some(self.limit.to_string())),
        ];
        given.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

fn oldest_first(page: &Value) -> Vec<Value> {
    page["entries"].as_array().into_iter().flatten().rev().cloned().collect()
}

fn show(lines: &[Value], with_headings: bool) -> String {
    let columns = [
        ("AT", "at"),
        ("TENANT", "tenant"),
        ("CALLER", "caller"),
        ("FROM", "from"),
        ("OPERATION", "operation"),
        ("ALLOWED", "allowed"),
        ("RESOURCE", "resource"),
        ("REASON", "reason"),
    ];
    let shown = table(&columns, lines);
    match with_headings {
        true => shown,
        false => shown.split_once('\n').map_or(String::new(), |(_, rest)| rest.to_owned()),
    }
}
