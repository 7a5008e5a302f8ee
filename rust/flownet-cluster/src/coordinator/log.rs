//! Stores the log of a job from all of its processes. Serves it to queries, and hands each entry once to a printer.
//!
//! # Invariants
//! - G1: the stored log is bounded: it has the last entries, up to [`MOST_KEPT_BYTES`] in total.
//! - G2: while there is a [`LogPrinter`], workers send no more than it has room for. So functions that print faster
//!   than it does wait for it, and none of their output is lost. Without a printer no function waits.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use flownet_runtime::log::{DrainedLog, LogEntry, LogKind, LogLevel};
use serde::Serialize;

use super::view::JobView;

/// Log record of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobLogEntry {
    /// Number of the record in the job, from 1.
    pub number: u64,
    /// Time in milliseconds since the epoch.
    pub at_ms: i64,
    /// Process that wrote it; 0 is the submitting process.
    pub worker: u32,
    /// Index of the vertex of the subtask that wrote it; none if the thread belongs to no task.
    pub task: Option<u32>,
    /// Index of the subtask within the vertex.
    pub subtask: Option<u32>,
    /// `output`, `stdout`, `stderr`, `python` or `rust`.
    pub kind: &'static str,
    /// Level, for records of `logging` and `tracing`.
    pub level: Option<LogLevel>,
    /// Logger, for the same records.
    pub logger: Option<String>,
    /// Text of the record.
    pub text: String,
}

/// Log records, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LogPage {
    /// Stored records that match the query.
    pub entries: Vec<Arc<JobLogEntry>>,
    /// Number after which the next query continues.
    pub last: u64,
}

/// Query for records of a job's log.
#[derive(Clone, Copy, Debug)]
pub struct LogQuery {
    /// Return records after this number.
    pub after: u64,
    /// Largest number of records; with `is_newest` the newest of them, else the oldest.
    pub most: usize,
    /// Whether to return the newest records.
    pub is_newest: bool,
    /// Least severe level to return; none returns all records.
    pub level: Option<LogLevel>,
}

/// Log of a job.
#[derive(Debug, Default)]
pub(super) struct JobLog {
    kept: Mutex<LogTail>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct LogTail {
    /// Number of the last record.
    number: u64,
    entries: Entries,
    unprinted: Entries,
    has_printer: bool,
    has_ended: bool,
}

#[derive(Debug, Default)]
struct Entries {
    queue: VecDeque<Arc<JobLogEntry>>,
    bytes: usize,
}

impl JobLog {
    /// Adds the records that a worker has sent.
    pub(super) fn take(&self, worker: u32, said: DrainedLog) {
        if said.entries.is_empty() && said.dropped == 0 {
            return;
        }
        let mut kept = self.lock();
        for entry in said.entries {
            kept.add(worker, entry);
        }
        if said.dropped > 0 {
            let text = format!("{} entries of worker {worker} had no room and are missing here", said.dropped);
            let kind = LogKind::Rust { level: LogLevel::Warning, target: "flownet".to_owned() };
            kept.add(worker, LogEntry::now(None, kind, text));
        }
        drop(kept);
        self.changed.notify_all();
    }

    /// Marks the end of the log.
    pub(super) fn end(&self) {
        self.lock().has_ended = true;
        self.changed.notify_all();
    }

    /// Returns the number of bytes that workers may send now.
    pub(super) fn room(&self) -> u64 {
        let kept = self.lock();
        let room = MOST_UNPRINTED_BYTES.saturating_sub(kept.unprinted.bytes);
        if kept.has_printer { room as u64 } else { u64::MAX }
    }

