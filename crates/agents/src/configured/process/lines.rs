//! Lines from a pipe, bounded in length. Cancel safe: a dropped read loses no part of a line.

use std::io;

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

/// A reader of bounded lines.
pub(super) struct BoundedLines<R> {
    pipe: BufReader<R>,
    line: Vec<u8>,
    max: usize,
    /// Bytes of the current line that were left out because it is too long.
    left_out: usize,
}

/// A line without its line end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BoundedLine {
    /// The line, up to the allowed length.
    pub(super) text: String,
    /// Whether the line was longer.
    pub(super) cut: bool,
}

impl<R: AsyncRead + Unpin> BoundedLines<R> {
    pub(super) fn new(pipe: R, max: usize) -> Self {
        Self { pipe: BufReader::new(pipe), line: vec![], max, left_out: 0 }
    }

    /// The next line; `None` at the end. Bytes beyond the limit are skipped.
    pub(super) async fn next(&mut self) -> io::Result<Option<BoundedLine>> {
        loop {
            let bytes = self.pipe.fill_buf().await?;
            if bytes.is_empty() {
                let nothing = self.line.is_empty() && self.left_out == 0;
                return Ok((!nothing).then(|| self.take()));
            }
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let piece = &bytes[..end.unwrap_or(bytes.len())];
            let kept = piece.len().min(self.max - self.line.len());
            self.line.extend_from_slice(&piece[..kept]);
            self.left_out += piece.len() - kept;
            let used = piece.len() + usize::from(end.is_some());
            self.pipe.consume(used);
            if end.is_some() {
                return Ok(Some(self.take()));
            }
        }
    }

    fn take(&mut self) -> BoundedLine {
        let cut = std::mem::take(&mut self.left_out) > 0;
        let line = std::mem::take(&mut self.line);
        BoundedLine { text: String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned(), cut }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_line_is_cut_where_it_is_too_long_and_the_next_is_whole() {
        let mut lines = BoundedLines::new(&b"short\r\nexactly8\nninebytes\n\nlast"[..], 8);
        let mut next = async || lines.next().await.unwrap().map(|line| (line.text, line.cut));
        assert_eq!(next().await, Some(("short".into(), false)));
        assert_eq!(next().await, Some(("exactly8".into(), false)));
        assert_eq!(next().await, Some(("ninebyte".into(), true)));
        assert_eq!(next().await, Some((String::new(), false)));
        assert_eq!(next().await, Some(("last".into(), false)));
        assert_eq!(next().await, None);
    }
}
