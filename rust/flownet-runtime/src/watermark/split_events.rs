//! Sends split signals to another task: as events of a one-to-one channel, in their place among its records.
//!
//! ```text
//! payload = any number of signals: kind (1 byte) | number (varint) | time (zigzag varint, of a lower bound alone)
//! ```

use flownet_core::CustomEvent;

use super::SplitSignal;
use crate::error::TaskError;
use crate::varint::{put_varint, take_varint, unzigzag, zigzag};

/// Kind of the events that carry split signals.
pub(crate) const SPLITS_EVENT: u16 = 2;

const AMONG: u8 = 0;
const GROWING: u8 = 1;
const OF: u8 = 2;
const SILENT: u8 = 3;
const ENDED: u8 = 4;
const NOT_BEFORE: u8 = 5;

/// Number of signals that fit into one event in any case.
const SIGNALS_AN_EVENT: usize = CustomEvent::MAX_PAYLOAD_BYTES / 16;

/// Most events without a record between them. A channel has a bounded number of places for events. Signals
/// that wait here for the next record occupy none, and none of them is lost.
const MOST_EVENTS_IN_A_ROW: u32 = 64;

/// Split signals that one output edge of a task has yet to send.
#[derive(Debug, Default)]
pub(crate) struct PendingSplits {
    signals: Vec<SplitSignal>,
    events_in_a_row: u32,
}

impl PendingSplits {
    /// Adds a signal. If two splits follow each other without a record in between, only the second matters.
    pub(crate) fn add(&mut self, signal: SplitSignal) {
        if let (Some(last @ SplitSignal::Of(_)), SplitSignal::Of(_)) = (self.signals.last_mut(), signal) {
            *last = signal;
        } else {
            self.signals.push(signal);
        }
    }

    /// The events to send in front of a record.
    #[inline]
    pub(crate) fn before_record(&mut self) -> Vec<CustomEvent> {
        self.events_in_a_row = 0;
        if self.signals.is_empty() { Vec::new() } else { self.take() }
    }

    /// The events to send at the end of a batch.
    pub(crate) fn at_end_of_batch(&mut self) -> Vec<CustomEvent> {
        if self.signals.is_empty() || self.events_in_a_row >= MOST_EVENTS_IN_A_ROW {
            return Vec::new();
        }
        self.events_in_a_row += 1;
        self.take()
    }

    fn take(&mut self) -> Vec<CustomEvent> {
        let events = self.signals.chunks(SIGNALS_AN_EVENT).map(encode).collect();
        self.signals.clear();
        events
    }
}

fn encode(signals: &[SplitSignal]) -> CustomEvent {
    let mut payload = Vec::new();
    for signal in signals {
        let (kind, number) = match *signal {
            SplitSignal::Among(count) => (AMONG, count),
            SplitSignal::Growing(count) => (GROWING, count),
            SplitSignal::Of(split) => (OF, split),
            SplitSignal::Silent(split) => (SILENT, split),
            SplitSignal::Ended(split) => (ENDED, split),
            SplitSignal::NotBefore { split, .. } => (NOT_BEFORE, split),
        };
        payload.push(kind);
        put_varint(&mut payload, number.into());
        if let SplitSignal::NotBefore { time_ms, .. } = *signal {
            put_varint(&mut payload, zigzag(time_ms));
        }
    }
    CustomEvent::new(SPLITS_EVENT, &payload).expect("so many fit into one")
}

/// Reads the split signals of an event.
pub(crate) fn decode(event: &CustomEvent) -> Result<Vec<SplitSignal>, TaskError> {
    let (mut rest, mut signals) = (event.payload(), Vec::new());
    while let Some((&kind, number)) = rest.split_first() {
        let read = take_varint(number).ok().and_then(|(number, rest)| Some((u32::try_from(number).ok()?, rest)));
        let Some((number, behind)) = read else { return Err(unreadable()) };
        rest = behind;
        signals.push(match kind {
            AMONG => SplitSignal::Among(number),
            GROWING => SplitSignal::Growing(number),
            OF => SplitSignal::Of(number),
            SILENT => SplitSignal::Silent(number),
            ENDED => SplitSignal::Ended(number),
            NOT_BEFORE => {
                let Ok((time_ms, behind)) = take_varint(rest) else { return Err(unreadable()) };
                rest = behind;
                SplitSignal::NotBefore { split: number, time_ms: unzigzag(time_ms) }
            }
            _ => return Err(unreadable()),
        });
    }
    Ok(signals)
}

#[cold]
fn unreadable() -> TaskError {
    TaskError::Config("an event of split signals cannot be read: both ends must be of one version".into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn signal() -> impl Strategy<Value = SplitSignal> {
        (0u8..6, any::<u32>(), any::<i64>()).prop_map(|(kind, number, time_ms)| match kind {
            AMONG => SplitSignal::Among(number),
            GROWING => SplitSignal::Growing(number),
            OF => SplitSignal::Of(number),
            SILENT => SplitSignal::Silent(number),
            ENDED => SplitSignal::Ended(number),
            _ => SplitSignal::NotBefore { split: number, time_ms },
        })
    }

    proptest! {
        #[test]
        fn signals_arrive_in_their_order_and_events_in_a_row_are_bounded(
            signals in proptest::collection::vec(signal(), 0..2000), rounds in 1usize..200,
        ) {
            let (mut pending, mut events) = (PendingSplits::default(), Vec::new());
            for part in signals.chunks(signals.len() / rounds + 1) {
                part.iter().for_each(|signal| pending.add(*signal));
                events.extend(pending.at_end_of_batch());
            }
            prop_assert!(events.len() <= MOST_EVENTS_IN_A_ROW as usize + signals.len() / SIGNALS_AN_EVENT);
            events.extend(pending.before_record());
            let arrived: Vec<_> = events.iter().flat_map(|event| decode(event).unwrap()).collect();
            let mut sent = signals;
            // Of several consecutive turns, the last one is left.
            let is_passed = |pair: &[SplitSignal]| matches!(pair, [SplitSignal::Of(_), SplitSignal::Of(_)]);
            let turns_in_a_row = sent.windows(2).any(is_passed);
            if !turns_in_a_row {
                prop_assert_eq!(arrived, sent);
            } else {
                sent.retain(|signal| !matches!(signal, SplitSignal::Of(_)));
                let others: Vec<_> = arrived.into_iter().filter(|signal| !matches!(signal, SplitSignal::Of(_))).collect();
                prop_assert_eq!(others, sent);
            }
        }
    }

    #[test]
    fn what_no_signal_begins_with_is_refused() {
        for payload in [&[9, 0][..], &[NOT_BEFORE, 0], &[OF], &[OF, 0x80], &[OF, 0xff, 0xff, 0xff, 0xff, 0x7f]] {
            assert!(decode(&CustomEvent::new(SPLITS_EVENT, payload).unwrap()).is_err(), "{payload:?}");
        }
    }
}
