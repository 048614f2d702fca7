//! What a busy machine does to batches: one that has not begun waits, and those at work run fewer operations at once.
//!
//! Nothing is refused for it. The wait is part of the batch's record, so it is shown with its reason and goes on after
//! a restart. It has an end: on a machine that is always busy a batch begins all the same, one operation at a time.

use std::time::Duration;

use nuncio_engine::{AgentError, Engine, TaskContext, event::Level};

use super::{BatchCore, QUEUE_URI, control, retry::retry_while_busy};

/// How often a waiting batch looks at the load.
const POLL: Duration = Duration::from_secs(1);

impl BatchCore {
    /// What is in use beyond its threshold, with what was measured; `None` where nothing is, or nothing is known.
    pub(crate) fn overload(&self) -> Option<String> {
        let settings = self.settings();
        if !settings.resource_monitoring {
            return None;
        }
        let thresholds = settings.thresholds;
        let measured = [
            ("memory", "memoryUsage", self.probe.memory(), thresholds.memory_usage),
            ("the processors' time", "cpuUsage", self.probe.cpu(), thresholds.cpu_usage),
        ];
        measured.into_iter().find_map(|(what, field, measured, threshold)| {
            let share = measured.filter(|share| *share > threshold)?;
            Some(format!(
                "{:.1} % of {what} is in use, and the threshold {field} is {:.1} %",
                share * 100.0,
                threshold * 100.0
            ))
        })
    }

    /// Halves the cap while the machine is too busy, down to one operation at a time, and doubles it again after.
    pub(crate) fn follow_load(&self) {
        let (most, now) = (self.settings().max_concurrency, *self.scheduler.cap().borrow());
        let wanted = match self.overload() {
            Some(_) => (now / 2).max(1),
            None => (now * 2).min(most),
        };
        if wanted != now {
            self.scheduler.set_cap(wanted);
        }
    }

    /// Waits until the machine has room for a batch that has not begun.
    pub(crate) async fn wait_for_load(
        &self,
        cx: &TaskContext,
        engine: &Engine,
        tenant: &str,
    ) -> Result<(), AgentError> {
        let (id, mut waited) = (cx.task_id(), false);
        let set = |why: Option<String>| async move {
            let change = |control: &mut control::Control| control.waiting.clone_from(&why);
            let control = retry_while_busy(cx, || control::change(engine, tenant, id, change)).await?;
            engine.notify_changed(tenant, QUEUE_URI);
            Ok::<_, AgentError>(control)
        };
        while let Some(why) = self.overload() {
            let control = match waited {
                false => set(Some(why.clone())).await?,
                true => retry_while_busy(cx, || control::read(engine, tenant, id))
                    .await?
                    .map(|(control, _)| control),
            };
            let Some(control) = control else { return Ok(()) };
            let over = engine.clock().now().since(control.taken_at) >= self.options.load_wait;
            if control.began_at.is_some() || over {
                break;
            }
            if !waited {
                cx.remark(Level::Notice, format!("The batch waits: {why}.")).await?;
            }
            waited = true;
            tokio::select! {
                () = cx.canceled() => return Err(AgentError::Canceled),
                () = tokio::time::sleep(POLL.min(self.options.poll)) => {}
            }
        }
        // Also what a run before this one has set.
        let control = retry_while_busy(cx, || control::read(engine, tenant, id)).await?;
        if control.is_some_and(|(control, _)| control.waiting.is_some()) {
            set(None).await?;
        }
        Ok(())
    }
}
