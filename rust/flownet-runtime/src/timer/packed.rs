//! Timers that nobody looks at until they are due, as bytes one behind the other: a fraction of what they take apart.

use crate::varint::{put_varint, take_varint};

/// Whose timer it is, as timers are kept by: a key, as a rule.
pub trait TimerOwner: Clone + Ord {
    /// Appends bytes that [`read`](Self::read) makes the like of it from.
    fn put(&self, out: &mut Vec<u8>);

    /// What [`put`](Self::put) appended these bytes for; none if it did not.
    fn read(bytes: &[u8]) -> Option<Self>;

    /// After how many snapshots the timer was set, where that is known.
    fn taken(&self) -> u32 {
        0
    }

    /// Whether somebody lists what was taken back.
    const IS_LISTED: bool = false;

    /// Bytes of memory that it takes elsewhere than in its place.
    fn bytes_elsewhere(&self) -> usize {
        0
    }
}

/// Some timers, the earliest first.
#[derive(Clone, Debug, Default)]
pub(super) struct PackedTimers {
    len: usize,
    /// None is due before.
    base_ms: i64,
    /// After how many snapshots the last of them was set.
    newest: u32,
    /// Of each: how long after that it is due; how many bytes say whose it is; these.
    bytes: Vec<u8>,
}

impl PackedTimers {
    /// Of timers in order, the latest first.
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

    /// When the earliest is due.
    pub(super) fn first_ms(&self) -> Option<i64> {
        self.entries().next().map(|entry| entry.timestamp_ms)
    }

    /// None of them was set after more snapshots.
    pub(super) fn newest(&self) -> u32 {
        self.newest
    }

    /// The timers, the earliest first.
    pub(super) fn iter<K: TimerOwner>(&self) -> impl Iterator<Item = (i64, K)> {
        self.entries().map(|entry| (entry.timestamp_ms, entry.owner()))
    }

    /// Takes a timer out, if it is there.
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

    /// Bytes that they take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.capacity()
    }

    fn entries(&self) -> Entries<'_> {
        Entries { all: &self.bytes, base_ms: self.base_ms, at: 0 }
    }
}

/// Appends how many bytes `put` appends, and these.
fn put_sized(out: &mut Vec<u8>, put: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.push(0);
    put(out);
    match u8::try_from(out.len() - at - 1) {
        // As a varint has it.
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
    /// Where among the bytes it lies.
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
        // Bytes that were written here.
        let (after, rest) = take_varint(rest).ok()?;
        let (len, rest) = take_varint(rest).ok()?;
        let (owner, rest) = rest.split_at_checked(usize::try_from(len).ok()?)?;
        self.at = self.all.len() - rest.len();
        Some(Entry { timestamp_ms: self.base_ms.wrapping_add_unsigned(after), owner, from, to: self.at })
    }
}
