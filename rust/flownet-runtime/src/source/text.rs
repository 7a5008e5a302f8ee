//! Reads text files and folders, cut into byte ranges so that many subtasks read one file.
//!
//! # Invariants
//! - I1: a line belongs to the split of its first byte, and only that split reads it. However files are cut,
//!   each line is read exactly once.
//! - I2: files are listed once, when splits are assigned. Data that is appended afterwards is not read,
//!   except for the end of a line that had begun.
//! - I3: a reader detects a file that was shortened, replaced or overwritten since the listing, as opposed to
//!   one that has not changed or only grown. It then reports an error instead of the end of the input.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::SourceError;
use super::lines::{LineBuffer, TooLong};
use crate::error::TaskError;
use crate::snapshot::{Input, put_block, put_signed};
use crate::varint::put_varint;

/// Size of a split: small compared to a file worth sharing, large compared to the cost of finding the first
/// line.
pub const DEFAULT_SPLIT_BYTES: u64 = 4 << 20;

/// A byte range of one file. Its lines are those that begin inside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextSplit {
    /// The file.
    pub path: PathBuf,
    /// First byte of the range.
    pub start: u64,
    /// First byte after the range; the greatest number if the file's size is unknown.
    pub end: u64,
    /// The file as it was listed.
    pub listed: FileState,
    /// Number of its lines that were emitted before and are skipped.
    pub passed: u64,
}

/// Distinguishes states of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileState {
    /// Size in bytes. It is 0 for a file that the system generates on reading, as in `/proc`; such a file has
    /// no distinguishable state.
    pub bytes: u64,
    /// None if the file is read on machines that may have copies of their own.
    version: Option<FileVersion>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FileVersion {
    /// Device and inode.
    place: (u64, u64),
    /// Seconds and nanoseconds of the last modification.
    modified: (i64, i64),
}

impl FileState {
    fn of(metadata: &Metadata) -> Self {
        let version = FileVersion {
            place: (metadata.dev(), metadata.ino()),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        };
        Self { bytes: metadata.len(), version: Some(version) }
    }

    /// Describes the change of the file up to the state `now`, unless it has only grown.
    fn harm_until(&self, now: &Self) -> Option<String> {
        if self.bytes == 0 {
            return None;
        }
        let versions = self.version.zip(now.version);
        if versions.is_some_and(|(before, now)| before.place != now.place) {
            return Some("replaced by another file".to_owned());
        }
        if now.bytes < self.bytes {
            return Some(format!("cut from {} to {} bytes", self.bytes, now.bytes));
        }
        let is_rewritten = versions.is_some_and(|(before, now)| before.modified != now.modified);
        (is_rewritten && now.bytes == self.bytes).then(|| "written over".to_owned())
    }
}

/// All splits, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextSplits {
    splits: Vec<PlacedSplit>,
    files: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct PlacedSplit {
    turn: usize,
    split: TextSplit,
}

impl TextSplits {
    /// Lists files and folders and cuts the files into splits.
    ///
    /// Folders are walked recursively, in order of names. Inside folders, links to files count as files.
    /// Hidden files and folders, links to folders, broken links, and entries that are neither file nor folder
    /// are skipped. An empty file has no split. A file without a size that nevertheless has data is one
    /// split.
    pub fn plan<P: AsRef<Path>>(paths: &[P], split_bytes: u64) -> Result<Self, SourceError> {
        let mut splits = Self::default();
        for path in paths {
            let path = path.as_ref();
            let metadata = fs::metadata(path).map_err(|error| unreadable(path, &error))?;
            if metadata.is_dir() {
                splits.add_folder(path, split_bytes)?;
            } else if metadata.is_file() {
                splits.add_file(path, &metadata, split_bytes)?;
            } else {
                return Err(SourceError::NotAFile { path: path.display().to_string() });
            }
        }
        Ok(splits)
    }

    /// Prepares for readers on machines with copies of the files. They can detect changes only by the size.
    pub fn as_copies(mut self) -> Self {
        self.splits.iter_mut().for_each(|placed| placed.split.listed.version = None);
        self
    }

    /// The splits of `subtask` out of `parallelism`.
    pub fn of_subtask(&self, subtask: u32, parallelism: u32) -> Vec<TextSplit> {
        let parallelism = parallelism.max(1) as usize;
        let own = self.splits.iter().filter(|placed| placed.turn % parallelism == subtask as usize);
        own.map(|placed| placed.split.clone()).collect()
    }

