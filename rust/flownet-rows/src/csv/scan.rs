//! Finds the ends of records, so that each block of a file that is parsed holds whole records.
//!
//! A quote opens a quoted value only at the beginning of a value. Two quotes within it mean one. pyarrow, which parses
//! the blocks, follows the same rules.
//!
//! # Invariants
//! - I1: a block begins and ends at a record boundary, so a value is never parsed in parts.
//! - I2: a quoted value ends before a delimiter, the end of a line or the end of the file, or the file is refused. So
//!   an unclosed quote does not swallow the records after it.

use memchr::{memchr, memrchr2};

/// Content of a block of a file.
#[derive(Debug, PartialEq, Eq)]
pub struct CsvBlock {
    /// Length of the complete records in bytes. 0 if the first one is incomplete.
    pub end: usize,
    /// Whether a value is an empty pair of quotes.
    pub has_empty_quotes: bool,
}

/// Reasons why quotes cannot be parsed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CsvFault {
    /// A quoted value has no end.
    #[error("a quote is opened and never closed")]
    Open {
        /// Offset of the quote.
        offset: usize,
    },
    /// A closing quote does not end a value.
    #[error("a closing quote is followed by more text; write a quote within quotes twice")]
    Text {
        /// Offset of the text after it.
        offset: usize,
        /// Offset of the opening quote.
        open: usize,
    },
}

/// Quoted value, by the offsets of its quotes.
struct QuotedValue {
    open: usize,
    close: usize,
}

/// Finds the complete records in a block that begins with a record. In the last block, the last record needs no line
/// end.
pub fn csv_records(data: &[u8], delimiter: u8, is_last: bool) -> Result<CsvBlock, CsvFault> {
    let mut block = CsvBlock { end: 0, has_empty_quotes: false };
    let mut from = 0;
    loop {
        match next_quoted(data, delimiter, from)? {
            Next::None => break,
            Next::Cut { open } if is_last => return Err(CsvFault::Open { offset: open }),
            Next::Cut { open } => {
                block.end = last_end(data, from, open).unwrap_or(block.end);
                return Ok(block);
            }
            Next::Quoted(QuotedValue { open, close }) => {
                block.end = last_end(data, from, open).unwrap_or(block.end);
                block.has_empty_quotes |= close == open + 1;
                from = close + 1;
                if from == data.len() && !is_last {
                    // Another quote may follow in the next block.
                    return Ok(block);
                }
            }
        }
    }
    block.end = if is_last { data.len() } else { last_end(data, from, data.len()).unwrap_or(block.end) };
    Ok(block)
}

/// Returns the offset of each record in a block of complete records.
pub fn csv_starts(data: &[u8], delimiter: u8) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut from = 0;
    let mut start = 0;
    while start < data.len() {
        starts.push(start);
        let mut end = None;
        while end.is_none() && from < data.len() {
            match data[from] {
                b'"' if is_value_start(data, delimiter, from) => match closing(data, from) {
                    Some(close) => from = close,
                    None => return starts,
                },
                b'\n' => end = Some(from + 1),
                b'\r' if data.get(from + 1) != Some(&b'\n') => end = Some(from + 1),
                _ => {}
            }
            from += 1;
        }
        start = end.unwrap_or(data.len());
    }
    starts
}

enum Next {
    None,
    Quoted(QuotedValue),
    /// The data ends before the quote is closed.
    Cut {
        open: usize,
    },
}

fn next_quoted(data: &[u8], delimiter: u8, from: usize) -> Result<Next, CsvFault> {
    let mut at = from;
    while let Some(found) = memchr(b'"', &data[at..]) {
        let open = at + found;
        if !is_value_start(data, delimiter, open) {
            at = open + 1;
            continue;
        }
        let Some(close) = closing(data, open) else { return Ok(Next::Cut { open }) };
        return match data.get(close + 1) {
            Some(next) if *next != delimiter && !matches!(next, b'\n' | b'\r') => {
                Err(CsvFault::Text { offset: close + 1, open })
            }
            _ => Ok(Next::Quoted(QuotedValue { open, close })),
        };
    }
    Ok(Next::None)
}

fn is_value_start(data: &[u8], delimiter: u8, at: usize) -> bool {
    at.checked_sub(1).is_none_or(|before| data[before] == delimiter || matches!(data[before], b'\n' | b'\r'))
}

