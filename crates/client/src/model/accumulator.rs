//! Builds a reply from the pieces of a stream, for every provider.

use serde_json::Value;

use super::{
    ModelError,
    messages::{ModelReply, ModelToolCall, StopReason},
};

/// A reply under construction.
#[derive(Debug, Default)]
pub(super) struct ReplyAccumulator {
    reply: ModelReply,
    /// The provider's index of each call.
    call_indexes: Vec<u64>,
    /// Text that the caller has not taken yet.
    fresh: String,
    /// The model's thinking, in the provider's own form.
    thoughts: Vec<Value>,
    stop: Option<StopReason>,
    /// Whether the end marker has arrived.
    ended: bool,
}

impl ReplyAccumulator {
    pub(super) fn text(&mut self, text: &str) {
        self.reply.text.push_str(text);
        self.fresh.push_str(text);
    }

    /// The call at an index. Some servers give every call the same index; a different id means a different
    /// call.
    pub(super) fn call(&mut self, place: u64, id: Option<&str>) -> &mut ModelToolCall {
        let id = id.unwrap_or_default();
        let known = self.call_indexes.iter().rposition(|known| *known == place).filter(|at| {
            let call = &self.reply.calls[*at];
            id.is_empty() || call.id.is_empty() || call.id == id
        });
        let at = known.unwrap_or_else(|| {
            self.call_indexes.push(place);
            self.reply.calls.push(ModelToolCall::default());
            self.call_indexes.len() - 1
        });
        let call = &mut self.reply.calls[at];
        if call.id.is_empty() {
            call.id.push_str(id);
        }
        call
    }

    /// Records token counts; later ones replace earlier ones.
    pub(super) fn usage(&mut self, input: Option<u64>, output: Option<u64>) {
        self.reply.usage.input = input.or(self.reply.usage.input);
        self.reply.usage.output = output.or(self.reply.usage.output);
    }

    /// The model's thinking so far, for providers that require it back.
    pub(super) fn thoughts(&mut self) -> &mut Vec<Value> {
        &mut self.thoughts
    }

    pub(super) fn stop(&mut self, stop: StopReason) {
        self.stop = Some(stop);
    }

    /// The end marker has arrived.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// The text that arrived since the last call.
    pub(super) fn take_fresh(&mut self) -> Option<String> {
        (!self.fresh.is_empty()).then(|| std::mem::take(&mut self.fresh))
    }

    /// The reply, if its end has arrived. `stop_is_end`: a stop reason counts as the end.
    pub(super) fn finish(mut self, stop_is_end: bool) -> Result<ModelReply, ModelError> {
        let has_ended = self.ended || (stop_is_end && self.stop.is_some());
        if !has_ended {
            return Err(ModelError::Cut);
        }
        self.reply.stop = match self.stop.take().unwrap_or_default() {
            // Not all providers have a stop reason for it.
            StopReason::End if !self.reply.calls.is_empty() => StopReason::Tools,
            stop => stop,
        };
        if !self.thoughts.is_empty() {
            self.reply.opaque = Some(Value::Array(self.thoughts));
        }
        Ok(self.reply)
    }
}

/// Feeds a stream to a provider's reader, for tests.
#[cfg(test)]
pub(super) fn collect(
    read: fn(&mut ReplyAccumulator, &str) -> Result<(), ModelError>,
    stop_is_end: bool,
    data: &[&str],
) -> Result<ModelReply, ModelError> {
    let mut collector = ReplyAccumulator::default();
    for data in data {
        read(&mut collector, data)?;
    }
    collector.finish(stop_is_end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_id_at_the_same_place_is_another_call() {
        let mut collector = ReplyAccumulator::default();
        collector.call(0, Some("a")).arguments.push_str("{\"x\"");
        collector.call(0, None).arguments.push_str(":1}");
        collector.call(0, Some("b")).arguments.push_str("{}");
        collector.end();
        let said = collector.finish(false).unwrap();
        let calls: Vec<_> = said.calls.iter().map(|call| (&*call.id, &*call.arguments)).collect();
        assert_eq!(calls, [("a", "{\"x\":1}"), ("b", "{}")]);
        assert_eq!(said.stop, StopReason::Tools);
    }

    #[test]
    fn what_has_no_end_is_no_answer() {
        let mut collector = ReplyAccumulator::default();
        collector.text("half");
        assert!(matches!(collector.finish(true), Err(ModelError::Cut)));
        let mut collector = ReplyAccumulator::default();
        collector.stop(StopReason::End);
        assert!(collector.finish(true).is_ok());
        let mut collector = ReplyAccumulator::default();
        collector.stop(StopReason::End);
        assert!(matches!(collector.finish(false), Err(ModelError::Cut)));
    }
}