    /// All splits, in order.
    pub fn iter(&self) -> impl Iterator<Item = &TextSplit> {
        self.splits.iter().map(|placed| &placed.split)
    }

    /// Number of files found, empty ones included.
    pub fn files(&self) -> usize {
        self.files
    }

    /// Bytes found, in files that have a size.
    pub fn bytes(&self) -> u64 {
        let sized = self.iter().filter(|split| split.listed.bytes > 0);
        sized.map(|split| split.end - split.start).sum()
    }

    fn add_folder(&mut self, folder: &Path, split_bytes: u64) -> Result<(), SourceError> {
        let read = |error: io::Error| unreadable(folder, &error);
        let mut entries = fs::read_dir(folder).map_err(read)?.collect::<Result<Vec<_>, _>>().map_err(read)?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            let kind = entry.file_type().map_err(|error| unreadable(&path, &error))?;
            if is_hidden(&entry.file_name(), kind.is_dir()) {
                continue;
            }
            if kind.is_dir() {
                self.add_folder(&path, split_bytes)?;
            } else if let Some(metadata) = fs::metadata(&path).ok().filter(Metadata::is_file) {
                self.add_file(&path, &metadata, split_bytes)?;
            }
        }
        Ok(())
    }

    fn add_file(&mut self, path: &Path, metadata: &Metadata, split_bytes: u64) -> Result<(), SourceError> {
        // Detects missing permissions before the job starts.
        let mut file = File::open(path).map_err(|error| unreadable(path, &error))?;
        let listed = FileState::of(metadata);
        let mut add = |place, start, end| {
            let split = TextSplit { path: path.to_owned(), start, end, listed, passed: 0 };
            self.splits.push(PlacedSplit { turn: self.files + place, split });
        };
        if listed.bytes == 0 && file.read(&mut [0]).map_err(|error| unreadable(path, &error))? > 0 {
            add(0, 0, u64::MAX);
        }
        let split_bytes = split_bytes.max(1);
        for (place, start) in (0..listed.bytes).step_by(usize::try_from(split_bytes).unwrap_or(usize::MAX)).enumerate()
        {
            add(place, start, start.saturating_add(split_bytes).min(listed.bytes));
        }
        self.files += 1;
        Ok(())
    }
}

impl TextSplit {
    /// Appends its encoding. path: block, start, end: varint, file as listed: varint bytes, and 00, or 01
    /// with device, inode: varint, seconds and nanoseconds of its last change: signed; lines that were
    /// emitted: varint, nothing for none.
    pub fn write(&self, out: &mut Vec<u8>) {
        let Self { path, start, end, listed, passed } = self;
        put_block(out, path.as_os_str().as_bytes());
        put_varint(out, *start);
        put_varint(out, *end);
        put_varint(out, listed.bytes);
        out.push(u8::from(listed.version.is_some()));
        if let Some(FileVersion { place, modified }) = listed.version {
            put_varint(out, place.0);
            put_varint(out, place.1);
            put_signed(out, modified.0);
            put_signed(out, modified.1);
        }
        if *passed > 0 {
            put_varint(out, *passed);
        }
    }

    /// Decodes a split that [`write`](Self::write) wrote.
    pub fn read(input: &mut Input<'_>) -> Result<Self, TaskError> {
        let path = PathBuf::from(OsStr::from_bytes(input.block()?));
        let (start, end, bytes) = (input.varint()?, input.varint()?, input.varint()?);
        let version = match input.byte()? {
            0 => None,
            _ => Some(FileVersion {
                place: (input.varint()?, input.varint()?),
                modified: (input.signed()?, input.signed()?),
            }),
        };
        let passed = if input.is_empty() { 0 } else { input.varint()? };
        Ok(Self { path, start, end, listed: FileState { bytes, version }, passed })
    }
}

/// Reads the lines of some splits, one after the other.
#[derive(Debug)]
pub struct TextReader {
    splits: VecDeque<TextSplit>,
    current: Option<OpenSplit>,
    /// Offset at the last call of [`begin`](Self::begin).
    begun: u64,
    splits_begun: u64,
    buffer: LineBuffer,
    max_line_bytes: usize,
}

