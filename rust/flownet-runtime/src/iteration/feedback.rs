//! The feedback of one subtask of an iteration: a queue from its tail to its head, in one process.
//!
//! # Invariants
//! - F1: items are taken in the order in which they were pushed, rounds among records, no matter where they
//!   were stored.
//! - F2: the writer never waits for the reader. Bytes in memory and on disk stay within the limits; if there
//!   is no room, that is an error.
//! - F3: the reader is woken after a push, once for all items that it has not looked at.
//! - F4: no file on disk has a name: if a process dies, the system frees its files.
//! - F5: a checkpoint contains the records that were in the queue, in their order, when the head took it, and
//!   those that were pushed from then until the tail did. Taking records from the queue does not change that.
//!   Rounds are not stored.
//! - F6: records that a head leaves to the next run stay in the queue, as do those that are pushed
//!   afterwards. The head may end at one checkpoint while its tail, which receives barriers of other heads,
//!   takes part in more.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flownet_core::Round;

use super::error::IterationFault;
use crate::mailbox::TaskWaker;
use crate::time::NO_TIMESTAMP;
use crate::varint::{put_varint, take_varint, unzigzag, zigzag};

/// Records are handed over in pieces of about this many bytes, at the latest at the end of a batch.
pub(crate) const PIECE_BYTES: usize = 32 << 10;

/// Size of a file. It is freed after all of it was read, so it must not be too large.
const FILE_BYTES: u64 = 64 << 20;

/// Bytes in front of a record: its length.
const LENGTH_BYTES: usize = size_of::<u32>();

/// Limits of a subtask for records that wait for another round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedbackLimits {
    /// Bytes in memory.
    pub memory_bytes: u64,
    /// Bytes on disk, used when memory is full.
    pub disk_bytes: u64,
}

/// State that both ends share.
#[derive(Debug, Default)]
pub(crate) struct Feedback {
    /// True if items wait. Stored outside the queue's lock, since the head checks it after each record.
    has_more: AtomicBool,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    items: VecDeque<Item>,
    records: u64,
    memory_bytes: u64,
    disk_bytes: u64,
    bell: Option<TaskWaker>,
    was_rung: bool,
    end: Option<FeedbackEnd>,
    given_up: u64,
    kept: Option<FeedbackSnapshot>,
}

/// Records of a checkpoint that the head has taken, and the tail has not.
#[derive(Debug)]
struct FeedbackSnapshot {
    checkpoint_id: u64,
    records: Vec<StoredRecord>,
}

/// Reason for the end of the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FeedbackEnd {
    /// No record circulated any more.
    Over,
    /// Circulating records were dropped, or the head no longer exists.
    GivenUp,
    /// The head leaves the current and later records to the next run: checkpoints contain them.
    Left,
}

#[derive(Debug)]
enum Item {
    Records { count: u64, bytes: StoredRecord },
    Round(Round),
}

#[derive(Clone, Debug)]
enum StoredRecord {
    Memory(Arc<Vec<u8>>),
    Disk { file: Arc<File>, offset: u64, len: usize },
}

impl Feedback {
    /// Adds an item, which takes `memory` and `disk` bytes. Fails after the end of the loop, unless the head has left.
    fn push(&self, item: Item, memory: u64, disk: u64) -> Result<(), FeedbackEnd> {
        let bell = {
            let mut queue = self.lock();
            if let Some(end) = queue.end.filter(|end| *end != FeedbackEnd::Left) {
                queue.given_up += item.records();
                return Err(end);
            }
            queue.records += item.records();
            queue.memory_bytes += memory;
            queue.disk_bytes += disk;
            if let (Some(kept), Item::Records { bytes, .. }) = (&mut queue.kept, &item) {
                kept.records.push(bytes.clone());
            }
            queue.append(item);
            self.has_more.store(true, Ordering::Release);
            if std::mem::replace(&mut queue.was_rung, true) { None } else { queue.bell.clone() }
        };
        if let Some(bell) = bell {
            bell.ring();
        }
        Ok(())
    }

