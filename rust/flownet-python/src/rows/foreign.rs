//! Operators on rows that call Python.

use std::sync::Arc;

use flownet_rows::{ExternalOperators, OperatorInfo, OwnFunctions, Partitions, RowsFormat, TaskThread, schema};
use flownet_runtime::TaskError;
use flownet_runtime::operator::Kind;
use flownet_runtime::spec::{OperatorSpec, RowFormat, RowsKind};
use pyo3::prelude::*;

use super::collect::Collect;
use super::encoding::{Encoding, ParquetWriters};
use super::map_batches::MapBatches;
use super::own_aggregates::OwnAggregates;
use super::sink::SinkTo;
use super::source::{FromArrow, FromArrowSettings};
use super::splits::FileSplits;
use super::write_files::WriteFiles;
use crate::chain::{self, KeptThread, Objects, PartFiles, ThreadsOfTask};

/// Creates them from the objects of a job.
pub(crate) struct PythonForeign<'a> {
    pub(crate) objects: &'a Objects,
    /// None if its chains run on threads that already have the interpreter.
    pub(crate) threads: Option<ThreadsOfTask>,
}

impl PythonForeign<'_> {
    /// The user's object of an operator.
    fn object(&self, operator: &OperatorSpec, info: &chain::OperatorInfo) -> Result<Py<PyAny>, TaskError> {
        Python::attach(|py| self.objects.required_own(py, &operator.payload, operator.kind.name(), info))
    }
}

impl ExternalOperators for PythonForeign<'_> {
    fn stage(
        &self,
        operator: &OperatorSpec,
        kind: &RowsKind,
        info: &OperatorInfo,
    ) -> Result<Kind<RowsFormat>, TaskError> {
        let info = chain::OperatorInfo::of_rows(info);
        if let RowsKind::WriteFiles { input, path, format, delimiter, header, partition_by } = kind {
            let (partitions, levels, written) = match (&**partition_by, schema(input)?) {
                ([], input) => (None, Vec::new(), input),
                (columns, input) => {
                    let partitions = Partitions::new(&input, columns);
                    let partitions = partitions.map_err(|error| TaskError::Config(error.to_string()))?;
                    let (levels, written) = (partitions.levels(), Arc::clone(partitions.schema()));
                    (Some(partitions), levels, written)
                }
            };
            let encoding = match format {
                RowFormat::Csv => {
                    Encoding::Csv { delimiter: delimiter.and_then(|given| u8::try_from(given).ok()).unwrap_or(b',') }
                }
                RowFormat::Json => Encoding::Json,
                RowFormat::Parquet => Encoding::Parquet(ParquetWriters::new(self.object(operator, &info)?, written)),
            };
            let files = PartFiles::new((path.to_path(), levels), format.suffix(), header.clone(), info.clone());
            return Ok(Kind::Operator(Box::new(WriteFiles::new(files, encoding, partitions, info))));
        }
        let object = self.object(operator, &info)?;
        Ok(match kind {
            RowsKind::FromArrow { schema: of, makes_its_own, repeatable, time_column } => {
                let settings = FromArrowSettings {
                    makes_its_own: *makes_its_own,
                    is_repeatable: *repeatable,
                    time_column: time_column.clone(),
                };
                Kind::Source(Box::new(FromArrow::new(object, settings, schema(of)?, info)))
            }
            RowsKind::ReadFiles { schema: of, .. } => {
                Kind::Source(Box::new(FileSplits::new(object, schema(of)?, info)))
            }
            RowsKind::MapBatches { output, .. } => {
                Kind::Operator(Box::new(MapBatches::new(object, schema(output)?, info)))
            }
            RowsKind::Collect { .. } => Kind::Operator(Box::new(Collect::new(object, info))),
            RowsKind::Sink { format, .. } => Kind::Operator(Box::new(SinkTo::new(object, format, info))),
            kind => return Err(TaskError::Config(format!("'{}' of rows does not call Python", kind.name()))),
        })
    }

    fn own_functions(&self, operator: &OperatorSpec, info: &OperatorInfo) -> Result<Box<dyn OwnFunctions>, TaskError> {
        let info = chain::OperatorInfo::of_rows(info);
        Ok(Box::new(OwnAggregates::new(self.object(operator, &info)?, info)))
    }

    fn thread(&self) -> Option<Box<dyn TaskThread>> {
        Some(Box::new(KeptThread::new(self.threads.clone()?)))
    }
}
