//! File operations confined to one folder.
//!
//! Every path is opened beneath the folder by `cap_std`, which follows no link and no `..` out of it. Only
//! regular files are read and written; anything that blocks, such as a pipe, is opened without waiting and then
//! refused. All functions here block, so they must be called where blocking is allowed.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind, Read, Write},
    path::{Path, PathBuf},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use cap_std::{
    ambient_authority,
    fs::{Dir, File, OpenOptions, OpenOptionsExt as _},
};
use regex::bytes::{Regex, RegexBuilder};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{
    BatchOptions,
    input::{CopyFile, DEFAULT_MATCHES, Encoding, HashFile, ReadFile, SearchFiles, WriteFile},
    operation::{OperationFailure, OperationOutput},
};

/// Maximum files that one search reads.
pub const SEARCH_FILES: usize = 10_000;
/// The deepest folder level that a search reaches.
pub const SEARCH_DEPTH: usize = 32;
/// Maximum characters of a matching line that are returned.
const SHOWN_LINE: usize = 200;
/// Maximum bytes of a compiled pattern.
const REGEX_BYTES: usize = 1 << 20;

/// A folder that no path can escape from.
pub(crate) struct Folder {
    dir: Dir,
    file_bytes: u64,
    output_bytes: usize,
}

impl Folder {
    pub(crate) fn open(path: &Path, options: &BatchOptions) -> Result<Self, OperationFailure> {
        let dir = Dir::open_ambient_dir(path, ambient_authority()).map_err(|error| {
            OperationFailure::of(format!("the files folder (files_dir) cannot be opened: {error}"))
        })?;
        Ok(Self { dir, file_bytes: options.file_bytes, output_bytes: options.operation_output_bytes })
    }

    pub(crate) fn read(&self, read: &ReadFile) -> Result<OperationOutput, OperationFailure> {
        let bytes = self.bytes(&read.path)?;
        let size = bytes.len();
        // Base64 needs a third more bytes.
        let most = match read.encoding {
            Encoding::Text => self.output_bytes,
            Encoding::Base64 => self.output_bytes / 4 * 3,
        };
        let truncated = size > most;
        let content = match read.encoding {
            Encoding::Base64 => BASE64_STANDARD.encode(&bytes[..size.min(most)]),
            Encoding::Text => match std::str::from_utf8(&bytes) {
                Ok(text) => text[..text.floor_char_boundary(most.min(size))].to_owned(),
                Err(_) => {
                    return Err(OperationFailure::of(format!(
                        "{} is not UTF-8 text: read it with encoding: base64",
                        read.path
                    )));
                }
            },
        };
        let sha256 = hex(&Sha256::digest(&bytes));
        let output = json!({ "path": read.path, "bytes": size, "sha256": sha256, "content": content });
        Ok(OperationOutput { output, truncated, skipped: None })
    }

    pub(crate) fn write(&self, write: &WriteFile) -> Result<OperationOutput, OperationFailure> {
        let bytes = match write.encoding {
            Encoding::Text => write.content.clone().into_bytes(),
            Encoding::Base64 => BASE64_STANDARD
                .decode(&write.content)
                .map_err(|error| OperationFailure::of(format!("content is not base64: {error}")))?,
        };
        self.make_room(&write.path, write.create_folders)?;
        match write.append {
            true => self.append(&write.path, &bytes)?,
            false => self.replace(&write.path, &mut &bytes[..], write.overwrite)?,
        }
        Ok(OperationOutput::of(json!({ "path": write.path, "bytes": bytes.len() })))
    }

    pub(crate) fn copy(&self, copy: &CopyFile) -> Result<OperationOutput, OperationFailure> {
        let from = self.source(&copy.from)?;
        self.make_room(&copy.to, copy.create_folders)?;
        let mut from = HashingReader { inner: from.take(self.file_bytes), hash: Sha256::new(), bytes: 0 };
        self.replace(&copy.to, &mut from, copy.overwrite)?;
        let sha256 = hex(&from.hash.finalize());
        Ok(OperationOutput::of(
            json!({ "from": copy.from, "to": copy.to, "bytes": from.bytes, "sha256": sha256 }),
        ))
    }

