//! A world's state as one number, by which the model checker knows a state it has seen.
//!
//! # What it covers
//! All that the machines, pools and wires show of themselves by `Debug`: queues, counts, phases, flags, wakers, who waits
//! in which pool in which order, frames under way byte by byte, and what the tasks still have to do and to get. Addresses
//! are replaced by numbers in the order in which they appear, so two worlds that differ only in where they lie in memory
//! are one state, and two in which another waker or channel waits are not.
//!
//! # What it leaves out, and why that is sound
//! - Which of a pool's segments lies where: segments of a pool are alike, and nothing asks which one it has.
//! - The lane that a gate's segment counts for: a gate's pool has no quota, so its lanes limit nothing. (Covered by half,
//!   they made the number of states depend on which path reached a state first. That it does not is a test of the rest.)
//! - The content of buffers in memory: every read compares it with what was written, and which bytes are due is covered.
//! - The clock: the checker's links have neither latency nor bandwidth, so it stands still.
//! - The order of the list of awake turns: the checker tries all of them in every state.
//!
//! Two states with one digest therefore do the same under the same actions, but for the chance that 64 bits collide:
//! about 3 in 10^8 for a million states.

use std::collections::HashMap;
use std::fmt::{self, Write};
use std::hash::{DefaultHasher, Hasher};

use crate::world::World;

/// The number.
#[must_use]
pub fn digest(world: &World) -> u64 {
    let mut text = AddressHasher::default();
    write!(text, "{world:?}").expect("writing to memory does not fail");
    text.finish()
}

/// Hashes text with every address in it replaced by the number of its first appearance.
#[derive(Default)]
struct AddressHasher {
    hasher: DefaultHasher,
    names: HashMap<u64, u64>,
    plain: Vec<u8>,
    address: Option<u64>,
}

impl AddressHasher {
    fn end_address(&mut self) {
        if let Some(address) = self.address.take() {
            let next = self.names.len() as u64;
            let name = *self.names.entry(address).or_insert(next);
            self.plain.extend(name.to_le_bytes());
        }
    }

    fn finish(mut self) -> u64 {
        self.end_address();
        self.hasher.write(&self.plain);
        self.hasher.finish()
    }
}

impl Write for AddressHasher {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while !rest.is_empty() {
            if let Some(address) = self.address {
                let (digits, behind) = rest.split_at(rest.bytes().take_while(u8::is_ascii_hexdigit).count());
                let value = |high: u64, digit: char| high << 4 | u64::from(digit.to_digit(16).unwrap_or(0));
                self.address = Some(digits.chars().fold(address, value));
                rest = behind;
                if !rest.is_empty() {
                    self.end_address();
                }
            } else {
                // Most pieces have none, and to look back at what was just written has to wait for it.
                let Some(at) = rest.find('x') else {
                    self.plain.extend_from_slice(rest.as_bytes());
                    break;
                };
                let (plain, behind) = rest.split_at(at + 1);
                self.plain.extend_from_slice(plain.as_bytes());
                self.address = self.plain.ends_with(b"0x").then_some(0);
                rest = behind;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> u64 {
        let mut renamed = AddressHasher::default();
        // As formatters do: in pieces.
        text.split_inclusive('x').for_each(|piece| renamed.write_str(piece).unwrap());
        renamed.finish()
    }

    #[test]
    fn addresses_count_by_who_they_are_and_not_by_where() {
        assert_eq!(of("a 0x10, b 0x20, a 0x10"), of("a 0x77, b 0x5, a 0x77"));
        assert_ne!(of("a 0x10, b 0x20, a 0x10"), of("a 0x10, b 0x20, a 0x20"));
        assert_ne!(of("1 at 0x10"), of("2 at 0x10"));
    }
}
