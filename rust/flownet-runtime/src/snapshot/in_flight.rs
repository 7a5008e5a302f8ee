//! Records in-flight data that a checkpoint overtook, and replays it on restore.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use flownet_core::subpartition::Element;
use flownet_core::{ChannelIndex, Event, ExchangeError};
use flownet_memory::{Buffer, BufferPool, BufferPoolSettings, SegmentPool};

use super::in_flight_rescaling::{Owner, deal};
use super::read::{Input, SnapshotError};
use super::write::{OF_CHANNEL, VERSION, put_block, put_option};
use super::{Share, StatePart};
use crate::error::{ExchangeFailure, TaskError};
use crate::spec::{Partitioner, TaskSpec, partition_id};
use crate::time::END_OF_TIME_MS;
use crate::varint::put_varint;
use crate::watermark::split_events::SPLITS_EVENT;

/// Names of a channel's parts: data that had arrived at its consumer, and data queued at its producer.
const INPUT: &str = "in_flight.input";
const OUTPUT: &str = "in_flight.output";

/// One element of in-flight data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum InFlightElement {
    /// Bytes of records.
    Records(Vec<u8>),
    /// An event among the records.
    Event(Event),
}

/// Returns a copy of an element for the snapshot, if it belongs there. The end of data does not, because the producer
/// reports it again after the restore. Neither does the end of time, which is no event time to resume from: the
/// producer may then find more input.
pub(crate) fn kept(element: &Element) -> Option<InFlightElement> {
    match element {
        Element::Event(Event::Watermark { timestamp_ms: END_OF_TIME_MS }) => None,
        // Splits are numbered anew when the source resumes.
        Element::Event(Event::Custom(event)) if event.kind() == SPLITS_EVENT => None,
        Element::Data(buffer) => Some(InFlightElement::Records(buffer.to_vec())),
        Element::Event(event @ (Event::Watermark { .. } | Event::WatermarkStatus { .. } | Event::Custom(_))) => {
            Some(InFlightElement::Event(event.clone()))
        }
        Element::Event(_) => None,
    }
}

/// In-flight data of one channel, at one of its ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InFlightChannel {
    /// The last watermark before the data.
    pub(crate) watermark_ms: Option<i64>,
    pub(crate) kept: Vec<InFlightElement>,
}

/// The ends of a task's channels, with the names of their parts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Edges {
    /// By channel index.
    inputs: Vec<End>,
    /// By output index; the share is that of the first subpartition.
    outputs: Vec<End>,
    /// The task's place among the subtasks that share its key groups.
    owner: Owner,
}

#[derive(Clone, Debug)]
struct End {
    uid: String,
    shape: u8,
    share: Share,
}

const KEYED: u8 = 1;
const STAMPED: u8 = 2;
/// Each subtask has a copy.
const COPIED: u8 = 4;

fn shape(partitioner: Partitioner, is_stamped: bool) -> u8 {
    let way = match partitioner {
        Partitioner::KeyGroup => KEYED,
        Partitioner::Broadcast => COPIED,
        Partitioner::Forward | Partitioner::Rebalance | Partitioner::Rescale | Partitioner::Custom => 0,
    };
    if is_stamped { way | STAMPED } else { way }
}

impl Edges {
    pub(crate) fn of(spec: &TaskSpec) -> Self {
        let uid = |id: u32| {
            let operator = spec.operators.iter().find(|operator| operator.id == id);
            operator.map_or_else(String::new, |operator| operator.state_uid())
        };
        let inputs = spec.inputs.iter().flat_map(|input| {
            let (uid, shape) = (uid(input.to_operator), shape(input.partitioner, input.timestamps));
            input.channels.iter().map(move |channel| {
                // The lower half of a partition's number is its producer.
                let producer = channel.partition as u32;
                debug_assert_eq!(partition_id(input.edge, producer), channel.partition);
                let share = Share::Channel { edge: input.edge, producer, subpartition: channel.subpartition };
                End { uid: uid.clone(), shape, share }
            })
        });
        let outputs = spec.outputs.iter().map(|output| End {
            uid: uid(output.from_operator),
            shape: shape(output.partitioner, output.timestamps),
            share: Share::Channel { edge: output.edge, producer: spec.subtask, subpartition: 0 },
        });
        let owner = Owner {
            subtask: spec.subtask,
            parallelism: spec.parallelism,
            max_parallelism: spec.max_parallelism,
            is_stamped: false,
        };
        Self { inputs: inputs.collect(), outputs: outputs.collect(), owner }
    }