    fn page(&self, query: LogQuery) -> LogPage {
        let kept = self.lock();
        let is_wanted = |entry: &&Arc<JobLogEntry>| {
            entry.number > query.after
                && query.level.is_none_or(|least| entry.level.is_some_and(|level| level >= least))
        };
        let mut wanted = kept.entries.queue.iter().filter(is_wanted);
        let entries: Vec<_> = if query.is_newest {
            let mut newest: Vec<_> = wanted.rev().take(query.most).cloned().collect();
            newest.reverse();
            newest
        } else {
            let oldest = wanted.by_ref().take(query.most).cloned().collect();
            if wanted.next().is_some() {
                let last = |entries: &Vec<Arc<JobLogEntry>>| entries.last().map_or(query.after, |entry| entry.number);
                return LogPage { last: last(&oldest), entries: oldest };
            }
            oldest
        };
        LogPage { entries, last: kept.number.max(query.after) }
    }

    fn lock(&self) -> MutexGuard<'_, LogTail> {
        // Two queues and their sizes, changed together: consistent even after a panic.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LogTail {
    fn add(&mut self, worker: u32, entry: LogEntry) {
        let entry = Arc::new(JobLogEntry::new(self.number + 1, worker, entry));
        let is_output = entry.kind == OUTPUT;
        // This process prints its own output, and every process writes events of Rust to its own standard error.
        if worker > 0 && entry.kind != RUST {
            let most = if self.has_printer { usize::MAX } else { MOST_UNPRINTED_BYTES };
            self.unprinted.push(Arc::clone(&entry), most);
        }
        if !is_output {
            self.number += 1;
            self.entries.push(entry, MOST_KEPT_BYTES);
        }
    }
}

impl Entries {
    fn push(&mut self, entry: Arc<JobLogEntry>, most_bytes: usize) {
        self.bytes += entry.bytes();
        self.queue.push_back(entry);
        // G1: the oldest entries are dropped first.
        while self.bytes > most_bytes
            && let Some(oldest) = self.queue.pop_front()
        {
            self.bytes -= oldest.bytes();
        }
    }
}

impl JobLogEntry {
    fn new(number: u64, worker: u32, entry: LogEntry) -> Self {
        let level = entry.kind.level();
        let (kind, logger) = match entry.kind {
            LogKind::Output => (OUTPUT, None),
            LogKind::Stdout => ("stdout", None),
            LogKind::Stderr => ("stderr", None),
            LogKind::Python { logger, .. } => ("python", Some(logger)),
            LogKind::Rust { target, .. } => (RUST, Some(target)),
        };
        let task = entry.speaker.map(|speaker| speaker.vertex);
        let subtask = entry.speaker.map(|speaker| speaker.subtask);
        Self { number, at_ms: entry.at_ms, worker, task, subtask, kind, level, logger, text: entry.text }
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.text.len() + self.logger.as_ref().map_or(0, String::len)
    }
}

/// Printer of the workers' output. While it exists, functions that print faster wait for it.
#[derive(Debug)]
pub struct LogPrinter {
    view: JobView,
}

impl JobView {
    /// Returns stored log records.
    #[must_use]
    pub fn log(&self, query: LogQuery) -> LogPage {
        self.board.log().page(query)
    }

    /// Creates the only printer of the job. It receives the workers' output from the job's beginning, each record once.
    #[must_use]
    pub fn log_printer(&self) -> LogPrinter {
        self.board.log().lock().has_printer = true;
        LogPrinter { view: self.clone() }
    }
}

impl LogPrinter {
    /// Returns the next records to print, after a wait of at most `timeout`. Returns `None` when the job has ended and
    /// everything is printed.
    #[must_use]
    pub fn next(&self, timeout: Duration) -> Option<Vec<Arc<JobLogEntry>>> {
        let log = self.view.board.log();
        let is_quiet = |kept: &mut LogTail| kept.unprinted.queue.is_empty() && !kept.has_ended;
        let waited = log.changed.wait_timeout_while(log.lock(), timeout, is_quiet);
        let mut kept = waited.unwrap_or_else(PoisonError::into_inner).0;
        let Entries { queue, .. } = std::mem::take(&mut kept.unprinted);
        (!queue.is_empty() || !kept.has_ended).then(|| queue.into())
    }
}

impl Drop for LogPrinter {
    fn drop(&mut self) {
        self.view.board.log().lock().has_printer = false;
    }
}

const OUTPUT: &str = "output";
const RUST: &str = "rust";
/// Largest size of a job's stored log.
const MOST_KEPT_BYTES: usize = 2 << 20;
/// Largest size of unprinted records, plus as much again for each worker that was polled before the limit was reached.
const MOST_UNPRINTED_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use flownet_runtime::log::Speaker;

