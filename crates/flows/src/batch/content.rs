//! Content processing: the strategies that process one large content in chunks, and compress contents without
//! duplicates.
//!
//! Chunks end at line ends where the operation works on lines, and otherwise between characters. Each chunk is
//! an operation. The outputs are joined in order, so the result equals that of a single pass: joined gzip
//! members form one gzip stream, and a word that a chunk boundary divides is counted once.

use std::{
    collections::HashMap,
    io::{Read, Write as _},
    sync::Arc,
};

use flate2::{Compression, write::GzEncoder};
use nuncio_engine::access::Action;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{
    files::{Folder, LineMatches, hex, matcher},
    input::{
        BatchInput, BatchOperation, ContentOperation, ContentProcessing, DEFAULT_MATCHES, OperationKind,
    },
    memory,
    operation::{BatchContext, OperationFailure, OperationOutput, blocking},
};

/// The boundaries at which a content is divided into chunks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChunkBoundaries {
    bytes: u64,
    /// The end offset of each chunk.
    ends: Vec<u64>,
}

impl ChunkBoundaries {
    /// The chunks as operations.
    pub(crate) fn operations(&self, input: &BatchInput) -> Vec<BatchOperation> {
        let mut from = 0;
        let chunk = |(n, end): (usize, &u64)| {
            let work = OperationKind::Chunk(from, end - from);
            from = *end;
            let id = format!("chunk-{:05}", n + 1);
            BatchOperation { id, r#type: "chunk", work, priority: input.priority, needs: vec![], retries: 0 }
        };
        self.ends.iter().enumerate().map(chunk).collect()
    }
}

/// Reads the content and computes its chunk boundaries.
pub(crate) async fn cut(common: &Arc<BatchContext>) -> Result<ChunkBoundaries, OperationFailure> {
    let process = process(common)?;
    for (action, path) in [(Action::Read, &process.file), (Action::Write, &process.to)] {
        if let Some(path) = path {
            common.allow_file(action, "batch.process", path)?;
        }
    }
    let common = Arc::clone(common);
    blocking(move || {
        let process = self::process(&common)?;
        let content = whole(&common, process)?;
        if content.len() > common.options.content_bytes {
            return Err(OperationFailure::of(format!(
                "the content has {} bytes, and may have {} (content_bytes)",
                content.len(),
                common.options.content_bytes
            )));
        }
        let lines = matches!(process.operation, ContentOperation::Search | ContentOperation::Count);
        let ends = ends(&content, process.chunk_bytes, lines);
        match ends.len() > common.options.operations_per_batch {
            true => Err(OperationFailure::of(format!(
                "the content has {} chunks, and a batch at most {} operations (operations_per_batch): make chunkBytes larger",
                ends.len(),
                common.options.operations_per_batch
            ))),
            false => Ok(ChunkBoundaries { bytes: content.len() as u64, ends }),
        }
    })
    .await
}

/// The end offsets of chunks of about that size.
fn ends(content: &[u8], size: usize, lines: bool) -> Vec<u64> {
    let (mut ends, mut at) = (vec![], 0);
    while at < content.len() {
        let mut end = (at + size).min(content.len());
        if end < content.len() {
            end = match lines {
                true => content[end - 1..]
                    .iter()
                    .position(|byte| *byte == b'\n')
                    .map_or(content.len(), |n| end + n),
                // Continuation bytes of a UTF-8 character begin with the bits 10; a character has at most three.
                false => (end..=(end + 3).min(content.len()))
                    .find(|n| content.get(*n).is_none_or(|byte| byte & 0xc0 != 0x80))
                    .unwrap_or(end),
            };
        }
        ends.push(end as u64);
        at = end;
    }
    // An empty content is one empty chunk.
    if ends.is_empty() {
        ends.push(0);
    }
    ends
}

/// Processes one chunk.
pub(crate) async fn chunk(
    common: &Arc<BatchContext>,
    id: &str,
    from: u64,
    bytes: u64,
) -> Result<OperationOutput, OperationFailure> {
    let (common, id) = (Arc::clone(common), id.to_owned());
    blocking(move || {
        let process = process(&common)?;
        let chunk = match (&process.content, &process.file) {
            (Some(content), _) => content
                .as_bytes()
                .get(from as usize..(from + bytes) as usize)
                .map(<[u8]>::to_vec)
                .ok_or_else(|| OperationFailure::of("the content is shorter than its chunks"))?,
            (None, file) => folder(&common)?.range(file.as_deref().unwrap_or_default(), from, bytes)?,
        };
        let output = match process.operation {
            ContentOperation::Hash => json!({ "bytes": bytes, "sha256": hex(&Sha256::digest(&chunk)) }),
            ContentOperation::Count => count(&chunk),
            ContentOperation::Search => {
                let pattern = process.pattern.as_deref().unwrap_or_default();
                let matcher =
                    matcher(pattern, process.regex, process.ignore_case).map_err(OperationFailure::of)?;
                let mut found = LineMatches::new(process.max_matches.unwrap_or(DEFAULT_MATCHES));
                found.search(&matcher, &chunk, from, None);
                json!({ "lines": found.lines, "total": found.total, "matches": found.matches })
            }
            ContentOperation::Compress => {
                let compressed = gzip(&chunk)?;
                if let Some(to) = &process.to {
                    folder(&common)?.put(&part(to, &common.batch, &id), &mut &compressed[..])?;
                }
                json!({ "bytes": bytes, "compressedBytes": compressed.len() })
            }
        };
        Ok(OperationOutput::of(output))
    })
    .await
}

/// The joined output of all chunks, in order; `None` if one of them failed.
pub(crate) async fn join(
    common: &Arc<BatchContext>,
    chunks: Vec<(String, Option<Value>)>,
) -> Result<Option<Value>, OperationFailure> {
    let Some(outputs) = chunks.iter().map(|(_, output)| output.clone()).collect::<Option<Vec<Value>>>()
    else {
        return Ok(None);
    };
    let common = Arc::clone(common);
    blocking(move || {
        let process = process(&common)?;
        let sum = |field: &str| outputs.iter().map(|one| one[field].as_u64().unwrap_or(0)).sum::<u64>();
        let joined = match process.operation {
            ContentOperation::Hash => {
                let digests: Vec<&str> = outputs.iter().filter_map(|one| one["sha256"].as_str()).collect();
                json!({
                    "chunks": outputs.len(),
                    "bytes": sum("bytes"),
                    "sha256OfChunks": hex(&Sha256::digest(digests.concat().as_bytes())),
                    "sha256": digests,
                })
            }
            ContentOperation::Count => {
                let divided = outputs
                    .windows(2)
                    .filter(|two| {
                        two[0]["endsInWord"] == json!(true) && two[1]["startsInWord"] == json!(true)
                    })
                    .count() as u64;
                json!({
                    "chunks": outputs.len(),
                    "bytes": sum("bytes"),
                    "characters": sum("characters"),
                    "words": sum("words") - divided,
                    "lines": sum("lines"),
                })
            }
            ContentOperation::Search => {
                let most = process.max_matches.unwrap_or(DEFAULT_MATCHES);
                let (mut matches, mut lines) = (vec![], 0);
                for one in &outputs {
                    for hit in one["matches"].as_array().into_iter().flatten() {
                        if matches.len() == most {
                            break;
                        }
                        let mut hit = hit.clone();
                        hit["line"] = json!(hit["line"].as_u64().unwrap_or(0) + lines);
                        matches.push(hit);
                    }
                    lines += one["lines"].as_u64().unwrap_or(0);
                }
                json!({ "chunks": outputs.len(), "total": sum("total"), "matches": matches })
            }
            ContentOperation::Compress => {
                let mut joined = json!({
                    "chunks": outputs.len(),
                    "bytes": sum("bytes"),
                    "compressedBytes": sum("compressedBytes"),
                });
                if let Some(to) = &process.to {
                    let folder = folder(&common)?;
                    let parts: Vec<String> =
                        chunks.iter().map(|(id, _)| part(to, &common.batch, id)).collect();
                    folder
                        .put(to, &mut PartFilesReader { folder: &folder, left: parts.iter(), open: None })?;
                    joined["file"] = json!(to);
                }
                joined
            }
        };
        Ok(Some(joined))
    })
    .await
}

/// Removes the files of compressed chunks, which are joined or never will be. Idempotent.
pub(crate) async fn remove_part_files(common: &Arc<BatchContext>, operations: &[BatchOperation]) {
    let Some(to) = common.input.process.as_ref().and_then(|process| process.to.as_ref()) else { return };
    let parts: Vec<String> =
        operations.iter().map(|operation| part(to, &common.batch, &operation.id)).collect();
    let common = Arc::clone(common);
    let removed = blocking(move || {
        let folder = folder(&common)?;
        parts.iter().for_each(|part| folder.remove(part));
        Ok(())
    });
    if let Err(failure) = removed.await {
        tracing::warn!(why = failure.why, "the part files of a compressed content could not be removed");
    }
}

/// The path of a compressed chunk's file, which exists until all chunks are joined.
fn part(to: &str, batch: &str, id: &str) -> String {
    let (folder, name) = match to.rsplit_once('/') {
        Some((folder, name)) => (format!("{folder}/"), name),
        None => (String::new(), to),
    };
    format!("{folder}.{name}.{batch}.{id}")
}

/// Reads several files as one concatenated stream.
struct PartFilesReader<'a> {
    folder: &'a Folder,
    left: std::slice::Iter<'a, String>,
    open: Option<cap_std::fs::File>,
}