    /// The part for data that had arrived on a channel.
    pub(crate) fn of_input(&self, channel: ChannelIndex, recorded: &InFlightChannel, medium: &[Vec<u8>]) -> StatePart {
        self.inputs[channel.index()].part(INPUT, recorded, medium)
    }

    /// The part for data that was queued in a subpartition.
    pub(crate) fn of_output(
        &self,
        output: usize,
        subpartition: u32,
        recorded: &InFlightChannel,
        medium: &[Vec<u8>],
    ) -> StatePart {
        let mut part = self.outputs[output].part(OUTPUT, recorded, medium);
        if let Share::Channel { subpartition: of_part, .. } = &mut part.share {
            *of_part = subpartition;
        }
        part
    }

    /// Returns the data to replay, in the order of the channels.
    pub(crate) fn replay(&self, parts: &[StatePart]) -> Result<Option<Replay>, TaskError> {
        let (mut steps, mut medium) = (VecDeque::new(), Vec::new());
        for (index, end) in (0..).map(ChannelIndex::new).zip(&self.inputs) {
            let of_channel = |name| parts.iter().find(|part| part.share == end.share && part.name == name);
            let found: Vec<_> = [INPUT, OUTPUT].into_iter().filter_map(of_channel).collect();
            for part in &found {
                let recorded = end.read(part, &mut medium)?;
                steps.push_back((index, ReplayedElement::Begin { watermark_ms: recorded.watermark_ms }));
                steps.extend(recorded.kept.into_iter().map(|kept| (index, ReplayedElement::Kept(kept))));
            }
            if !found.is_empty() {
                steps.push_back((index, ReplayedElement::End));
            }
        }
        self.deal(parts, &mut steps, &mut medium)?;
        if steps.is_empty() {
            return Ok(None);
        }
        Replay::new(steps, medium).map(Some)
    }

    /// Adds the data of channels that are not the task's own, or that led to other key groups. Adds one channel after
    /// the other, each on the first channel that the task now has of its edge.
    fn deal(
        &self,
        parts: &[StatePart],
        steps: &mut VecDeque<(ChannelIndex, ReplayedElement)>,
        medium: &mut Vec<Vec<u8>>,
    ) -> Result<(), TaskError> {
        let channel = |share| match share {
            Share::Dealt { edge, producer, subpartition, .. } | Share::Moved { edge, producer, subpartition, .. } => {
                Some((edge, producer, subpartition))
            }
            _ => None,
        };
        let channels: BTreeSet<_> = parts.iter().filter_map(|part| channel(part.share)).collect();
        for of in channels {
            let ends = (0..).map(ChannelIndex::new).zip(&self.inputs);
            let is_of_edge = |end: &End| matches!(end.share, Share::Channel { edge, .. } if edge == of.0);
            let Some((index, end)) = ends.into_iter().find(|(_, end)| is_of_edge(end)) else { continue };
            let is_of = |part: &&StatePart, name| channel(part.share) == Some(of) && part.name == name;
            let found = [INPUT, OUTPUT].into_iter().filter_map(|name| parts.iter().find(|part| is_of(part, name)));
            let found: Vec<_> = found.collect();
            let recorded = found.iter().map(|part| end.read(part, medium)).collect::<Result<_, _>>()?;
            let owner = Owner { is_stamped: end.shape & STAMPED != 0, ..self.owner };
            let is_keyed = end.shape & KEYED != 0;
            let dealt =
                deal(recorded, |record| if is_keyed { owner.keeps(record) } else { Ok(true) }).map_err(|what| {
                    let (uid, state) = (end.uid.clone(), INPUT.to_owned());
                    SnapshotError::Malformed { uid, state, what: what.to_string() }
                })?;
            steps.extend(dealt.into_iter().map(|step| (index, step)));
        }
        Ok(())
    }
}

