//! Packs timers that are not accessed until they are due into contiguous bytes: a fraction of their size as values.

use crate::varint::{put_varint, take_varint};

/// The owner of a timer: usually a key.
pub trait TimerOwner: Clone + Ord {
    /// Appends bytes from which [`read`](Self::read) creates an equal owner.
    fn put(&self, out: &mut Vec<u8>);

    /// Decodes bytes of [`put`](Self::put). `None` if they are not from there.
    fn read(bytes: &[u8]) -> Option<Self>;

    /// Number of snapshots before the timer was set, if that is known.
    fn taken(&self) -> u32 {
        0
    }

    /// True if deleted timers are listed.
    const IS_LISTED: bool = false;

    /// Bytes of heap memory.
    fn bytes_elsewhere(&self) -> usize {
        0
    }
}

/// Some timers, the earliest first.
#[derive(Clone, Debug, Default)]
pub(super) struct PackedTimers {
    len: usize,
    /// A lower bound of their times.
    base_ms: i64,
    /// Number of snapshots before the last of them was set.
    newest: u32,
    /// For each timer: its time after `base_ms`, the length of its owner, and the owner.
    bytes: Vec<u8>,
}

impl PackedTimers {
    /// Packs sorted timers, the latest first.
    pub(super) fn of<K: TimerOwner>(timers: &[(i64, K)]) -> Self {
        let base_ms = timers.last().map_or(0, |(timestamp_ms, _)| *timestamp_ms);
        let (mut bytes, mut newest) = (Vec::new(), 0);
        for (timestamp_ms, key) in timers.iter().rev() {
            put_varint(&mut bytes, timestamp_ms.wrapping_sub(base_ms).cast_unsigned());
            put_sized(&mut bytes, |bytes| key.put(bytes));
            newest = newest.max(key.taken());
        }
        bytes.shrink_to_fit();
        Self { len: timers.len(), base_ms, newest, bytes }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The time of the earliest timer.
    pub(super) fn first_ms(&self) -> Option<i64> {
        self.entries().next().map(|entry| entry.timestamp_ms)
    }

    /// Upper bound of the number of snapshots before any of them was set.
    pub(super) fn newest(&self) -> u32 {
        self.newest
    }

    /// The timers, the earliest first.
    pub(super) fn iter<K: TimerOwner>(&self) -> impl Iterator<Item = (i64, K)> {
        self.entries().map(|entry| (entry.timestamp_ms, entry.owner()))
    }

    /// Removes a timer, if it is there.
    pub(super) fn remove<K: TimerOwner>(&mut self, timer: &(i64, K)) -> Option<(i64, K)> {
        let mut same_time = self.entries().skip_while(|entry| entry.timestamp_ms < timer.0);
        let (range, found) =
            same_time.by_ref().take_while(|entry| entry.timestamp_ms == timer.0).find_map(|entry| {
                let key: K = entry.owner();
                (key == timer.1).then_some((entry.from..entry.to, key))
            })?;
        drop(same_time);
        self.bytes.drain(range);
        self.len -= 1;
        Some((timer.0, found))
    }

    /// Bytes of their memory.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.capacity()
    }

    fn entries(&self) -> Entries<'_> {
        Entries { all: &self.bytes, base_ms: self.base_ms, at: 0 }
    }
}

/// Appends the bytes of `put`, after their length.
fn put_sized(out: &mut Vec<u8>, put: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.push(0);
    put(out);
    match u8::try_from(out.len() - at - 1) {
        // The length as a one-byte varint.
        Ok(len @ 0..0x80) => out[at] = len,
        _ => {
            let long = out.split_off(at + 1);
            out.pop();
            put_varint(out, long.len() as u64);
            out.extend(long);
        }
    }
}

struct Entries<'a> {
    all: &'a [u8],
    base_ms: i64,
    at: usize,
}

struct Entry<'a> {
    timestamp_ms: i64,
    owner: &'a [u8],
    /// Its position in the bytes.
    from: usize,
    to: usize,
}

impl Entry<'_> {
    fn owner<K: TimerOwner>(&self) -> K {
        K::read(self.owner).expect("bytes of its own")
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let from = self.at;
        let rest = self.all.get(from..).filter(|rest| !rest.is_empty())?;
        // These bytes were written here, so they are valid.
        let (after, rest) = take_varint(rest).ok()?;
        let (len, rest) = take_varint(rest).ok()?;
        let (owner, rest) = rest.split_at_checked(usize::try_from(len).ok()?)?;
        self.at = self.all.len() - rest.len();
        Some(Entry { timestamp_ms: self.base_ms.wrapping_add_unsigned(after), owner, from, to: self.at })
    }
}
