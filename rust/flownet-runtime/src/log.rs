//! Collects the log of running tasks: lines that functions print, records of Python's `logging`, events of Rust's
//! `tracing`. Each entry names the subtask whose thread wrote it.
//!
//! A [`Log`] buffers the entries of one process and one job until they are taken. A writer finds it by its thread
//! ([`enter`]). On threads that belong to no task, it finds it by the process ([`enter_process`]), because a worker
//! process serves one job at a time.
//!
//! # Invariants
//! - L1: a log holds at most [`MOST_BYTES`] plus one entry. So its memory is bounded, whatever functions print.
//! - L2: output of functions waits for room, as it would in a pipe. Entries of the process itself never wait, and are
//!   counted if they have no room. No writer waits for a [closed](Log::close) log.
//! - L3: entries are taken in the order in which they were written, each once.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use flownet_core::text::cut_at_character;
use serde::{Deserialize, Serialize};

use crate::time::wall_clock_ms;

/// One entry of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
    /// Its time, in milliseconds since the epoch.
    pub at_ms: i64,
    /// The subtask that wrote it; `None` if it was no task's thread.
    pub speaker: Option<Speaker>,
    /// The kind of output.
    pub kind: LogKind,
    /// The text. Except for [`LogKind::Output`], it has no line end and is cut at [`MOST_TEXT_BYTES`].
    pub text: String,
}

/// A subtask, as the writer of log entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Speaker {
    /// Position of its vertex, upstream first.
    pub vertex: u32,
    /// Index among the subtasks of the vertex.
    pub subtask: u32,
}

/// The kind of a log entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogKind {
    /// Whole lines of a sink that prints records: output of the job, and not a message about it.
    Output,
    /// A line on standard output.
    Stdout,
    /// A line on standard error.
    Stderr,
    /// A record of Python's `logging`.
    Python {
        /// Level of the record.
        level: LogLevel,
        /// Name of the logger.
        logger: String,
    },
    /// An event of Rust's `tracing`.
    Rust {
        /// Level of the event.
        level: LogLevel,
        /// Target of the event: the module that it comes from.
        target: String,
    },
}

/// The severity, in Python's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    /// Details for debugging.
    Debug,
    /// Normal events.
    Info,
    /// An unexpected event; work continues.
    Warning,
    /// Some work failed.
    Error,
    /// Work cannot continue.
    Critical,
}

/// The buffered log of one process for one job.
#[derive(Debug, Default)]
pub struct Log {
    held: Mutex<LogBuffer>,
    has_room: Condvar,
}

#[derive(Debug, Default)]
struct LogBuffer {
    entries: VecDeque<LogEntry>,
    bytes: usize,
    dropped: u64,
    is_closed: bool,
    listener: Option<Waker>,
}

/// Entries that were taken out of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainedLog {
    /// The entries in their order.
    pub entries: Vec<LogEntry>,
    /// Number of entries since the last time that had no room.
    pub dropped: u64,
}

impl LogEntry {
    /// An entry that the calling thread writes now.
    pub fn now(speaker: Option<Speaker>, kind: LogKind, text: impl Into<String>) -> Self {
        let mut text = text.into();
        if kind != LogKind::Output && text.len() > MOST_TEXT_BYTES {
            let begin = cut_at_character(&text, MOST_TEXT_BYTES);
            text = format!("{begin}... ({} bytes more)", text.len() - begin.len());
        }
        Self { at_ms: wall_clock_ms(), speaker, kind, text }
    }

    /// Its approximate size in memory.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.text.len()
    }
}

impl LogKind {
    /// The level, for kinds that have one.
    pub fn level(&self) -> Option<LogLevel> {
        match self {
            Self::Output | Self::Stdout | Self::Stderr => None,
            Self::Python { level, .. } | Self::Rust { level, .. } => Some(*level),
        }
    }
}

