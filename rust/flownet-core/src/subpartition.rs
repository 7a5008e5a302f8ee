//! Producer-side queue of one subpartition.
