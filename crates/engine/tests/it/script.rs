//! An agent that does what its input says: a random script, the same in every run of its task.

use std::time::Duration;

use futures_util::{FutureExt, future::BoxFuture};
use nuncio_engine::{AgentError, Chunk, Level, Outcome, TaskContext};
use proptest::{prelude::*, sample::select};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::world::{World, data};

/// One thing that an agent does.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Op {
    Progress,
    Log,
    /// A chunk of so many kilobytes.
    Chunk(usize),
    Step,
    /// A step that writes and may fail.
    LoudStep {
        fails: bool,
    },
    Ask,
    Authorize,
    Sleep,
    /// Waits for nothing outside of the context: lets others in between.
    Yield,
    Fork(Vec<Op>, Vec<Op>),
    Call(Vec<Op>),
}

/// How it ends.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Finish {
    Done,
    Said,
    Failed,
    Rejected,
    Error,
    Panic,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Script {
    pub(crate) ops: Vec<Op>,
    pub(crate) finish: Finish,
}

impl Script {
    pub(crate) fn message(&self) -> nuncio_engine::Message {
        data(serde_json::to_value(self).unwrap())
    }
}

pub(crate) fn any_script() -> impl Strategy<Value = Script> {
    let finish = select(vec![
        Finish::Done,
        Finish::Said,
        Finish::Done,
        Finish::Failed,
        Finish::Rejected,
        Finish::Error,
        Finish::Panic,
    ]);
    (prop::collection::vec(any_op(), 0..8), finish).prop_map(|(ops, finish)| Script { ops, finish })
}

fn any_op() -> impl Strategy<Value = Op> {
    let plain = prop_oneof![
        Just(Op::Progress),
        Just(Op::Log),
        (0..3_usize).prop_map(Op::Chunk),
        // More than a log has without a snapshot.
        Just(Op::Chunk(80)),
        Just(Op::Step),
        any::<bool>().prop_map(|fails| Op::LoudStep { fails }),
        Just(Op::Ask),
        Just(Op::Authorize),
        Just(Op::Sleep),
        Just(Op::Yield),
    ];
    plain.prop_recursive(2, 12, 3, |inner| {
        let some = prop::collection::vec(inner, 0..3);
        prop_oneof![
            (some.clone(), some.clone()).prop_map(|(left, right)| Op::Fork(left, right)),
            some.prop_map(Op::Call),
        ]
    })
}

/// A world with the agent in it, as `script`.
pub(crate) fn world() -> World {
    World::new().agent("script", run)
}

async fn run(cx: TaskContext) -> Result<Outcome, AgentError> {
    let script: Script = serde_json::from_value(cx.input().data().unwrap().clone()).unwrap();
    perform(&cx, &script.ops, "root".into()).await?;
    match script.finish {
        Finish::Done => Ok(Outcome::done()),
        Finish::Said => Ok(Outcome::said("done")),
        Finish::Failed => Ok(Outcome::failed("it failed")),
        Finish::Rejected => Ok(Outcome::rejected("not this")),
        Finish::Error => Err(AgentError::failed("an error")),
        Finish::Panic => panic!("as the script wants it"),
    }
}

fn perform<'a>(cx: &'a TaskContext, ops: &'a [Op], scope: String) -> BoxFuture<'a, Result<(), AgentError>> {
    let form = json!({"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]});
    async move {
        for (n, op) in ops.iter().enumerate() {
            match op {
                Op::Progress => cx.progress(n as f64, None, "on").await?,
                Op::Log => cx.log(Level::Info, "line").await?,
                Op::Chunk(kb) => {
                    cx.artifact(Chunk::text(&scope, "x".repeat(kb * 1024) + &n.to_string())).await?;
                }
                Op::Step => cx.step("step", async |_| Ok(n)).await.map(drop)?,
                Op::LoudStep { fails } => {
                    let done = cx.step("loud", async |step| {
                        step.log(Level::Debug, "inside").await?;
                        step.artifact(Chunk::text(format!("{scope}.{n}"), "step")).await?;
                        if *fails { Err(AgentError::failed("as planned")) } else { Ok(()) }
                    });
                    match (done.await, fails) {
                        (Ok(()), false) => {}
                        (Err(AgentError::Failed(_)), true) => {}
                        (Err(error), _) => return Err(error),
                        (Ok(()), true) => unreachable!("it fails"),
                    }
                }
                Op::Ask => cx.ask(format!("{scope} {n}?"), form.clone()).await.map(drop)?,
                Op::Authorize => {
                    cx.authorize(format!("{scope} {n}?"), "https://a.example").await.map(drop)?;
                }
                Op::Sleep => cx.sleep(Duration::from_millis(2)).await?,
                Op::Yield => tokio::task::yield_now().await,
                Op::Fork(left, right) => {
                    let side = async |name: &str, ops| {
                        let branch = cx.branch(&format!("{name}{n}"));
                        perform(&branch, ops, format!("{scope}.{name}{n}")).await
                    };
                    let (one, two) = tokio::join!(side("l", left), side("r", right));
                    one.and(two)?;
                }
                Op::Call(ops) => {
                    let script = Script { ops: ops.clone(), finish: Finish::Done };
                    cx.call("script", script.message()).await?;
                }
            }
        }
        Ok(())
    }
    .boxed()
}