    pub(crate) fn hash(&self, hash: &HashFile) -> Result<OperationOutput, OperationFailure> {
        let file = self.source(&hash.path)?;
        let mut file = HashingReader { inner: file.take(self.file_bytes), hash: Sha256::new(), bytes: 0 };
        io::copy(&mut file, &mut io::sink()).map_err(|error| failed("read", &hash.path, &error))?;
        let sha256 = hex(&file.hash.finalize());
        Ok(OperationOutput::of(json!({ "path": hash.path, "bytes": file.bytes, "sha256": sha256 })))
    }

    pub(crate) fn search(&self, search: &SearchFiles) -> Result<OperationOutput, OperationFailure> {
        let matcher =
            matcher(&search.pattern, search.regex, search.ignore_case).map_err(OperationFailure::of)?;
        let mut found = LineMatches::new(search.max_matches.unwrap_or(DEFAULT_MATCHES));
        let metadata =
            self.dir.metadata(&search.path).map_err(|error| failed("inspect", &search.path, &error))?;
        let (mut files, mut truncated) = (0, false);
        if metadata.is_dir() {
            let mut folders = VecDeque::from([(PathBuf::from(&search.path), 0)]);
            while let Some((folder, depth)) = folders.pop_front() {
                let shown = folder.display().to_string();
                let entries = self.dir.read_dir(&folder).map_err(|error| failed("list", &shown, &error))?;
                let mut names = vec![];
                for entry in entries {
                    let entry = entry.map_err(|error| failed("list", &shown, &error))?;
                    // Links are not followed, so nothing is found twice and the walk always ends.
                    let Ok(kind) = entry.file_type() else { continue };
                    if kind.is_dir() || kind.is_file() {
                        names.push((entry.file_name(), kind.is_dir()));
                    }
                    if names.len() + files > SEARCH_FILES {
                        truncated = true;
                        break;
                    }
                }
                names.sort();
                for (name, is_dir) in names {
                    let path = folder.join(name);
                    if is_dir {
                        truncated |= depth >= SEARCH_DEPTH;
                        if depth < SEARCH_DEPTH {
                            folders.push_back((path, depth + 1));
                        }
                        continue;
                    }
                    files += 1;
                    let Some(path) = path.to_str() else { continue };
                    // A file that was deleted or is too large is skipped, and reported as skipped.
                    match self.bytes(path) {
                        Ok(bytes) => found.search(&matcher, &bytes, 0, Some(path)),
                        Err(_) => truncated = true,
                    }
                }
            }
        } else {
            files = 1;
            found.search(&matcher, &self.bytes(&search.path)?, 0, Some(&search.path));
        }
        truncated |= found.is_cut();
        let output = json!({ "files": files, "total": found.total, "matches": found.matches });
        Ok(OperationOutput { output, truncated, skipped: None })
    }

    /// The bytes of a regular file.
    pub(crate) fn bytes(&self, path: &str) -> Result<Vec<u8>, OperationFailure> {
        let mut bytes = vec![];
        let mut file = self.source(path)?.take(self.file_bytes + 1);
        file.read_to_end(&mut bytes).map_err(|error| failed("read", path, &error))?;
        match bytes.len() as u64 > self.file_bytes {
            true => Err(self.too_large(path)),
            false => Ok(bytes),
        }
    }

    /// A range of bytes of a regular file.
    pub(crate) fn range(&self, path: &str, from: u64, bytes: u64) -> Result<Vec<u8>, OperationFailure> {
        use std::io::{Seek as _, SeekFrom};
        let mut file = self.source(path)?;
        let mut out = vec![];
        file.seek(SeekFrom::Start(from))
            .and_then(|_| file.take(bytes).read_to_end(&mut out))
            .map_err(|error| failed("read", path, &error))?;
        match out.len() as u64 == bytes {
            true => Ok(out),
            false => Err(OperationFailure::of(format!("{path} was truncated while it was processed"))),
        }
    }

    /// Replaces a file atomically.
    pub(crate) fn put(&self, path: &str, from: &mut impl Read) -> Result<(), OperationFailure> {
        self.make_room(path, true)?;
        self.replace(path, from, true)
    }