impl Log {
    /// Adds an entry, or counts it if there is no room.
    pub fn say(&self, entry: LogEntry) {
        let mut held = self.lock();
        if held.is_full() {
            held.dropped += 1;
            return;
        }
        self.add(held, entry);
    }

    /// Adds an entry as soon as there is room.
    pub fn say_when_there_is_room(&self, entry: LogEntry) {
        let must_wait = |held: &mut LogBuffer| held.is_full() && !held.is_closed;
        let mut held = self.has_room.wait_while(self.lock(), must_wait).unwrap_or_else(PoisonError::into_inner);
        if held.is_full() {
            held.dropped += 1;
            return;
        }
        self.add(held, entry);
    }

    /// Returns true if there are entries to take.
    pub fn has_some(&self) -> bool {
        let held = self.lock();
        !held.entries.is_empty() || held.dropped > 0
    }

    /// Takes the first entries, up to `most_bytes` together and one more.
    pub fn take(&self, most_bytes: usize) -> DrainedLog {
        let mut held = self.lock();
        let mut said = DrainedLog { entries: Vec::new(), dropped: std::mem::take(&mut held.dropped) };
        let mut bytes = 0;
        while bytes < most_bytes
            && let Some(entry) = held.entries.pop_front()
        {
            bytes += entry.bytes();
            said.entries.push(entry);
        }
        held.bytes -= bytes;
        drop(held);
        self.has_room.notify_all();
        said
    }

    /// Sets the waker to wake after each new entry.
    pub fn set_listener(&self, listener: Waker) {
        self.lock().listener = Some(listener);
    }

    /// Closes the log: writers no longer wait for room.
    pub fn close(&self) {
        self.lock().is_closed = true;
        self.has_room.notify_all();
    }

    /// Undoes [`close`](Self::close).
    pub fn open(&self) {
        self.lock().is_closed = false;
    }

    fn add(&self, mut held: MutexGuard<'_, LogBuffer>, entry: LogEntry) {
        held.bytes += entry.bytes();
        held.entries.push_back(entry);
        let listener = held.listener.clone();
        drop(held);
        listener.iter().for_each(Waker::wake_by_ref);
    }

    fn lock(&self) -> MutexGuard<'_, LogBuffer> {
        // A queue and its size, changed together: consistent even after a panic.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LogBuffer {
    fn is_full(&self) -> bool {
        self.bytes >= MOST_BYTES
    }
}

thread_local! {
    static HERE: RefCell<Option<(Arc<Log>, Option<Speaker>)>> = const { RefCell::new(None) };
}

/// The log of a process that works for one job at a time.
static PROCESS: Mutex<Option<Arc<Log>>> = Mutex::new(None);

/// Directs the log of the calling thread until dropped; then the former log applies again.
#[derive(Debug)]
pub struct SpeakerScope(Option<(Arc<Log>, Option<Speaker>)>);

/// Directs the log of the calling thread to `log`, with `speaker` as its writer.
pub fn enter(log: Arc<Log>, speaker: Option<Speaker>) -> SpeakerScope {
    SpeakerScope(HERE.replace(Some((log, speaker))))
}

impl Drop for SpeakerScope {
    fn drop(&mut self) {
        HERE.set(self.0.take());
    }
}

/// Directs the log of threads without a task until dropped.
#[derive(Debug)]
pub struct ProcessEntered(());

/// Directs the log of the process to that of one job from now on.
pub fn enter_process(log: Arc<Log>) -> ProcessEntered {
    *process() = Some(log);
    ProcessEntered(())
}

impl Drop for ProcessEntered {
    fn drop(&mut self) {
        *process() = None;
    }
}

/// Returns true if all log output of this process belongs to one job.
pub fn is_in_process() -> bool {
    process().is_some()
}

