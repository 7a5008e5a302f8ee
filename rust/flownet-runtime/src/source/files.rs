//! Reads several files side by side. The caller chooses the next one.
//!
//! # Invariants
//! - I1: the lines of a file come in their order, each once, in whatever order the files take turns.
//! - I2: few files are open at a time, independent of their number.

use std::collections::VecDeque;

use super::text::{TextReader, TextSplit};

/// Most files that are open at once: enough for files whose times overlap, few compared to a process's limit.
const MOST_OPEN: usize = 16;

/// The files of one subtask, each with a reader of its own.
#[derive(Debug)]
pub struct TextFiles {
    readers: Vec<TextReader>,
    /// Files that are open, in the order of their last use.
    open: VecDeque<usize>,
}

impl TextFiles {
    /// All splits as one file, read one after the other.
    pub fn in_turn(splits: Vec<TextSplit>, max_line_bytes: usize) -> Self {
        Self { readers: vec![TextReader::new(splits, max_line_bytes)], open: VecDeque::new() }
    }

    /// A reader for each file of the splits, in their order.
    pub fn side_by_side(splits: Vec<TextSplit>, max_line_bytes: usize) -> Self {
        let mut files: Vec<Vec<TextSplit>> = Vec::new();
        for split in splits {
            match files.last_mut().filter(|file| file[0].path == split.path) {
                Some(file) => file.push(split),
                None => files.push(vec![split]),
            }
        }
        let readers = files.into_iter().map(|splits| TextReader::new(splits, max_line_bytes)).collect();
        Self { readers, open: VecDeque::new() }
    }

    /// The unread rest, file by file. `of` is a file and the number of lines of its last poll that count as
    /// read; by default all do.
    pub fn unread(&self, of: Option<(usize, u64)>) -> impl Iterator<Item = TextSplit> {
        let read = move |file: usize| of.filter(|(of, _)| *of == file).map(|(_, read)| read);
        self.readers.iter().enumerate().flat_map(move |(file, reader)| reader.unread(read(file)))
    }

    /// Bytes of the unread rest. None if the system generates some of it on reading, so that its size is
    /// unknown.
    pub fn bytes_left(&self) -> Option<u64> {
        let left = |split: TextSplit| (split.end < u64::MAX).then(|| split.end - split.start);
        self.unread(None).map(left).sum()
    }

    /// Number of files.
    pub fn len(&self) -> usize {
        self.readers.len()
    }

    /// Returns true if there are no files.
    pub fn is_empty(&self) -> bool {
        self.readers.is_empty()
    }

    /// The reader of this file, which is read next.
    pub fn turn_to(&mut self, file: usize) -> &mut TextReader {
        if self.open.back() != Some(&file) {
            self.open.retain(|open| *open != file);
            if self.open.len() >= MOST_OPEN
                && let Some(longest) = self.open.pop_front()
            {
                self.readers[longest].rest();
            }
            self.open.push_back(file);
        }
        &mut self.readers[file]
    }

    /// Frees the resources of a file that has no more lines.
    pub fn end(&mut self, file: usize) {
        self.open.retain(|open| *open != file);
        self.readers[file] = TextReader::new(Vec::new(), 0);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::super::text::TextSplits;
    use super::super::text::tests::{expected_lines, next_of_all};
    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn however_files_take_turns_each_has_its_lines_in_order(
            contents in proptest::collection::vec(
                proptest::collection::vec(proptest::sample::select(b"abc\n\n\r".to_vec()), 1..60), 1..40),
            split_bytes in 1u64..60,
            turns in proptest::collection::vec(any::<prop::sample::Index>(), 0..200),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let paths: Vec<_> = (0..contents.len()).map(|at| folder.path().join(format!("{at:03}"))).collect();
            paths.iter().zip(&contents).for_each(|(path, content)| fs::write(path, content).unwrap());
            let splits = TextSplits::plan(&paths, split_bytes).unwrap();
            let mut files = TextFiles::side_by_side(splits.of_subtask(0, 1), 1 << 20);
            prop_assert_eq!(files.len(), contents.len());
            let bytes = contents.iter().map(|content| content.len() as u64).sum();
            prop_assert_eq!(files.bytes_left(), Some(bytes));
            let mut lines = vec![Vec::new(); contents.len()];
            let mut read = |file: usize, files: &mut TextFiles| -> bool {
                let line = next_of_all(files.turn_to(file)).unwrap();
                let has_line = line.is_some();
                lines[file].extend(line);
                has_line
            };
            for turn in turns {
                read(turn.index(contents.len()), &mut files);
                prop_assert!(files.open.len() <= MOST_OPEN, "I2");
            }
            for file in 0..contents.len() {
                while read(file, &mut files) {}
            }
            prop_assert_eq!(files.bytes_left(), Some(0));
            let expected: Vec<_> = contents.iter().map(|content| expected_lines(content)).collect();
            prop_assert_eq!(lines, expected, "I1");
        }
    }
}
