//! What is said while tasks run: lines that functions print, records of Python's `logging`, events of Rust's `tracing`. Each
//! with the subtask whose thread said it.
//!
//! A [`Log`] holds what one process says of one job until somebody takes it. Who speaks finds it by the thread
//! ([`enter`]), or, on a thread of nobody's, by the process ([`enter_process`]): a worker process serves one job at a time.
//!
//! # Invariants
//! - L1: a log holds at most [`MOST_BYTES`], and one entry more where something waited for room: what is said in between
//!   is bounded, whatever functions say.
//! - L2: what functions say waits for room, as it would in a pipe; what the process says of itself never waits, and is
//!   counted where it has no room. A log that is [closed](Log::close) makes nobody wait.
//! - L3: entries are taken in the order in which they were said, each once.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use flownet_core::text::cut_at_character;
use serde::{Deserialize, Serialize};

use crate::time::wall_clock_ms;

/// Something that was said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
    /// When, in milliseconds since the epoch.
    pub at_ms: i64,
    /// By whom; none where it was no task's thread.
    pub speaker: Option<Speaker>,
    /// How.
    pub kind: LogKind,
    /// Without the line's end, but for [`LogKind::Output`]; cut at [`MOST_TEXT_BYTES`] but for that, too.
    pub text: String,
}

/// A subtask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Speaker {
    /// Position of its vertex, upstream first.
    pub vertex: u32,
    /// Index among the subtasks of the vertex.
    pub subtask: u32,
}

/// How something was said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogKind {
    /// Whole lines of a sink that prints records: what a job gives out, and not what is told of it.
    Output,
    /// A line on the standard output.
    Stdout,
    /// A line on standard error.
    Stderr,
    /// A record of Python's `logging`.
    Python {
        /// Of the record.
        level: LogLevel,
        /// Of the logger.
        logger: String,
    },
    /// An event of Rust's `tracing`.
    Rust {
        /// Of the event.
        level: LogLevel,
        /// Of the event: where it comes from.
        target: String,
    },
}

/// How bad it is, in Python's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    /// For whoever looks for a fault.
    Debug,
    /// What happens.
    Info,
    /// What should not happen, and goes on.
    Warning,
    /// Something was not done.
    Error,
    /// Nothing goes on.
    Critical,
}

/// What one process says of one job.
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

/// What was taken out of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainedLog {
    /// In their order.
    pub entries: Vec<LogEntry>,
    /// Entries that had no room, since the time before.
    pub dropped: u64,
}

impl LogEntry {
    /// Something that the calling thread says now.
    pub fn now(speaker: Option<Speaker>, kind: LogKind, text: impl Into<String>) -> Self {
        let mut text = text.into();
        if kind != LogKind::Output && text.len() > MOST_TEXT_BYTES {
            let begin = cut_at_character(&text, MOST_TEXT_BYTES);
            text = format!("{begin}... ({} bytes more)", text.len() - begin.len());
        }
        Self { at_ms: wall_clock_ms(), speaker, kind, text }
    }

    /// What it takes up, about.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.text.len()
    }
}

impl LogKind {
    /// Of what has one.
    pub fn level(&self) -> Option<LogLevel> {
        match self {
            Self::Output | Self::Stdout | Self::Stderr => None,
            Self::Python { level, .. } | Self::Rust { level, .. } => Some(*level),
        }
    }
}

impl Log {
    /// Adds an entry, or counts it where there is no room.
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

    /// Whether there is something to take.
    pub fn has_some(&self) -> bool {
        let held = self.lock();
        !held.entries.is_empty() || held.dropped > 0
    }

    /// Takes the first entries, of `most_bytes` together and one more.
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

    /// Has `listener` woken whenever something was said.
    pub fn set_listener(&self, listener: Waker) {
        self.lock().listener = Some(listener);
    }

    /// From now on nobody waits for room.
    pub fn close(&self) {
        self.lock().is_closed = true;
        self.has_room.notify_all();
    }

    /// Takes back [`close`](Self::close).
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
        // A queue and its size, changed together: whole even after a panic.
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

/// Where the calling thread speaks, until it is dropped; then as before.
#[derive(Debug)]
pub struct SpeakerScope(Option<(Arc<Log>, Option<Speaker>)>);

/// What the calling thread says goes to `log`, as of `speaker`.
pub fn enter(log: Arc<Log>, speaker: Option<Speaker>) -> SpeakerScope {
    SpeakerScope(HERE.replace(Some((log, speaker))))
}

impl Drop for SpeakerScope {
    fn drop(&mut self) {
        HERE.set(self.0.take());
    }
}

/// What threads of nobody's say goes to `log`, until it is dropped.
#[derive(Debug)]
pub struct ProcessEntered(());

/// The process works for one job from now on.
pub fn enter_process(log: Arc<Log>) -> ProcessEntered {
    *process() = Some(log);
    ProcessEntered(())
}

impl Drop for ProcessEntered {
    fn drop(&mut self) {
        *process() = None;
    }
}

/// Whether all that is said in this process is of one job.
pub fn is_in_process() -> bool {
    process().is_some()
}

/// The log that the calling thread speaks to, and as whom.
pub fn here() -> Option<(Arc<Log>, Option<Speaker>)> {
    // A thread that is ending has no locals any more.
    let own = HERE.try_with(|here| here.borrow().clone()).ok().flatten();
    own.or_else(|| process().clone().map(|log| (log, None)))
}

fn process() -> MutexGuard<'static, Option<Arc<Log>>> {
    PROCESS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How much a log holds.
pub const MOST_BYTES: usize = 1 << 20;
/// How long an entry may be.
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
