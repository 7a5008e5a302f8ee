//! Reads the dataclasses of `flownet.planning.graph`.

use flownet_cluster::plan::{ChainingPolicy, Dataflow, LogicalEdge, LogicalOperator};
use flownet_runtime::source::RateLimit;
use flownet_runtime::spec::{FlowControl, OperatorKind, Partitioner, Payload};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::convert::Plain;

/// `flownet.planning.graph.Operator`.
#[derive(FromPyObject)]
pub(crate) struct PyOperator {
    id: u32,
    uid: Option<String>,
    name: String,
    kind: Plain<OperatorKind>,
    payload: Option<PyBackedBytes>,
    local: Option<u32>,
    rate_limit: Option<Plain<RateLimit>>,
    brake: Option<f64>,
    target: Option<String>,
    parallelism: u32,
    chaining: Plain<ChainingPolicy>,
    on_driver: bool,
    workers: Vec<u32>,
}

/// `flownet.planning.graph.Edge`.
#[derive(FromPyObject)]
pub(crate) struct PyEdge {
    source: u32,
    tag: Option<String>,
    target: u32,
    side: u8,
    partitioner: Plain<Partitioner>,
    payload: Option<PyBackedBytes>,
    local: Option<u32>,
    flow_control: Option<Plain<FlowControl>>,
}

/// The dataflow that these describe.
pub(crate) fn dataflow(operators: Vec<PyOperator>, edges: Vec<PyEdge>) -> Dataflow {
    Dataflow {
        operators: operators.into_iter().map(PyOperator::logical).collect(),
        edges: edges.into_iter().map(PyEdge::logical).collect(),
    }
}

impl PyOperator {
    fn logical(self) -> LogicalOperator {
        LogicalOperator {
            id: self.id,
            uid: self.uid,
            name: self.name,
            kind: self.kind.0,
            payload: payload(self.payload, self.local),
            rate_limit: self.rate_limit.map(|limit| limit.0),
            brake: self.brake,
            target: self.target,
            parallelism: self.parallelism,
            chaining: self.chaining.0,
            on_driver: self.on_driver,
            workers: self.workers,
        }
    }
}

impl PyEdge {
    fn logical(self) -> LogicalEdge {
        LogicalEdge {
            from: self.source,
            tag: self.tag,
            to: self.target,
            side: self.side,
            partitioner: self.partitioner.0,
            payload: payload(self.payload, self.local),
            flow_control: self.flow_control.map(|control| control.0),
        }
    }
}

fn payload(bytes: Option<PyBackedBytes>, local: Option<u32>) -> Payload {
    match (bytes, local) {
        (_, Some(number)) => Payload::Local(number),
        (Some(bytes), None) => Payload::Bytes(bytes.to_vec()),
        (None, None) => Payload::None,
    }
}
