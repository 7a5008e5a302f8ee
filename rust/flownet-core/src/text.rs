//! Truncation of texts to a length limit.

/// Returns the longest prefix of at most `max_bytes` bytes that ends between characters.
pub fn cut_at_character(text: &str, max_bytes: usize) -> &str {
    let mut end = text.len().min(max_bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn no_letter_is_cut_in_two() {
        for (max_bytes, expected) in [(0, ""), (1, ""), (2, "ä"), (3, "ä"), (4, "äb"), (100, "ä€b")] {
            let text = if max_bytes == 4 { "äb€" } else { "ä€b" };
            assert_eq!(cut_at_character(text, max_bytes), expected, "{max_bytes} bytes");
        }
    }
}
