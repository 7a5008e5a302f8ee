//! `read_text`: the lines of files, shared among the subtasks.

use std::collections::BTreeSet;

use flownet_runtime::operator::Source;
use flownet_runtime::source::{TextFiles, TextSplit};
use flownet_runtime::watermark::SplitSignal;
use flownet_runtime::{Outputs, SourceStatus, TaskContext, TaskError};
use pyo3::prelude::*;

use super::LineDecoder;
use crate::chain::medium::{Flow, PythonMedium};

/// Reads the splits that were dealt to it: one after the other, or where event time is made of its records file by file, as
/// time asks for.
pub(in crate::chain) struct ReadText {
    splits: Vec<TextSplit>,
    is_by_file: bool,
    lines: LineDecoder,
    files: Option<TextFiles>,
    /// Files that have not ended.
    left: BTreeSet<u32>,
    /// The file whose turn it is, and whether it has ended.
    current: u32,
    has_ended: bool,
    /// The file that was told of last, and how many splits of it had begun.
    told: Option<u32>,
    named: (u32, u64),
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
        }
    }

    /// Tells those behind whose lines come next.
    fn tell_file(&mut self, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        if self.told == Some(self.current) {
            return Ok(());
        }
        if self.told.is_none() {
            flow.tell_split(SplitSignal::Among(u32::try_from(self.left.len()).unwrap_or(u32::MAX)))?;
        }
        self.told = Some(self.current);
        flow.tell_split(SplitSignal::Of(self.current))
    }

    /// The file is done with, if it has ended, and another has its turn.
    fn go_on(&mut self, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        if std::mem::take(&mut self.has_ended) {
            self.left.remove(&self.current);
            if let Some(files) = &mut self.files {
                files.end(self.current as usize);
            }
            flow.tell_split(SplitSignal::Ended(self.current))?;
        }
        let wanted = flow.wanted_split().filter(|wanted| self.left.contains(wanted));
        let Some(next) = wanted.or_else(|| self.left.first().copied()) else { return Ok(()) };
        self.current = next;
        Ok(())
    }
}

impl Source<PythonMedium> for ReadText {
    fn open(&mut self, _: Python<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        let (splits, most) = (std::mem::take(&mut self.splits), cx.max_record_bytes);
        let files =
            if self.is_by_file { TextFiles::side_by_side(splits, most) } else { TextFiles::in_turn(splits, most) };
        self.left = (0..u32::try_from(files.len()).unwrap_or(u32::MAX)).collect();
        self.files = Some(files);
        self.lines.open(cx);
        Ok(())
    }

    fn fill(&mut self, _: &mut Outputs) -> Result<Option<SourceStatus>, TaskError> {
        let Some(files) = self.files.as_mut().filter(|_| !self.left.is_empty()) else {
            return Ok(Some(SourceStatus::Finished));
        };
        if !self.lines.is_empty() {
            // The source's rate held them back.
            return Ok(None);
        }
        let reader = files.turn_to(self.current as usize);
        while !self.has_ended {
            let Some(line) = reader.next_line()? else {
                self.has_ended = true;
                break;
            };
            let has_room = self.lines.add(line);
            if self.named != (self.current, reader.splits_begun()) {
                self.named = (self.current, reader.splits_begun());
                self.lines.begin_input(reader.path().map(|path| path.display().to_string()).unwrap_or_default());
            }
            if !has_room {
                break;
            }
        }
        Ok(None)
    }

    fn emit<'py>(&mut self, flow: &mut Flow<'_, 'py>) -> Result<SourceStatus, TaskError> {
        self.tell_file(flow)?;
        self.lines.emit(flow)?;
        if self.lines.is_empty() {
            self.go_on(flow)?;
        }
        Ok(if self.left.is_empty() { SourceStatus::Finished } else { SourceStatus::More })
    }
}
