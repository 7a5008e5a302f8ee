//! What was said in a job, by all of its processes: kept for whoever asks, and handed out once to whoever prints it.
//!
//! # Invariants
//! - G1: what is kept is bounded: the last entries, of [`MOST_KEPT_BYTES`] together.
//! - G2: while there is a [`LogPrinter`], workers tell no more than it has room for, so functions that print faster than it
//!   does wait for it, and nothing that they printed is lost. Without one nobody waits.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use flownet_runtime::log::{DrainedLog, LogEntry, LogKind, LogLevel};
use serde::Serialize;

use super::view::JobView;

/// Something that was said in a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobLogEntry {
    /// Counted in the job, from 1.
    pub number: u64,
    /// When, in milliseconds since the epoch.
    pub at_ms: i64,
    /// In which process; 0 is the submitting one.
    pub worker: u32,
    /// Position of the vertex whose subtask said it; none where it was no task's thread.
    pub task: Option<u32>,
    /// Index among the subtasks of the vertex.
    pub subtask: Option<u32>,
    /// `output`, `stdout`, `stderr`, `python` or `rust`.
    pub kind: &'static str,
    /// Of records of `logging` and `tracing`.
    pub level: Option<LogLevel>,
    /// The logger of these.
    pub logger: Option<String>,
    /// What was said.
    pub text: String,
}

/// Some entries, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LogPage {
    /// Those that were asked for and are kept.
    pub entries: Vec<Arc<JobLogEntry>>,
    /// Ask for what is after this number to go on.
    pub last: u64,
}

/// What is shown of a job's log.
#[derive(Clone, Copy, Debug)]
pub struct LogQuery {
    /// Entries after this number.
    pub after: u64,
    /// No more than so many; with `is_newest` the newest of them, else the oldest.
    pub most: usize,
    /// Whether the newest are wanted.
    pub is_newest: bool,
    /// Of records that are at least as bad, or of anything.
    pub level: Option<LogLevel>,
}

/// The log of a job.
#[derive(Debug, Default)]
pub(super) struct JobLog {
    kept: Mutex<LogTail>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct LogTail {
    /// Of the last entry.
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
    /// Takes what a worker has told.
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

    /// Nothing more will be said.
    pub(super) fn end(&self) {
        self.lock().has_ended = true;
        self.changed.notify_all();
    }

    /// How much workers may tell now.
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
        // Two queues and their sizes, changed together: whole even after a panic.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LogTail {
    fn add(&mut self, worker: u32, entry: LogEntry) {
        let entry = Arc::new(JobLogEntry::new(self.number + 1, worker, entry));
        let is_output = entry.kind == OUTPUT;
        // This process prints for itself, and every process has events of Rust on its own standard error.
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

/// Whoever prints what workers say. While it is there, functions that say more than it prints wait.
#[derive(Debug)]
pub struct LogPrinter {
    view: JobView,
}

impl JobView {
    /// What was said in the job and is still kept.
    #[must_use]
    pub fn log(&self, query: LogQuery) -> LogPage {
        self.board.log().page(query)
    }

    /// Prints what the workers say from the job's beginning on, each entry once: the only one of the job.
    #[must_use]
    pub fn log_printer(&self) -> LogPrinter {
        self.board.log().lock().has_printer = true;
        LogPrinter { view: self.clone() }
    }
}

impl LogPrinter {
    /// What is to be printed next, after a wait of at most `timeout`; `None` when all is printed of a job that has ended.
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
/// Of a job's log.
const MOST_KEPT_BYTES: usize = 2 << 20;
/// What waits to be printed, and as much again of each worker that was asked before there was so much.
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
