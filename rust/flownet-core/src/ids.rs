//! Id types of the exchange: a bare integer does not show its meaning.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
        pub struct $name($inner);

        impl $name {
            /// Wraps a number.
            #[inline]
            #[must_use]
            pub const fn new(value: $inner) -> Self {
                Self(value)
            }

            /// Returns the number, as on the wire and in logs.
            #[inline]
            #[must_use]
            pub const fn get(self) -> $inner {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

macro_rules! index {
    ($name:ident) => {
        impl $name {
            /// Returns the number as a position in a slice.
            #[inline]
            #[must_use]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

id! {
    /// A result partition: the output of one subtask for one edge. Unique in a job.
    PartitionId(u64)
}
id! {
    /// One of the subpartitions of a result partition, counted from 0.
    SubpartitionIndex(u32)
}
id! {
    /// A channel on the wire. Agreed by OPEN, valid on one connection only.
    ChannelId(u32)
}
id! {
    /// One of the channels of an input gate, counted from 0.
    ChannelIndex(u32)
}
id! {
    /// A checkpoint of a job; grows by one each time.
    CheckpointId(u64)
}
id! {
    /// A group of keys: the unit in which keyed state moves between subtasks.
    KeyGroup(u16)
}

index!(SubpartitionIndex);
index!(ChannelIndex);
