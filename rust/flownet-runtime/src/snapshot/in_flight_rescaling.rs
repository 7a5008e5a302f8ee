//! Redistributes the in-flight data of one channel if the parallelism has changed. A subtask takes all of it, or on a
//! keyed edge the records of its own keys.
//!
//! # Invariants
//! - D1: exactly one of the current subtasks takes a record: the owner of its key group, or on an unkeyed edge the
//!   subtask that takes the channel.
//! - D2: the data of a channel stays in the order in which it was sent: data that had arrived at its consumer before
//!   data queued at its producer. A record that spans both ends is joined before it is assigned.
//! - D3: a watermark only serves as the base of the stamps after it, and is not passed on. Other channels, whose data
//!   this subtask does not take, may not have reached it. Event time resumes with the producers' new watermarks.
//! - D4: every subtask takes the events among the records, such as a class that later records are instances of.

use flownet_core::Event;
use flownet_core::keygroup::{key_group, subtask_of};
use flownet_core::record::LENGTH_PREFIX_BYTES;

use super::in_flight::{InFlightChannel, InFlightElement, ReplayedElement};
use crate::operator::{KeyedRecord, MalformedRecord, take_stamp};

/// The subtask that takes records of a keyed edge.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Owner {
    pub(super) subtask: u32,
    pub(super) parallelism: u32,
    pub(super) max_parallelism: u32,
    /// True if records carry their timestamps.
    pub(super) is_stamped: bool,
}

/// In-flight data that cannot be redistributed: no flownet wrote it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum InFlightError {
    #[error(transparent)]
    Record(#[from] MalformedRecord),
    #[error("{0} bytes of a record are there, and its end is not")]
    Half(usize),
}

impl Owner {
    pub(super) fn keeps(&self, record: &[u8]) -> Result<bool, MalformedRecord> {
        // The base of a stamp has no effect on the destination of its record.
        let body = if self.is_stamped { take_stamp(record, None)?.1 } else { record };
        let group = key_group(KeyedRecord::parse(body)?.hash, self.max_parallelism);
        Ok(subtask_of(group, self.max_parallelism, self.parallelism) == self.subtask)
    }
}

/// Returns the data that this subtask takes of one channel. `ends` are its recorded ends, the consumer's first. `keeps`
/// decides on each record.
pub(super) fn deal(
    ends: Vec<InFlightChannel>,
    keeps: impl Fn(&[u8]) -> Result<bool, MalformedRecord>,
) -> Result<Vec<ReplayedElement>, InFlightError> {
    let (mut steps, mut pending) = (Vec::new(), Vec::new());
    for end in ends {
        steps.push(ReplayedElement::Begin { watermark_ms: end.watermark_ms });
        for kept in end.kept {
            let event = match kept {
                InFlightElement::Records(records) => {
                    pending.extend_from_slice(&records);
                    let (own, whole) = keep(&pending, &keeps)?;
                    pending.drain(..whole);
                    if !own.is_empty() {
                        steps.push(ReplayedElement::Kept(InFlightElement::Records(own)));
                    }
                    continue;
                }
                InFlightElement::Event(event) => event,
            };
            if !pending.is_empty() {
                return Err(InFlightError::Half(pending.len()));
            }
            match event {
                Event::Watermark { timestamp_ms } => {
                    steps.push(ReplayedElement::Begin { watermark_ms: Some(timestamp_ms) });
                }
                Event::WatermarkStatus { .. } => {}
                event => steps.push(ReplayedElement::Kept(InFlightElement::Event(event))),
            }
        }
    }
    if !pending.is_empty() {
        return Err(InFlightError::Half(pending.len()));
    }
    steps.push(ReplayedElement::End);
    Ok(steps)
}

/// Returns the whole records at the front of `bytes` that are taken, and the number of bytes of all whole records.
fn keep(
    bytes: &[u8],
    keeps: impl Fn(&[u8]) -> Result<bool, MalformedRecord>,
) -> Result<(Vec<u8>, usize), MalformedRecord> {
    let (mut kept, mut at) = (Vec::new(), 0);
    while let Some((prefix, rest)) = bytes[at..].split_first_chunk::<LENGTH_PREFIX_BYTES>()
        && let Some(record) = rest.get(..u32::from_le_bytes(*prefix) as usize)
    {
        let end = at + prefix.len() + record.len();
        if keeps(record)? {
            kept.extend_from_slice(&bytes[at..end]);
        }
        at = end;
    }
    Ok((kept, at))
}

#[cfg(test)]
mod tests {
    use flownet_core::CustomEvent;
    use proptest::prelude::*;

    use super::*;
    use crate::operator::put_stamp;
    use crate::varint::put_varint;

    const GROUPS: u32 = 16;

    fn owner(subtask: u32, parallelism: u32) -> Owner {
        Owner { subtask, parallelism, max_parallelism: GROUPS, is_stamped: true }
    }

    fn record(key: u8, number: usize, value_bytes: usize) -> Vec<u8> {
        let mut record = Vec::new();
        put_stamp(&mut record, number as i64);
        put_varint(&mut record, 1);
        record.push(key);
        record.extend(vec![1; value_bytes]);
        [&(record.len() as u32).to_le_bytes()[..], &record].concat()
    }

    /// A record in flight, or an event among the records.
    #[derive(Clone, Debug)]
    enum SentElement {
        Record(u8, usize),
        Watermark(i64),
        Idle(bool),
        Class(u8),
    }

    fn any_sent() -> impl Strategy<Value = SentElement> {
        prop_oneof![
            5 => (any::<u8>(), 0_usize..60).prop_map(|(key, bytes)| SentElement::Record(key, bytes)),
            1 => any::<i64>().prop_map(SentElement::Watermark),
            1 => any::<bool>().prop_map(SentElement::Idle),
            1 => any::<u8>().prop_map(SentElement::Class),
        ]
    }