    fn take(&self) -> Option<Item> {
        let mut queue = self.lock();
        queue.was_rung = false;
        let item = queue.items.pop_front();
        if let Some(item) = &item {
            queue.records -= item.records();
            let (memory, disk) = item.bytes();
            queue.memory_bytes -= memory;
            queue.disk_bytes -= disk;
        }
        self.has_more.store(!queue.items.is_empty(), Ordering::Release);
        item
    }

    /// Takes the head's checkpoint. `unsent` are earlier records that were taken from the queue and not sent.
    fn keep(&self, checkpoint_id: u64, unsent: &[u8]) {
        let mut queue = self.lock();
        let mut records = Vec::new();
        if !unsent.is_empty() {
            records.push(StoredRecord::Memory(Arc::new(unsent.to_vec())));
        }
        records.extend(queue.waiting());
        queue.kept = Some(FeedbackSnapshot { checkpoint_id, records });
    }

    /// F6: ends the loop for the head. `unsent` are records that were taken from the queue and not sent; they
    /// precede all others.
    fn leave(&self, unsent: &[u8], count: u64) {
        let mut queue = self.lock();
        if queue.end.is_none() {
            queue.end = Some(FeedbackEnd::Left);
            queue.bell = None;
            if count > 0 {
                queue.records += count;
                queue.memory_bytes += unsent.len() as u64;
                queue.items.push_front(Item::Records { count, bytes: StoredRecord::Memory(Arc::new(unsent.to_vec())) });
            }
        }
    }

    fn end(&self, end: FeedbackEnd) {
        let items = {
            let mut queue = self.lock();
            if *queue.end.get_or_insert(end) == FeedbackEnd::Left {
                return;
            }
            queue.given_up += queue.records;
            (queue.records, queue.memory_bytes, queue.disk_bytes, queue.bell) = (0, 0, 0, None);
            self.has_more.store(false, Ordering::Release);
            std::mem::take(&mut queue.items)
        };
        drop(items);
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    /// The records that wait.
    fn waiting(&self) -> Vec<StoredRecord> {
        let records = self.items.iter().filter_map(|item| match item {
            Item::Records { bytes, .. } => Some(bytes.clone()),
            Item::Round(_) => None,
        });
        records.collect()
    }

    /// Appends an item. Small pieces are merged into one.
    fn append(&mut self, item: Item) {
        if let Item::Records { count, bytes: StoredRecord::Memory(bytes) } = &item
            && let Some(Item::Records { count: counted, bytes: StoredRecord::Memory(last) }) = self.items.back_mut()
            && last.len() + bytes.len() <= PIECE_BYTES
            // Not if a checkpoint shares it.
            && let Some(last) = Arc::get_mut(last)
        {
            last.extend_from_slice(bytes);
            *counted += count;
            return;
        }
        self.items.push_back(item);
    }
}

impl Item {
    fn records(&self) -> u64 {
        match self {
            Self::Records { count, .. } => *count,
            Self::Round(_) => 0,
        }
    }

    /// Bytes in memory, and on disk.
    fn bytes(&self) -> (u64, u64) {
        match self {
            Self::Records { bytes: StoredRecord::Memory(bytes), .. } => (bytes.len() as u64, 0),
            Self::Records { bytes: StoredRecord::Disk { len, .. }, .. } => (0, *len as u64),
            Self::Round(_) => (0, 0),
        }
    }
}

/// The tail's end of the queue.
#[derive(Debug)]
pub struct FeedbackWriter {
    feedback: Arc<Feedback>,
    limits: FeedbackLimits,
    /// Records that are not handed over yet.
    gathered: Vec<u8>,
    count: u64,
    /// The file that is being written, and its length.
    spill: Option<(Arc<File>, u64)>,
}

impl FeedbackWriter {
    pub(super) fn new(feedback: Arc<Feedback>, limits: FeedbackLimits) -> Self {
        Self { feedback, limits, gathered: Vec::new(), count: 0, spill: None }
    }

