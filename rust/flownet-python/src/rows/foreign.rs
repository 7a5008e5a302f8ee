//! The operators on rows that call Python.

use std::sync::Arc;

use flownet_rows::{Foreign, OperatorInfo, RowsMedium, TaskThread, schema};
use flownet_runtime::TaskError;
use flownet_runtime::operator::Kind;
use flownet_runtime::spec::{OperatorSpec, RowsKind};
use pyo3::prelude::*;

use super::collect::Collect;
use super::map_batches::MapBatches;
use super::source::FromArrow;
use crate::chain::{self, KeptThread, Objects, TaskThreads};

/// Makes them of the objects of a job.
pub(crate) struct PythonForeign<'a> {
    pub(crate) objects: &'a Objects,
    pub(crate) threads: Arc<TaskThreads>,
}

impl Foreign for PythonForeign<'_> {
    fn stage(
        &self,
        operator: &OperatorSpec,
        kind: &RowsKind,
        info: &OperatorInfo,
    ) -> Result<Kind<RowsMedium>, TaskError> {
        let info = chain::OperatorInfo::of_rows(info);
        let object =
            Python::attach(|py| self.objects.required_own(py, &operator.payload, operator.kind.name(), &info))?;
        Ok(match kind {
            RowsKind::FromArrow { schema: of, makes_its_own, repeatable } => {
                let given = (*makes_its_own, *repeatable);
                Kind::Source(Box::new(FromArrow::new(object, given, schema(of)?, info)))
            }
            RowsKind::MapBatches { output, .. } => {
                Kind::Operator(Box::new(MapBatches::new(object, schema(output)?, info)))
            }
            RowsKind::Collect { .. } => Kind::Operator(Box::new(Collect::new(object, info))),
            kind => return Err(TaskError::Config(format!("'{}' of rows does not call Python", kind.name()))),
        })
    }

    fn thread(&self) -> Box<dyn TaskThread> {
        Box::new(KeptThread::new(Arc::clone(&self.threads)))
    }
}
