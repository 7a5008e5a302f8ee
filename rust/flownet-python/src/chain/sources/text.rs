//! `read_text`: emits the lines of files, which its subtasks share.

use std::collections::BTreeSet;
use std::sync::Arc;

use flownet_runtime::operator::Source;
use flownet_runtime::snapshot::{RestoredState, Snapshot};
use flownet_runtime::source::{TextFiles, TextSplit};
use flownet_runtime::state_stats::StateStats;
use flownet_runtime::watermark::SplitSignal;
use flownet_runtime::work::Work;
use flownet_runtime::{Outputs, SourceStatus, TaskContext, TaskError, TaskMetrics};
use pyo3::prelude::*;

use super::LineDecoder;
use crate::chain::record_format::{Collector, PythonFormat};

/// Reads the splits that were assigned to it one after the other. If event time derives from its records, it
/// reads file by file, in the order that event time demands.
pub(in crate::chain) struct ReadText {
    splits: Vec<TextSplit>,
    is_by_file: bool,
    lines: LineDecoder,
    files: Option<TextFiles>,
    /// Files that have not ended.
    left: BTreeSet<u32>,
    /// The current file, and whether it has ended.
    current: u32,
    has_ended: bool,
    /// The file that was last reported downstream, and the number of its splits that had begun.
    told: Option<u32>,
    named: (u32, u64),
    parallelism: u32,
    max_line_bytes: usize,
    metrics: Option<Arc<TaskMetrics>>,
}

impl ReadText {
    pub(in crate::chain) fn new(splits: Vec<TextSplit>, is_by_file: bool, lines: LineDecoder) -> Self {
        Self {
            splits,
            is_by_file,
            lines,
            files: None,
            left: BTreeSet::new(),
            current: 0,
            has_ended: false,
            told: None,
            named: (0, 0),
            parallelism: 1,
            max_line_bytes: 0,
            metrics: None,
        }
    }

    /// Begins with these splits.
    fn read(&mut self, splits: Vec<TextSplit>) {
        let most = self.max_line_bytes;
        if let Some(metrics) = self.metrics.as_ref().filter(|_| self.is_by_file) {
            let mut paths: Vec<_> = splits.iter().map(|split| split.path.display().to_string()).collect();
            paths.dedup();
            metrics.late_splits().name(0, paths);
        }
        let files =
            if self.is_by_file { TextFiles::side_by_side(splits, most) } else { TextFiles::in_turn(splits, most) };
        self.left = (0..u32::try_from(files.len()).unwrap_or(u32::MAX)).collect();
        self.files = Some(files);
    }

    /// Reports downstream which file the next lines belong to.
    fn tell_file(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        if self.told == Some(self.current) {
            return Ok(());
        }
        if self.told.is_none() {
            collector.tell_split(SplitSignal::Among(u32::try_from(self.left.len()).unwrap_or(u32::MAX)))?;
        }
        self.told = Some(self.current);
        collector.tell_split(SplitSignal::Of(self.current))
    }

    /// Closes the current file if it has ended, and chooses the next one.
    fn go_on(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        if std::mem::take(&mut self.has_ended) {
            self.left.remove(&self.current);
            if let Some(files) = &mut self.files {
                files.end(self.current as usize);
            }
            collector.tell_split(SplitSignal::Ended(self.current))?;
        }
        let wanted = collector.wanted_split().filter(|wanted| self.left.contains(wanted));
        let Some(next) = wanted.or_else(|| self.left.first().copied()) else { return Ok(()) };
        self.current = next;
        Ok(())
    }
}

impl Source<PythonFormat> for ReadText {
    fn work(&self) -> Work {
        Work::Rust
    }

    fn open(&mut self, _: Python<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        (self.parallelism, self.max_line_bytes) = (cx.parallelism, cx.max_record_bytes);
        self.metrics = Some(Arc::clone(&cx.metrics));
        let splits = std::mem::take(&mut self.splits);
        self.read(splits);
        self.lines.open(cx);
        Ok(())
    }

    fn fill(&mut self, _: &mut Outputs) -> Result<Option<SourceStatus>, TaskError> {
        let Some(files) = self.files.as_mut().filter(|_| !self.left.is_empty()) else {
            return Ok(Some(SourceStatus::Finished));
        };
        if !self.lines.is_empty() {
            // The source's rate limit held them back.
            return Ok(None);
        }
        let reader = files.turn_to(self.current as usize);
        // The lines of a poll are of one split. If the poll is cut off, the rest of that split is left.
        if reader.begin()? {
            if self.named != (self.current, reader.splits_begun()) {
                self.named = (self.current, reader.splits_begun());
                self.lines.begin_input(reader.path().map(|path| path.display().to_string()).unwrap_or_default());
            }
            while let Some(line) = reader.next_line()? {
                if !self.lines.add(line) {
                    break;
                }
            }
        }
        self.has_ended = reader.is_over();
        Ok(None)
    }

    fn emit<'py>(&mut self, collector: &mut Collector<'_, 'py>) -> Result<SourceStatus, TaskError> {
        self.tell_file(collector)?;
        self.lines.emit(collector)?;
        if self.lines.is_empty() {
            self.go_on(collector)?;
        }
        Ok(if self.left.is_empty() { SourceStatus::Finished } else { SourceStatus::More })
    }

    fn tally(&self, tally: &mut StateStats) {
        if let Some(files) = &self.files {
            files.bytes_left().into_iter().for_each(|bytes| tally.add_bytes_left(bytes));
        }
    }

    /// Writes the unemitted rest: `01` and a split each.
    fn snapshot(&mut self, _: Python<'_>, to: &mut Snapshot<'_>) -> Result<(), TaskError> {
        let Some(files) = &self.files else { return Ok(()) };
        let cut_off = self.lines.cut_off_at().map(|emitted| (self.current as usize, emitted));
        let item = |split: TextSplit| {
            let mut item = vec![SPLIT];
            split.write(&mut item);
            item
        };
        to.add_items(STATE, files.unread(cut_off).map(item));
        Ok(())
    }

    /// Continues with the listing of the first run, independent of the files that exist now.
    fn restore(&mut self, _: Python<'_>, from: &RestoredState<'_>) -> Result<(), TaskError> {
        if !from.has(STATE) {
            return Ok(());
        }
        let mut splits = Vec::new();
        for mut item in from.dealt_items(STATE, self.parallelism)? {
            match item.byte()? {
                SPLIT => splits.push(TextSplit::read(&mut item)?),
                other => return Err(item.broken(format_args!("an item of kind {other}"))),
            }
        }
        // Splits of a file are adjacent, even if several subtasks had some of them.
        splits.sort_by(|one, other| (&one.path, one.start).cmp(&(&other.path, other.start)));
        self.read(splits);
        Ok(())
    }
}

/// Name of its state, and the kind of its items.
const STATE: &str = "splits";
const SPLIT: u8 = 1;
