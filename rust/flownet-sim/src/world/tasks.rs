//! The two ends that tasks hold: partitions that are written and gates that are read.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::task::Poll;

use flownet_core::exchange::producer::PartitionLookup;
use flownet_core::{
    Barrier, BarrierKind, ChannelId, ChannelIndex, CheckpointId, Element, Event, ExchangeError, InputGate,
    PartitionHandle, PartitionId, RemoteChannel, ResultPartition, SubpartitionCell, SubpartitionIndex,
};
use flownet_memory::{Buffer, BufferPool};

use super::World;
use super::book::Book;
use super::stream::{Record, Stream};
use crate::alarm::Alarm;

pub(super) struct Writer {
    pub(super) worker: usize,
    pub(super) partition: Option<ResultPartition>,
    pub(super) handle: PartitionHandle,
    /// It ended before its end.
    pub(super) is_gone: bool,
    /// The record it has begun and found no room for.
    pub(super) pending: Option<Pending>,
    records: u64,
    barriers: u64,
    pub(super) alarm: Arc<Alarm>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    record: Record,
    /// One consumer, or all.
    target: Option<usize>,
    written: usize,
    /// The partition had room for a new record.
    is_begun: bool,
}

#[derive(Debug)]
pub(super) struct Reader {
    pub(super) worker: usize,
    pub(super) gate: Option<Arc<InputGate>>,
    pub(super) pool: Arc<BufferPool>,
    pub(super) held: VecDeque<Buffer>,
    pub(super) blocked: VecDeque<ChannelIndex>,
    pub(super) alarm: Arc<Alarm>,
}

/// One (producer, consumer) edge.
pub(super) struct Channel {
    pub(super) stream: Stream,
    pub(super) cell: Arc<SubpartitionCell>,
    pub(super) remote: Option<Remote>,
    /// Something broke it: what it was given need not arrive.
    pub(super) is_excused: bool,
}

#[derive(Debug)]
pub(super) struct Remote {
    pub(super) channel: Arc<RemoteChannel>,
    pub(super) id: ChannelId,
    pub(super) book: Book,
}

/// Partitions that can be found, by number.
#[derive(Debug, Default)]
pub(super) struct Registry(pub(super) Vec<Option<PartitionHandle>>);

impl PartitionLookup for Registry {
    fn find(&self, partition: PartitionId) -> Option<PartitionHandle> {
        self.0.get(partition.get() as usize)?.clone()
    }
}

impl fmt::Debug for Writer {
    /// The handle shows nothing beside the partition.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.partition {
            Some(partition) => write!(f, "{partition:?}")?,
            None => write!(f, "{:?}{}", self.handle, self.is_gone)?,
        }
        write!(f, "{:?}{}{}{:?}", self.pending, self.records, self.barriers, self.alarm)
    }
}

impl fmt::Debug for Channel {
    /// The subpartition is shown by its writer.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}{}{:?}", self.stream, self.is_excused, self.remote)
    }
}

impl Channel {
    /// The accounts of a channel between workers.
    pub(super) fn book(&mut self) -> &mut Book {
        &mut self.remote.as_mut().expect("only a channel between workers is on a connection").book
    }
}

impl Writer {
    pub(super) fn new(worker: usize, partition: ResultPartition, alarm: Arc<Alarm>) -> Self {
        let handle = partition.handle();
        Self {
            worker,
            partition: Some(partition),
            handle,
            is_gone: false,
            pending: None,
            records: 0,
            barriers: 0,
            alarm,
        }
    }

    /// Ready to begin something new.
    pub(super) fn is_free(&self) -> bool {
        self.partition.is_some() && self.pending.is_none()
    }
}

impl World {
    /// Begins a record for one consumer or for all.
    pub(super) fn write(&mut self, producer: usize, target: Option<usize>, bytes: usize) -> bool {
        let Some(writer) = self.writers.get_mut(producer) else { return false };
        if !writer.is_free() || bytes == 0 || target.is_some_and(|consumer| consumer >= self.readers.len()) {
            return false;
        }
        let record = Record { seed: (producer as u64) << 32 | writer.records, bytes };
        writer.records += 1;
        writer.pending = Some(Pending { record, target, written: 0, is_begun: false });
        self.go_on(producer);
        true
    }

    /// Writes as much of the begun record as finds room.
    pub(super) fn go_on(&mut self, producer: usize) {
        let writer = &mut self.writers[producer];
        let (Some(partition), Some(mut pending)) = (&mut writer.partition, writer.pending.take()) else { return };
        let waker = writer.alarm.waker();
        if !pending.is_begun && partition.poll_available(&waker).is_pending() {
            writer.pending = Some(pending);
            return;
        }
        pending.is_begun = true;
        let content = pending.record.content();
        let consumers = self.readers.len();
        loop {
            let rest = &content[pending.written..];
            let (taken, targets) = match pending.target {
                Some(consumer) => (partition.try_write(subpartition(consumer), rest), consumer..consumer + 1),
                None => (partition.try_broadcast_write(rest), 0..consumers),
            };
            for channel in &mut self.channels[producer * consumers..][targets] {
                channel.stream.note(pending.record, pending.written, pending.written + taken);
            }
            pending.written += taken;
            if pending.written == content.len() {
                match pending.target {
                    Some(consumer) => partition.end_record(subpartition(consumer)),
                    None => partition.end_broadcast_record(),
                }
                return;
            }
            let polled = match pending.target {
                Some(consumer) => partition.poll_segment(subpartition(consumer), &waker),
                None => partition.poll_broadcast_segment(&waker),
            };
            match polled {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => panic!("producer {producer} cannot write: {error}"),
                Poll::Pending => break,
            }
        }
        writer.pending = Some(pending);
    }