#[derive(Debug)]
struct OpenSplit {
    file: File,
    split: TextSplit,
    /// True after all of the file was read.
    ended: bool,
    /// True after all lines of the split were returned.
    is_over: bool,
}

impl TextReader {
    /// A reader of these splits. A line longer than `max_line_bytes` is an error.
    pub fn new(splits: Vec<TextSplit>, max_line_bytes: usize) -> Self {
        Self {
            splits: splits.into(),
            current: None,
            begun: 0,
            splits_begun: 0,
            buffer: LineBuffer::new(max_line_bytes),
            max_line_bytes,
        }
    }

    /// Continues the split, or begins the next one. All lines up to the next call belong to one split.
    /// Returns false if none is left.
    pub fn begin(&mut self) -> Result<bool, SourceError> {
        self.current.take_if(|open| open.is_over);
        if self.current.is_none() {
            let Some(split) = self.splits.pop_front() else { return Ok(false) };
            let passed = split.passed;
            self.current = Some(OpenSplit::open(split, &mut self.buffer)?);
            self.splits_begun += 1;
            for _ in 0..passed {
                self.next_line()?;
            }
        }
        self.begun = self.buffer.offset();
        Ok(true)
    }

    /// The next line, without its end (`\n` or `\r\n`); `None` after the last line of the split.
    pub fn next_line(&mut self) -> Result<Option<&[u8]>, SourceError> {
        let Some(open) = &mut self.current else { return Ok(None) };
        while self.buffer.offset() < open.split.end {
            let taken = self.buffer.take_line(open.ended);
            if let Some(line) = taken.map_err(|too_long| open.too_long(&too_long, self.max_line_bytes))? {
                return Ok(Some(self.buffer.line(line)));
            }
            if open.ended {
                break;
            }
            open.read_into(&mut self.buffer)?;
        }
        open.check()?;
        open.is_over = true;
        Ok(None)
    }

    /// Returns true if all lines of all splits were returned.
    pub fn is_over(&self) -> bool {
        self.splits.is_empty() && self.current.as_ref().is_none_or(|open| open.is_over)
    }

    /// Closes its file and frees its memory until the next line is requested. Returns false if no file is
    /// open. Also returns false if the system generates the file on reading, so that reading cannot resume.
    pub fn rest(&mut self) -> bool {
        let Some(open) = self.current.take_if(|open| open.split.listed.bytes > 0) else { return false };
        // A line ends directly before the next one, so a split may begin there.
        self.splits.push_front(TextSplit { start: self.buffer.offset(), passed: 0, ..open.split });
        self.buffer = LineBuffer::new(self.max_line_bytes);
        true
    }

    /// The unread rest: that of the current split, and all later splits. `read` is the number of lines since
    /// [`begin`](Self::begin) that count as read; by default all do.
    pub fn unread(&self, read: Option<u64>) -> impl Iterator<Item = TextSplit> {
        let (start, passed) = read.map_or((self.buffer.offset(), 0), |read| (self.begun, read));
        let rest = move |open: &OpenSplit| TextSplit { start, passed, ..open.split.clone() };
        let current = self.current.iter().filter(move |open| read.is_some() || !open.is_over).map(rest);
        current.chain(self.splits.iter().cloned()).filter(|split| split.start < split.end)
    }

    /// Number of splits begun so far. While it is unchanged, lines come from the file of
    /// [`path`](Self::path).
    #[inline]
    pub fn splits_begun(&self) -> u64 {
        self.splits_begun
    }

    /// The file being read, for error messages.
    pub fn path(&self) -> Option<&Path> {
        self.current.as_ref().map(|open| open.split.path.as_path())
    }
}

impl OpenSplit {
    /// Opens the file and finds the first line that begins in the split.
    fn open(split: TextSplit, buffer: &mut LineBuffer) -> Result<Self, SourceError> {
        let file = File::open(&split.path).map_err(|error| unreadable(&split.path, &error))?;
        let mut open = Self { file, split, ended: false, is_over: false };
        // Check first, before any use of the file's current contents.
        open.check()?;
        // Starts one byte earlier: if that byte ends a line, the split begins with a line of its own.
        let from = open.split.start.saturating_sub(1);
        buffer.restart(from);
        if open.split.start > 0 {
            open.file.seek(SeekFrom::Start(from)).map_err(|error| unreadable(&open.split.path, &error))?;
            while !buffer.skip_line() && !open.ended && buffer.offset() < open.split.end {
                open.read_into(buffer)?;
            }
        }
        Ok(open)
    }