impl Read for PartFilesReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        loop {
            let file = match &mut self.open {
                Some(file) => file,
                None => match self.left.next() {
                    None => return Ok(0),
                    Some(next) => {
                        let opened = self.folder.source(next);
                        self.open.insert(opened.map_err(|failure| std::io::Error::other(failure.why))?)
                    }
                },
            };
            match file.read(buffer)? {
                0 => self.open = None,
                read => return Ok(read),
            }
        }
    }
}

fn count(chunk: &[u8]) -> Value {
    let (mut words, mut characters, mut lines, mut in_word) = (0_u64, 0_u64, 0_u64, false);
    for byte in chunk {
        let space = byte.is_ascii_whitespace();
        words += u64::from(!space && !in_word);
        in_word = !space;
        characters += u64::from(byte & 0xc0 != 0x80);
        lines += u64::from(*byte == b'\n');
    }
    json!({
        "bytes": chunk.len(),
        "characters": characters,
        "words": words,
        "lines": lines,
        "startsInWord": chunk.first().is_some_and(|byte| !byte.is_ascii_whitespace()),
        "endsInWord": in_word,
    })
}

/// The contents that are already compressed: compressed size by hash.
pub(crate) type CompressedContents = Mutex<HashMap<String, u64>>;

/// Compresses one content, unless an identical one was compressed before.
pub(crate) async fn optimize(
    common: &Arc<BatchContext>,
    n: usize,
) -> Result<OperationOutput, OperationFailure> {
    let contents = common.input.optimize.as_ref().and_then(|optimize| optimize.contents.get(n));
    let Some(contents) = contents.cloned() else {
        return Err(OperationFailure::of("there is no such content"));
    };
    let from_memory = match &contents.memory {
        Some(name) => Some(memory::bytes(common, name).await?),
        None => None,
    };
    let common = Arc::clone(common);
    blocking(move || {
        let bytes = match (from_memory, contents.content, contents.file) {
            (Some(bytes), ..) => bytes,
            (_, Some(content), _) => content.into_bytes(),
            (_, _, file) => folder(&common)?.bytes(&file.unwrap_or_default())?,
        };
        let sha256 = hex(&Sha256::digest(&bytes));
        let known = common.compressed.lock().get(&sha256).copied();
        let compressed = match known {
            Some(compressed) => compressed,
            None => {
                let compressed = gzip(&bytes)?;
                if let Some(to) = common.input.optimize.as_ref().and_then(|optimize| optimize.to.as_ref()) {
                    folder(&common)?.put(&format!("{to}/{sha256}.gz"), &mut &compressed[..])?;
                }
                let size = compressed.len() as u64;
                common.compressed.lock().insert(sha256.clone(), size);
                size
            }
        };
        Ok(OperationOutput::of(
            json!({ "sha256": sha256, "bytes": bytes.len(), "compressedBytes": compressed }),
        ))
    })
    .await
}