    pub(super) fn watermark(&mut self, producer: usize, consumer: usize) -> bool {
        let consumers = self.readers.len();
        let Some(writer) = self.writers.get_mut(producer).filter(|writer| writer.is_free()) else { return false };
        let Some(partition) = writer.partition.as_mut().filter(|_| consumer < consumers) else { return false };
        let event = Event::Watermark { timestamp_ms: writer.records as i64 };
        partition.emit_event(subpartition(consumer), &event);
        self.channels[producer * consumers + consumer].stream.note_event(event);
        true
    }

    pub(super) fn barrier(&mut self, producer: usize, is_aligned: bool) -> bool {
        let Some(writer) = self.writers.get_mut(producer).filter(|writer| writer.is_free()) else { return false };
        writer.barriers += 1;
        let kind = if is_aligned { BarrierKind::Aligned } else { BarrierKind::Unaligned };
        let checkpoint_id = CheckpointId::new(writer.barriers);
        self.broadcast_event(producer, &Event::Barrier(Barrier { checkpoint_id, timestamp_ms: 0, kind }));
        true
    }

    /// Ends a partition and lets go of it, as a task does.
    pub(super) fn finish(&mut self, producer: usize) -> bool {
        let Some(writer) = self.writers.get_mut(producer).filter(|writer| writer.is_free()) else { return false };
        let Some(mut partition) = writer.partition.take() else { return false };
        partition.finish(true);
        drop(partition);
        for event in [Event::EndOfData { drain: true }, Event::EndOfPartition] {
            self.note_broadcast(producer, &event);
        }
        true
    }

    pub(super) fn flush(&mut self, producer: usize) -> bool {
        let Some(writer) = self.writers.get(producer) else { return false };
        writer.handle.flush_dirty();
        true
    }

    fn broadcast_event(&mut self, producer: usize, event: &Event) {
        if let Some(partition) = &mut self.writers[producer].partition {
            partition.broadcast_event(event);
            self.note_broadcast(producer, event);
        }
    }

    fn note_broadcast(&mut self, producer: usize, event: &Event) {
        let consumers = self.readers.len();
        for channel in &mut self.channels[producer * consumers..][..consumers] {
            channel.stream.note_event(event.clone());
        }
    }

    /// A consumer looks at its gate until it has enough or finds nothing.
    pub(super) fn read(&mut self, consumer: usize, elements: usize) -> bool {
        let Some(reader) = self.readers.get(consumer) else { return false };
        if !reader.alarm.take() {
            return false;
        }
        let Some(gate) = reader.gate.clone() else { return true };
        let waker = reader.alarm.waker();
        for _ in 0..elements {
            match gate.poll_next(&waker) {
                Poll::Pending | Poll::Ready(Ok(None)) => return true,
                Poll::Ready(Ok(Some((index, element)))) => self.take(consumer, index, element),
                Poll::Ready(Err(error)) => {
                    self.on_gate_failed(consumer, &error);
                    return true;
                }
            }
        }
        self.readers[consumer].alarm.set();
        true
    }

    fn take(&mut self, consumer: usize, index: ChannelIndex, element: Element) {
        let consumers = self.readers.len();
        let reader = &mut self.readers[consumer];
        let stream = &mut self.channels[index.index() * consumers + consumer].stream;
        match element {
            Element::Data(buffer) => {
                assert!(!reader.blocked.contains(&index), "a blocked channel gave data");
                stream.check_data(&buffer);
                reader.held.push_back(buffer);
            }
            Element::Event(event) => {
                stream.check_event(&event);
                if event.is_blocking() {
                    reader.blocked.push_back(index);
                }
            }
        }
    }

    fn on_gate_failed(&mut self, consumer: usize, error: &ExchangeError) {
        assert!(self.faults > 0, "consumer {consumer} failed though nothing broke: {error}");
        assert!(!matches!(error, ExchangeError::PeerBreach { .. }), "consumer {consumer} blames its peer: {error}");
        self.close_gate(consumer);
    }

    pub(super) fn drop_held(&mut self, consumer: usize, buffers: usize) -> bool {
        let Some(reader) = self.readers.get_mut(consumer) else { return false };
        let dropped = buffers.min(reader.held.len());
        // One after the other, as a task is done with them.
        for _ in 0..dropped {
            drop(reader.held.pop_front());
        }
        dropped > 0
    }

    pub(super) fn resume(&mut self, consumer: usize) -> bool {
        let Some(reader) = self.readers.get_mut(consumer) else { return false };
        let (Some(index), Some(gate)) = (reader.blocked.pop_front(), &reader.gate) else { return false };
        let resumed = gate.resume(index);
        assert!(resumed.is_ok() || self.faults > 0, "a blocked channel can be resumed");
        true
    }
}

pub(super) fn subpartition(consumer: usize) -> SubpartitionIndex {
    SubpartitionIndex::new(consumer as u32)
}
