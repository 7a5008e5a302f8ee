//! Files that a sink writes between two checkpoints. A file is pending until its checkpoint completes, and
//! then gets its final name.
//!
//! ```text
//! part-0.txt.inprogress  --snapshot-->  part-0-000003.txt.TOKEN.pending  --complete-->  part-0-000003.txt
//! ```
//!
//! # Invariants
//! - I1: a file with its final name belongs to a completed checkpoint, and is complete and durable.
//! - I2: committing twice has the same effect as committing once.
//! - I3: files that no checkpoint knows are removed when the subtask resumes, and never get a final name. The
//!   token separates files of this attempt from those of an earlier one that may still be running.
//! - I4: files of other jobs are removed before the first file gets its final name. So a file with a number
//!   below those that wait is of this job, in any folder.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::part_file::IN_PROGRESS;

const PENDING: &str = ".pending";

/// A file that waits for its checkpoint. This is state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PreparedFile {
    pub(super) subtask: u32,
    /// Counted over all attempts.
    pub(super) number: u64,
    /// Token of the attempt.
    pub(super) token: String,
    pub(super) bytes: u64,
    /// Suffix of its final name.
    pub(super) suffix: String,
    /// Folders below that of the sink.
    #[serde(default)]
    pub(super) place: String,
}

/// Information in the name of a file.
#[derive(Debug, PartialEq, Eq)]
enum Name<'a> {
    /// A file of a job without checkpoints.
    Whole {
        subtask: u32,
    },
    InProgress {
        subtask: u32,
    },
    Committed {
        subtask: u32,
        number: u64,
    },
    Pending {
        subtask: u32,
        number: u64,
        token: &'a str,
    },
}

impl PreparedFile {
    pub(super) fn pending_path(&self, folder: &Path) -> PathBuf {
        let Self { subtask, number, token, suffix, place, .. } = self;
        folder.join(place).join(format!("part-{subtask}-{number:06}.{suffix}.{token}{PENDING}"))
    }

    /// Final path, after its checkpoint has completed.
    pub(super) fn path(&self, folder: &Path) -> PathBuf {
        folder.join(&self.place).join(format!("part-{}-{:06}.{}", self.subtask, self.number, self.suffix))
    }

    /// Gives the file its final name, unless it has it.
    pub(super) fn commit(&self, folder: &Path) -> io::Result<()> {
        let path = self.path(folder);
        match fs::rename(self.pending_path(folder), &path) {
            Ok(()) => File::open(folder.join(&self.place))?.sync_all(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if fs::metadata(&path).is_ok_and(|found| found.len() == self.bytes) {
                    return Ok(());
                }
                let text = format!("{} was prepared for a checkpoint and is gone", path.display());
                Err(io::Error::new(io::ErrorKind::NotFound, text))
            }
            Err(error) => Err(error),
        }
    }
}