    /// Adds a record, which `encode` appends. It is handed over with the next [`flush`](Self::flush), or
    /// before.
    pub(crate) fn push<E: From<IterationFault>>(
        &mut self,
        timestamp_ms: i64,
        max_bytes: usize,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
        too_large: impl FnOnce(usize) -> E,
    ) -> Result<(), E> {
        let start = self.gathered.len();
        self.gathered.extend_from_slice(&[0; LENGTH_BYTES]);
        put_time(&mut self.gathered, timestamp_ms);
        let body = self.gathered.len();
        encode(&mut self.gathered)?;
        if self.gathered.len() - body > max_bytes {
            return Err(too_large(self.gathered.len() - body));
        }
        let len = u32::try_from(self.gathered.len() - start - LENGTH_BYTES);
        let len = len.map_err(|_| too_large(self.gathered.len() - body))?;
        self.gathered[start..start + LENGTH_BYTES].copy_from_slice(&len.to_le_bytes());
        self.count += 1;
        if self.gathered.len() >= PIECE_BYTES { Ok(self.flush()?) } else { Ok(()) }
    }

    /// Hands over the gathered records.
    pub(crate) fn flush(&mut self) -> Result<(), IterationFault> {
        if self.count == 0 {
            return Ok(());
        }
        let (bytes, count) = (std::mem::take(&mut self.gathered), std::mem::take(&mut self.count));
        let len = bytes.len() as u64;
        let (memory_bytes, disk_bytes, records) = {
            let queue = self.feedback.lock();
            (queue.memory_bytes, queue.disk_bytes, queue.records)
        };
        // The reader may have freed space since, and no other writer takes any.
        let (stored, memory, disk) = if memory_bytes + len <= self.limits.memory_bytes {
            (StoredRecord::Memory(Arc::new(bytes)), len, 0)
        } else if disk_bytes + len <= self.limits.disk_bytes {
            let stored = self.spill(&bytes).map_err(|error| fault(&error, disk_bytes))?;
            // Reuse the buffer for the next records.
            self.gathered = bytes;
            self.gathered.clear();
            (stored, 0, len)
        } else {
            let FeedbackLimits { memory_bytes: most, disk_bytes: most_on_disk } = self.limits;
            return Err(IterationFault::Full {
                records: records + count,
                bytes: memory_bytes + disk_bytes + len,
                memory_bytes: most,
                disk_bytes: most_on_disk,
            });
        };
        match self.feedback.push(Item::Records { count, bytes: stored }, memory, disk) {
            Err(FeedbackEnd::Over) => Err(IterationFault::Over),
            Ok(()) | Err(FeedbackEnd::GivenUp | FeedbackEnd::Left) => Ok(()),
        }
    }

    /// Hands over a round, after all records so far.
    pub(crate) fn round(&mut self, round: Round) -> Result<(), IterationFault> {
        self.flush()?;
        // A head that has ended waits for no round.
        let _ = self.feedback.push(Item::Round(round), 0, 0);
        Ok(())
    }

    /// Takes the tail's checkpoint. Returns all records of the loop, each in the form that
    /// [`restore`](Self::restore) takes.
    pub(crate) fn kept(&mut self, checkpoint_id: u64) -> Result<Vec<Vec<u8>>, IterationFault> {
        self.flush()?;
        let (kept, end) = {
            let mut queue = self.feedback.lock();
            let kept = queue.kept.take_if(|kept| kept.checkpoint_id == checkpoint_id).map(|kept| kept.records);
            // F6: after its last checkpoint, a head that has left takes no more records from the queue.
            let left = (queue.end == Some(FeedbackEnd::Left)).then(|| queue.waiting());
            (kept.or(left), queue.end)
        };
        let Some(kept) = kept else {
            // The head has ended, and takes no checkpoint.
            return if end.is_some() { Ok(Vec::new()) } else { Err(IterationFault::Checkpoint { checkpoint_id }) };
        };
        let mut records = Vec::new();
        for stored in kept {
            let piece = read_back(stored)?;
            let mut rest = piece.as_slice();
            while let Some((record, left)) = split_record(rest) {
                records.push(record.to_vec());
                rest = &rest[rest.len() - left..];
            }
        }
        Ok(records)
    }

    /// Restores a record of a checkpoint.
    pub(crate) fn restore(&mut self, record: &[u8]) -> Result<(), IterationFault> {
        // Longer records are never pushed.
        self.gathered.extend_from_slice(&(record.len() as u32).to_le_bytes());
        self.gathered.extend_from_slice(record);
        self.count += 1;
        if self.gathered.len() >= PIECE_BYTES { self.flush() } else { Ok(()) }
    }

