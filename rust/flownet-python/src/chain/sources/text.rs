//! `read_text`: the lines of files, shared among the subtasks.

use flownet_runtime::operator::Source;
use flownet_runtime::source::{TextReader, TextSplit};
use flownet_runtime::{Outputs, SourceStatus, TaskContext, TaskError};
use pyo3::prelude::*;

use super::LineDecoder;
use crate::chain::medium::{Flow, PythonMedium};

/// Reads the splits that were dealt to it.
pub(in crate::chain) struct ReadText {
    splits: Vec<TextSplit>,
    lines: LineDecoder,
    reader: Option<TextReader>,
    splits_named: u64,
    has_ended: bool,
}

impl ReadText {
    pub(in crate::chain) fn new(splits: Vec<TextSplit>, lines: LineDecoder) -> Self {
        Self { splits, lines, reader: None, splits_named: 0, has_ended: false }
    }
}

impl Source<PythonMedium> for ReadText {
    fn open(&mut self, _: Python<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        self.reader = Some(TextReader::new(std::mem::take(&mut self.splits), cx.max_record_bytes));
        self.lines.open(cx);
        Ok(())
    }

    fn fill(&mut self, _: &mut Outputs) -> Result<Option<SourceStatus>, TaskError> {
        let Some(reader) = &mut self.reader else { return Ok(Some(SourceStatus::Finished)) };
        if !self.lines.is_empty() {
            // The source's rate held them back.
            return Ok(None);
        }
        while !self.has_ended {
            let Some(line) = reader.next_line()? else {
                self.has_ended = true;
                break;
            };
            let has_room = self.lines.add(line);
            if reader.splits_begun() != self.splits_named {
                self.splits_named = reader.splits_begun();
                self.lines.begin_input(reader.path().map(|path| path.display().to_string()).unwrap_or_default());
            }
            if !has_room {
                break;
            }
        }
        Ok(self.lines.is_empty().then_some(SourceStatus::Finished))
    }

    fn emit<'py>(&mut self, flow: &mut Flow<'_, 'py>) -> Result<SourceStatus, TaskError> {
        self.lines.emit(flow)?;
        Ok(if self.has_ended && self.lines.is_empty() { SourceStatus::Finished } else { SourceStatus::More })
    }
}