/// The joined output of all contents: each is stored once, compressed, or uncompressed where that is smaller.
pub(crate) fn join_optimized<'a>(outputs: impl Iterator<Item = &'a Value>) -> (Value, u64, u64) {
    let (mut count, mut before, mut unique) = (0_u64, 0_u64, HashMap::new());
    for output in outputs {
        let field = |name: &str| output[name].as_u64().unwrap_or(0);
        count += 1;
        before += field("bytes");
        unique.insert(
            output["sha256"].as_str().unwrap_or_default(),
            field("compressedBytes").min(field("bytes")),
        );
    }
    let after = unique.values().sum();
    let joined = json!({
        "contents": count,
        "unique": unique.len(),
        "duplicates": count - unique.len() as u64,
        "bytesBefore": before,
        "bytesAfter": after,
    });
    (joined, before, after)
}

fn gzip(bytes: &[u8]) -> Result<Vec<u8>, OperationFailure> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let written = encoder.write_all(bytes).and_then(|()| encoder.finish());
    written.map_err(|error| OperationFailure::of(format!("it could not be compressed: {error}")))
}

fn process(common: &BatchContext) -> Result<&ContentProcessing, OperationFailure> {
    common.input.process.as_ref().ok_or_else(|| OperationFailure::of("there is no content to process"))
}

