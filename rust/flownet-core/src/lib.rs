//! The credit protocol, wire codec, partitions, gates, records and events of flownet: no IO, no clock, no threads.
#![forbid(unsafe_code)]
