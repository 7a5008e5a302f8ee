//! Blocking output for Rust users: writes records on a plain thread.

use std::sync::Arc;

use flownet_core::record::writer::{Emit, RecordWriter};
use flownet_core::{Event, ExchangeError, Target};

use crate::inlets::Inlets;

/// Emits records on a plain thread, and sleeps while the partition has no buffer for them.
///
/// A wait ends with an error when the partition's pool is destroyed.
#[derive(Debug)]
pub struct PartitionWriter {
    writer: RecordWriter,
    inlets: Arc<Inlets>,
}

impl PartitionWriter {
    /// Wraps a record writer whose partition is registered with `inlets`.
    pub fn new(writer: RecordWriter, inlets: Arc<Inlets>) -> Self {
        Self { writer, inlets }
    }

    /// Emits one record. Returns once it is completely written.
    #[inline(always)] // as `try_emit`
    pub fn emit(&mut self, target: Target, record: &[u8]) -> Result<(), ExchangeError> {
        match self.writer.try_emit(target, record)? {
            Emit::Done => Ok(()),
            Emit::Blocked => self.emit_rest(),
        }
    }

    /// Emits records in order, like [`Self::emit`] for each, and returns once all are written. Cheaper if all go to one
    /// subpartition.
    ///
    /// After an error, the last record taken from `records` may not be emitted; all records before it are.
    #[inline]
    pub fn emit_all<R: AsRef<[u8]>>(
        &mut self,
        records: impl IntoIterator<Item = (Target, R)>,
    ) -> Result<(), ExchangeError> {
        let mut records = records.into_iter();
        while self.writer.try_emit_all(&mut records)? == Emit::Blocked {
            self.emit_rest()?;
        }
        Ok(())
    }

    /// Sends an event to every subpartition, after all records emitted so far, and flushes.
    pub fn broadcast_event(&mut self, event: &Event) -> Result<(), ExchangeError> {
        self.writer.broadcast_event(event)
    }

    /// Makes all emitted records visible to the readers.
    pub fn flush_all(&mut self) {
        self.writer.flush_all();
    }

    /// Ends the partition: nothing can be emitted any more, and readers see its end after the last record.
    pub fn finish(&mut self, drain: bool) -> Result<(), ExchangeError> {
        self.writer.finish(drain)
    }

    /// Returns the underlying writer.
    pub fn record_writer(&mut self) -> &mut RecordWriter {
        &mut self.writer
    }

    #[cold]
    fn emit_rest(&mut self) -> Result<(), ExchangeError> {
        loop {
            self.inlets.wait_until(|waker| self.writer.poll_ready(waker))?;
            if let Emit::Done = self.writer.resume()? {
                return Ok(());
            }
        }
    }
}
