//! TLS 1.3 between the processes of a job: whose certificates count, and what each end asks of the other.
//!
//! Both ends show a certificate, and both check that the authority of the job issued it and that it is not over. Names
//! and addresses are not looked at: all processes of a job may share one certificate, and each proves to the other
//! within the session, and bound to it, that it knows the job's secret; see [`handshake`](crate::handshake). Sessions
//! are not resumed: a connection is made once.
//!
//! rustls makes the session, up to the proof. The records of a data connection are then sealed and opened here, because
//! rustls copies each byte four times on its way: [`takeover`] says what goes from one to the other, [`outgoing`] and
//! [`incoming`] are the two directions, without IO, and [`record`] and [`keys`] what RFC 8446 says of them.

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
