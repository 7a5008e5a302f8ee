//! The two ends that tasks hold: partitions that are written and gates that are read. Sources write by decision, sinks
//! read and keep what they like; what is between them is in [`super::relay`].

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::task::Poll;

use flownet_core::exchange::producer::PartitionLookup;
use flownet_core::{
    Barrier, BarrierKind, ChannelId, ChannelIndex, CheckpointId, Element, Event, ExchangeError, FillLimit, InputGate,
    PartitionHandle, PartitionId, RemoteChannel, ResultPartition, SubpartitionCell, SubpartitionIndex,
};
use flownet_memory::{Buffer, BufferPool};

use super::World;
use super::book::Book;
use super::relay::Relay;
use super::stream::{Record, Stream};
use crate::alarm::Alarm;

pub(super) struct Writer {
    pub(super) task: usize,
    pub(super) worker: usize,
    /// Its task reads nothing: records are written by decision.
    pub(super) is_source: bool,
    /// Where its subpartitions are among the world's channels.
    pub(super) channels: Vec<usize>,
    pub(super) partition: Option<ResultPartition>,
    pub(super) handle: PartitionHandle,
    /// It ended before its end.
    pub(super) is_gone: bool,
    /// The record it has begun and found no room for.
    pub(super) pending: Option<PendingTask>,
    records: u64,
    barriers: u64,
    pub(super) alarm: Arc<Alarm>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct PendingTask {
    record: Record,
    /// One subpartition, or all.
    target: Option<SubpartitionIndex>,
    written: usize,
    /// The partition had room for a new record.
    is_begun: bool,
}

#[derive(Debug)]
pub(super) struct Reader {
    pub(super) task: usize,
    pub(super) worker: usize,
    /// Where its channels are among the world's.
    pub(super) channels: Vec<usize>,
    pub(super) gate: Option<Arc<InputGate>>,
    /// None if all its channels are local.
    pub(super) pool: Option<Arc<BufferPool>>,
    /// What its task makes of what it reads, unless it is a sink.
    pub(super) relay: Option<Relay>,
    pub(super) held: VecDeque<Buffer>,
    pub(super) blocked: VecDeque<ChannelIndex>,
    pub(super) alarm: Arc<Alarm>,
}

/// One (producer, consumer) edge.
pub(super) struct Channel {
    pub(super) producer: usize,
    pub(super) consumer: usize,
    pub(super) subpartition: SubpartitionIndex,
    pub(super) stream: Stream,
    pub(super) cell: Arc<SubpartitionCell>,
    pub(super) remote: Option<RemoteTask>,
    /// Something broke it: what it was given need not arrive.
    pub(super) is_excused: bool,
}

#[derive(Debug)]
pub(super) struct RemoteTask {
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

impl Reader {
    pub(super) fn new(
        task: usize,
        worker: usize,
        gate: Arc<InputGate>,
        pool: Option<Arc<BufferPool>>,
        relay: Option<Relay>,
        alarm: Arc<Alarm>,
    ) -> Self {
        let (channels, held, blocked) = Default::default();
        Self { task, worker, channels, gate: Some(gate), pool, relay, held, blocked, alarm }
    }
}

impl Writer {
    pub(super) fn new(
        task: usize,
        worker: usize,
        is_source: bool,
        partition: ResultPartition,
        alarm: Arc<Alarm>,
    ) -> Self {
        let handle = partition.handle();
        Self {
            task,
            worker,
            is_source,
            channels: Vec::new(),
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
    /// Begins a record of a source, for one consumer or for all.
    pub(super) fn write(&mut self, producer: usize, consumer: Option<usize>, bytes: usize) -> bool {
        if bytes == 0 || !self.is_free(producer) {
            return false;
        }
        let target = match consumer {
            None => None,
            Some(consumer) => match self.channel_between(producer, consumer) {
                Some(place) => Some(self.channels[place].subpartition),
                None => return false,
            },
        };
        self.begin_record(producer, target, bytes, false);
        self.go_on(producer);
        true
    }

    /// Whether this partition of a source can be written to now: its task waits with none of them.
    #[must_use]
    pub fn is_free(&self, producer: usize) -> bool {
        let Some(writer) = self.writers.get(producer).filter(|writer| writer.is_source && writer.is_free()) else {
            return false;
        };
        self.writers.iter().all(|other| other.task != writer.task || other.pending.is_none())
    }

    pub(super) fn channel_between(&self, producer: usize, consumer: usize) -> Option<usize> {
        let mut places = self.writers.get(producer)?.channels.iter().copied();
        places.find(|&place| self.channels[place].consumer == consumer)
    }

    /// A record that waits for nothing yet. `is_begun`: nor need it wait until the partition has room for a new one.
    pub(super) fn begin_record(
        &mut self,
        producer: usize,
        target: Option<SubpartitionIndex>,
        bytes: usize,
        is_begun: bool,
    ) {
        let writer = &mut self.writers[producer];
        let record = Record { seed: (producer as u64) << 32 | writer.records, bytes };
        writer.records += 1;
        writer.pending = Some(PendingTask { record, target, written: 0, is_begun });
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
        loop {
            let rest = &content[pending.written..];
            let (taken, targets) = match pending.target {
                Some(one) => (partition.try_write(one, rest), one.index()..one.index() + 1),
                None => (partition.try_broadcast_write(rest), 0..writer.channels.len()),
            };
            for &place in &writer.channels[targets] {
                self.channels[place].stream.note(pending.record, pending.written, pending.written + taken);
            }
            pending.written += taken;
            if pending.written == content.len() {
                match pending.target {
                    Some(one) => partition.end_record(one),
                    None => partition.end_broadcast_record(),
                }
                return;
            }
            let polled = match pending.target {
                Some(one) => partition.poll_segment(one, &waker),
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
        let Some(place) = self.channel_between(producer, consumer).filter(|_| self.is_free(producer)) else {
            return false;
        };
        let (channel, writer) = (&mut self.channels[place], &mut self.writers[producer]);
        let Some(partition) = writer.partition.as_mut() else { return false };
        let event = Event::Watermark { timestamp_ms: writer.records as i64 };
        partition.emit_event(channel.subpartition, &event).expect("a world has fewer events than a window");
        channel.stream.note_event(event);
        true
    }

    pub(super) fn barrier(&mut self, producer: usize, is_aligned: bool) -> bool {
        if !self.is_free(producer) {
            return false;
        }
        let writer = &mut self.writers[producer];
        writer.barriers += 1;
        let kind = if is_aligned { BarrierKind::Aligned } else { BarrierKind::Unaligned };
        let checkpoint_id = CheckpointId::new(writer.barriers);
        self.broadcast_event(producer, &Event::Barrier(Barrier { checkpoint_id, timestamp_ms: 0, kind }));
        true
    }

    /// Ends the partition of a source.
    pub(super) fn finish(&mut self, producer: usize) -> bool {
        self.is_free(producer) && self.finish_partition(producer)
    }

    /// Ends a partition and lets go of it, as a task does.
    pub(super) fn finish_partition(&mut self, producer: usize) -> bool {
        let Some(mut partition) = self.writers[producer].partition.take() else { return false };
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

    pub(super) fn broadcast_event(&mut self, producer: usize, event: &Event) {
        if let Some(partition) = &mut self.writers[producer].partition {
            partition.broadcast_event(event).expect("a world has fewer events than a window");
            self.note_broadcast(producer, event);
        }
    }

    fn note_broadcast(&mut self, producer: usize, event: &Event) {
        for &place in &self.writers[producer].channels {
            self.channels[place].stream.note_event(event.clone());
        }
    }

    /// A consumer looks at its gate until it has enough or finds nothing.
    pub(super) fn read(&mut self, consumer: usize, elements: usize) -> bool {
        let Some(reader) = self.readers.get(consumer) else { return false };
        if !reader.alarm.take() {
            return false;
        }
        if reader.relay.is_some() {
            self.relay(consumer, elements);
            return true;
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
        self.check_element(consumer, index, &element);
        let reader = &mut self.readers[consumer];
        match element {
            Element::Data(buffer) => {
                assert!(!reader.blocked.contains(&index), "a blocked channel gave data");
                reader.held.push_back(buffer);
            }
            Element::Event(event) if event.is_blocking() => reader.blocked.push_back(index),
            Element::Event(_) => {}
        }
    }

    /// What a gate gives is what was written, in its turn (W3).
    pub(super) fn check_element(&mut self, consumer: usize, index: ChannelIndex, element: &Element) {
        self.given += 1;
        let place = self.readers[consumer].channels[index.index()];
        let stream = &mut self.channels[place].stream;
        match element {
            Element::Data(buffer) => stream.check_data(buffer),
            Element::Event(event) => stream.check_event(event),
        }
    }

    pub(super) fn on_gate_failed(&mut self, consumer: usize, error: &ExchangeError) {
        assert!(self.faults > 0, "consumer {consumer} failed though nothing broke: {error}");
        assert!(
            !matches!(error, ExchangeError::ProtocolViolation { .. }),
            "consumer {consumer} blames its peer: {error}"
        );
        self.end_task(self.readers[consumer].task, Some("its input failed"));
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

    pub(super) fn limit(&mut self, consumer: usize, bytes: u32) -> bool {
        let Some(gate) = self.readers.get(consumer).and_then(|reader| reader.gate.as_ref()) else { return false };
        gate.set_fill_limit(FillLimit::new(bytes));
        true
    }

    pub(super) fn resume(&mut self, consumer: usize) -> bool {
        let Some(reader) = self.readers.get_mut(consumer) else { return false };
        let (Some(index), Some(gate)) = (reader.blocked.pop_front(), &reader.gate) else { return false };
        let resumed = gate.resume(index);
        assert!(resumed.is_ok() || self.faults > 0, "a blocked channel can be resumed");
        true
    }
}