    pub(crate) fn remove(&self, path: &str) {
        let _ = self.dir.remove_file(path);
    }

    /// Opens a regular file for reading.
    pub(crate) fn source(&self, path: &str) -> Result<File, OperationFailure> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(no_waiting());
        let file = self.dir.open_with(path, &options).map_err(|error| failed("open", path, &error))?;
        let metadata = file.metadata().map_err(|error| failed("inspect", path, &error))?;
        if !metadata.is_file() {
            return Err(OperationFailure::of(format!("{path} is not a regular file")));
        }
        match metadata.len() > self.file_bytes {
            true => Err(self.too_large(path)),
            false => Ok(file),
        }
    }

    fn too_large(&self, path: &str) -> OperationFailure {
        OperationFailure::of(format!("{path} has more than {} bytes (file_bytes)", self.file_bytes))
    }

    /// Checks that the target path can be written, and creates its parent folders.
    fn make_room(&self, path: &str, create_folders: bool) -> Result<(), OperationFailure> {
        if create_folders && let Some(parent) = Path::new(path).parent().filter(|p| !p.as_os_str().is_empty())
        {
            self.dir.create_dir_all(parent).map_err(|error| failed("make the folder of", path, &error))?;
        }
        match self.dir.symlink_metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(failed("inspect", path, &error)),
            Ok(metadata) if !metadata.is_file() => {
                Err(OperationFailure::of(format!("{path} is there and is not a regular file")))
            }
            Ok(_) => Ok(()),
        }
    }

    fn append(&self, path: &str, bytes: &[u8]) -> Result<(), OperationFailure> {
        let mut options = OpenOptions::new();
        options.append(true).create(true).custom_flags(no_waiting());
        let mut file = self.dir.open_with(path, &options).map_err(|error| failed("open", path, &error))?;
        let regular = file.metadata().is_ok_and(|metadata| metadata.is_file());
        if !regular {
            return Err(OperationFailure::of(format!("{path} is not a regular file")));
        }
        file.write_all(bytes).and_then(|()| file.sync_data()).map_err(|error| failed("write", path, &error))
    }

    /// Writes a temporary file beside the target and moves it there, so readers see either the old or the new
    /// file. Without `overwrite` the name is claimed atomically. An existing file with the same content was
    /// written by an earlier attempt that was interrupted before it was recorded.
    fn replace(&self, path: &str, from: &mut impl Read, overwrite: bool) -> Result<(), OperationFailure> {
        let (folder, name) = match path.rsplit_once('/') {
            Some((folder, name)) => (format!("{folder}/"), name),
            None => (String::new(), path),
        };
        if name.is_empty() || name == "." {
            return Err(OperationFailure::of(format!("{path} names no file")));
        }
        let beside = format!("{folder}.nuncio-{}", uuid::Uuid::now_v7());
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        let mut from = HashingReader { inner: from, hash: Sha256::new(), bytes: 0 };
        let written = self.dir.open_with(&beside, &options).and_then(|mut file| {
            io::copy(&mut from, &mut file)?;
            file.sync_data()?;
            match overwrite {
                true => self.dir.rename(&beside, &self.dir, path),
                // Fails where the name is taken, which a rename does not.
                false => self.dir.hard_link(&beside, &self.dir, path),
            }
        });
        if !overwrite || written.is_err() {
            self.remove(&beside);
        }
        match written {
            Err(error) if !overwrite && error.kind() == ErrorKind::AlreadyExists => {
                let written = from.hash.finalize();
                match self.bytes(path).is_ok_and(|there| Sha256::digest(&there) == written) {
                    true => Ok(()),
                    false => Err(OperationFailure::of(format!("{path} is there already (overwrite: false)"))),
                }
            }
            written => written.map_err(|error| failed("write", path, &error)),
        }
    }
}

/// Opening a pipe or a terminal must not block, and must not make it the controlling terminal of this process.
fn no_waiting() -> i32 {
    (rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY).bits() as i32
}

fn failed(what: &str, path: &str, error: &io::Error) -> OperationFailure {
    OperationFailure::of(format!("cannot {what} {path}: {error}"))
}