/// Removes files of earlier attempts and jobs, in the folder and in those of partitions with these name
/// prefixes. It retains files that its checkpoint knows: those numbered below the first uncommitted file of
/// the subtask that wrote them, and those in `kept`. The subtask is responsible for all files whose number
/// modulo the parallelism is its own.
pub(super) fn remove_strays(
    folder: &Path,
    levels: &[String],
    subtask: u32,
    parallelism: u32,
    suffix: &str,
    counted_of: impl Fn(u32) -> u64,
    kept: &HashSet<PathBuf>,
) -> io::Result<()> {
    for folder in with_partitions(folder, levels)? {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str().and_then(|name| Name::parse(name, suffix)) else { continue };
            let counts = matches!(name, Name::Committed { subtask: of, number } if number < counted_of(of));
            if counts || name.subtask() % parallelism.max(1) != subtask || kept.contains(&entry.path()) {
                continue;
            }
            match fs::remove_file(entry.path()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

/// A folder and those below it whose names have these prefixes, level by level.
fn with_partitions(folder: &Path, levels: &[String]) -> io::Result<Vec<PathBuf>> {
    let mut all = vec![folder.to_owned()];
    let mut parents = 0..1;
    for level in levels {
        for parent in parents.clone() {
            for entry in fs::read_dir(&all[parent])? {
                let entry = entry?;
                if entry.file_name().to_str().is_some_and(|name| name.starts_with(level)) && entry.file_type()?.is_dir()
                {
                    all.push(entry.path());
                }
            }
        }
        parents = parents.end..all.len();
    }
    Ok(all)
}

/// Removes files of a job with checkpoints, on behalf of a job without, whose parts are all complete.
pub(super) fn remove_all(folder: &Path, suffix: &str) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if let Some(Name::Committed { .. } | Name::Pending { .. }) =
            name.to_str().and_then(|name| Name::parse(name, suffix))
        {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

impl<'a> Name<'a> {
    /// Parses the name of a file that has this suffix when it is complete.
    fn parse(name: &'a str, suffix: &str) -> Option<Self> {
        let (index, rest) = name.strip_prefix("part-")?.split_once('.')?;
        let tail = rest.strip_prefix(suffix).filter(|tail| tail.is_empty() || tail.starts_with('.'))?;
        let plain = |text: &str| text.parse::<u32>().ok().filter(|number| number.to_string() == text);
        let (subtask, number) = match index.split_once('-') {
            None => (plain(index)?, None),
            Some((subtask, number)) => (plain(subtask)?, Some(number.parse::<u64>().ok()?)),
        };
        match (number, tail) {
            (None, "") => Some(Self::Whole { subtask }),
            (None, IN_PROGRESS) => Some(Self::InProgress { subtask }),
            (Some(number), "") => Some(Self::Committed { subtask, number }),
            (Some(number), tail) => {
                let token = tail.strip_prefix('.')?.strip_suffix(PENDING)?;
                Some(Self::Pending { subtask, number, token })
            }
            (None, _) => None,
        }
    }

    fn subtask(&self) -> u32 {
        match *self {
            Self::Whole { subtask }
            | Self::InProgress { subtask }
            | Self::Committed { subtask, .. }
            | Self::Pending { subtask, .. } => subtask,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepared(subtask: u32, number: u64, token: &str) -> PreparedFile {
        PreparedFile { subtask, number, token: token.into(), bytes: 2, suffix: "txt".into(), place: String::new() }
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<String> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_committed_once_however_often_that_is_asked_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = prepared(1, 3, "a");
        fs::write(file.pending_path(folder.path()), "x\n").expect("a file");
        file.commit(folder.path()).expect("pending");
        file.commit(folder.path()).expect("committed");
        assert_eq!(names(folder.path()), ["part-1-000003.txt"]);
        let lost = prepared(1, 4, "a").commit(folder.path()).expect_err("never written");
        assert!(lost.to_string().contains("part-1-000004.txt was prepared for a checkpoint and is gone"), "{lost}");
    }

    #[test]
    fn what_no_checkpoint_knows_of_goes_and_what_is_no_part_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let stays = [
            "part-0-000001.txt",
            "part-0-000002.txt.new.pending",
            "part-0.txt.inprogress",
            "part-1-000009.txt",
            "part-1-000009.txt.old.pending",
            "part-4-000002.txt",
            "part-7-000001.txt",
            "part-x.txt",
            "part-0.txts",
            "part-0-000009.csv",
            "notes",
            "a=1/part-0-000001.txt",
            "a=1/b=1/part-0-000003.txt.new.pending",
            "a=1/c=1/part-0-000003.txt",
            "c=1/part-0-000003.txt",
        ];
        let goes = [
            "part-0.txt",
            "part-0-000002.txt.old.pending",
            "part-0-000003.txt",
            "part-0-000003.txt.new.pending",
            "part-2-000001.txt",
            "part-4-000003.txt",
            "part-6.txt",
            "part-6.txt.inprogress",
            "a=1/part-0-000002.txt",
            "a=1/b=1/part-0.txt.inprogress",
            "a=2/b=1/part-0-000003.txt",
        ];
        for name in stays.iter().chain(&goes) {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, "").expect("a file");
        }
        let counted_of = |of| match of {
            0 => 2,
            4 => 3,
            _ => 0,
        };
        let in_partition = PreparedFile { place: "a=1/b=1".into(), ..prepared(0, 3, "new") };
        let waiting = [prepared(0, 2, "new"), in_partition].map(|file| file.pending_path(folder.path()));
        let kept = waiting.into_iter().chain([folder.path().join("part-0.txt.inprogress")]).collect();
        let levels = ["a=".to_owned(), "b=".to_owned()];
        remove_strays(folder.path(), &levels, 0, 2, "txt", counted_of, &kept).expect("nothing in the way");
        for (name, is_there) in stays.iter().map(|name| (name, true)).chain(goes.iter().map(|name| (name, false))) {
            assert_eq!(folder.path().join(name).exists(), is_there, "{name}");
        }
    }
}
