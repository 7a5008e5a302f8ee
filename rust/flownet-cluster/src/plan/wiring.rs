//! Computes the channels of one exchange: which subtask of the producer connects to which of the consumer.

use flownet_runtime::spec::Partitioner;

/// Shape of an exchange between `producers` and `consumers` subtasks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wiring {
    pointwise: bool,
    producers: u32,
    consumers: u32,
}

impl Wiring {
    /// Forward and rescale are pointwise. All others connect every producer to every consumer.
    pub(crate) fn new(partitioner: &Partitioner, producers: u32, consumers: u32) -> Self {
        let pointwise = matches!(partitioner, Partitioner::Forward | Partitioner::Rescale);
        Self { pointwise, producers, consumers }
    }

    /// Returns the number of subpartitions of one producer's partition.
    pub(super) fn subpartitions(&self, producer: u32) -> u32 {
        if !self.pointwise {
            return self.consumers;
        }
        if self.producers >= self.consumers {
            return 1;
        }
        self.first_consumer(producer + 1) - self.first_consumer(producer)
    }

    /// Returns the channels of one consumer as (producer, subpartition), ordered by producer.
    pub(super) fn channels(&self, consumer: u32) -> Vec<(u32, u32)> {
        if !self.pointwise {
            return (0..self.producers).map(|producer| (producer, consumer)).collect();
        }
        if self.producers >= self.consumers {
            let mine = self.first_producer(consumer)..self.first_producer(consumer + 1);
            return mine.map(|producer| (producer, 0)).collect();
        }
        let producer = scale(consumer, self.producers, self.consumers);
        vec![(producer, consumer - self.first_consumer(producer))]
    }

    /// Returns the consumer that reads a subpartition of a producer, if there is one.
    pub(crate) fn reader(&self, producer: u32, subpartition: u32) -> Option<u32> {
        if producer >= self.producers || subpartition >= self.subpartitions(producer) {
            return None;
        }
        Some(match (self.pointwise, self.producers >= self.consumers) {
            (false, _) => subpartition,
            (true, true) => scale(producer, self.consumers, self.producers),
            (true, false) => self.first_consumer(producer) + subpartition,
        })
    }

    /// Returns the number of channels of the whole exchange.
    pub(super) fn channel_count(&self) -> u64 {
        if self.pointwise {
            u64::from(self.producers.max(self.consumers))
        } else {
            u64::from(self.producers) * u64::from(self.consumers)
        }
    }

    /// Returns the first consumer `c` with `c * producers / consumers >= producer`.
    fn first_consumer(&self, producer: u32) -> u32 {
        scale_up(producer, self.consumers, self.producers)
    }

    /// Returns the first producer `p` with `p * consumers / producers >= consumer`.
    fn first_producer(&self, consumer: u32) -> u32 {
        scale_up(consumer, self.producers, self.consumers)
    }
}

/// Returns `value * to / from`, rounded down. Parallelisms are at most 32768, so the result fits.
fn scale(value: u32, to: u32, from: u32) -> u32 {
    (u64::from(value) * u64::from(to) / u64::from(from)) as u32
}

/// Returns `value * to / from`, rounded up.
fn scale_up(value: u32, to: u32, from: u32) -> u32 {
    (u64::from(value) * u64::from(to)).div_ceil(u64::from(from)) as u32
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Checks that exactly one consumer reads every subpartition of every producer.
    fn assert_each_subpartition_is_read_once(wiring: Wiring) {
        let written: BTreeSet<(u32, u32)> = (0..wiring.producers)
            .flat_map(|producer| (0..wiring.subpartitions(producer)).map(move |sub| (producer, sub)))
            .collect();
        let read: Vec<(u32, u32)> = (0..wiring.consumers).flat_map(|consumer| wiring.channels(consumer)).collect();
        assert_eq!(read.len(), written.len(), "{wiring:?}");
        assert_eq!(read.into_iter().collect::<BTreeSet<_>>(), written, "{wiring:?}");
        assert_eq!(wiring.channel_count(), written.len() as u64, "{wiring:?}");
        for consumer in 0..wiring.consumers {
            for (producer, subpartition) in wiring.channels(consumer) {
                assert_eq!(wiring.reader(producer, subpartition), Some(consumer), "{wiring:?}");
            }
        }
        assert_eq!(wiring.reader(wiring.producers, 0), None, "{wiring:?}");
        assert_eq!(wiring.reader(0, wiring.subpartitions(0)), None, "{wiring:?}");
    }

    #[test]
    fn every_subpartition_has_exactly_one_reader_whatever_the_parallelisms() {
        for partitioner in [Partitioner::Rescale, Partitioner::Rebalance] {
            for producers in 1..=9 {
                for consumers in 1..=9 {
                    assert_each_subpartition_is_read_once(Wiring::new(&partitioner, producers, consumers));
                }
            }
        }
    }

    #[test]
    fn forward_joins_equal_indices() {
        let wiring = Wiring::new(&Partitioner::Forward, 3, 3);
        assert_eq!((0..3).map(|i| wiring.channels(i)).collect::<Vec<_>>(), [[(0, 0)], [(1, 0)], [(2, 0)]]);
    }

    #[test]
    fn rescale_up_gives_each_producer_a_run_of_consumers() {
        let wiring = Wiring::new(&Partitioner::Rescale, 2, 5);
        assert_eq!([wiring.subpartitions(0), wiring.subpartitions(1)], [3, 2]);
        assert_eq!(wiring.channels(2), [(0, 2)]);
        assert_eq!(wiring.channels(3), [(1, 0)]);
    }

    #[test]
    fn rescale_down_gives_each_consumer_a_run_of_producers() {
        let wiring = Wiring::new(&Partitioner::Rescale, 5, 2);
        assert_eq!(wiring.channels(0), [(0, 0), (1, 0), (2, 0)]);
        assert_eq!(wiring.channels(1), [(3, 0), (4, 0)]);
    }
}
