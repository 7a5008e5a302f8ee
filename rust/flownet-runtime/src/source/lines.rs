//! Cuts a stream of bytes into lines. `\n` ends a line, and a `\r` before it belongs to the end; nothing else
//! ends one.
//!
//! # Invariants
//! - I1: `begin <= scanned <= filled <= bytes.len()`; there is no newline in `begin..scanned`.
//! - I2: the buffer never holds more than one line of the largest length and one read.

use std::io::{self, ErrorKind, Read};
use std::ops::Range;

/// Least space offered to one read.
const READ_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct LineBuffer {
    bytes: Vec<u8>,
    begin: usize,
    scanned: usize,
    filled: usize,
    /// Offset of `begin` in the whole stream.
    offset: u64,
    max_line_bytes: usize,
}

/// The line at this offset exceeds the limit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong {
    pub(super) offset: u64,
}

impl LineBuffer {
    pub(super) fn new(max_line_bytes: usize) -> Self {
        Self { bytes: Vec::new(), begin: 0, scanned: 0, filled: 0, offset: 0, max_line_bytes }
    }

    /// Empties the buffer. `offset` is the offset of the next byte read.
    pub(super) fn restart(&mut self, offset: u64) {
        (self.begin, self.scanned, self.filled, self.offset) = (0, 0, 0, offset);
    }

    /// Reads once, again if a signal interrupts it. `Ok(0)` is the end of the source.
    pub(super) fn read_from(&mut self, source: &mut impl Read) -> io::Result<usize> {
        self.make_room();
        loop {
            match source.read(&mut self.bytes[self.filled..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => {
                    self.filled += *result.as_ref().unwrap_or(&0);
                    return result;
                }
            }
        }
    }

    /// Takes the next line, without its end. After the source has `ended`, the rest is the last line.
    pub(super) fn take_line(&mut self, ended: bool) -> Result<Option<Range<usize>>, TooLong> {
        let (end, next) = match memchr::memchr(b'\n', &self.bytes[self.scanned..self.filled]) {
            Some(at) => {
                let newline = self.scanned + at;
                let before = self.bytes[self.begin..newline].last();
                (newline - usize::from(before == Some(&b'\r')), newline + 1)
            }
            None if ended && self.begin < self.filled => (self.filled, self.filled),
            None => {
                self.scanned = self.filled;
                // One byte more than the limit may still be the `\r` of the line's end.
                return if self.filled - self.begin > self.max_line_bytes + 1 {
                    Err(self.too_long())
                } else {
                    Ok(None)
                };
            }
        };
        if end - self.begin > self.max_line_bytes {
            return Err(self.too_long());
        }
        let line = self.begin..end;
        self.advance_to(next);
        Ok(Some(line))
    }

    /// Drops everything up to and including the next newline. Returns `false` if there is none yet, with
    /// everything dropped.
    pub(super) fn skip_line(&mut self) -> bool {
        let newline = memchr::memchr(b'\n', &self.bytes[self.scanned..self.filled]);
        self.advance_to(newline.map_or(self.filled, |at| self.scanned + at + 1));
        newline.is_some()
    }

    /// Offset of the next line in the whole stream.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    pub(super) fn line(&self, line: Range<usize>) -> &[u8] {
        &self.bytes[line]
    }

    fn advance_to(&mut self, next: usize) {
        self.offset += (next - self.begin) as u64;
        (self.begin, self.scanned) = (next, next);
    }

    fn make_room(&mut self) {
        if self.begin > 0 {
            self.bytes.copy_within(self.begin..self.filled, 0);
            self.filled -= self.begin;
            self.scanned -= self.begin;
            self.begin = 0;
        }
        if self.bytes.len() - self.filled < READ_BYTES / 2 {
            let longest = self.max_line_bytes.saturating_add(READ_BYTES);
            let least = READ_BYTES.max(self.filled + READ_BYTES / 2);
            self.bytes.resize((self.bytes.len() * 2).min(longest).max(least), 0);
        }
    }

    fn too_long(&self) -> TooLong {
        TooLong { offset: self.offset }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns at most `step` bytes a read.
    struct Dribble<'a>(&'a [u8], usize);

    impl Read for Dribble<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let n = self.1.min(into.len()).min(self.0.len());
            into[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    fn lines(content: &[u8], step: usize, max_line_bytes: usize) -> Result<Vec<Vec<u8>>, TooLong> {
        let mut buffer = LineBuffer::new(max_line_bytes);
        let mut source = Dribble(content, step);
        let mut lines = Vec::new();
        let mut ended = false;
        loop {
            while let Some(line) = buffer.take_line(ended)? {
                lines.push(buffer.line(line).to_vec());
            }
            if ended {
                assert_eq!(buffer.offset(), content.len() as u64);
                return Ok(lines);
            }
            ended = buffer.read_from(&mut source).unwrap() == 0;
        }
    }

    #[test]
    fn both_line_ends_are_understood_and_a_lone_carriage_return_is_data() {
        assert_eq!(lines(b"a\nb\r\n\n\r\nc\rd\ne\r", 3, 10).unwrap(), [&b"a"[..], b"b", b"", b"", b"c\rd", b"e\r"]);
    }

    #[test]
    fn a_line_longer_than_the_buffer_is_whole() {
        let long = vec![b'x'; 5 * READ_BYTES];
        let content = [&long[..], b"\nshort"].concat();
        assert_eq!(lines(&content, usize::MAX, 1 << 30).unwrap(), [&long[..], b"short"]);
    }

    #[test]
    fn a_line_over_the_limit_is_an_error_at_its_offset_wherever_its_end_is() {
        assert_eq!(lines(b"ok\nabcd\n", 100, 3), Err(TooLong { offset: 3 }));
        assert_eq!(lines(b"ok\nabcd", 100, 3), Err(TooLong { offset: 3 }));
        assert_eq!(lines(b"ok\nabcdefgh", 2, 3), Err(TooLong { offset: 3 }));
        assert_eq!(lines(b"ok\nabc\r\n", 1, 3).unwrap(), [&b"ok"[..], b"abc"]);
    }

    #[test]
    fn an_endless_line_costs_no_more_memory_than_the_limit_and_a_read() {
        let mut buffer = LineBuffer::new(100);
        let mut source = io::repeat(b'x');
        while buffer.take_line(false).is_ok() {
            buffer.read_from(&mut source).unwrap();
        }
        assert!(buffer.bytes.len() <= 100 + 2 * READ_BYTES);
    }

    proptest! {
        #[test]
        fn any_content_read_in_any_steps_gives_the_same_lines(
            content in proptest::collection::vec(proptest::sample::select(b"ab\n\r".to_vec()), 0..200),
            step in 1usize..50,
        ) {
            prop_assert_eq!(lines(&content, step, 1000).unwrap(), super::super::text::tests::expected_lines(&content));
        }
    }
}