/// A reader that counts and hashes the bytes it reads.
struct HashingReader<R> {
    inner: R,
    hash: Sha256,
    bytes: u64,
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hash.update(&buffer[..read]);
        self.bytes += read as u64;
        Ok(read)
    }
}

/// Compiles a pattern, plain text or regular expression, into a matcher that runs in linear time.
pub(crate) fn matcher(pattern: &str, regex: bool, ignore_case: bool) -> Result<Regex, String> {
    let escaped;
    let pattern = match regex {
        true => pattern,
        false => {
            escaped = regex::escape(pattern);
            &escaped
        }
    };
    RegexBuilder::new(pattern)
        .case_insensitive(ignore_case)
        .size_limit(REGEX_BYTES)
        .build()
        .map_err(|error| error.to_string())
}

/// The matches of a search by line: the first ones, and the total count.
pub(crate) struct LineMatches {
    pub(crate) matches: Vec<Value>,
    pub(crate) total: u64,
    /// Line ends passed so far.
    pub(crate) lines: u64,
    most: usize,
}

impl LineMatches {
    pub(crate) fn new(most: usize) -> Self {
        Self { matches: vec![], total: 0, lines: 0, most }
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.total > self.matches.len() as u64
    }

    /// Searches every line of a text that begins at `offset` of the whole.
    pub(crate) fn search(&mut self, matcher: &Regex, text: &[u8], offset: u64, file: Option<&str>) {
        let (mut at, mut line) = (0, 0_u64);
        for with_end in text.split_inclusive(|byte| *byte == b'\n') {
            line += 1;
            let bare = with_end.strip_suffix(b"\n").unwrap_or(with_end);
            for hit in matcher.find_iter(bare) {
                self.total += 1;
                if self.matches.len() < self.most {
                    let shown: String = String::from_utf8_lossy(bare).chars().take(SHOWN_LINE).collect();
                    let mut one = json!({
                        "line": line,
                        "column": hit.start() + 1,
                        "offset": offset + (at + hit.start()) as u64,
                        "text": shown,
                    });
                    if let Some(file) = file {
                        one["file"] = json!(file);
                    }
                    self.matches.push(one);
                }
            }
            at += with_end.len();
            self.lines += u64::from(with_end.ends_with(b"\n"));
        }
    }
}

/// Bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    struct Place {
        _outer: tempfile::TempDir,
        outside: PathBuf,
        inside: PathBuf,
        folder: Folder,
    }

    fn place() -> Place {
        let outer = tempfile::tempdir().expect("a folder");
        let (inside, outside) = (outer.path().join("in"), outer.path().join("out"));
        std::fs::create_dir(&inside).expect("made");
        std::fs::create_dir(&outside).expect("made");
        std::fs::write(outside.join("secret"), "do not read").expect("written");
        let folder = Folder::open(&inside, &BatchOptions::default()).unwrap_or_else(|f| panic!("{}", f.why));
        Place { _outer: outer, outside, inside, folder }
    }

    fn read(place: &Place, path: &str) -> Result<OperationOutput, OperationFailure> {
        place.folder.read(&ReadFile { path: path.into(), encoding: Encoding::Text })
    }

    fn write(place: &Place, path: &str, content: &str) -> Result<OperationOutput, OperationFailure> {
        place.folder.write(&WriteFile {
            path: path.into(),
            content: content.into(),
            encoding: Encoding::Text,
            append: false,
            create_folders: true,
            overwrite: true,
        })
    }

    #[test]
    fn no_path_and_no_link_leads_out_of_the_folder() {
        let place = place();
        symlink(place.outside.join("secret"), place.inside.join("absolute")).expect("linked");
        symlink("../out/secret", place.inside.join("relative")).expect("linked");
        symlink(&place.outside, place.inside.join("folder")).expect("linked");
        symlink("/", place.inside.join("root")).expect("linked");
        // Input validation refuses some of these earlier; the folder does not rely on it.
        for path in [
            "absolute",
            "relative",
            "folder/secret",
            "root/etc/passwd",
            "../out/secret",
            "x/../../out/secret",
            "/etc/passwd",
            "..%2fout%2fsecret",
            "..\\out\\secret",
            "%2e%2e/out/secret",
            "....//out/secret",
        ] {
            assert!(read(&place, path).is_err(), "{path} was read");
            assert!(place.folder.hash(&HashFile { path: path.into() }).is_err(), "{path} was hashed");
        }
        for path in
            ["absolute", "relative", "folder/secret", "folder/new", "../out/new", "/tmp/nuncio-escaped"]
        {
            assert!(write(&place, path, "changed").is_err(), "{path} was written");
            let copy = CopyFile { from: "ok".into(), to: path.into(), create_folders: true, overwrite: true };
            write(&place, "ok", "ok").unwrap_or_else(|f| panic!("{}", f.why));
            assert!(place.folder.copy(&copy).is_err(), "{path} was copied to");
            let append = WriteFile {
                path: path.into(),
                content: "changed".into(),
                encoding: Encoding::Text,
                append: true,
                create_folders: true,
                overwrite: true,
            };
            assert!(place.folder.write(&append).is_err(), "{path} was appended to");
        }
        let untouched: Vec<_> = std::fs::read_dir(&place.outside).expect("listed").collect();
        assert_eq!(untouched.len(), 1, "nothing new outside");
        assert_eq!(std::fs::read_to_string(place.outside.join("secret")).expect("read"), "do not read");
        let search = SearchFiles {
            path: ".".into(),
            pattern: "do not read".into(),
            regex: false,
            ignore_case: false,
            max_matches: None,
        };
        let found = place.folder.search(&search).unwrap_or_else(|f| panic!("{}", f.why));
        assert_eq!(found.output["total"], 0, "a search follows no links");
    }

    #[test]
    fn odd_names_are_only_names() {
        let place = place();
        for name in ["..%2fx", "a b", "ünï/cödé", "-rf", "a\nb", "...", "$HOME", "CON", "x:y"] {
            write(&place, name, name).unwrap_or_else(|f| panic!("{name}: {}", f.why));
            let read = read(&place, name).unwrap_or_else(|f| panic!("{name}: {}", f.why));
            assert_eq!(read.output["content"], name);
        }
    }

    #[test]
    fn what_is_no_regular_file_is_refused_without_waiting_for_it() {
        let place = place();
        let pipe = place.inside.join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs");
        assert!(made.success());
        std::fs::create_dir(place.inside.join("sub")).expect("made");
        let _socket = std::os::unix::net::UnixListener::bind(place.inside.join("socket")).expect("bound");
        for path in ["pipe", "sub", "socket"] {
            assert!(read(&place, path).is_err(), "{path} was read");
            assert!(write(&place, path, "x").is_err(), "{path} was written");
        }
        let append = WriteFile {
            path: "pipe".into(),
            content: "x".into(),
            encoding: Encoding::Text,
            append: true,
            create_folders: false,
            overwrite: true,
        };
        assert!(place.folder.write(&append).is_err());
    }

    #[test]
    fn sizes_are_capped_with_a_name() {
        let place = place();
        write(&place, "large", &"é".repeat(1_000)).unwrap_or_else(|f| panic!("{}", f.why));
        let options = BatchOptions { file_bytes: 1_999, ..BatchOptions::default() };
        let small = Folder::open(&place.inside, &options).unwrap_or_else(|f| panic!("{}", f.why));
        let refused = small.hash(&HashFile { path: "large".into() }).expect_err("refused");
        assert!(refused.why.contains("file_bytes"), "{}", refused.why);
        let options = BatchOptions { operation_output_bytes: 101, ..BatchOptions::default() };
        let narrow = Folder::open(&place.inside, &options).unwrap_or_else(|f| panic!("{}", f.why));
        let cut = narrow
            .read(&ReadFile { path: "large".into(), encoding: Encoding::Text })
            .unwrap_or_else(|f| panic!("{}", f.why));
        assert_eq!((cut.truncated, cut.output["bytes"].as_u64()), (true, Some(2_000)));
        assert_eq!(cut.output["content"].as_str().map(str::len), Some(100), "cut between characters");
    }

    #[test]
    fn a_search_says_where_and_how_often() {
        let place = place();
        write(&place, "a/one", "x needle\nnone\nneedle NEEDLE\n").unwrap_or_else(|f| panic!("{}", f.why));
        write(&place, "a/b/two", "needle").unwrap_or_else(|f| panic!("{}", f.why));
        let search = |path: &str, pattern: &str, regex, ignore_case, max_matches| {
            let pattern = pattern.into();
            let path = path.into();
            let search = SearchFiles { path, pattern, regex, ignore_case, max_matches };
            place.folder.search(&search).unwrap_or_else(|f| panic!("{}", f.why))
        };
        let found = search("a", "needle", false, false, None);
        assert_eq!((found.output["total"].as_u64(), found.output["files"].as_u64()), (Some(3), Some(2)));
        let second = &found.output["matches"][1];
        assert_eq!((second["line"].as_u64(), second["column"].as_u64()), (Some(3), Some(1)));
        assert_eq!(second["offset"].as_u64(), Some(14));
        assert_eq!(search("a", "needle", false, true, None).output["total"], 4);
        assert_eq!(search("a/one", "^n.*e", true, false, None).output["total"], 2);
        assert_eq!(search("a/one", ".", false, false, None).output["total"], 0, "a plain text is no pattern");
        let cut = search("a", "e", false, false, Some(1));
        assert!(cut.truncated && cut.output["matches"].as_array().is_some_and(|all| all.len() == 1));
    }

    #[test]
    fn a_file_is_there_whole_or_not_at_all() {
        let place = place();
        write(&place, "a", "first").unwrap_or_else(|f| panic!("{}", f.why));
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("it broke"))
            }
        }
        assert!(place.folder.put("a", &mut Broken).is_err());
        assert_eq!(std::fs::read_to_string(place.inside.join("a")).expect("read"), "first");
        assert_eq!(std::fs::read_dir(&place.inside).expect("listed").count(), 1, "nothing is left beside it");
        let kept = WriteFile {
            path: "a".into(),
            content: "second".into(),
            encoding: Encoding::Text,
            append: false,
            create_folders: false,
            overwrite: false,
        };
        assert!(place.folder.write(&kept).err().is_some_and(|f| f.why.contains("overwrite")));
        assert_eq!(std::fs::read_to_string(place.inside.join("a")).expect("read"), "first");
        assert_eq!(std::fs::read_dir(&place.inside).expect("listed").count(), 1, "nothing is left beside it");
    }

    #[test]
    fn what_a_cut_try_has_written_is_done_when_it_is_tried_again() {
        let place = place();
        let once = |path: &str, content: &str| {
            place.folder.write(&WriteFile {
                path: path.into(),
                content: content.into(),
                encoding: Encoding::Text,
                append: false,
                create_folders: false,
                overwrite: false,
            })
        };
        let copy = |to: &str| {
            let (from, to) = ("a".into(), to.into());
            place.folder.copy(&CopyFile { from, to, create_folders: false, overwrite: false })
        };
        for _ in 0..2 {
            assert!(once("a", "words").is_ok());
            assert!(copy("b").is_ok());
        }
        assert!(once("a", "other words").is_err());
        assert!(once("c", "more").is_ok() && copy("c").is_err(), "another's");
        assert_eq!(std::fs::read_to_string(place.inside.join("c")).expect("read"), "more");
        assert_eq!(
            std::fs::read_dir(&place.inside).expect("listed").count(),
            3,
            "nothing is left beside them"
        );
    }

    #[test]
    fn of_many_who_make_the_same_file_one_does() {
        let place = place();
        let path = &place.inside;
        let made = std::thread::scope(|scope| {
            let make = |n: usize| {
                let folder =
                    Folder::open(path, &BatchOptions::default()).unwrap_or_else(|f| panic!("{}", f.why));
                folder.write(&WriteFile {
                    path: "a".into(),
                    content: format!("by {n}"),
                    encoding: Encoding::Text,
                    append: false,
                    create_folders: false,
                    overwrite: false,
                })
            };
            let threads: Vec<_> = (0..16).map(|n| scope.spawn(move || make(n).is_ok())).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).filter(|made| *made).count()
        });
        assert_eq!(made, 1);
    }
}