/// Returns the data to decode records, from the part of a channel.
pub(super) fn medium_of_channel(part: &StatePart) -> Result<Vec<&[u8]>, TaskError> {
    let mut input = Input::of_channel(part)?;
    input.byte()?;
    input.option()?;
    (0..input.varint()?).map(|_| input.block()).collect()
}

impl End {
    fn part(&self, name: &str, recorded: &InFlightChannel, medium: &[Vec<u8>]) -> StatePart {
        let mut bytes = vec![VERSION, OF_CHANNEL, self.shape];
        put_option(&mut bytes, recorded.watermark_ms);
        put_varint(&mut bytes, medium.len() as u64);
        medium.iter().for_each(|item| put_block(&mut bytes, item));
        let mut encoded = Vec::new();
        for kept in &recorded.kept {
            match kept {
                InFlightElement::Records(records) => {
                    bytes.push(OF_RECORDS);
                    put_block(&mut bytes, records);
                }
                InFlightElement::Event(event) => {
                    encoded.clear();
                    event.encode(&mut encoded);
                    bytes.push(OF_EVENT);
                    put_block(&mut bytes, &encoded);
                }
            }
        }
        StatePart { uid: self.uid.clone(), name: name.to_owned(), share: self.share, bytes }
    }

    fn read(&self, part: &StatePart, medium: &mut Vec<Vec<u8>>) -> Result<InFlightChannel, TaskError> {
        let mut input = Input::of_channel(part)?;
        let shape = input.byte()?;
        if shape != self.shape {
            let reason =
                "records were on their way on an exchange that had keys, timestamps or a copy for each subtask and has none \
                          now, or the other way round; go on from a savepoint, in which nothing is on its way"
                    .to_owned();
            return Err(SnapshotError::Refused { uid: part.uid.clone(), reason }.into());
        }
        let watermark_ms = input.option()?;
        for _ in 0..input.varint()? {
            let item = input.block()?;
            if !medium.iter().any(|known| known == item) {
                medium.push(item.to_vec());
            }
        }
        let mut kept = Vec::new();
        while !input.is_empty() {
            kept.push(match input.byte()? {
                OF_RECORDS => InFlightElement::Records(input.block()?.to_vec()),
                OF_EVENT => {
                    let event = Event::decode(input.block()?).map_err(|error| input.broken(error))?;
                    InFlightElement::Event(event)
                }
                other => return Err(input.broken(format_args!("a piece of kind {other}"))),
            });
        }
        Ok(InFlightChannel { watermark_ms, kept })
    }
}

const OF_RECORDS: u8 = 0;
const OF_EVENT: u8 = 1;

/// In-flight data, replayed from memory before a task reads its channels.
#[derive(Debug)]
pub(crate) struct Replay {
    steps: VecDeque<(ChannelIndex, ReplayedElement)>,
    /// The data that is needed to decode it.
    medium: Vec<Vec<u8>>,
    /// Separate from the network memory, so that no other task waits for it.
    pool: Arc<BufferPool>,
}

/// The next element of a channel.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReplayedElement {
    /// Starts the data of one end, which follows this watermark.
    Begin {
        watermark_ms: Option<i64>,
    },
    Kept(InFlightElement),
    /// Ends the data. The following elements come from a producer that starts anew.
    End,
}

/// Segments that a reader and a task may hold at a time, plus one to fill.
const REPLAY_SEGMENTS: usize = 4;
const REPLAY_SEGMENT_BYTES: usize = 32 << 10;

impl Replay {
    fn new(steps: VecDeque<(ChannelIndex, ReplayedElement)>, medium: Vec<Vec<u8>>) -> Result<Self, TaskError> {
        let segments = SegmentPool::new(REPLAY_SEGMENTS, REPLAY_SEGMENT_BYTES).map_err(ExchangeError::from)?;
        let settings = BufferPoolSettings {
            min: REPLAY_SEGMENTS,
            max: None,
            lanes: 1,
            max_per_lane: usize::MAX,
            max_overdraft: 0,
        };
        let pool = segments.create_buffer_pool(settings).map_err(ExchangeError::from)?;
        let pieces =
            steps.into_iter().flat_map(|(index, step)| in_pieces(step).into_iter().map(move |one| (index, one)));
        Ok(Self { steps: pieces.collect(), medium, pool })
    }

