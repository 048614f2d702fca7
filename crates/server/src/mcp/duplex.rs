//! MCP over one bidirectional connection, stateful or stateless: stdio, and the HTTP+SSE transport of
//! 2024-11-05.
//!
//! All messages of a connection share one output, and a session lasts as long as the connection.

use std::{collections::HashMap, sync::Arc, time::Duration};

use nuncio_engine::Caller;
use nuncio_wire::{
    jsonrpc::{self, RpcId, RpcMessage, RpcMessages},
    mcp::{ClientCapabilities, InitializeParams, McpFault, McpVersion, read_meta, read_params},
};
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::{
    sync::mpsc,
    task::{AbortHandle, JoinSet},
};

use super::{
    Mcp, McpEndpoint,
    batch::batch_size,
    client::{McpClient, info_of},
    dispatch::{McpReply, McpRequest, McpResponse, cancelled_id, null_id},
    session::McpSession,
};

/// Deadline for open requests after the client has closed its end.
const LAST_ANSWERS: Duration = Duration::from_secs(1);
/// Maximum concurrent requests of one connection.
const MAX_OPEN: usize = 64;

/// One connection.
pub(crate) struct McpDuplex {
    mcp: Arc<Mcp>,
    caller: Caller,
    endpoint: McpEndpoint,
    out: mpsc::Sender<Vec<u8>>,
    client: Option<McpClient>,
    work: JoinSet<()>,
    /// Requests in progress, by their id.
    open: Arc<Mutex<HashMap<RpcId, DuplexRequest>>>,
}

/// A request in progress.
struct DuplexRequest {
    work: AbortHandle,
    /// A stateless request is cancelled by dropping it.
    stateless: bool,
}

impl McpDuplex {
    /// A connection that writes to `out`, one message at a time.
    pub(crate) fn new(
        mcp: Arc<Mcp>,
        caller: Caller,
        endpoint: McpEndpoint,
        out: mpsc::Sender<Vec<u8>>,
    ) -> Self {
        Self { mcp, caller, endpoint, out, client: None, work: JoinSet::new(), open: Arc::default() }
    }

    /// Handles a body: a message, or a batch where the revision has them.
    pub(crate) async fn handle_body(&mut self, body: &[u8], max_depth: usize) {
        while self.work.try_join_next().is_some() {}
        let messages = match jsonrpc::parse_messages(body, max_depth) {
            Ok(messages) => messages,
            Err(error) => {
                let fault = McpFault::new(error.code(), error.message);
                return self.send_message(McpResponse::fault(error.id.as_ref(), fault).body).await;
            }
        };
        match messages {
            RpcMessages::One(message) => self.message(message).await,
            RpcMessages::Batch(batch) if batch.is_empty() || batch.len() > self.mcp.options.max_batch => {
                let fault = batch_size(batch.len(), self.mcp.options.max_batch);
                self.send_message(McpResponse::fault(None, fault).body).await;
            }
            RpcMessages::Batch(batch) if self.version() == Some(McpVersion::V2025_03_26) => {
                for message in batch {
                    match message {
                        Ok(message) => self.message(message).await,
                        Err(error) => {
                            let fault = McpFault::new(error.code(), error.message);
                            self.send_message(McpResponse::fault(error.id.as_ref(), fault).body).await;
                        }
                    }
                }
            }
            RpcMessages::Batch(_) => {
                let fault =
                    McpFault::invalid_request("batches are of 2025-03-26 alone: send one message at a time");
                self.send_message(McpResponse::fault(None, fault).body).await;
            }
        }
    }

    /// Handles the client's end of input. Requests that finish soon are answered, for programs that send their
    /// requests and close; the others are cancelled, because no client would receive the result.
    pub(crate) async fn close(mut self) {
        let answered = async {
            while !self.open.lock().is_empty() {
                if self.work.join_next().await.is_none() {
                    break;
                }
            }
        };
        let _ = tokio::time::timeout(LAST_ANSWERS, answered).await;
        self.work.abort_all();
        while self.work.join_next().await.is_some() {}
        if let Some(client) = &self.client {
            self.mcp.cancel_calls(client).await;
        }
    }

    fn version(&self) -> Option<McpVersion> {
        self.client.as_ref().map(|client| client.version)
    }

    async fn send_message(&self, data: Vec<u8>) {
        // An error means that the client has disconnected, which the reader notices.
        let _ = self.out.send(data).await;
    }

