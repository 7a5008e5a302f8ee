//! `socket_text`: emits the lines that a server sends until it closes the connection.

use std::time::Duration;

use flownet_runtime::operator::Source;
use flownet_runtime::snapshot::Snapshot;
use flownet_runtime::source::{SocketLines, SocketPoll};
use flownet_runtime::work::Work;
use flownet_runtime::{Outputs, SourceStatus, TaskContext, TaskError};
use pyo3::prelude::*;

use super::LineDecoder;
use crate::chain::record_format::{Collector, PythonFormat};

/// Longest time to establish a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Reads from one connection.
pub(in crate::chain) struct SocketText {
    host: String,
    port: u16,
    lines: LineDecoder,
    socket: Option<SocketLines>,
}

impl SocketText {
    pub(in crate::chain) fn new(host: String, port: u16, lines: LineDecoder) -> Self {
        Self { host, port, lines, socket: None }
    }
}

impl Source<PythonFormat> for SocketText {
    fn work(&self) -> Work {
        Work::Rust
    }

    fn open(&mut self, py: Python<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        let connect = || SocketLines::connect(&self.host, self.port, CONNECT_TIMEOUT, cx.max_record_bytes, &cx.cancel);
        self.socket = Some(py.detach(connect)?);
        self.lines.open(cx);
        self.lines.begin_input(format!("{}:{}", self.host, self.port));
        Ok(())
    }

    fn fill(&mut self, out: &mut Outputs) -> Result<Option<SourceStatus>, TaskError> {
        let Some(socket) = &mut self.socket else { return Ok(Some(SourceStatus::Finished)) };
        if self.lines.is_empty() {
            take_lines(socket, &mut self.lines)?;
        }
        if !self.lines.is_empty() {
            return Ok(None);
        }
        // No data is held back while waiting: everything that had arrived was sent.
        let poll = out.control.time.idle_while(|| socket.fill())?;
        take_lines(socket, &mut self.lines)?;
        if !self.lines.is_empty() {
            return Ok(None);
        }
        Ok(Some(if poll == SocketPoll::End { SourceStatus::Finished } else { SourceStatus::More }))
    }

    fn emit<'py>(&mut self, collector: &mut Collector<'_, 'py>) -> Result<SourceStatus, TaskError> {
        self.lines.emit(collector)?;
        Ok(SourceStatus::More)
    }

    /// Writes nothing: the source is not replayable.
    fn snapshot(&mut self, _: Python<'_>, _: &mut Snapshot<'_>) -> Result<(), TaskError> {
        Ok(())
    }
}

fn take_lines(socket: &mut SocketLines, lines: &mut LineDecoder) -> Result<(), TaskError> {
    while let Some(line) = socket.next_line()? {
        if !lines.add(line) {
            break;
        }
    }
    Ok(())
}
