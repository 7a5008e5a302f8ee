//! TLS 1.3 between the processes of a job, with mutual authentication by certificate.
//!
//! Both ends present a certificate. Both check that an authority of the job issued the peer's and that it is currently
//! valid. Names and addresses are not checked, because all processes of a job may share one certificate. Each end also
//! proves, within the session and bound to it, that it knows the job's secret; see [`handshake`](crate::handshake).
//! Sessions are not resumed, because each connection is established only once.
//!
//! rustls runs the session until that proof is complete. Afterwards this module seals and opens the records of a data
//! connection, because rustls copies each byte four times. [`takeover`] describes the transition. [`outgoing`] and
//! [`incoming`] are the two directions, without IO. [`record`] and [`keys`] implement RFC 8446's record format and key
//! schedule.

mod certificates;
mod error;
mod incoming;
mod keys;
mod outgoing;
mod record;
mod record_reader;
mod session;
mod takeover;

pub use certificates::Certificates;
pub use error::TlsError;
pub(crate) use error::failure;
pub(crate) use incoming::IncomingRecords;
pub(crate) use outgoing::{OutgoingRecords, RemainingSlices};
pub(crate) use record::complaint;
pub(crate) use session::Tls;
pub(crate) use takeover::{Session, breach};

#[cfg(test)]
mod record_tests;
#[cfg(test)]
mod tests;