    /// Discards an aborted checkpoint.
    pub(crate) fn forget(&mut self, checkpoint_id: u64) {
        self.feedback.lock().kept.take_if(|kept| kept.checkpoint_id <= checkpoint_id);
    }

    /// Number of records that were dropped after the end of the loop.
    pub(crate) fn given_up(&self) -> u64 {
        self.feedback.lock().given_up
    }

    fn spill(&mut self, bytes: &[u8]) -> io::Result<StoredRecord> {
        let (file, offset) = match &mut self.spill {
            Some((file, written)) if *written < FILE_BYTES => (Arc::clone(file), *written),
            _ => (Arc::new(tempfile::tempfile()?), 0),
        };
        file.write_all_at(bytes, offset)?;
        self.spill = Some((Arc::clone(&file), offset + bytes.len() as u64));
        Ok(StoredRecord::Disk { file, offset, len: bytes.len() })
    }
}

/// The head's end of the queue.
#[derive(Debug)]
pub struct FeedbackReader {
    feedback: Arc<Feedback>,
    piece: Vec<u8>,
    at: usize,
}

/// An item of the queue.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FeedbackItem<'a> {
    /// A record, as it was encoded.
    Record {
        /// Its time.
        timestamp_ms: i64,
        /// Its bytes.
        bytes: &'a [u8],
    },
    /// A round, after all records before it.
    Round(Round),
}

impl FeedbackReader {
    pub(super) fn new(feedback: Arc<Feedback>) -> Self {
        Self { feedback, piece: Vec::new(), at: 0 }
    }

    /// Sets the waker for new items. It is woken at once if there are items already.
    pub(crate) fn set_bell(&self, bell: TaskWaker) {
        let has_come = {
            let mut queue = self.feedback.lock();
            queue.bell = Some(bell.clone());
            queue.was_rung
        };
        if has_come {
            bell.ring();
        }
    }

    /// Returns true if items wait.
    #[inline]
    pub(crate) fn has_more(&self) -> bool {
        self.at < self.piece.len() || self.feedback.has_more.load(Ordering::Acquire)
    }

    /// The next item.
    pub(crate) fn next(&mut self) -> Result<Option<FeedbackItem<'_>>, IterationFault> {
        if self.at == self.piece.len() {
            match self.feedback.take() {
                None => return Ok(None),
                Some(Item::Round(round)) => return Ok(Some(FeedbackItem::Round(round))),
                Some(Item::Records { bytes, .. }) => {
                    (self.piece, self.at) = (read_back(bytes)?, 0);
                }
            }
        }
        let rest = &self.piece[self.at..];
        let (record, left) = split_record(rest).ok_or_else(|| broken("a piece that ends in a record"))?;
        let (stamp, bytes) = take_varint(record).map_err(|error| broken(&error.to_string()))?;
        self.at = self.piece.len() - left;
        Ok(Some(FeedbackItem::Record { timestamp_ms: time_of(stamp), bytes }))
    }

    /// Takes the head's checkpoint.
    pub(crate) fn keep(&self, checkpoint_id: u64) {
        self.feedback.keep(checkpoint_id, &self.piece[self.at..]);
    }

    /// Leaves current and later records to the next run (F6).
    pub(crate) fn leave(&mut self) {
        let count = self.unsent();
        self.feedback.leave(&self.piece[self.at..], count);
        (self.piece, self.at) = (Vec::new(), 0);
    }

    /// Ends the loop. Current and later records are dropped.
    pub(crate) fn end(&mut self, end: FeedbackEnd) {
        let given_up = self.unsent();
        self.feedback.lock().given_up += given_up;
        (self.piece, self.at) = (Vec::new(), 0);
        self.feedback.end(end);
    }

    /// Number of records that were taken from the queue and not sent.
    fn unsent(&self) -> u64 {
        let (mut count, mut rest) = (0, &self.piece[self.at..]);
        while let Some((_, left)) = split_record(rest) {
            count += 1;
            rest = &rest[rest.len() - left..];
        }
        count
    }
}

impl Drop for FeedbackReader {
    fn drop(&mut self) {
        self.end(FeedbackEnd::GivenUp);
    }
}

