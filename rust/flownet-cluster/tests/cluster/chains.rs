//! Implements a small language of operators: one chain is one operator.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use flownet_runtime::{
    ChainFactory, OperatorFailure, SourceStatus, TaskChain, TaskContext, TaskError, TaskMetrics,
    operator::{Collector, Kind, Operator, Source},
    snapshot::Snapshot,
    spec::{OperatorKind, OperatorSpec, Payload, TaskSpec},
    time::END_OF_TIME_MS,
};

use crate::format::{NumberFormat, chain};

/// Records that a `collect` sink of the submitting process has received.
pub(crate) type CollectedRecords = Arc<Mutex<Vec<u64>>>;

/// Builds chains of [`Numbers`] or a [`NativeOperator`]; `objects` are those of the submitting process.
#[derive(Default)]
pub(crate) struct NativeFactory {
    pub(crate) objects: HashMap<u32, CollectedRecords>,
}

/// Emits every number below `count` that belongs to this subtask, then acts as `after` says.
struct Numbers {
    next: u64,
    step: u64,
    count: u64,
    after: AfterNumbers,
    subtask: u32,
    metrics: Arc<TaskMetrics>,
}

/// Operator of one of these kinds.
enum NativeOperator {
    /// Sums its records; emits the sum at the end.
    Sum { sum: u64 },
    /// Passes records through; fails on the number `at`.
    Fail { at: u64, name: String, subtask: u32, parallelism: u32 },
    /// Takes `pause` for each record.
    Slow { pause: Duration },
    /// The same, without checking for cancellation.
    Stubborn { pause: Duration },
    /// Panics at the first record.
    Panic,
    /// Stores all records.
    Collect { into: CollectedRecords },
}

/// Behaviour of a source of numbers after its last one.
#[derive(Clone, Copy)]
enum AfterNumbers {
    End,
    /// Starts again at the first number.
    StartAgain,
    /// Stays idle until it is ended.
    StayOpen,
}

impl ChainFactory for NativeFactory {
    fn build(&self, task: &TaskSpec) -> Result<TaskChain, TaskError> {
        let [operator] = task.operators.as_slice() else {
            return Err(TaskError::Config("native chains have one operator".into()));
        };
        Ok(chain(self.kind(operator, task)?, task)?.into())
    }
}

impl NativeFactory {
    fn kind(&self, operator: &OperatorSpec, task: &TaskSpec) -> Result<Kind<NumberFormat>, TaskError> {
        let OperatorKind::Custom { name, settings } = &operator.kind else {
            return Err(TaskError::Config("not of this language".into()));
        };
        let TaskSpec { subtask, parallelism, .. } = *task;
        let number = |key: &str| settings.get(key).map_or(0, |text| text.parse().expect("a number"));
        Ok(Kind::Operator(Box::new(match name.as_str() {
            "numbers" => {
                return Ok(Kind::Source(Box::new(Numbers {
                    next: u64::from(subtask),
                    step: u64::from(parallelism),
                    count: number("count"),
                    after: match (settings.contains_key("endless"), settings.contains_key("open")) {
                        (true, _) => AfterNumbers::StartAgain,
                        (false, true) => AfterNumbers::StayOpen,
                        (false, false) => AfterNumbers::End,
                    },
                    subtask,
                    metrics: Arc::default(),
                })));
            }
            "sum" => NativeOperator::Sum { sum: 0 },
            "fail" => NativeOperator::Fail { at: number("at"), name: operator.name.clone(), subtask, parallelism },
            "slow" => NativeOperator::Slow { pause: Duration::from_micros(number("pause_us")) },
            "stubborn" => NativeOperator::Stubborn { pause: Duration::from_micros(number("pause_us")) },
            "panic" => NativeOperator::Panic,
            "collect" => NativeOperator::Collect { into: self.object(&operator.payload)? },
            other => return Err(TaskError::Config(format!("unknown kind '{other}'"))),
        })))
    }

    fn object(&self, payload: &Payload) -> Result<CollectedRecords, TaskError> {
        let Payload::Local(key) = payload else { return Err(TaskError::Config("not an object".into())) };
        self.objects.get(key).cloned().ok_or_else(|| TaskError::Config("the object is elsewhere".into()))
    }
}

impl Source<NumberFormat> for Numbers {
    fn open(&mut self, (): (), cx: &TaskContext) -> Result<(), TaskError> {
        self.metrics = Arc::clone(&cx.metrics);
        Ok(())
    }

    fn emit<'m>(&mut self, collector: &mut Collector<'_, 'm, NumberFormat>) -> Result<SourceStatus, TaskError> {
        for _ in 0..1000 {
            if self.next >= self.count {
                match self.after {
                    AfterNumbers::End => return Ok(SourceStatus::Finished),
                    AfterNumbers::StartAgain => self.next = u64::from(self.subtask),
                    AfterNumbers::StayOpen => return Ok(SourceStatus::Idle { wake_after: Duration::from_secs(60) }),
                }
            }
            let number = self.next;
            self.next += self.step;
            self.metrics.add_records_in(1);
            collector.emit(number)?;
        }
        Ok(SourceStatus::More)
    }

    fn snapshot(&mut self, (): (), _: &mut Snapshot<'_>) -> Result<(), TaskError> {
        Ok(())
    }
}

impl Operator<NumberFormat> for NativeOperator {
    fn process<'m>(&mut self, number: u64, collector: &mut Collector<'_, 'm, NumberFormat>) -> Result<(), TaskError> {
        match self {
            Self::Sum { sum } => {
                *sum += number;
                return Ok(());
            }
            Self::Fail { at, name, subtask, parallelism } if *at == number => {
                return Err(OperatorFailure {
                    operator: name.clone(),
                    subtask: *subtask,
                    parallelism: *parallelism,
                    record: Some(number.to_string()),
                    error_type: "ValueError".into(),
                    message: "told to fail".into(),
                    traceback: None,
                    is_transient: false,
                }
                .into());
            }
            Self::Fail { .. } => {}
            Self::Slow { pause } => collector.pause(*pause)?,
            Self::Stubborn { pause } => std::thread::sleep(*pause),
            Self::Panic => panic!("told to panic"),
            Self::Collect { into } => into.lock().expect("unpoisoned").push(number),
        }
        collector.emit(number)
    }

    fn on_watermark(
        &mut self,
        timestamp_ms: i64,
        collector: &mut Collector<'_, '_, NumberFormat>,
    ) -> Result<(), TaskError> {
        match self {
            Self::Sum { sum } if timestamp_ms == END_OF_TIME_MS => collector.emit(*sum),
            _ => Ok(()),
        }
    }

    fn snapshot(&mut self, (): (), _: &mut Snapshot<'_>) -> Result<(), TaskError> {
        Ok(())
    }
}
