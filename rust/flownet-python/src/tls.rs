//! Certificates for connections that Python makes itself.

use std::net::IpAddr;

use flownet_cluster::{ClusterError, PlanError, Tls};
use flownet_net::{Secret, SecretError};
use pyo3::prelude::*;

use crate::errors;

/// The certificates, in PEM, of processes that listen on `host`, under this setting of `tls`; None where it is off. They
/// are those that a peer would accept.
#[pyfunction]
pub(crate) fn certificates(py: Python<'_>, tls: &str, host: &str) -> PyResult<Option<String>> {
    let refuse = |text: String| errors::config(py, "address", &text);
    let host: IpAddr = host.parse().map_err(|_| refuse(format!("address is {host:?}, must be numeric")))?;
    let secret = Secret::generate().map_err(|error: SecretError| errors::flownet(py, &error.to_string()))?;
    let credentials = Tls::from_text(tls).credentials(secret, host);
    let credentials = credentials.map_err(|error| errors::cluster(py, ClusterError::Plan(PlanError::from(error))))?;
    Ok(credentials.certificates().map(|certificates| certificates.pem().to_owned()))
}