/// Writes a time. No time is 0.
fn put_time(out: &mut Vec<u8>, timestamp_ms: i64) {
    put_varint(out, if timestamp_ms == NO_TIMESTAMP { 0 } else { zigzag(timestamp_ms) + 1 });
}

fn time_of(stamp: u64) -> i64 {
    stamp.checked_sub(1).map_or(NO_TIMESTAMP, unzigzag)
}

/// Splits off a record. Returns it, and the number of bytes after it.
fn split_record(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let (len, rest) = bytes.split_first_chunk::<LENGTH_BYTES>()?;
    let (record, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    Some((record, rest.len()))
}

fn read_back(stored: StoredRecord) -> Result<Vec<u8>, IterationFault> {
    match stored {
        StoredRecord::Memory(bytes) => Ok(Arc::unwrap_or_clone(bytes)),
        StoredRecord::Disk { file, offset, len } => {
            let mut bytes = vec![0; len];
            file.read_exact_at(&mut bytes, offset).map_err(|error| fault(&error, len as u64))?;
            Ok(bytes)
        }
    }
}

fn fault(error: &io::Error, disk_bytes: u64) -> IterationFault {
    IterationFault::Disk { disk_bytes, reason: error.to_string() }
}

fn broken(what: &str) -> IterationFault {
    IterationFault::Disk { disk_bytes: 0, reason: what.to_owned() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::iteration::FeedbackEdges;
    use crate::mailbox::{Mail, Mailbox};

    const ROOMY: FeedbackLimits = FeedbackLimits { memory_bytes: 1 << 20, disk_bytes: 1 << 30 };

    fn ends(limits: FeedbackLimits) -> (FeedbackWriter, FeedbackReader) {
        let edges = FeedbackEdges::default();
        (edges.writer(1, 0, limits), edges.reader(1, 0))
    }

    fn push(writer: &mut FeedbackWriter, timestamp_ms: i64, record: &[u8]) -> Result<(), IterationFault> {
        let encode = |out: &mut Vec<u8>| {
            out.extend_from_slice(record);
            Ok(())
        };
        writer.push(timestamp_ms, usize::MAX, encode, |_| IterationFault::Over)
    }

    #[derive(Clone, Debug, PartialEq, Eq)]
    enum TakenItem {
        Record(i64, Vec<u8>),
        Round(u64),
    }

    fn take(reader: &mut FeedbackReader) -> Option<TakenItem> {
        reader.next().unwrap().map(|fed| match fed {
            FeedbackItem::Record { timestamp_ms, bytes } => TakenItem::Record(timestamp_ms, bytes.to_vec()),
            FeedbackItem::Round(round) => TakenItem::Round(round.number),
        })
    }

    #[derive(Clone, Debug)]
    enum FeedbackAction {
        Push(Option<i64>, usize),
        Flush,
        Round,
        Take(usize),
    }

    fn acts() -> impl Strategy<Value = Vec<FeedbackAction>> {
        let act = prop_oneof![
            6 => (any::<Option<i64>>(), 0..3000_usize).prop_map(|(at, len)| FeedbackAction::Push(at, len)),
            3 => Just(FeedbackAction::Flush),
            1 => Just(FeedbackAction::Round),
            3 => (0..20_usize).prop_map(FeedbackAction::Take),
        ];
        prop::collection::vec(act, 0..200)
    }

    proptest! {
        #[test]
        fn a_checkpoint_keeps_what_the_head_had_before_it_and_what_the_tail_pushed_until_its_own(
            (before, between, after) in (acts(), acts(), acts()),
            memory_bytes in 0..40_000_u64,
        ) {
            let (mut writer, mut reader) = ends(FeedbackLimits { memory_bytes, ..ROOMY });
            let (mut waiting, mut pushed, mut rounds) = (VecDeque::new(), 0_u8, 0);
            let mut run = |acts, writer: &mut FeedbackWriter, reader: &mut FeedbackReader, waiting: &mut VecDeque<TakenItem>| {
                let mut added = Vec::new();
                for act in acts {
                    match act {
                        FeedbackAction::Push(at, len) => {
                            pushed = pushed.wrapping_add(1);
                            let (at, record) = (at.unwrap_or(NO_TIMESTAMP), vec![pushed; len]);
                            push(writer, at, &record).unwrap();
                            added.push(TakenItem::Record(at, record));
                            waiting.extend(added.last().cloned());
                        }
                        FeedbackAction::Flush => writer.flush().unwrap(),
                        FeedbackAction::Round => {
                            writer.round(Round { number: rounds, is_quiet: false }).unwrap();
                            rounds += 1;
                        }
                        FeedbackAction::Take(count) => {
                            let taken = std::iter::from_fn(|| take(reader)).take(count);
                            for taken in taken.filter(|taken| matches!(taken, TakenItem::Record(..))) {
                                assert_eq!(Some(taken), waiting.pop_front(), "F1");
                            }
                        }
                    }
                }
                added
            };
            run(before, &mut writer, &mut reader, &mut waiting);
            // Records that were gathered and not handed over were pushed before the tail's own checkpoint.
            let mut expected: Vec<_> = waiting.iter().cloned().collect();
            reader.keep(7);
            expected.extend(run(between, &mut writer, &mut reader, &mut waiting));
            let kept = writer.kept(7).unwrap();
            run(after, &mut writer, &mut reader, &mut waiting);
            let (mut other, mut again) = ends(ROOMY);
            kept.iter().for_each(|record| other.restore(record).unwrap());
            other.flush().unwrap();
            // Each has its time, and there is no round among them.
            let found: Vec<_> = std::iter::from_fn(|| take(&mut again)).collect();
            prop_assert_eq!(found, expected, "F5");
        }
    }

    #[test]
    fn what_a_head_has_left_is_in_every_checkpoint_until_its_tail_ends() {
        let (mut writer, mut reader) = ends(ROOMY);
        (0..3).for_each(|n| push(&mut writer, 0, &[n]).unwrap());
        writer.flush().unwrap();
        assert_eq!(take(&mut reader), Some(TakenItem::Record(0, vec![0])), "it is on its way, and comes back");
        reader.keep(6);
        assert_eq!(take(&mut reader), Some(TakenItem::Record(0, vec![1])));
        reader.leave();
        assert_eq!(writer.kept(6).unwrap().len(), 2, "as it was when the head took it");
        reader.keep(7);
        drop(reader);
        assert_eq!(writer.kept(7).unwrap().len(), 1);
        push(&mut writer, 0, &[0]).unwrap();
        let later: Vec<_> = (8..10).map(|id| writer.kept(id).unwrap()).collect();
        let (mut other, mut again) = ends(ROOMY);
        later[1].iter().for_each(|record| other.restore(record).unwrap());
        other.flush().unwrap();
        let found: Vec<_> = std::iter::from_fn(|| take(&mut again)).collect();
        assert_eq!(found, [TakenItem::Record(0, vec![2]), TakenItem::Record(0, vec![0])]);
        assert_eq!((&later[0], writer.given_up()), (&later[1], 0));
    }

    #[test]
    fn a_checkpoint_that_is_off_holds_nothing_and_one_that_the_head_did_not_take_is_an_error() {
        let (mut writer, reader) = ends(ROOMY);
        push(&mut writer, 0, b"x").unwrap();
        reader.keep(3);
        writer.forget(2);
        assert!(writer.feedback.lock().kept.is_some());
        writer.forget(3);
        assert!(writer.feedback.lock().kept.is_none());
        assert_eq!(writer.kept(3), Err(IterationFault::Checkpoint { checkpoint_id: 3 }));
        drop(reader);
        assert_eq!(writer.kept(4), Ok(Vec::new()), "its head has ended");
    }

    proptest! {
        #[test]
        fn what_was_pushed_is_taken_in_its_order_wherever_it_lay(acts in acts(), memory_bytes in 0..40_000_u64) {
            let (mut writer, mut reader) = ends(FeedbackLimits { memory_bytes, ..ROOMY });
            let (mut pushed, mut taken, mut rounds) = (Vec::new(), Vec::new(), 0);
            for act in acts {
                match act {
                    FeedbackAction::Push(at, len) => {
                        let (at, record) = (at.unwrap_or(NO_TIMESTAMP), vec![pushed.len() as u8; len]);
                        push(&mut writer, at, &record).unwrap();
                        pushed.push(TakenItem::Record(at, record));
                    }
                    FeedbackAction::Flush => writer.flush().unwrap(),
                    FeedbackAction::Round => {
                        writer.round(Round { number: rounds, is_quiet: false }).unwrap();
                        pushed.push(TakenItem::Round(rounds));
                        rounds += 1;
                    }
                    FeedbackAction::Take(count) => taken.extend(std::iter::from_fn(|| take(&mut reader)).take(count)),
                }
                let queue = writer.feedback.lock();
                prop_assert!(queue.memory_bytes <= memory_bytes, "F2");
                drop(queue);
            }
            writer.flush().unwrap();
            taken.extend(std::iter::from_fn(|| take(&mut reader)));
            prop_assert_eq!(taken, pushed, "F1");
            prop_assert!(!reader.has_more());
            let queue = writer.feedback.lock();
            prop_assert_eq!((queue.records, queue.memory_bytes, queue.disk_bytes, queue.given_up), (0, 0, 0, 0));
        }
    }

    #[test]
    fn what_has_no_room_is_an_error_with_numbers() {
        let (mut writer, reader) = ends(FeedbackLimits { memory_bytes: 100, disk_bytes: 50 });
        for _ in 0..3 {
            push(&mut writer, NO_TIMESTAMP, &[7; 43]).unwrap();
            writer.flush().unwrap();
        }
        push(&mut writer, NO_TIMESTAMP, &[7; 3]).unwrap();
        let full = IterationFault::Full { records: 4, bytes: 152, memory_bytes: 100, disk_bytes: 50 };
        assert_eq!(writer.flush(), Err(full));
        assert!(reader.has_more());
    }

    #[test]
    fn the_reader_is_told_once_for_all_that_it_has_not_looked_at() {
        let (mut writer, mut reader) = ends(ROOMY);
        let mailbox = Mailbox::new();
        push(&mut writer, 5, b"early").unwrap();
        writer.flush().unwrap();
        reader.set_bell(mailbox.bell());
        assert_eq!(mailbox.take(), Some(Mail::Arrived), "it had come before");
        for _ in 0..3 {
            push(&mut writer, 5, b"late").unwrap();
            writer.flush().unwrap();
        }
        assert_eq!(mailbox.take(), None);
        assert_eq!(std::iter::from_fn(|| take(&mut reader)).count(), 4);
        push(&mut writer, 5, b"again").unwrap();
        writer.flush().unwrap();
        assert_eq!((mailbox.take(), mailbox.take()), (Some(Mail::Arrived), None));
    }

    #[test]
    fn what_nobody_takes_any_more_is_counted() {
        let (mut writer, mut reader) = ends(ROOMY);
        for _ in 0..5 {
            push(&mut writer, 0, b"x").unwrap();
        }
        writer.flush().unwrap();
        assert!(take(&mut reader).is_some());
        reader.end(FeedbackEnd::GivenUp);
        push(&mut writer, 0, b"x").unwrap();
        writer.flush().unwrap();
        assert_eq!((writer.given_up(), reader.has_more(), take(&mut reader)), (5, false, None));
        let (mut writer, mut reader) = ends(ROOMY);
        reader.end(FeedbackEnd::Over);
        push(&mut writer, 0, b"x").unwrap();
        assert_eq!(writer.flush(), Err(IterationFault::Over));
    }

    #[test]
    fn each_attempt_has_edges_of_its_own() {
        let edges = FeedbackEdges::default();
        let left_behind = edges.writer(1, 0, ROOMY);
        drop(left_behind);
        let (mut writer, other) = (edges.writer(1, 0, ROOMY), edges.reader(1, 1));
        let mut reader = edges.reader(1, 0);
        push(&mut writer, 0, b"x").unwrap();
        writer.flush().unwrap();
        assert_eq!((take(&mut reader).is_some(), other.has_more()), (true, false));
        let next = edges.reader(1, 0);
        push(&mut writer, 0, b"x").unwrap();
        writer.flush().unwrap();
        assert_eq!((reader.has_more(), next.has_more()), (true, false));
    }
}
