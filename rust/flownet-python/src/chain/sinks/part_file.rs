//! Writes one file of a folder of parts, and gives it its final name when it is complete.
//!
//! # Invariants
//! - I1: a file with its final name is complete. A file that is not completed is removed when it is dropped.
//!   Only a killed process leaves one, and the next writer of this part takes it over.
//! - I2: at most one writer of a part is active at a time: each holds a system lock on its file.
//! - I3: when every part of a job is complete, the folder holds these parts and none of an earlier job.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::prepared;

/// Suffix of the name of a part while it is written.
pub(super) const IN_PROGRESS: &str = ".inprogress";

/// `part-<index>.<suffix>.inprogress`, which becomes `part-<index>.<suffix>`.
#[derive(Debug)]
pub(super) struct PartFile {
    folder: PathBuf,
    index: u32,
    /// Number of parts that the job writes.
    parts: u32,
    /// Suffix of its name.
    suffix: &'static str,
    /// The open file. It holds the lock until the file is complete or given up.
    file: File,
    bytes: u64,
    header_bytes: u64,
    is_complete: bool,
}

impl PartFile {
    /// Creates an empty file, and its folder if necessary.
    pub(super) fn create(folder: PathBuf, (index, parts): (u32, u32), suffix: &'static str) -> io::Result<Self> {
        fs::create_dir_all(&folder)?;
        let path = Self::path_in(&folder, index, suffix);
        let file = loop {
            let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path)?;
            lock(&file)?;
            // The previous holder of the lock may have completed or removed the file: then it is not ours to
            // write.
            if is_at(&file, &path)? {
                break file;
            }
        };
        file.set_len(0)?;
        Ok(Self { folder, index, parts, suffix, file, bytes: 0, header_bytes: 0, is_complete: false })
    }

    /// Path of the part of this index while it is written, for errors.
    pub(super) fn path_in(folder: &Path, index: u32, suffix: &str) -> PathBuf {
        folder.join(format!("part-{index}.{suffix}{IN_PROGRESS}"))
    }

    pub(super) fn write_all(&mut self, text: &[u8]) -> io::Result<()> {
        self.file.write_all(text)?;
        self.bytes += text.len() as u64;
        Ok(())
    }

    /// Path while it is written, for code that writes it by its name.
    pub(super) fn path(&self) -> PathBuf {
        Self::path_in(&self.folder, self.index, self.suffix)
    }

    /// Counts the bytes that were written by its name.
    pub(super) fn measure(&mut self) -> io::Result<()> {
        self.bytes = self.file.metadata()?.len();
        Ok(())
    }

    /// Writes the first line of the file.
    pub(super) fn write_header(&mut self, header: &str) -> io::Result<()> {
        self.write_all(format!("{header}\n").as_bytes())?;
        self.header_bytes = self.bytes;
        Ok(())
    }

    /// Returns true if the file contains more than its header.
    pub(super) fn has_records(&self) -> bool {
        self.bytes > self.header_bytes
    }

    /// Number of bytes written.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives the file another name, durably. It is whole, but not committed yet.
    pub(super) fn seal(mut self, path: &Path) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(Self::path_in(&self.folder, self.index, self.suffix), path)?;
        self.is_complete = true;
        File::open(&self.folder)?.sync_all()
    }

    /// Gives the file its final name. The first part removes those that a job with more parts left.
    pub(super) fn complete(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(
            Self::path_in(&self.folder, self.index, self.suffix),
            self.folder.join(format!("part-{}.{}", self.index, self.suffix)),
        )?;
        self.is_complete = true;
        if self.index > 0 {
            return Ok(());
        }
        prepared::remove_all(&self.folder, self.suffix)?;
        remove_parts_beyond(&self.folder, self.parts, self.suffix)
    }
}

impl Drop for PartFile {
    fn drop(&mut self) {
        if !self.is_complete {
            // An error here needs no report: the file's name shows that it is incomplete.
            let _ = fs::remove_file(Self::path_in(&self.folder, self.index, self.suffix));
        }
    }
}

fn lock(file: &File) -> io::Result<()> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => {
            let text = "another sink is writing it: give each a folder of its own";
            Err(io::Error::new(io::ErrorKind::ResourceBusy, text))
        }
        // On a file system without locks there is no such check.
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => Ok(()),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let held = file.metadata()?;
    match fs::metadata(path) {
        Ok(there) => Ok((there.dev(), there.ino()) == (held.dev(), held.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes parts from index `parts` on: complete ones, and those that a killed process left.
fn remove_parts_beyond(folder: &Path, parts: u32, suffix: &str) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let index = name.to_str().and_then(|name| {
            let name = name.strip_suffix(IN_PROGRESS).unwrap_or(name);
            let index = name.strip_prefix("part-")?.strip_suffix(suffix)?.strip_suffix('.')?;
            index.parse::<u32>().ok().filter(|number| number.to_string() == index)
        });
        if index.is_some_and(|index| index >= parts) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<String> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    fn write(folder: &Path, index: u32, parts: u32, text: &str) {
        let mut part = PartFile::create(folder.to_owned(), (index, parts), "txt").expect("a part");
        part.write_all(text.as_bytes()).expect("room");
        part.complete().expect("a complete part");
    }

    #[test]
    fn a_file_has_its_name_when_it_is_complete_and_is_gone_when_it_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let part = PartFile::create(folder.path().to_owned(), (1, 2), "txt").expect("a part");
        assert_eq!(names(folder.path()), ["part-1.txt.inprogress"]);
        drop(part);
        assert!(names(folder.path()).is_empty());
        write(folder.path(), 1, 2, "1");
        assert_eq!(names(folder.path()), ["part-1.txt"]);
    }

    #[test]
    fn fewer_parts_take_the_place_of_more_and_what_is_no_part_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        (0..4).for_each(|index| write(folder.path(), index, 4, "old"));
        for stays in ["part-02.txt", "part-x.txt", "part-3.csv", "notes"] {
            fs::write(folder.path().join(stays), "").expect("a file");
        }
        fs::write(folder.path().join("part-7.txt.inprogress"), "of a killed process").expect("a file");
        (0..2).for_each(|index| write(folder.path(), index, 2, "new"));
        let expected = ["notes", "part-0.txt", "part-02.txt", "part-1.txt", "part-3.csv", "part-x.txt"];
        assert_eq!(names(folder.path()), expected);
        assert_eq!(fs::read_to_string(folder.path().join("part-1.txt")).expect("a file"), "new");
    }

    #[test]
    fn what_a_killed_process_left_is_written_anew_and_what_another_writes_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("part-0.txt.inprogress"), "half of it").expect("a file");
        let mut first = PartFile::create(folder.path().to_owned(), (0, 1), "txt").expect("a part");
        let refused = PartFile::create(folder.path().to_owned(), (0, 1), "txt").expect_err("two writers");
        assert!(refused.to_string().contains("another sink is writing it"), "{refused}");
        first.write_all(b"all").expect("room");
        first.complete().expect("a complete part");
        assert_eq!(fs::read_to_string(folder.path().join("part-0.txt")).expect("a file"), "all");
    }
}
