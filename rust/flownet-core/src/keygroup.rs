//! Keys to key groups, key groups to subtasks.
//!
//! Keyed state moves between subtasks by key group, so these formulas are part of every checkpoint and never change.
//! They are Flink's, except for the hash of the key itself: Java's `hashCode` is replaced by xxh3 over the canonical
//! bytes of the key, which is the same number in every process and on every machine.

use std::ops::RangeInclusive;

use xxhash_rust::xxh3::xxh3_64;

use crate::ids::KeyGroup;

/// Most key groups a job may have.
pub const MAX_PARALLELISM_LIMIT: u32 = 32_768;

/// Fewest key groups a job gets unless it asks for less.
const DEFAULT_LOWER_BOUND: u64 = 128;

/// Hash of a key's canonical bytes: xxh3 (64 bits, seed 0), upper half folded into the lower.
#[inline]
#[must_use]
pub fn hash_key(bytes: &[u8]) -> u32 {
    let hash = xxh3_64(bytes);
    (hash ^ (hash >> 32)) as u32
}

/// The group of a key with this hash.
///
/// # Panics
/// If `max_parallelism` is 0. Settings are checked against 1..=[`MAX_PARALLELISM_LIMIT`] where they are made.
#[inline]
#[must_use]
pub fn key_group(hash32: u32, max_parallelism: u32) -> KeyGroup {
    // `max_parallelism` is at most 2^15, so the remainder fits.
    KeyGroup::new((murmur(hash32) % max_parallelism) as u16)
}

/// The subtask, out of `parallelism`, that owns a group.
///
/// # Panics
/// If `max_parallelism` is 0.
#[inline]
#[must_use]
pub fn subtask_of(group: KeyGroup, max_parallelism: u32, parallelism: u32) -> u32 {
    // Both factors are at most 2^15: the product fits.
    u32::from(group.get()) * parallelism / max_parallelism
}

/// The groups that a subtask owns, both ends included.
///
/// # Panics
/// If not `subtask < parallelism <= max_parallelism <= MAX_PARALLELISM_LIMIT`.
#[must_use]
pub fn group_range(subtask: u32, max_parallelism: u32, parallelism: u32) -> RangeInclusive<u16> {
    assert!(
        subtask < parallelism && parallelism <= max_parallelism && max_parallelism <= MAX_PARALLELISM_LIMIT,
        "subtask {subtask} of {parallelism} with max_parallelism {max_parallelism}"
    );
    let start = (subtask * max_parallelism).div_ceil(parallelism);
    let end = ((subtask + 1) * max_parallelism - 1) / parallelism;
    start as u16..=end as u16
}

/// Key groups of a job that does not say how many it wants: room to grow to one and a half times its parallelism and
/// more, 128 at least.
#[must_use]
pub fn default_max_parallelism(parallelism: u32) -> u32 {
    let wanted = u64::from(parallelism) + u64::from(parallelism / 2);
    wanted.next_power_of_two().clamp(DEFAULT_LOWER_BOUND, u64::from(MAX_PARALLELISM_LIMIT)) as u32
}

/// Murmur3 (32 bits) of one word, made non-negative as Java's `int` is.
#[inline]
fn murmur(word: u32) -> u32 {
    let mut hash = word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    hash = hash.rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    hash = fmix(hash ^ 4);
    match hash as i32 {
        i32::MIN => 0,
        signed => signed.unsigned_abs(),
    }
}

#[inline]
fn fmix(mut hash: u32) -> u32 {
    hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}
