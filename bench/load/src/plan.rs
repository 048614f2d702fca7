//! What a workload asks next, and whether the answer is the right one.

use std::{
    cell::{Cell, RefCell},
    fs,
};

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use memchr::memmem;
use serde_json::Value;

use crate::{
    Flags, Workload,
    connection::{Answer, Connection},
    endpoint::Endpoint,
    grpc, mcp,
    request::{Dialect, Requests, TEXT},
};

/// The bench agent's stream.
const CHUNKS: usize = 100;
const CHUNK_BYTES: usize = 200;
/// Tasks that `get` makes for itself where it is given none.
const OWN_TASKS: usize = 256;
/// Ids in the sample that `fill` leaves.
const SAMPLE: usize = 1_000;
/// Coprime to any number of ids that is used here: `get` jumps about in the store instead of walking it.
const STRIDE: usize = 7_919;

/// Shared by the connections of a run, which are all in one thread.
pub(crate) struct Plan {
    workload: Workload,
    requests: Requests,
    /// `call`: which tool.
    tool: String,
    /// `get`: which tasks to ask for. `fill`: the sample of those that were made.
    ids: RefCell<Vec<String>>,
    asked: Cell<usize>,
    /// `list`: the next page.
    page: RefCell<String>,
    /// `fill`: of how many new tasks one is sampled.
    one_of: usize,
}

impl Plan {
    /// Makes a plan, and sees to it that one answer is right in full before any clock starts.
    pub(crate) async fn prepare(flags: &Flags, endpoint: &Endpoint) -> anyhow::Result<Self> {
        let plan = Self {
            workload: flags.workload,
            requests: Requests::new(endpoint, &flags.path),
            tool: flags.tool.clone(),
            ids: RefCell::default(),
            asked: Cell::new(0),
            page: RefCell::default(),
            one_of: (flags.count / SAMPLE).max(1),
        };
        let is_known =
            matches!(flags.workload, Workload::Send | Workload::Get | Workload::Stream | Workload::Fill);
        ensure!(
            is_known || !matches!(flags.dialect, Dialect::A2aRest | Dialect::A2aGrpc),
            "not over this binding"
        );
        let mut connection = Connection::open(endpoint).await?;
        plan.begin_session(&mut connection).await?;
        match plan.workload {
            Workload::Send | Workload::Get if flags.ids.is_none() => {
                let tasks = if plan.workload == Workload::Get { OWN_TASKS } else { 1 };
                for _ in 0..tasks {
                    let id = plan.echoed(&connection.call(plan.requests.send(TEXT)).await?)?;
                    plan.ids.borrow_mut().push(id);
                }
            }
            Workload::Get => {
                let path = flags.ids.as_deref().context("get needs ids")?;
                let ids = fs::read_to_string(path).with_context(|| path.display().to_string())?;
                plan.ids.borrow_mut().extend(ids.lines().map(str::to_owned));
                ensure!(!plan.ids.borrow().is_empty(), "{} is empty", path.display());
            }
            _ => {}
        }
        if plan.workload != Workload::Fill {
            plan.check(&connection.call(plan.next()).await?).context("before the clock started")?;
        }
        Ok(plan)
    }

    /// Where the dialect has sessions, the connection gets one.
    pub(crate) async fn begin_session(&self, connection: &mut Connection) -> anyhow::Result<()> {
        if self.requests.dialect == Dialect::McpSessions {
            mcp::begin_session(&self.requests, connection).await?;
        }
        Ok(())
    }

    pub(crate) fn next(&self) -> Request<Full<Bytes>> {
        let asked = self.asked.replace(self.asked.get() + 1);
        match self.workload {
            Workload::Send | Workload::Fill => self.requests.send(TEXT),
            Workload::Stream => self.requests.stream("stream"),
            Workload::Idle => self.requests.stream("wait"),
            Workload::Call => self.requests.call(&self.tool),
            Workload::Durable => self.requests.call(mcp::DURABLE),
            Workload::Post => self.requests.plain(TEXT),
            Workload::First => self.requests.call(mcp::TALKER),
            Workload::Read => self.requests.read(),
            Workload::List => self.requests.list(&self.page.borrow()),
            Workload::Get => {
                let ids = self.ids.borrow();
                self.requests.get(&ids[asked * STRIDE % ids.len()])
            }
        }
    }