    fn class(id: u8) -> Event {
        Event::Custom(CustomEvent::new(1, &[id]).unwrap())
    }

    /// The output for a subtask: bytes of records with the watermark that they refer to, and events.
    fn seen(steps: &[ReplayedElement]) -> Vec<(Option<i64>, Result<u8, Event>)> {
        let (mut watermark_ms, mut seen) = (None, Vec::new());
        for step in steps {
            match step {
                ReplayedElement::Begin { watermark_ms: of } => watermark_ms = *of,
                ReplayedElement::Kept(InFlightElement::Records(bytes)) => {
                    seen.extend(bytes.iter().map(|byte| (watermark_ms, Ok(*byte))));
                }
                ReplayedElement::Kept(InFlightElement::Event(event)) => seen.push((None, Err(event.clone()))),
                ReplayedElement::End => {}
            }
        }
        seen
    }

    proptest! {
        #[test]
        fn each_record_is_kept_whole_and_in_order_by_who_owns_its_key_and_by_nobody_else(
            sent in proptest::collection::vec(any_sent(), 0..40),
            parallelism in 1_u32..6,
            buffer_bytes in 1_usize..40,
            split in any::<prop::sample::Index>(),
        ) {
            // The data as it was in buffers, where an event ends a buffer. It is cut anywhere into arrived and queued
            // data.
            let (mut kept, mut open, mut last_ms) = (Vec::new(), Vec::new(), vec![None]);
            let close = |open: &mut Vec<u8>, kept: &mut Vec<InFlightElement>| {
                kept.extend(open.chunks(buffer_bytes).map(|piece| InFlightElement::Records(piece.to_vec())));
                open.clear();
            };
            for (number, one) in sent.iter().enumerate() {
                let event = match one {
                    SentElement::Record(key, bytes) => { open.extend(record(*key, number, *bytes)); continue }
                    SentElement::Watermark(timestamp_ms) => Event::Watermark { timestamp_ms: *timestamp_ms },
                    SentElement::Idle(idle) => Event::WatermarkStatus { idle: *idle },
                    SentElement::Class(id) => class(*id),
                };
                close(&mut open, &mut kept);
                kept.push(InFlightElement::Event(event));
            }
            close(&mut open, &mut kept);
            for one in &kept {
                let last = *last_ms.last().unwrap();
                last_ms.push(if let InFlightElement::Event(Event::Watermark { timestamp_ms }) = one { Some(*timestamp_ms) } else { last });
            }
            let at = split.index(kept.len() + 1);
            let output = InFlightChannel { watermark_ms: last_ms[at], kept: kept.split_off(at) };
            let ends = vec![InFlightChannel { watermark_ms: None, kept }, output];

            let whole = seen(&deal(ends.clone(), |_| Ok(true)).unwrap());
            let whole: Vec<_> = whole.into_iter().filter_map(|(_, one)| one.ok()).collect();
            let bytes_of = |(number, one): (usize, &SentElement)| match one {
                SentElement::Record(key, bytes) => record(*key, number, *bytes),
                _ => Vec::new(),
            };
            let sent_bytes: Vec<_> = sent.iter().enumerate().flat_map(bytes_of).collect();
            prop_assert_eq!(whole, sent_bytes, "who takes the channel keeps all of it, D2");

            let mut records = 0;
            for subtask in 0..parallelism {
                let steps = deal(ends.clone(), |record| owner(subtask, parallelism).keeps(record)).unwrap();
                prop_assert!(!steps.iter().any(|step| matches!(
                    step, ReplayedElement::Kept(InFlightElement::Event(Event::Watermark { .. } | Event::WatermarkStatus { .. }))
                )), "D3");
                let (mut expected, mut watermark_ms) = (Vec::new(), None);
                for (number, one) in sent.iter().enumerate() {
                    match one {
                        SentElement::Record(key, bytes) => {
                            let group = key_group(flownet_core::keygroup::hash_key(&[*key]), GROUPS);
                            if subtask_of(group, GROUPS, parallelism) == subtask {
                                records += 1;
                                expected.extend(record(*key, number, *bytes).into_iter().map(|byte| (watermark_ms, Ok(byte))));
                            }
                        }
                        SentElement::Watermark(timestamp_ms) => watermark_ms = Some(*timestamp_ms),
                        SentElement::Idle(_) => {}
                        SentElement::Class(id) => expected.push((None, Err(class(*id)))),
                    }
                }
                prop_assert_eq!(seen(&steps), expected);
            }
            prop_assert_eq!(records, sent.iter().filter(|one| matches!(one, SentElement::Record(..))).count(), "D1");
        }

        #[test]
        fn any_bytes_are_dealt_out_or_are_an_error(
            pieces in proptest::collection::vec(proptest::collection::vec(0_u8..6, 0..12), 0..6),
        ) {
            let kept = pieces.into_iter().map(InFlightElement::Records).collect();
            let _ = deal(vec![InFlightChannel { watermark_ms: None, kept }], |record| owner(0, 2).keeps(record));
        }
    }

    #[test]
    fn half_a_record_is_an_error_at_the_end_and_before_an_event() {
        let bytes = record(1, 0, 20);
        let half = || InFlightElement::Records(bytes[..9].to_vec());
        let refused = |kept| deal(vec![InFlightChannel { watermark_ms: None, kept }], |_| Ok(true)).unwrap_err();
        assert_eq!(refused(vec![half()]), InFlightError::Half(9));
        assert_eq!(
            refused(vec![half(), InFlightElement::Event(class(1)), InFlightElement::Records(bytes[9..].to_vec())]),
            InFlightError::Half(9)
        );
    }
}