/// Returns the log of the calling thread, and the subtask that it writes for.
pub fn here() -> Option<(Arc<Log>, Option<Speaker>)> {
    // A thread that is ending has no thread-locals any more.
    let own = HERE.try_with(|here| here.borrow().clone()).ok().flatten();
    own.or_else(|| process().clone().map(|log| (log, None)))
}

fn process() -> MutexGuard<'static, Option<Arc<Log>>> {
    PROCESS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Most bytes that a log holds.
pub const MOST_BYTES: usize = 1 << 20;
/// Most bytes of an entry.
pub const MOST_TEXT_BYTES: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn line(text: &str) -> LogEntry {
        LogEntry::now(None, LogKind::Stdout, text)
    }

    fn texts(said: &DrainedLog) -> Vec<&str> {
        said.entries.iter().map(|entry| entry.text.as_str()).collect()
    }

    fn fill(log: &Log) -> usize {
        let mut entries = 0;
        while !log.lock().is_full() {
            log.say(line(&"x".repeat(MOST_TEXT_BYTES)));
            entries += 1;
        }
        entries
    }

    #[test]
    fn entries_are_taken_in_their_order_and_once() {
        let log = Log::default();
        ["a", "b", "c"].iter().for_each(|text| log.say(line(text)));
        assert!(log.has_some());
        assert_eq!(texts(&log.take(1)), ["a"], "one entry at least");
        assert_eq!(texts(&log.take(usize::MAX)), ["b", "c"]);
        assert!(!log.has_some());
        assert_eq!(log.lock().bytes, 0);
    }

    #[test]
    fn what_has_no_room_is_counted_and_told_once() {
        let log = Log::default();
        let entries = fill(&log);
        (0..3).for_each(|_| log.say(line("lost")));
        let said = log.take(usize::MAX);
        assert_eq!((said.entries.len(), said.dropped), (entries, 3));
        assert_eq!(log.take(usize::MAX), DrainedLog::default());
    }

    #[test]
    fn what_functions_say_waits_for_room() {
        let log = Arc::new(Log::default());
        fill(&log);
        let speaker = thread::spawn({
            let log = Arc::clone(&log);
            move || log.say_when_there_is_room(line("waited"))
        });
        let mut said = Vec::new();
        while said.last().is_none_or(|entry: &LogEntry| entry.text != "waited") {
            let taken = log.take(MOST_TEXT_BYTES);
            assert_eq!(taken.dropped, 0);
            said.extend(taken.entries);
        }
        speaker.join().unwrap();
    }

    #[test]
    fn nobody_waits_for_a_log_that_is_closed() {
        let log = Arc::new(Log::default());
        fill(&log);
        let speaker = thread::spawn({
            let log = Arc::clone(&log);
            move || log.say_when_there_is_room(line("lost"))
        });
        log.close();
        speaker.join().unwrap();
        assert_eq!(log.take(usize::MAX).dropped, 1);
    }

    #[test]
    fn a_long_text_is_cut_between_letters_but_not_what_a_sink_prints() {
        let long = "ä".repeat(MOST_TEXT_BYTES);
        let cut = line(&long).text;
        assert!(cut.starts_with("ää") && cut.ends_with("ä... (16384 bytes more)"), "{}", &cut[cut.len() - 40..]);
        assert_eq!(LogEntry::now(None, LogKind::Output, long.clone()).text, long);
    }

    #[test]
    fn a_thread_speaks_where_it_entered_last() {
        let (outer, inner) = (Arc::new(Log::default()), Arc::new(Log::default()));
        let speaker = Speaker { vertex: 1, subtask: 2 };
        let speaks =
            |log: &Arc<Log>| here().is_some_and(|(here, as_whom)| Arc::ptr_eq(&here, log) && as_whom.is_some());
        let entered = enter(Arc::clone(&outer), Some(speaker));
        {
            let _entered = enter(Arc::clone(&inner), Some(speaker));
            assert!(speaks(&inner));
        }
        assert!(speaks(&outer));
        drop(entered);
        assert!(!speaks(&outer));
    }
}
