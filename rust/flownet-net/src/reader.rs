//! Blocking input for Rust users: reads an input gate on a plain thread.

use std::sync::Arc;

use flownet_core::gate::InputGate;
use flownet_core::record::reader::RecordReader;
use flownet_core::subpartition::Element;
use flownet_core::{ChannelIndex, Event, ExchangeError};

use crate::inlets::Inlets;

/// Result of [`GateReader::next`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Input {
    /// A buffer. All records that end in it were passed on.
    Records,
    /// An event, in order after the records of its channel.
    Event(ChannelIndex, Event),
    /// All channels have ended.
    End,
}

/// Reads records and events on a plain thread, and sleeps while there are none. Closes the gate when dropped.
#[derive(Debug)]
pub struct GateReader {
    gate: Arc<InputGate>,
    inlets: Arc<Inlets>,
    readers: Vec<RecordReader>,
    batch: std::vec::IntoIter<(ChannelIndex, Element)>,
}

impl GateReader {
    /// Creates a reader of `gate`, whose `channels` channels were opened with `inlets`. It refuses records above
    /// `max_record_bytes`.
    pub fn new(gate: Arc<InputGate>, inlets: Arc<Inlets>, channels: u32, max_record_bytes: usize) -> Self {
        let readers = (0..channels).map(|_| RecordReader::new(max_record_bytes)).collect();
        Self { gate, inlets, readers, batch: Vec::new().into_iter() }
    }

    /// Waits for the next buffer or event. Passes the records that end in a buffer to `on_record`, in order.
    pub fn next(&mut self, mut on_record: impl FnMut(ChannelIndex, &[u8])) -> Result<Input, ExchangeError> {
        let Some((channel, element)) = self.next_element()? else {
            return Ok(Input::End);
        };
        let reader = self.readers.get_mut(channel.index()).ok_or(ExchangeError::Misuse("gate has more channels"))?;
        match element {
            Element::Data(buffer) => {
                reader.push(buffer);
                reader.read_all(|record| on_record(channel, record))?;
                Ok(Input::Records)
            }
            Element::Event(event) => {
                reader.check_boundary()?;
                Ok(Input::Event(channel, event))
            }
        }
    }

    /// Returns the underlying gate.
    pub fn gate(&self) -> &Arc<InputGate> {
        &self.gate
    }

    fn next_element(&mut self) -> Result<Option<(ChannelIndex, Element)>, ExchangeError> {
        if let Some(element) = self.batch.next() {
            return Ok(Some(element));
        }
        let mut batch = Vec::with_capacity(BATCH_ELEMENTS);
        self.inlets.wait_until(|waker| self.gate.poll_batch(BATCH_ELEMENTS, &mut batch, waker))?;
        self.batch = batch.into_iter();
        Ok(self.batch.next())
    }
}

impl Drop for GateReader {
    fn drop(&mut self) {
        self.gate.close();
    }
}

/// Elements taken under one lock. A small number, because their segments are occupied until they are read.
const BATCH_ELEMENTS: usize = 8;
