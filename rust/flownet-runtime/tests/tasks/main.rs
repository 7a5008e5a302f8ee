//! Tasks with native chains, within one process and over loopback TCP.

mod chains;
mod rig;

mod cancel;
mod deploy;
mod exchange;
mod failures;
mod pressure;
mod time;