/// Returns the quote that closes this one.
fn closing(data: &[u8], open: usize) -> Option<usize> {
    let mut from = open + 1;
    loop {
        let close = from + memchr(b'"', &data[from..])?;
        if data.get(close + 1) != Some(&b'"') {
            return Some(close);
        }
        from = close + 2;
    }
}

/// Returns the end of the last record that ends in this range, outside of quotes.
fn last_end(data: &[u8], from: usize, to: usize) -> Option<usize> {
    let mut to = to;
    while let Some(found) = memrchr2(b'\n', b'\r', &data[from..to]) {
        let end = from + found + 1;
        // After a carriage return at the end of a block, a line feed may follow in the next one.
        if data[end - 1] == b'\n' || end < data.len() {
            return Some(end);
        }
        to = from + found;
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Scans byte by byte. Returns the offsets of records, and the fault of the text.
    fn naive(data: &[u8]) -> (Vec<usize>, Option<CsvFault>) {
        let (mut starts, mut at, mut start) = (Vec::new(), 0, 0);
        let mut is_new = true;
        while at < data.len() {
            if at == start {
                starts.push(at);
            }
            match data[at] {
                b'"' if is_new => {
                    let open = at;
                    at += 1;
                    loop {
                        match (data.get(at), data.get(at + 1)) {
                            (None, _) => return (starts, Some(CsvFault::Open { offset: open })),
                            (Some(b'"'), Some(b'"')) => at += 2,
                            (Some(b'"'), None | Some(b',' | b'\n' | b'\r')) => break,
                            (Some(b'"'), Some(_)) => return (starts, Some(CsvFault::Text { offset: at + 1, open })),
                            _ => at += 1,
                        }
                    }
                    is_new = false;
                }
                b',' => is_new = true,
                b'\r' if data.get(at + 1) == Some(&b'\n') => {
                    at += 1;
                    (is_new, start) = (true, at + 1);
                }
                b'\n' | b'\r' => (is_new, start) = (true, at + 1),
                _ => is_new = false,
            }
            at += 1;
        }
        (starts, None)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn blocks_of_any_size_hold_the_records_that_a_loop_over_all_bytes_finds(
            data in proptest::collection::vec(proptest::sample::select(b"a,\"\n\r".to_vec()), 0..40),
            block_bytes in 1usize..12,
        ) {
            let (starts, fault) = naive(&data);
            prop_assert_eq!(csv_records(&data, b',', true).err(), fault);
            if csv_records(&data, b',', true).is_err() {
                return Ok(());
            }
            prop_assert_eq!(csv_starts(&data, b','), starts.clone());
            let (mut from, mut to) = (0, 0);
            while to < data.len() {
                to = (to + block_bytes).min(data.len());
                let is_last = to == data.len();
                let block = csv_records(&data[from..to], b',', is_last).unwrap();
                let end = from + block.end;
                prop_assert!(end == data.len() || end == from || starts.contains(&end), "{} of {:?}", end, starts);
                prop_assert_eq!(block.has_empty_quotes, has_empty(&data[from..end]) || block.has_empty_quotes);
                from = end;
            }
            prop_assert_eq!(from, data.len());
        }
    }

    fn has_empty(data: &[u8]) -> bool {
        csv_records(data, b',', true).unwrap().has_empty_quotes
    }

    #[test]
    fn a_line_feed_in_quotes_ends_no_record_and_one_behind_a_block_belongs_to_it() {
        let block = |data: &str| csv_records(data.as_bytes(), b',', false).unwrap().end;
        assert_eq!(block("a,b\r\n1,\"x\r"), 5);
        assert_eq!(block("a,b\r\n1,\"x\r\ny\"\r"), 5);
        assert_eq!(block("a,b\r\n1,\"x\r\ny\"\r\n"), 15);
        assert_eq!(block("a,b\r1,2\r"), 4);
        assert_eq!(block("1,\"x\""), 0);
    }

    #[test]
    fn quotes_that_end_no_value_are_found() {
        let fault = |data: &str| csv_records(data.as_bytes(), b',', true).unwrap_err();
        assert_eq!(fault("1,\"abc\n2,x\n"), CsvFault::Open { offset: 2 });
        assert_eq!(fault("1,\"abc\n2,\"def\n"), CsvFault::Text { offset: 10, open: 2 });
        assert_eq!(csv_records(b"1,a\"b\n", b',', true), Ok(CsvBlock { end: 6, has_empty_quotes: false }));
        assert_eq!(csv_records(b"1,\"\"\n", b',', true), Ok(CsvBlock { end: 5, has_empty_quotes: true }));
    }
}