    async fn message(&mut self, message: RpcMessage<'_>) {
        match message {
            RpcMessage::Response(response) => {
                if let Some(client) = self.client.clone()
                    && let Err(fault) = self.mcp.handle_response(&client, response).await
                {
                    // A response cannot be answered with an error.
                    tracing::info!(why = fault.message, "rejected the response of a client");
                }
            }
            RpcMessage::Request(request) => match request.id.clone() {
                None => self.notification(&request.method, request.params),
                Some(id) if id == RpcId::null() => {
                    self.send_message(McpResponse::fault(None, null_id()).body).await;
                }
                Some(id) => {
                    if let Err(fault) = self.request(&id, &request.method, request.params).await {
                        self.send_message(McpResponse::fault(Some(&id), fault).body).await;
                    }
                }
            },
        }
    }

    fn notification(&mut self, method: &str, params: Option<&RawValue>) {
        if method == "notifications/cancelled"
            && let Some(id) = cancelled_id(params)
        {
            let mut open = self.open.lock();
            if open.get(&id).is_some_and(|request| request.stateless) {
                open.remove(&id).inspect(|request| request.work.abort());
                return;
            }
        }
        if let Some(client) = &self.client {
            self.mcp.handle_notification(client, method, params);
        }
    }

    async fn request(&mut self, id: &RpcId, method: &str, params: Option<&RawValue>) -> Result<(), McpFault> {
        let meta = read_meta(params)?;
        let client = match (&meta.version, &self.client) {
            (Some(_), _) => McpClient::stateless(&self.caller, &self.endpoint, &meta)??,
            (None, _) if method == "initialize" => return self.initialize(id, read_params(params)?).await,
            (None, Some(client)) => client.clone(),
            // A client of 2026-07-28 omitted its revision; any other client has to send `initialize` first.
            (None, None) if method == "server/discover" => {
                McpClient::stateless(&self.caller, &self.endpoint, &meta)??
            }
            (None, None) => {
                return Err(McpFault::invalid_request(format!(
                    "{method} came before initialize, and without the _meta of MCP 2026-07-28"
                )));
            }
        };
        let open = || self.open.lock();
        if open().contains_key(id) {
            return Err(McpFault::invalid_request("id: a request of that id is open"));
        }
        if self.work.len() >= MAX_OPEN {
            return Err(McpFault::internal(format!(
                "there are {MAX_OPEN} requests open: wait for some of them"
            )));
        }
        let stateless = client.version.is_stateless();
        let (method, params) = (method.to_owned(), params.map(ToOwned::to_owned));
        let (mcp, out, key, all) =
            (Arc::clone(&self.mcp), self.out.clone(), id.clone(), Arc::clone(&self.open));
        let (begin, begun) = tokio::sync::oneshot::channel::<()>();
        let work = self.work.spawn(async move {
            // Starts only once it is registered under its id.
            let _ = begun.await;
            let request = McpRequest { id: key.clone(), method: &method, params: params.as_deref(), meta };
            let answered = mcp.answer(&client, request).await;
            // Freed early: the params may be large, and the response may take a week.
            drop(params);
            forward(answered, &out).await;
            all.lock().remove(&key);
        });
        open().insert(id.clone(), DuplexRequest { work, stateless });
        let _ = begin.send(());
        Ok(())
    }

    async fn initialize(&mut self, id: &RpcId, params: InitializeParams) -> Result<(), McpFault> {
        if self.client.is_some() {
            return Err(McpFault::invalid_request("initialize: this connection is initialized already"));
        }
        let version = McpVersion::negotiate(&params.protocol_version);
        let capabilities = ClientCapabilities::read(&params.capabilities, version);
        let session = Arc::new(McpSession::transient(&self.mcp.engine, &self.caller, version, capabilities));
        let client = McpClient {
            version,
            caller: self.caller.clone().over(version.dialect()),
            endpoint: self.endpoint.clone(),
            capabilities,
            session: Some(session),
            level: None,
            info: info_of(&params.client_info),
        };
        self.send_message(self.mcp.initialized(version, id)).await;
        let mut listen = self.mcp.listen_in_session(&client);
        let out = self.out.clone();
        self.work.spawn(async move {
            while let Some(frame) = listen.next().await {
                if out.send(frame.data).await.is_err() {
                    return;
                }
            }
        });
        self.client = Some(client);
        Ok(())
    }
}

async fn forward(answered: McpReply, out: &mpsc::Sender<Vec<u8>>) {
    match answered {
        McpReply::Now(response) => drop(out.send(response.body).await),
        McpReply::Call(mut call) => {
            while let Some(frame) = call.next().await {
                if !frame.data.is_empty() && out.send(frame.data).await.is_err() {
                    return;
                }
            }
        }
        McpReply::Listen(mut listen) => {
            while let Some(frame) = listen.next().await {
                if out.send(frame.data).await.is_err() {
                    return;
                }
            }
        }
    }
}
