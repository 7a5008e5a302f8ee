//! Limits the nesting of JSON lines, because parsers recurse once per level.

use memchr::memchr3;

/// Returns the offset at which a line of JSON exceeds `most` levels, if any. Lines need not be valid.
pub fn json_too_deep(data: &[u8], most: usize) -> Option<usize> {
    let (mut depth, mut at) = (0, 0);
    while let Some(byte) = data.get(at) {
        match byte {
            b'[' | b'{' => {
                depth += 1;
                if depth > most {
                    return Some(at);
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'\n' => depth = 0,
            b'"' => at = end_of_text(data, at),
            _ => {}
        }
        at += 1;
    }
    None
}

/// Returns the offset of the quote that closes this string, or of the last byte before the end of the line.
fn end_of_text(data: &[u8], open: usize) -> usize {
    let mut at = open + 1;
    while let Some(found) = data.get(at..).and_then(|rest| memchr3(b'"', b'\\', b'\n', rest)) {
        at += found;
        match data[at] {
            b'"' => return at,
            b'\n' => return at - 1,
            _ => at += 2,
        }
    }
    data.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_counted_by_line_and_not_in_texts() {
        let deep = |data: &str| json_too_deep(data.as_bytes(), 2);
        assert_eq!(deep("{\"a\":[1,2]}\n{\"a\":[]}\n"), None);
        assert_eq!(deep("{\"a\":[[1]]}"), Some(6));
        assert_eq!(deep("{\"a\":\"[[[\"}\n{\"\\\"[[[\":1}"), None);
        assert_eq!(deep("{\"a\":[\n{\"b\":[\n"), None);
        assert_eq!(deep("{\"open\n[[["), Some(9));
        assert_eq!(deep("\"\\"), None);
        assert_eq!(deep("]]]][[]][[["), Some(10));
    }
}
