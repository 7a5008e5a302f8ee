//! Reads the dataclasses of `flownet.graph`.

use std::collections::BTreeMap;

use flownet_cluster::plan::{Chaining, Dataflow, LogicalEdge, LogicalOperator};
use flownet_runtime::spec::{Partitioner, Payload};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::chain::CODEC_SETTING;
use crate::codec::Pickle;
use crate::settings::flow_control;

/// `flownet.graph.Operator`.
#[derive(FromPyObject)]
pub(crate) struct PyOperator {
    id: u32,
    uid: Option<String>,
    name: String,
    kind: String,
    payload: Option<PyBackedBytes>,
    local: Option<u32>,
    config: BTreeMap<String, String>,
    parallelism: u32,
    chaining: String,
    on_driver: bool,
    workers: Vec<u32>,
}

/// `flownet.graph.Edge`.
#[derive(FromPyObject)]
pub(crate) struct PyEdge {
    source: u32,
    target: u32,
    partitioner: String,
    payload: Option<PyBackedBytes>,
    local: Option<u32>,
    config: BTreeMap<String, String>,
    flow_control: Option<String>,
}

/// The dataflow that these describe. The codec travels in the operators' configuration, where the chains find it.
pub(crate) fn dataflow(operators: Vec<PyOperator>, edges: Vec<PyEdge>, pickle: Pickle) -> PyResult<Dataflow> {
    Ok(Dataflow {
        operators: operators.into_iter().map(|operator| operator.logical(pickle)).collect::<PyResult<_>>()?,
        edges: edges.into_iter().map(PyEdge::logical).collect::<PyResult<_>>()?,
    })
}

impl PyOperator {
    fn logical(self, pickle: Pickle) -> PyResult<LogicalOperator> {
        let mut config = self.config;
        if pickle == Pickle::Allowed {
            config.insert(CODEC_SETTING.to_owned(), "pickle".to_owned());
        }
        Ok(LogicalOperator {
            id: self.id,
            uid: self.uid,
            name: self.name,
            kind: self.kind,
            payload: payload(self.payload, self.local),
            config,
            parallelism: self.parallelism,
            chaining: match self.chaining.as_str() {
                "always" => Chaining::Always,
                "head" => Chaining::Head,
                "never" => Chaining::Never,
                other => return Err(PyValueError::new_err(format!("unknown chaining {other:?}"))),
            },
            on_driver: self.on_driver,
            workers: self.workers,
        })
    }
}

impl PyEdge {
    fn logical(self) -> PyResult<LogicalEdge> {
        Ok(LogicalEdge {
            from: self.source,
            to: self.target,
            partitioner: match self.partitioner.as_str() {
                "forward" => Partitioner::Forward,
                "rebalance" => Partitioner::Rebalance,
                "rescale" => Partitioner::Rescale,
                "broadcast" => Partitioner::Broadcast,
                "key_group" => Partitioner::KeyGroup,
                "custom" => Partitioner::Custom,
                other => return Err(PyValueError::new_err(format!("unknown partitioner {other:?}"))),
            },
            payload: payload(self.payload, self.local),
            config: self.config,
            flow_control: self.flow_control.as_deref().map(flow_control).transpose()?,
        })
    }
}

fn payload(bytes: Option<PyBackedBytes>, local: Option<u32>) -> Payload {
    match (bytes, local) {
        (_, Some(number)) => Payload::Local(number),
        (Some(bytes), None) => Payload::Bytes(bytes.to_vec()),
        (None, None) => Payload::None,
    }
}