    fn read_into(&mut self, buffer: &mut LineBuffer) -> Result<(), SourceError> {
        match buffer.read_from(&mut self.file) {
            Ok(read) => self.ended = read == 0,
            Err(error) => return Err(unreadable(&self.split.path, &error)),
        }
        Ok(())
    }

    /// Returns an error unless the file is unchanged since the listing, or has only grown (I3).
    fn check(&self) -> Result<(), SourceError> {
        let path = &self.split.path;
        let now = self.file.metadata().map_err(|error| unreadable(path, &error))?;
        match self.split.listed.harm_until(&FileState::of(&now)) {
            None => Ok(()),
            Some(how) => Err(SourceError::Changed { path: path.display().to_string(), how }),
        }
    }

    fn too_long(&self, too_long: &TooLong, max_bytes: usize) -> SourceError {
        SourceError::LineTooLong { input: self.split.path.display().to_string(), offset: too_long.offset, max_bytes }
    }
}

/// Returns true if the name of a folder's entry shows that it holds no data: `.part-0.crc`, `_SUCCESS`,
/// `_temporary`, and incomplete files. Partitions such as `_day=2026-11-26` do hold data.
/// `flownet/listing.py` has the same rule.
fn is_hidden(name: &OsStr, is_folder: bool) -> bool {
    let name = name.as_bytes();
    let unfinished = [".inprogress", ".pending", "._COPYING_"];
    name.starts_with(b".")
        || (name.starts_with(b"_") && !name.contains(&b'='))
        || (!is_folder && unfinished.iter().any(|end| name.ends_with(end.as_bytes())))
}

