//! Load control: a batch that has not begun waits for a busy machine, and running batches get a lower
//! concurrency cap.
//!
//! Load never refuses a batch. The wait is part of the batch's record, so it is published with its reason and
//! continues after a restart. It is bounded: on a machine that is always busy the batch begins anyway, one
//! operation at a time.

use std::time::Duration;

use nuncio_engine::{AgentError, Engine, TaskContext, event::Level};

use super::{BatchCore, QUEUE_URI, control, retry::retry_while_busy};

/// The interval at which a waiting batch polls the load.
const POLL: Duration = Duration::from_secs(1);

impl BatchCore {
    /// The first resource whose use exceeds its threshold, with the measured value; `None` where none does, or
    /// nothing could be measured.
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

    /// Halves the cap while the machine is overloaded, down to one operation at a time, and doubles it again
    /// afterwards.
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

    /// Waits until the machine has capacity for a batch that has not begun.
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
                    .map(|record| record.value),
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
        // Clears the reason also where an earlier run has set it.
        let control = retry_while_busy(cx, || control::read(engine, tenant, id)).await?;
        if control.is_some_and(|record| record.value.waiting.is_some()) {
            set(None).await?;
        }
        Ok(())
    }
}