    /// How many events an answer brought, or what is wrong with it.
    pub(crate) fn check(&self, answer: &Answer) -> anyhow::Result<usize> {
        let body = &answer.body;
        let expected = match self.workload {
            Workload::List => "\"tasks\"",
            Workload::Call | Workload::Durable | Workload::Post => TEXT,
            Workload::Read => mcp::CONTENT,
            Workload::First => mcp::LAST_WORDS,
            Workload::Stream if self.is_grpc() => "",
            _ if self.is_grpc() => TEXT,
            _ => "TASK_STATE_COMPLETED",
        };
        if !answer.status.is_success() || memmem::find(body, expected.as_bytes()).is_none() {
            bail!("{}: {}", answer.status, String::from_utf8_lossy(&body[..body.len().min(300)]));
        }
        match self.workload {
            Workload::Call | Workload::Durable => {
                ensure!(memmem::find(body, b"\"isError\":true").is_none(), "the tool failed");
                Ok(0)
            }
            Workload::Stream if self.is_grpc() => {
                let events = grpc::chunks(body)?;
                ensure!(events == CHUNKS, "{events} chunks instead of {CHUNKS}");
                ensure!(body.len() > CHUNKS * CHUNK_BYTES, "the chunks are too short");
                Ok(events)
            }
            Workload::Stream => {
                let events = memmem::find_iter(body, b"artifactUpdate").count();
                ensure!(events == CHUNKS, "{events} chunks instead of {CHUNKS}");
                ensure!(body.len() > CHUNKS * CHUNK_BYTES, "the chunks are too short");
                Ok(events)
            }
            Workload::List => {
                *self.page.borrow_mut() = next_page(body);
                Ok(0)
            }
            Workload::Fill => {
                let mut ids = self.ids.borrow_mut();
                if self.asked.get() >= ids.len() * self.one_of {
                    ids.push(self.echoed(answer)?);
                }
                Ok(0)
            }
            _ => Ok(0),
        }
    }

    fn is_grpc(&self) -> bool {
        self.requests.dialect == Dialect::A2aGrpc
    }

    /// The id of a task that completed with the text that was sent.
    fn echoed(&self, answer: &Answer) -> anyhow::Result<String> {
        let show = || format!("{}: {}", answer.status, String::from_utf8_lossy(&answer.body));
        if self.is_grpc() {
            ensure!(memmem::find(&answer.body, TEXT.as_bytes()).is_some(), "not an echo: {}", show());
            return grpc::task_id(&answer.body);
        }
        let json: Value = serde_json::from_slice(&answer.body).with_context(show)?;
        let result = if json["result"].is_object() { &json["result"] } else { &json };
        let task = if result["task"].is_object() { &result["task"] } else { result };
        ensure!(task["artifacts"][0]["parts"][0]["text"] == TEXT, "not an echo: {}", show());
        Ok(task["id"].as_str().with_context(show)?.to_owned())
    }

    /// The ids of a sample of the tasks that `fill` made.
    pub(crate) fn into_ids(self) -> Vec<String> {
        self.ids.into_inner()
    }
}

/// Empty where this was the last page, which begins again at the first.
fn next_page(body: &[u8]) -> String {
    const KEY: &[u8] = b"\"nextPageToken\":\"";
    let token = memmem::rfind(body, KEY).map(|at| &body[at + KEY.len()..]).unwrap_or_default();
    let end = memchr::memchr(b'"', token).unwrap_or_default();
    String::from_utf8_lossy(&token[..end]).into_owned()
}