fn unreadable(path: &Path, error: &io::Error) -> SourceError {
    let path = path.display().to_string();
    match error.kind() {
        ErrorKind::NotFound => SourceError::Missing { path },
        _ => SourceError::Unreadable { path, reason: error.to_string() },
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;
    use tempfile::TempDir;

    use super::*;

    pub(in super::super) fn expected_lines(content: &[u8]) -> Vec<Vec<u8>> {
        let mut lines: Vec<_> = content.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        for line in &mut lines {
            if line.ends_with(b"\r\n") {
                line.truncate(line.len() - 2);
            } else if line.ends_with(b"\n") {
                line.truncate(line.len() - 1);
            }
        }
        lines
    }

    /// The next line of all splits.
    pub(in super::super) fn next_of_all(reader: &mut TextReader) -> Result<Option<Vec<u8>>, SourceError> {
        loop {
            if let Some(line) = reader.next_line()? {
                return Ok(Some(line.to_vec()));
            }
            if !reader.begin()? {
                return Ok(None);
            }
        }
    }

    fn read_all(splits: Vec<TextSplit>) -> Result<Vec<Vec<u8>>, SourceError> {
        let mut reader = TextReader::new(splits, 1 << 20);
        let mut lines = Vec::new();
        while let Some(line) = next_of_all(&mut reader)? {
            lines.push(line);
        }
        Ok(lines)
    }

    fn folder(files: &[(&str, &[u8])]) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        folder
    }

    #[test]
    fn folders_are_read_to_the_bottom_in_order_of_names() {
        let folder = folder(&[("b", b"3\n"), ("a/z", b"2"), ("a/y", b"1\n"), ("c", b""), ("d/e/f", b"4\n")]);
        let splits = TextSplits::plan(&[folder.path()], DEFAULT_SPLIT_BYTES).unwrap();
        assert_eq!((splits.files(), splits.bytes()), (5, 7));
        assert_eq!(read_all(splits.of_subtask(0, 1)).unwrap(), [b"1", b"2", b"3", b"4"]);
    }

    #[test]
    fn subtasks_share_all_splits_and_none_twice() {
        let content: Vec<u8> = (0..1000).flat_map(|n| format!("line {n}\n").into_bytes()).collect();
        let folder = folder(&[("a", &content), ("b", &content), ("c", b"x")]);
        let splits = TextSplits::plan(&[folder.path()], 100).unwrap();
        let mut lines: Vec<_> = (0..3).flat_map(|subtask| read_all(splits.of_subtask(subtask, 3)).unwrap()).collect();
        let mut expected = expected_lines(&[&content[..], &content, b"x"].concat());
        lines.sort();
        expected.sort();
        assert_eq!(lines, expected);
    }

    /// The first line of a file of many, its reader, and the folder of the file.
    fn half_read(split_bytes: u64) -> (TextReader, TempDir) {
        let folder = folder(&[("a", "line\n".repeat(100_000).as_bytes())]);
        let splits = TextSplits::plan(&[folder.path()], split_bytes).unwrap();
        let mut reader = TextReader::new(splits.of_subtask(0, 1), 1 << 20);
        assert_eq!(next_of_all(&mut reader).unwrap(), Some(b"line".to_vec()));
        (reader, folder)
    }

    fn rest(reader: &mut TextReader) -> Result<usize, SourceError> {
        let mut lines = 0;
        while next_of_all(reader)?.is_some() {
            lines += 1;
        }
        Ok(lines)
    }

    #[test]
    fn a_file_that_grows_is_read_as_far_as_it_was_listed() {
        for split_bytes in [1000, u64::MAX] {
            let (mut reader, folder) = half_read(split_bytes);
            let mut file = fs::OpenOptions::new().append(true).open(folder.path().join("a")).unwrap();
            io::Write::write_all(&mut file, b"more\n").unwrap();
            assert_eq!(rest(&mut reader), Ok(99_999));
        }
    }

    #[test]
    fn a_file_that_is_cut_replaced_or_written_over_is_an_error() {
        let whole = "line\n".repeat(100_000);
        type Harm<'a> = (&'a str, &'a dyn Fn(&Path));
        let harms: [Harm<'_>; 3] = [
            ("cut from 500000 to 10 bytes", &|path| fs::write(path, b"line\nline\n").unwrap()),
            ("written over", &|path| {
                fs::write(path, whole.as_bytes()).unwrap();
                let long_ago = std::time::SystemTime::UNIX_EPOCH;
                File::options().write(true).open(path).unwrap().set_modified(long_ago).unwrap();
            }),
            ("replaced by another file", &|path| {
                fs::write(path.with_extension("new"), whole.as_bytes()).unwrap();
                fs::rename(path.with_extension("new"), path).unwrap();
            }),
        ];
        for (expected, harm) in harms {
            let (mut reader, folder) = half_read(100_000);
            harm(&folder.path().join("a"));
            let Err(SourceError::Changed { path, how }) = rest(&mut reader) else { panic!("{expected}") };
            assert_eq!((path, how.as_str()), (folder.path().join("a").display().to_string(), expected));
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_without_a_size_is_read_to_its_end() {
        let splits = TextSplits::plan(&["/proc/self/status"], 10).unwrap();
        let lines = read_all(splits.iter().cloned().collect()).unwrap();
        assert!(lines.iter().any(|line| line.starts_with(b"Pid:")), "{lines:?}");
        assert_eq!((splits.files(), splits.bytes()), (1, 0));
    }

    #[test]
    fn missing_input_is_an_error_that_names_it() {
        let folder = folder(&[("a", b"1\n")]);
        let gone = folder.path().join("gone");
        let missing = SourceError::Missing { path: gone.display().to_string() };
        assert_eq!(TextSplits::plan(&[folder.path(), &gone], 10).unwrap_err(), missing);

        let listed = FileState::of(&fs::metadata(folder.path()).unwrap());
        let splits = vec![TextSplit { path: gone, start: 0, end: 10, listed, passed: 0 }];
        assert_eq!(read_all(splits).unwrap_err(), missing);
    }

    #[test]
    fn hidden_entries_of_folders_are_passed_over() {
        let data = [("a", &b"1\n"[..]), ("b._", b"2\n"), ("_c=1/d", b"3\n"), ("k=a.pending/f.", b"4\n")];
        let hidden = [".a.crc", "_SUCCESS", "_temporary/0/a", ".x=1/a", "part-0.txt.inprogress", "g/h.pending"];
        let hidden = hidden.map(|name| (name, &b"hidden\n"[..]));
        let folder = folder(&[&data[..], &hidden[..]].concat());
        let splits = TextSplits::plan(&[folder.path()], 10).unwrap();
        assert_eq!(read_all(splits.of_subtask(0, 1)).unwrap(), [b"3", b"1", b"2", b"4"]);
        // A file that is given explicitly is read regardless of its name.
        let named = TextSplits::plan(&[folder.path().join("_SUCCESS")], 10).unwrap();
        assert_eq!(read_all(named.of_subtask(0, 1)).unwrap(), [b"hidden"]);
    }

    #[cfg(unix)]
    #[test]
    fn links_to_files_are_read_and_links_to_nothing_or_in_circles_are_passed_over() {
        let folder = folder(&[("real/a", b"1\n")]);
        std::os::unix::fs::symlink(folder.path().join("real/a"), folder.path().join("link")).unwrap();
        std::os::unix::fs::symlink(folder.path().join("nowhere"), folder.path().join("dangling")).unwrap();
        std::os::unix::fs::symlink(folder.path(), folder.path().join("real/circle")).unwrap();
        let splits = TextSplits::plan(&[folder.path()], 10).unwrap();
        assert_eq!(read_all(splits.of_subtask(0, 1)).unwrap(), [b"1", b"1"]);
    }

    #[cfg(unix)]
    #[test]
    fn a_socket_given_as_input_is_refused() {
        let folder = folder(&[]);
        let path = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(matches!(TextSplits::plan(&[&path], 10), Err(SourceError::NotAFile { .. })));
    }

    #[test]
    fn a_line_over_the_limit_is_an_error_with_file_and_offset() {
        let folder = folder(&[("a", b"short\nmuch too long\n")]);
        let splits = TextSplits::plan(&[folder.path()], 100).unwrap();
        let mut reader = TextReader::new(splits.of_subtask(0, 1), 8);
        assert_eq!(reader.path(), None);
        assert_eq!(next_of_all(&mut reader).unwrap(), Some(b"short".to_vec()));
        assert_eq!(reader.path(), Some(folder.path().join("a").as_path()));
        let input = folder.path().join("a").display().to_string();
        let expected = SourceError::LineTooLong { input, offset: 6, max_bytes: 8 };
        assert_eq!(reader.next_line().unwrap_err(), expected);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn however_files_are_cut_each_line_is_read_exactly_once(
            contents in proptest::collection::vec(
                proptest::collection::vec(proptest::sample::select(b"abc\n\n\r".to_vec()), 0..80), 1..4),
            split_bytes in 1u64..100,
        ) {
            let files: Vec<_> = contents.iter().enumerate().map(|(at, content)| (at.to_string(), content)).collect();
            let files: Vec<_> = files.iter().map(|(name, content)| (name.as_str(), content.as_slice())).collect();
            let folder = folder(&files);
            let splits = TextSplits::plan(&[folder.path()], split_bytes).unwrap();
            let lines = read_all(splits.iter().cloned().collect()).unwrap();
            let expected: Vec<_> = contents.iter().flat_map(|content| expected_lines(content)).collect();
            prop_assert_eq!(lines, expected);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn wherever_reading_is_cut_off_it_goes_on_behind_what_was_emitted(
            content in proptest::collection::vec(proptest::sample::select(b"abc\n\n\r".to_vec()), 0..200),
            split_bytes in 1u64..100,
            polls in proptest::collection::vec((0usize..8, 0usize..8), 0..40),
        ) {
            let folder = folder(&[("a", &content)]);
            let mut left = TextSplits::plan(&[folder.path()], split_bytes).unwrap().of_subtask(0, 1);
            let mut lines = Vec::new();
            for (most, emitted) in polls {
                let mut reader = TextReader::new(left, 1 << 20);
                let mut poll = || {
                    let mut polled = Vec::new();
                    let has_begun = reader.begin().unwrap();
                    while has_begun && polled.len() < most && let Some(line) = reader.next_line().unwrap() {
                        polled.push(line.to_vec());
                    }
                    polled
                };
                lines.extend(poll());
                let mut last = poll();
                let is_cut_off = emitted < last.len();
                last.truncate(emitted);
                left = reader.unread(is_cut_off.then_some(last.len() as u64)).collect();
                lines.extend(last);
            }
            lines.extend(read_all(left).unwrap());
            prop_assert_eq!(lines, expected_lines(&content));
        }
    }
}