fn folder(common: &BatchContext) -> Result<Folder, OperationFailure> {
    Folder::open(&common.folder()?, &common.options)
}

fn whole(common: &BatchContext, process: &ContentProcessing) -> Result<Vec<u8>, OperationFailure> {
    match (&process.content, &process.file) {
        (Some(content), _) => Ok(content.as_bytes().to_vec()),
        (None, file) => folder(common)?.bytes(file.as_deref().unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_cut_loses_nothing_and_divides_no_character(text in "[a-zé€😀 \n]{0,200}", size in 1_usize..40) {
            for lines in [false, true] {
                let ends = ends(text.as_bytes(), size, lines);
                let mut at = 0;
                for end in &ends {
                    let end = *end as usize;
                    prop_assert!(end > at || text.is_empty());
                    prop_assert!(text.is_char_boundary(end));
                    let last = end == text.len();
                    prop_assert!(last || !lines || text.as_bytes()[end - 1] == b'\n');
                    at = end;
                }
                prop_assert_eq!(at, text.len());
            }
        }
    }

    #[test]
    fn each_content_is_kept_once_and_never_larger_than_it_was() {
        let outputs = [
            json!({ "sha256": "a", "bytes": 100, "compressedBytes": 30 }),
            json!({ "sha256": "a", "bytes": 100, "compressedBytes": 30 }),
            json!({ "sha256": "b", "bytes": 5, "compressedBytes": 25 }),
        ];
        let (joined, before, after) = join_optimized(outputs.iter());
        assert_eq!((before, after), (205, 35));
        assert_eq!((joined["unique"].as_u64(), joined["duplicates"].as_u64()), (Some(2), Some(1)));
    }
}
