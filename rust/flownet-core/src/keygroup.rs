//! Key groups: maps keys to key groups, and key groups to subtasks.
//!
//! Keyed state moves between subtasks by key group, so these formulas are part of every checkpoint and never change.
//! They are Flink's, except for the hash of the key. Java's `hashCode` is replaced by xxh3 over the canonical bytes of
//! the key, which is the same number in every process and on every machine.

use std::ops::RangeInclusive;

use xxhash_rust::xxh3::xxh3_64;

use crate::ids::KeyGroup;

/// Most key groups a job may have.
pub const MAX_PARALLELISM_LIMIT: u32 = 32_768;

/// Fewest key groups of a job that does not request fewer.
const DEFAULT_LOWER_BOUND: u64 = 128;

/// Returns the hash of a key's canonical bytes: xxh3 (64 bits, seed 0), upper half folded into the lower.
#[inline]
#[must_use]
pub fn hash_key(bytes: &[u8]) -> u32 {
    let hash = xxh3_64(bytes);
    (hash ^ (hash >> 32)) as u32
}

/// Returns the group of a key with this hash.
///
/// # Panics
/// If `max_parallelism` is 0. The creator of the settings checks them against 1..=[`MAX_PARALLELISM_LIMIT`].
#[inline]
#[must_use]
pub fn key_group(hash32: u32, max_parallelism: u32) -> KeyGroup {
    let hash = murmur(hash32);
    // The default is a power of two, and a division costs more than the rest of this function.
    let group = if max_parallelism.is_power_of_two() { hash & (max_parallelism - 1) } else { hash % max_parallelism };
    // `max_parallelism` is at most 2^15, so the group fits.
    KeyGroup::new(group as u16)
}

/// Returns the subtask, out of `parallelism`, that owns a group.
///
/// # Panics
/// If `max_parallelism` is 0.
#[inline]
#[must_use]
pub fn subtask_of(group: KeyGroup, max_parallelism: u32, parallelism: u32) -> u32 {
    // Both factors are at most 2^15: the product fits.
    let scaled = u32::from(group.get()) * parallelism;
    if max_parallelism.is_power_of_two() {
        scaled >> max_parallelism.trailing_zeros()
    } else {
        scaled / max_parallelism
    }
}

/// Returns the groups that a subtask owns, including both ends.
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

/// Returns the number of key groups of a job that does not set it. It allows at least one and a half times the
/// parallelism, and is at least 128.
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

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn key_hash_is_the_folded_xxh3_of_the_bytes() {
        // xxh3 of no bytes is 0x2d06800538d394c2 by its specification.
        assert_eq!(hash_key(b""), 0x2d06_8005 ^ 0x38d3_94c2);
        assert_ne!(hash_key(b"a"), hash_key(b"b"));
    }

    #[test]
    fn murmur_agrees_with_the_published_vectors_of_one_word() {
        assert_eq!(murmur(0), 0x2362_f9de);
        assert_eq!(murmur(u32::MAX), 0x7629_3b50);
        // 0xf55b516b is negative as an int: its absolute value counts.
        assert_eq!(murmur(0x8765_4321), 0xf55b_516b_u32.wrapping_neg());
    }

    #[test]
    fn the_absolute_value_of_the_smallest_int_is_zero() {
        let word = unfmix(i32::MIN as u32) ^ 4;
        let word = unmix(word);
        assert_eq!(murmur(word), 0);
    }

    #[test]
    fn groups_stay_below_max_parallelism() {
        for max_parallelism in [1, 2, 127, 128, 4096, MAX_PARALLELISM_LIMIT] {
            for word in (0..5_000u32).map(|n| n.wrapping_mul(0x9e37_79b9)) {
                assert!(u32::from(key_group(word, max_parallelism).get()) < max_parallelism);
            }
        }
    }

    #[test]
    fn keys_spread_over_all_groups() {
        for max_parallelism in [1, 2, 127, 128] {
            let groups: std::collections::BTreeSet<_> =
                (0..5_000).map(|word| key_group(word, max_parallelism).get()).collect();
            assert_eq!(groups.len(), max_parallelism as usize);
        }
        // The hash is that of the published test vectors.
        let groups = [127, 128].map(|max_parallelism| u32::from(key_group(0, max_parallelism).get()));
        assert_eq!(groups, [0x2362_f9de % 127, 0x2362_f9de % 128]);
    }

    #[test]
    fn ranges_of_all_small_parallelisms_share_out_every_group_once() {
        for max_parallelism in 1..=130 {
            for parallelism in 1..=max_parallelism {
                assert_ranges_partition_all_groups(max_parallelism, parallelism);
            }
        }
    }

    #[test]
    fn ranges_of_large_parallelisms_share_out_every_group_once() {
        for max_parallelism in [128, 1_000, 4_096, 32_767, MAX_PARALLELISM_LIMIT] {
            for parallelism in [1, 2, 3, 7, 100, 127, 128, 999, 4_095, 10_001, 32_767, 32_768] {
                if parallelism <= max_parallelism {
                    assert_ranges_partition_all_groups(max_parallelism, parallelism);
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "subtask 2 of 2")]
    fn a_subtask_out_of_range_has_no_groups() {
        let _ = group_range(2, 128, 2);
    }

    #[test]
    fn default_max_parallelism_is_a_power_of_two_with_room_within_its_bounds() {
        let expected = [(1, 128), (85, 128), (86, 256), (128, 256), (170, 256), (171, 256), (172, 512)];
        for (parallelism, max_parallelism) in expected {
            assert_eq!(default_max_parallelism(parallelism), max_parallelism, "parallelism {parallelism}");
        }
        assert_eq!(default_max_parallelism(20_000), 32_768);
        assert_eq!(default_max_parallelism(u32::MAX), 32_768);
    }

    fn assert_ranges_partition_all_groups(max_parallelism: u32, parallelism: u32) {
        let mut next_group = 0u32;
        for subtask in 0..parallelism {
            for group in group_range(subtask, max_parallelism, parallelism) {
                assert_eq!(u32::from(group), next_group, "subtask {subtask} of {parallelism} in {max_parallelism}");
                assert_eq!(subtask_of(KeyGroup::new(group), max_parallelism, parallelism), subtask);
                next_group += 1;
            }
        }
        assert_eq!(next_group, max_parallelism);
    }

    /// Returns the word that murmur's body maps to `hash`: every step of it can be reversed.
    fn unmix(hash: u32) -> u32 {
        let mixed = hash.wrapping_sub(0xe654_6b64).wrapping_mul(inverse(5)).rotate_right(13);
        mixed.wrapping_mul(inverse(0x1b87_3593)).rotate_right(15).wrapping_mul(inverse(0xcc9e_2d51))
    }

    fn unfmix(hash: u32) -> u32 {
        let hash = (hash ^ (hash >> 16)).wrapping_mul(inverse(0xc2b2_ae35));
        let hash = (hash ^ (hash >> 13) ^ (hash >> 26)).wrapping_mul(inverse(0x85eb_ca6b));
        hash ^ (hash >> 16)
    }

    /// Inverse of an odd number modulo 2^32, by Newton's iteration.
    fn inverse(odd: u32) -> u32 {
        (0..5).fold(odd, |x, _| x.wrapping_mul(2u32.wrapping_sub(odd.wrapping_mul(x))))
    }
}
