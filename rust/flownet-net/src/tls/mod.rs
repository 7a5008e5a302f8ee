//! TLS 1.3 between the processes of a job: whose certificates count, and what each end asks of the other.
//!
//! Both ends show a certificate, and both check that the authority of the job issued it and that it is not over. Names
//! and addresses are not looked at: all processes of a job may share one certificate, and each proves to the other
//! within the session, and bound to it, that it knows the job's secret; see [`handshake`](crate::handshake). Sessions
//! are not resumed: a connection is made once.

mod certificates;
mod error;
mod session;

pub use certificates::Certificates;
pub use error::TlsError;
pub(crate) use error::failure;
pub(crate) use session::Tls;

#[cfg(test)]
mod tests;
