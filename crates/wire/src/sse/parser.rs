//! The SSE parser of a client: from arbitrary chunks of bytes to events.

use std::time::Duration;

/// One event of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerEvent {
    /// The last id of the stream so far: the `Last-Event-ID` to send after this event.
    pub id: Option<String>,
    /// The event's type, if it has one.
    pub event: Option<String>,
    /// The data lines, joined by newlines.
    pub data: String,
}

/// A line or an event exceeds the parser's limit. The parser must not be used after this.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a server-sent event is longer than {0} bytes")]
pub struct SseOverflow(pub usize);

/// An incremental parser: the events do not depend on how the bytes are split into chunks.
#[derive(Debug, Clone)]
pub struct SseParser {
    limit: usize,
    line: Vec<u8>,
    /// The last byte was a carriage return: a newline directly after it belongs to it.
    after_return: bool,
    /// The first line is not complete; it may begin with a byte order mark.
    at_start: bool,
    id: Option<String>,
    /// The id of the last event that is complete, empty events included.
    last_id: Option<String>,
    event: Option<String>,
    data: String,
    has_data: bool,
    retry: Option<Duration>,
}

impl SseParser {
    /// A parser for events of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            line: vec![],
            after_return: false,
            at_start: true,
            id: None,
            last_id: None,
            event: None,
            data: String::new(),
            has_data: false,
            retry: None,
        }
    }

    /// The last id of the stream: where to resume after a disconnect. The id of an incomplete event does not
    /// count, because that event was not returned.
    pub fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    /// The reconnect delay that the server asked for.
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// Takes the next bytes and returns the events that they complete.
    ///
    /// An incomplete event at the end of the stream is not returned: it may be truncated.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<Vec<ServerEvent>, SseOverflow> {
        let mut events = vec![];
        if self.after_return && bytes.first() == Some(&b'\n') {
            bytes = &bytes[1..];
        }
        if !bytes.is_empty() {
            self.after_return = false;
        }
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.grow(&bytes[..end])?;
            events.extend(self.end_line());
            let rest = &bytes[end + 1..];
            bytes = match (bytes[end], rest) {
                (b'\r', [b'\n', after @ ..]) => after,
                (b'\r', []) => {
                    self.after_return = true;
                    rest
                }
                _ => rest,
            };
        }
        self.grow(bytes)?;
        Ok(events)
    }

    fn grow(&mut self, bytes: &[u8]) -> Result<(), SseOverflow> {
        if self.data.len() + self.line.len() + bytes.len() > self.limit {
            return Err(SseOverflow(self.limit));
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self) -> Option<ServerEvent> {
        let bytes = std::mem::take(&mut self.line);
        let mut line = &*String::from_utf8_lossy(&bytes);
        if std::mem::take(&mut self.at_start) {
            line = line.strip_prefix('\u{feff}').unwrap_or(line);
        }
        if line.is_empty() {
            return self.end_event();
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                if self.has_data {
                    self.data.push('\n');
                }
                self.has_data = true;
                self.data.push_str(value);
            }
            "event" => self.event = Some(value.to_owned()),
            "id" if !value.contains('\0') => self.id = Some(value.to_owned()),
            "retry" if value.bytes().all(|byte| byte.is_ascii_digit()) => {
                self.retry = value.parse().ok().map(Duration::from_millis);
            }
            // An empty name is a comment; unknown names are reserved for later versions.
            _ => {}
        }
        None
    }

    fn end_event(&mut self) -> Option<ServerEvent> {
        self.last_id.clone_from(&self.id);
        let (event, data) = (self.event.take(), std::mem::take(&mut self.data));
        let complete = std::mem::take(&mut self.has_data);
        complete.then(|| ServerEvent {
            id: self.id.clone(),
            event: event.filter(|name| !name.is_empty()),
            data,
        })
    }
}