    use super::*;

    fn said(kind: LogKind, text: &str) -> DrainedLog {
        DrainedLog { entries: vec![LogEntry::now(Some(Speaker { vertex: 1, subtask: 2 }), kind, text)], dropped: 0 }
    }

    fn record(level: LogLevel) -> LogKind {
        LogKind::Python { level, logger: "jobs".to_owned() }
    }

    fn all(log: &JobLog, query: LogQuery) -> Vec<u64> {
        log.page(query).entries.iter().map(|entry| entry.number).collect()
    }

    const ALL: LogQuery = LogQuery { after: 0, most: 100, is_newest: false, level: None };

    #[test]
    fn what_is_kept_is_asked_for_by_number_count_and_level() {
        let log = JobLog::default();
        for level in [LogLevel::Info, LogLevel::Warning, LogLevel::Error] {
            log.take(1, said(record(level), "text"));
        }
        log.take(1, said(LogKind::Stdout, "text"));
        assert_eq!(all(&log, ALL), [1, 2, 3, 4]);
        assert_eq!(all(&log, LogQuery { after: 2, ..ALL }), [3, 4]);
        assert_eq!(all(&log, LogQuery { most: 2, is_newest: true, ..ALL }), [3, 4]);
        let first = log.page(LogQuery { most: 2, ..ALL });
        assert_eq!((first.entries.len(), first.last), (2, 2));
        let bad = log.page(LogQuery { level: Some(LogLevel::Warning), ..ALL });
        assert_eq!((bad.entries.len(), bad.last), (2, 4), "who goes on does not look at the same again");
        assert_eq!(log.page(LogQuery { after: 4, ..ALL }), LogPage { entries: Vec::new(), last: 4 });
    }

    #[test]
    fn the_oldest_go_where_there_are_too_many() {
        let log = JobLog::default();
        let long = "x".repeat(10_000);
        (0..1000).for_each(|_| log.take(1, said(LogKind::Stdout, &long)));
        let kept = all(&log, LogQuery { most: usize::MAX, ..ALL });
        assert!(kept.len() < 220 && kept.last() == Some(&1000), "{kept:?}");
        assert!(log.lock().entries.bytes <= MOST_KEPT_BYTES && log.lock().unprinted.bytes <= MOST_UNPRINTED_BYTES);
    }

    #[test]
    fn what_a_sink_prints_is_printed_and_not_kept() {
        let log = JobLog::default();
        log.take(1, said(LogKind::Output, "1\n2\n"));
        log.take(0, said(LogKind::Stdout, "printed by its own process"));
        assert_eq!(all(&log, ALL), [1]);
        let unprinted = &log.lock().unprinted.queue;
        assert_eq!(unprinted.iter().map(|entry| entry.text.as_str()).collect::<Vec<_>>(), ["1\n2\n"]);
    }

    #[test]
    fn workers_have_room_until_whoever_prints_falls_behind() {
        let log = JobLog::default();
        assert_eq!(log.room(), u64::MAX);
        log.lock().has_printer = true;
        assert_eq!(log.room(), MOST_UNPRINTED_BYTES as u64);
        (0..100).for_each(|_| log.take(1, said(LogKind::Output, &"x".repeat(16_000))));
        assert_eq!(log.room(), 0);
        assert_eq!(log.lock().unprinted.queue.len(), 100, "nothing is lost");
    }

    #[test]
    fn what_is_missing_is_said() {
        let log = JobLog::default();
        log.take(3, DrainedLog { entries: Vec::new(), dropped: 7 });
        let entries = log.page(ALL).entries;
        assert_eq!(entries[0].text, "7 entries of worker 3 had no room and are missing here");
    }
}