    /// The data that the chain has to [learn](crate::operator::OperatorChain::learn) first.
    pub(crate) fn medium(&self) -> &[Vec<u8>] {
        &self.medium
    }

    pub(crate) fn next(&mut self) -> Option<(ChannelIndex, ReplayedElement)> {
        self.steps.pop_front()
    }

    /// Copies records into a buffer for the reader of a channel.
    pub(crate) fn buffer(&self, records: &[u8]) -> Result<Buffer, TaskError> {
        let Some(mut segment) = self.pool.try_take(0) else {
            return Err(ExchangeFailure::other("the task holds what was brought again".to_owned()).into());
        };
        segment.as_mut_slice()[..records.len()].copy_from_slice(records);
        Ok(Buffer::from_segment(segment, records.len()))
    }
}

/// Splits records into pieces that fit in a segment.
fn in_pieces(step: ReplayedElement) -> Vec<ReplayedElement> {
    match step {
        ReplayedElement::Kept(InFlightElement::Records(records)) if records.len() > REPLAY_SEGMENT_BYTES => {
            let pieces = records.chunks(REPLAY_SEGMENT_BYTES);
            pieces.map(|piece| ReplayedElement::Kept(InFlightElement::Records(piece.to_vec()))).collect()
        }
        step => vec![step],
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        self.pool.destroy();
    }
}

#[cfg(test)]
mod tests {
    use flownet_core::CustomEvent;
    use proptest::prelude::*;

    use super::*;

    fn end() -> End {
        End { uid: "counts".into(), shape: KEYED, share: Share::Channel { edge: 3, producer: 1, subpartition: 2 } }
    }

    fn any_kept() -> impl Strategy<Value = InFlightElement> {
        prop_oneof![
            any::<Vec<u8>>().prop_map(InFlightElement::Records),
            any::<i64>().prop_map(|timestamp_ms| InFlightElement::Event(Event::Watermark { timestamp_ms })),
            any::<bool>().prop_map(|idle| InFlightElement::Event(Event::WatermarkStatus { idle })),
            any::<[u8; 5]>()
                .prop_map(|bytes| InFlightElement::Event(Event::Custom(CustomEvent::new(1, &bytes).unwrap()))),
        ]
    }

    proptest! {
        #[test]
        fn what_was_on_its_way_is_read_as_it_was_written(
            watermark_ms in any::<Option<i64>>(),
            kept in proptest::collection::vec(any_kept(), 0..10),
            medium in proptest::collection::vec(any::<Vec<u8>>(), 0..3),
        ) {
            let recorded = InFlightChannel { watermark_ms, kept };
            let part = end().part(INPUT, &recorded, &medium);
            let mut known = Vec::new();
            prop_assert_eq!(end().read(&part, &mut known).unwrap(), recorded);
            prop_assert!(medium.iter().all(|item| known.contains(item)));
            let other = End { shape: STAMPED, ..end() };
            prop_assert!(other.read(&part, &mut known).unwrap_err().to_string().contains("savepoint"));
        }

        #[test]
        fn any_bytes_were_on_their_way_or_are_an_error(bytes in proptest::collection::vec(0_u8..6, 0..40)) {
            let part = StatePart { bytes: [&[VERSION, OF_CHANNEL][..], &bytes].concat(), ..end().part(INPUT, &InFlightChannel { watermark_ms: None, kept: vec![] }, &[]) };
            let _ = end().read(&part, &mut Vec::new());
        }
    }

    #[test]
    fn records_longer_than_a_segment_come_in_pieces() {
        let records: Vec<u8> = (0..2 * REPLAY_SEGMENT_BYTES + 5).map(|at| at as u8).collect();
        let channel = ChannelIndex::new(0);
        let steps = VecDeque::from([(channel, ReplayedElement::Kept(InFlightElement::Records(records.clone())))]);
        let mut replay = Replay::new(steps, vec![]).unwrap();
        let mut brought = Vec::new();
        while let Some((of, ReplayedElement::Kept(InFlightElement::Records(piece)))) = replay.next() {
            assert_eq!(of, channel);
            brought.extend_from_slice(&replay.buffer(&piece).unwrap());
        }
        assert_eq!(brought, records);
    }
}
