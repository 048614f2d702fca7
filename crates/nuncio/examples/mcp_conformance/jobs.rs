//! Agents: work that takes time, reports progress, or must outlive the client's connection.
//!
//! Each is one function over its context. The profile sets whether a call waits for the end (`Never`),
//! becomes a task where the client supports tasks (`Offered`), or is refused where it does not (`Required`).

use std::{sync::Arc, time::Duration};

use nuncio::prelude::*;

type Ended = Result<Outcome, AgentError>;

/// An agent built from one function.
struct Job<F> {
    profile: Profile,
    work: F,
}

#[async_trait]
impl<F, W> Agent for Job<F>
where
    F: Fn(TaskContext) -> W + Send + Sync + 'static,
    W: Future<Output = Ended> + Send + 'static,
{
    fn profile(&self) -> Profile {
        self.profile.clone()
    }

    async fn run(&self, cx: TaskContext) -> Ended {
        (self.work)(cx).await
    }
}

fn job<F, W>(name: &str, description: &str, tasks: TaskUse, properties: &Value, work: F) -> Arc<dyn Agent>
where
    F: Fn(TaskContext) -> W + Send + Sync + 'static,
    W: Future<Output = Ended> + Send + 'static,
{
    let schema = json!({ "type": "object", "properties": properties });
    let profile = Profile { tasks, ..Profile::new(name, description).input(schema) };
    Arc::new(Job { profile, work })
}

pub(crate) fn all() -> Vec<Arc<dyn Agent>> {
    use TaskUse::{Never, Offered, Required};
    let none = json!({});
    let seconds = json!({ "seconds": { "type": "number", "minimum": 0 }, "label": { "type": "string" } });
    let filename = json!({ "filename": { "type": "string" } });
    let name = json!({ "name": { "type": "string" } });
    vec![
        job("test_tool_with_progress", "Says how far it is.", Never, &none, progress),
        job("test_tool_with_logging", "Writes a log.", Never, &none, logging),
        job("test_logging_tool", "Writes a log, for whoever wants to hear it.", Never, &none, logging),
        job("test_reconnection", "Lets its caller go, and come again.", Never, &none, reconnection),
        job("slow_compute", "Computes for some seconds.", Offered, &seconds, slow_compute),
        job("failing_job", "Works, and fails.", Required, &none, failing),
        job("protocol_error_job", "Works, and breaks.", Offered, &none, breaking),
        job("confirm_delete", "Asks before it deletes.", Required, &filename, confirm_delete),
        job("multi_input", "Asks two questions at once.", Required, &none, multi_input),
        job("test_tool_with_task", "Goes on when the name is known.", Required, &name, greet_later),
    ]
}

async fn progress(cx: TaskContext) -> Ended {
    cx.progress(0.0, Some(100.0), "").await?;
    cx.sleep(Duration::from_millis(50)).await?;
    cx.progress(50.0, Some(100.0), "").await?;
    cx.sleep(Duration::from_millis(50)).await?;
    cx.progress(100.0, Some(100.0), "").await?;
    Ok(Outcome::said("Progress was told."))
}

async fn logging(cx: TaskContext) -> Ended {
    cx.log(Level::Info, "Tool execution started").await?;
    cx.sleep(Duration::from_millis(50)).await?;
    cx.log(Level::Info, "Tool processing data").await?;
    cx.sleep(Duration::from_millis(50)).await?;
    cx.log(Level::Info, "Tool execution completed").await?;
    Ok(Outcome::said("The log is written."))
}

async fn reconnection(cx: TaskContext) -> Ended {
    // The client must have its stream open before it is closed.
    cx.sleep(Duration::from_millis(100)).await?;
    cx.release_followers().await?;
    cx.sleep(Duration::from_millis(100)).await?;
    Ok(Outcome::said("It went on while nobody was connected."))
}

async fn slow_compute(cx: TaskContext) -> Ended {
    let seconds = cx.argument("seconds").and_then(Value::as_f64).unwrap_or_default();
    let length = Duration::try_from_secs_f64(seconds).map_err(AgentError::failed)?;
    if !length.is_zero() {
        cx.sleep(length).await?;
    }
    let label = cx.argument("label").and_then(Value::as_str).unwrap_or("work");
    Ok(Outcome::said(format!("Computed {label} for {seconds} s.")))
}

async fn failing(cx: TaskContext) -> Ended {
    cx.sleep(Duration::from_secs(1)).await?;
    Ok(Outcome::failed("This job fails on purpose."))
}

async fn breaking(cx: TaskContext) -> Ended {
    cx.step("work", async |step| step.sleep(Duration::from_millis(200)).await).await?;
    // A failure would be a result. A fault of the agent itself is not: protocols show it as an error.
    Err(AgentError::Misuse("This job breaks on purpose.".into()))
}

async fn confirm_delete(cx: TaskContext) -> Ended {
    let filename = cx.argument("filename").and_then(Value::as_str).unwrap_or("everything").to_owned();
    let schema = json!({ "type": "object", "properties": { "confirm": { "type": "boolean" } } });
    Ok(match cx.ask(format!("Delete {filename}?"), schema).await? {
        Answer::Accept(form) if form["confirm"] == true => Outcome::said(format!("Deleted {filename}.")),
        _ => Outcome::said(format!("Kept {filename}.")),
    })
}

async fn multi_input(cx: TaskContext) -> Ended {
    // No field is required: the suite gives both questions the same answer.
    let name = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
    let confirm = json!({ "type": "object", "properties": { "confirm": { "type": "boolean" } } });
    let (first, second) = (cx.branch("name"), cx.branch("confirm"));
    let (name, confirm) =
        tokio::try_join!(async move { first.ask("What is your name?", name).await }, async move {
            second.ask("Do you confirm?", confirm).await
        },)?;
    Ok(Outcome::said(format!("Told: {}", json!([name, confirm]))))
}

async fn greet_later(cx: TaskContext) -> Ended {
    cx.sleep(Duration::from_millis(100)).await?;
    let name = cx.argument("name").and_then(Value::as_str).unwrap_or("stranger");
    Ok(Outcome::said(format!("Hello, {name}! The task is done.")))
}
