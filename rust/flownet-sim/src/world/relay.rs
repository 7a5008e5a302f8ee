//! Tasks between two exchanges, in a loop like that of flownet-runtime: wait for room in all outputs, take what has
//! arrived, write what comes of it. What was taken is kept until all of that is written.

use std::collections::VecDeque;
use std::task::Poll;

use flownet_core::{ChannelIndex, Element, Event, SubpartitionIndex};
use flownet_memory::Buffer;

use super::World;
use super::wire::scatter;
use crate::plan::{Spread, Work};

#[derive(Debug)]
pub(super) struct Relay {
    outputs: Vec<usize>,
    work: Work,
    /// Taken from the gate under one lock, and not looked at.
    arrived: VecDeque<(ChannelIndex, Element)>,
    current: Option<Buffer>,
    /// Bytes of records that are still to come of it.
    owed: usize,
    /// Records begun so far, which decide who gets the next one.
    records: u64,
    /// It waits for its outputs.
    pub(super) is_waiting: bool,
}

impl Relay {
    pub(super) fn new(outputs: Vec<usize>, work: Work) -> Self {
        let (arrived, current) = Default::default();
        Self { outputs, work, arrived, current, owed: 0, records: 0, is_waiting: false }
    }

    /// Lets go of everything, as a task that ends.
    pub(super) fn clear(&mut self) {
        *self = Self::new(std::mem::take(&mut self.outputs), self.work);
    }
}

impl World {
    /// The task of this gate works on up to so many elements.
    pub(super) fn relay(&mut self, consumer: usize, elements: usize) {
        for _ in 0..elements {
            if !self.write_owed(consumer) || !self.has_room(consumer) || !self.take_arrived(consumer) {
                return;
            }
        }
        if self.write_owed(consumer) {
            self.readers[consumer].alarm.set();
        }
    }

    /// Writes what comes of the current buffer. False if it waits for a segment.
    fn write_owed(&mut self, consumer: usize) -> bool {
        loop {
            if !self.write_pending(consumer) {
                return false;
            }
            let Some(relay) = &mut self.readers[consumer].relay else { return false };
            if relay.owed == 0 {
                relay.current = None;
                return true;
            }
            self.begin_next(consumer);
        }
    }

    /// Goes on with the records that are begun. False if one waits for a segment.
    fn write_pending(&mut self, consumer: usize) -> bool {
        let mut is_done = true;
        for producer in self.outputs(consumer) {
            self.go_on(producer);
            is_done &= self.writers[producer].pending.is_none();
        }
        self.note_waiting(consumer, !is_done);
        is_done
    }

    /// Begins a record, or one for each output.
    fn begin_next(&mut self, consumer: usize) {
        let outputs = self.outputs(consumer);
        let Some(relay) = &mut self.readers[consumer].relay else { return };
        let Work { percent: _, record_bytes, spread } = relay.work;
        let chance = scatter(relay.records) as usize;
        relay.records += 1;
        let chosen = match spread {
            Spread::One => vec![outputs[chance % outputs.len()]],
            Spread::EachOutput | Spread::All => outputs,
        };
        let copies: usize = match spread {
            Spread::One | Spread::EachOutput => chosen.len(),
            Spread::All => chosen.iter().map(|&producer| self.writers[producer].channels.len()).sum(),
        };
        relay.owed = relay.owed.saturating_sub(record_bytes * copies);
        for producer in chosen {
            let subpartitions = self.writers[producer].channels.len();
            let one = SubpartitionIndex::new((chance / 7 % subpartitions) as u32);
            self.begin_record(producer, (spread != Spread::All).then_some(one), record_bytes, true);
        }
    }

    /// Whether all outputs are available; if not, the task is woken when they are.
    fn has_room(&mut self, consumer: usize) -> bool {
        let mut has_room = true;
        for producer in self.outputs(consumer) {
            let writer = &mut self.writers[producer];
            let waker = writer.alarm.waker();
            if let Some(partition) = &mut writer.partition {
                has_room &= partition.poll_available(&waker).is_ready();
            }
        }
        self.note_waiting(consumer, !has_room);
        has_room
    }

    /// Begins with the next element. False if there is none now, or never again.
    fn take_arrived(&mut self, consumer: usize) -> bool {
        let reader = &mut self.readers[consumer];
        let (Some(gate), Some(relay)) = (reader.gate.clone(), &mut reader.relay) else { return false };
        if relay.arrived.is_empty() {
            let mut batch = Vec::new();
            match gate.poll_batch(BATCH_ELEMENTS, &mut batch, &reader.alarm.waker()) {
                Poll::Pending => return false,
                Poll::Ready(Ok(0)) => {
                    self.outputs(consumer).into_iter().for_each(|producer| {
                        self.finish_partition(producer);
                    });
                    return false;
                }
                Poll::Ready(Ok(_)) => relay.arrived.extend(batch),
                Poll::Ready(Err(error)) => {
                    self.on_gate_failed(consumer, &error);
                    return false;
                }
            }
        }
        let Some((index, element)) = self.readers[consumer].relay.as_mut().and_then(|relay| relay.arrived.pop_front())
        else {
            return false;
        };
        self.check_element(consumer, index, &element);
        match element {
            Element::Data(buffer) => {
                let Some(relay) = &mut self.readers[consumer].relay else { return false };
                relay.owed = (buffer.len() * relay.work.percent).div_ceil(100);
                relay.current = Some(buffer);
            }
            Element::Event(event) => self.handle_event(consumer, index, &event),
        }
        true
    }

    /// As the runtime does: watermarks go on, a barrier blocks nobody for long.
    fn handle_event(&mut self, consumer: usize, index: ChannelIndex, event: &Event) {
        if let Event::Watermark { .. } = event {
            for producer in self.outputs(consumer) {
                self.broadcast_event(producer, event);
            }
        }
        if event.is_blocking()
            && let Some(gate) = &self.readers[consumer].gate
        {
            let resumed = gate.resume(index);
            assert!(resumed.is_ok() || self.faults > 0, "a blocked channel can be resumed");
        }
    }

    fn note_waiting(&mut self, consumer: usize, is_waiting: bool) {
        if let Some(relay) = &mut self.readers[consumer].relay {
            relay.is_waiting = is_waiting;
        }
    }

    fn outputs(&self, consumer: usize) -> Vec<usize> {
        self.readers[consumer].relay.as_ref().map_or_else(Vec::new, |relay| relay.outputs.clone())
    }
}

/// As many as a task of flownet-runtime takes.
const BATCH_ELEMENTS: usize = 32;
