//! Archives ended jobs in a folder, so that they are still shown after their process has ended.
//!
//! Each job is one file, `BEGAN_MS-PID-ID.job`. Its first line is the job's entry in the list of jobs. The second holds
//! the answers of all its routes. The server that showed the job writes the file once the job has ended.
//!
//! # Invariants
//! - A1: the total size of all job files is bounded. The oldest are deleted first. A single job above the limit is not
//!   stored.
//! - A2: a file is complete or absent, and accessible only to its owner.
//! - A3: foreign files are not touched, and unreadable ones are skipped.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use flownet_cluster::LogQuery;
use serde_json::{Value, json};

use crate::document::{JobDocument, JobEntry, PlanDocument};
use crate::jobs::ShownJob;

/// Settings of the archive of ended jobs.
#[derive(Clone, Debug)]
pub struct ArchiveOptions {
    /// Folder of the archive; created if it does not exist.
    pub folder: PathBuf,
    /// Limit of the total size of its files, in bytes.
    pub most_bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Archive {
    options: ArchiveOptions,
    /// Entries of files that were read before. A file never changes, so they stay valid.
    entries: Mutex<BTreeMap<String, Value>>,
}

impl Archive {
    pub(crate) fn open(options: ArchiveOptions) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(&options.folder)?;
        Ok(Self { options, entries: Mutex::default() })
    }

    /// Returns the name of a job of this process in the archive.
    pub(crate) fn name_of(job: &ShownJob) -> String {
        format!("{}-{}-{}", job.began_ms, std::process::id(), job.id)
    }

    /// Writes an ended job, and deletes the oldest ones beyond the size limit.
    pub(crate) fn keep(&self, job: &ShownJob) -> io::Result<()> {
        let name = Self::name_of(job);
        let (mut entry, mut document) = (json!(JobEntry::of(job)), json!(JobDocument::of(job)));
        (entry["id"], document["id"]) = (json!(name), json!(name));
        let log = LogQuery { after: 0, most: MOST_LOG_ENTRIES, is_newest: true, level: None };
        let kept = json!({
            "job": document,
            "subtasks": job.view.sample(),
            "history": job.timelines(),
            "log": job.view.log(log),
            "plan": PlanDocument::of(job),
        });
        let text = format!("{entry}\n{kept}\n");
        if text.len() as u64 > self.options.most_bytes {
            let (bytes, most) = (text.len(), self.options.most_bytes);
            return Err(io::Error::other(format!("it has {bytes} bytes, and the folder may have {most}")));
        }
        let (path, partial) = (self.path(&name), self.options.folder.join(format!(".{name}.partial")));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&partial)?;
        file.write_all(text.as_bytes())?;
        // A2: rename only a complete file into place.
        fs::rename(&partial, path)?;
        self.trim()
    }

    /// Returns the entries of all archived jobs, the newest first.
    pub(crate) fn entries(&self) -> Vec<(String, Value)> {
        let mut names: Vec<(u64, String)> =
            self.files().unwrap_or_default().into_iter().map(|file| (file.0, file.1)).collect();
        names.sort_by(|one, other| other.cmp(one));
        let mut known = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|name, _| names.iter().any(|(_, found)| found == name));
        for (_, name) in &names {
            if !known.contains_key(name)
                && let Some(entry) = self.lines(name).and_then(|mut lines| lines.next()?.ok())
                && let Ok(entry) = serde_json::from_str(&entry)
            {
                known.insert(name.clone(), entry);
            }
        }
        names.into_iter().filter_map(|(_, name)| known.get(&name).cloned().map(|entry| (name, entry))).collect()
    }

    /// Returns the archived answer of one route of a job: `job`, `subtasks`, `history`, `log` or `plan`.
    pub(crate) fn read(&self, name: &str, part: &str) -> Option<Value> {
        began_ms(name)?;
        let kept = self.lines(name)?.nth(1)?.ok()?;
        let mut kept: Value = serde_json::from_str(&kept).ok()?;
        Some(kept.get_mut(part)?.take())
    }

    fn lines(&self, name: &str) -> Option<io::Lines<BufReader<fs::File>>> {
        fs::File::open(self.path(name)).ok().map(|file| BufReader::new(file).lines())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.options.folder.join(format!("{name}{SUFFIX}"))
    }

    /// Deletes the oldest files beyond the size limit (A1).
    fn trim(&self) -> io::Result<()> {
        let mut files = self.files()?;
        files.sort();
        let mut bytes: u64 = files.iter().map(|(_, _, bytes)| bytes).sum();
        for (_, name, size) in files {
            if bytes <= self.options.most_bytes {
                break;
            }
            match fs::remove_file(self.path(&name)) {
                // Another process may trim the same folder.
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => bytes -= size,
            }
        }
        Ok(())
    }

    /// Returns the start time, the name and the size in bytes of each job file.
    fn files(&self) -> io::Result<Vec<(u64, String, u64)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.options.folder)? {
            let entry = entry?;
            let Some(name) = entry.file_name().to_str().and_then(|name| name.strip_suffix(SUFFIX)).map(str::to_owned)
            else {
                continue;
            };
            if let (Some(began), Ok(metadata)) = (began_ms(&name), entry.metadata()) {
                found.push((began, name, metadata.len()));
            }
        }
        Ok(found)
    }
}

/// Parses the start time of a job from the name of its file. Returns `None` for any other name, which also rejects
/// paths to other folders.
fn began_ms(name: &str) -> Option<u64> {
    let numbers: Vec<u64> = name.split('-').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    match numbers[..] {
        [began, _, _] => Some(began),
        _ => None,
    }
}

const SUFFIX: &str = ".job";
/// Newest log records of a job that are archived.
const MOST_LOG_ENTRIES: usize = 1000;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn archive(folder: &Path, most_bytes: u64) -> Archive {
        Archive::open(ArchiveOptions { folder: folder.to_owned(), most_bytes }).expect("room")
    }

    #[test]
    fn names_of_files_lead_nowhere_else() {
        assert_eq!(began_ms("1700-12-1"), Some(1700));
        for name in ["", "1", "1-2", "1-2-3-4", "../1-2-3", "1-2-/etc/passwd", "a-1-2"] {
            assert_eq!(began_ms(name), None, "{name}");
        }
    }

    #[test]
    fn the_oldest_jobs_go_and_files_of_others_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let put = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("room");
        for began in [9, 10, 11] {
            put(&format!("{began}-1-1.job"), &format!("{{\"id\": \"{began}-1-1\"}}\n{{\"job\": {began}}}\n"));
        }
        put("5-1-1.job", "torn");
        put("notes.txt", "mine");
        let archive = archive(folder.path(), 80);
        let names = || archive.entries().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names(), ["11-1-1", "10-1-1", "9-1-1"], "by number, and without what cannot be read");
        assert_eq!(archive.read("10-1-1", "job"), Some(json!(10)));
        assert_eq!((archive.read("10-1-1", "plan"), archive.read("12-1-1", "job")), (None, None));
        archive.trim().expect("its own");
        assert_eq!(names(), ["11-1-1", "10-1-1"]);
        assert!(folder.path().join("notes.txt").exists() && !folder.path().join("5-1-1.job").exists());
    }
}
