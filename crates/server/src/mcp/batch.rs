//! The JSON-RPC batches of 2025-03-26: several messages in one body, answered together or as one stream.

use axum::{body::Body, http::Response as HttpResponse};
use futures_util::{
    StreamExt,
    future::join_all,
    stream::{self, BoxStream},
};
use nuncio_wire::{
    jsonrpc::{self, RpcId, RpcMessage},
    mcp::{McpFault, read_meta},
};

use super::{
    call_stream::{CallStream, McpFrame},
    client::McpClient,
    dispatch::{McpReply, McpRequest, McpResponse, null_id},
    http::{McpExchange, McpStreamSource, accepted},
};
use crate::open_streams::StreamSlot;

impl McpExchange<'_> {
    /// Answers a batch: the responses come together, or as one stream.
    pub(super) async fn batch(
        &self,
        client: &McpClient,
        batch: Vec<Result<RpcMessage<'_>, jsonrpc::RpcRequestError>>,
    ) -> Result<HttpResponse<Body>, McpFault> {
        let max = self.mcp.options.max_batch;
        if batch.is_empty() || batch.len() > max {
            return Err(batch_size(batch.len(), max));
        }
        let makes_tasks = |message: &Result<RpcMessage<'_>, jsonrpc::RpcRequestError>| match message {
            Ok(RpcMessage::Request(request)) => request.method == "tools/call",
            _ => false,
        };
        // Reserved before any task is created: a refusal must not leave one behind.
        let place = match batch.iter().any(makes_tasks) {
            true => Some(self.app.reserve_stream_slot(&client.caller)?),
            false => None,
        };
        let answers = join_all(batch.into_iter().map(|message| async {
            match message {
                Err(error) => {
                    let fault = McpFault::new(error.code(), error.message);
                    Some(McpReply::Now(McpResponse::fault(error.id.as_ref(), fault)))
                }
                Ok(RpcMessage::Response(response)) => {
                    if let Err(fault) = self.mcp.handle_response(client, response).await {
                        // A response cannot be answered with an error.
                        tracing::info!(why = fault.message, "rejected the response of a client");
                    }
                    None
                }
                Ok(RpcMessage::Request(request)) => {
                    let Some(id) = request.id else {
                        self.mcp.handle_notification(client, &request.method, request.params);
                        return None;
                    };
                    let answered = match (&*request.method, read_meta(request.params)) {
                        _ if id == RpcId::null() => McpReply::Now(McpResponse::fault(None, null_id())),
                        ("initialize", _) => {
                            let fault = McpFault::invalid_request("initialize stands alone, not in a batch");
                            McpReply::Now(McpResponse::fault(Some(&id), fault))
                        }
                        (_, Err(fault)) => McpReply::Now(McpResponse::fault(Some(&id), fault)),
                        (method, Ok(meta)) => {
                            self.mcp
                                .answer(client, McpRequest { id, method, params: request.params, meta })
                                .await
                        }
                    };
                    Some(answered)
                }
            }
        }))
        .await;
        let (mut now, mut streams) = (vec![], vec![]);
        for answered in answers.into_iter().flatten() {
            match answered {
                McpReply::Now(response) => now.push(response.body),
                McpReply::Call(call) => streams.push(call),
                McpReply::Listen(_) => {}
            }
        }
        if now.is_empty() && streams.is_empty() {
            return Ok(accepted());
        }
        if streams.is_empty() {
            let mut out = vec![b'['];
            out.extend(now.join(&b','));
            out.push(b']');
            return Ok(self.respond(McpResponse::result(out)));
        }
        let place = match place {
            Some(place) => place,
            None => self.app.reserve_stream_slot(&client.caller)?,
        };
        Ok(self.stream(McpStreamSource::Batch(together(now, streams)), place))
    }

    /// Resumes the stream of a batch: its event id holds a cursor for each of its calls.
    pub(super) async fn resume_batch(
        &self,
        client: &McpClient,
        cursors: &str,
        place: StreamSlot,
    ) -> Result<HttpResponse<Body>, McpFault> {
        let max = self.mcp.options.max_batch;
        if cursors.split(',').count() > max {
            return Err(batch_size(cursors.split(',').count(), max));
        }
        let mut streams = vec![];
        for cursor in cursors.split(',') {
            streams.push(CallStream::Task(Box::new(self.mcp.resume(client, cursor).await?)));
        }
        Ok(self.stream(McpStreamSource::Batch(together(vec![], streams)), place))
    }
}

/// Why a batch of that many messages is refused.
pub(super) fn batch_size(count: usize, max: usize) -> McpFault {
    match count {
        0 => McpFault::invalid_request("a batch has at least one message"),
        _ => McpFault::invalid_request(format!("a batch has at most {max} messages (max_batch)")),
    }
}

/// Merges several calls into one stream. The id of each event joins the last event ids of all calls, so that
/// all of them can be resumed.
fn together(now: Vec<Vec<u8>>, calls: Vec<CallStream>) -> BoxStream<'static, McpFrame> {
    let mut cursors = vec![None; calls.len()];
    let told = stream::iter(now).map(|data| (None, McpFrame::plain(data)));
    let calls = calls.into_iter().enumerate().map(|(n, call)| {
        Box::pin(stream::unfold(call, move |mut call| async move {
            call.next().await.map(|frame| ((Some(n), frame), call))
        }))
    });
    let frames = told.chain(stream::select_all(calls)).map(move |(call, mut frame)| {
        if let (Some(call), Some(id)) = (call, frame.id.take()) {
            cursors[call] = Some(id);
            // While a call has sent no event, there is no cursor to resume it with.
            frame.id = cursors.iter().cloned().collect::<Option<Vec<_>>>().map(|all| all.join(","));
        }
        frame
    });
    frames.boxed()
}
