//! Implements a small language of operators: one chain is one operator.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use flownet_core::{Target, keygroup::hash_key};
use flownet_runtime::time::{END_OF_TIME_MS, TimeSignal};
use flownet_runtime::{
    Chain, ChainFactory, InputBatch, OperatorFailure, Outputs, SourceStatus, TaskContext, TaskError, TaskMetrics,
    spec::{OperatorKind, OperatorSpec, Partitioner, Payload, TaskSpec},
};

/// Records that a `collect` sink of the submitting process has received.
pub(crate) type CollectedRecords = Arc<Mutex<Vec<u64>>>;

/// Builds [`NativeOperator`] chains; `objects` are those of the submitting process.
#[derive(Default)]
pub(crate) struct NativeFactory {
    pub(crate) objects: HashMap<u32, CollectedRecords>,
}

/// Operator of one of these kinds.
enum NativeOperator {
    /// Emits every number below `count` that belongs to this subtask, then acts as `after` says.
    Numbers { next: u64, step: u64, count: u64, after: AfterNumbers },
    /// Sums its records; emits the sum at the end.
    Sum { sum: u64 },
    /// Passes records through; fails on the number `at`.
    Fail { at: u64, name: String },
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

struct NativeChain {
    operator: NativeOperator,
    keyed: Vec<bool>,
    subtask: u32,
    parallelism: u32,
    metrics: Arc<TaskMetrics>,
}

impl ChainFactory for NativeFactory {
    fn build(&self, task: &TaskSpec) -> Result<Box<dyn Chain>, TaskError> {
        let [operator] = task.operators.as_slice() else {
            return Err(TaskError::Config("native chains have one operator".into()));
        };
        let keyed = task.outputs.iter().map(|output| output.partitioner == Partitioner::KeyGroup).collect();
        let operator = self.operator(operator, task)?;
        let metrics = Arc::default();
        Ok(Box::new(NativeChain { operator, keyed, subtask: task.subtask, parallelism: task.parallelism, metrics }))
    }
}

impl NativeFactory {
    fn operator(&self, operator: &OperatorSpec, task: &TaskSpec) -> Result<NativeOperator, TaskError> {
        let OperatorKind::Custom { name, settings } = &operator.kind else {
            return Err(TaskError::Config("not of this language".into()));
        };
        let number = |key: &str| settings.get(key).map_or(0, |text| text.parse().expect("a number"));
        Ok(match name.as_str() {
            "numbers" => NativeOperator::Numbers {
                next: u64::from(task.subtask),
                step: u64::from(task.parallelism),
                count: number("count"),
                after: match (settings.contains_key("endless"), settings.contains_key("open")) {
                    (true, _) => AfterNumbers::StartAgain,
                    (false, true) => AfterNumbers::StayOpen,
                    (false, false) => AfterNumbers::End,
                },
            },
            "sum" => NativeOperator::Sum { sum: 0 },
            "fail" => NativeOperator::Fail { at: number("at"), name: operator.name.clone() },
            "slow" => NativeOperator::Slow { pause: Duration::from_micros(number("pause_us")) },
            "stubborn" => NativeOperator::Stubborn { pause: Duration::from_micros(number("pause_us")) },
            "panic" => NativeOperator::Panic,
            "collect" => NativeOperator::Collect { into: self.object(&operator.payload)? },
            other => return Err(TaskError::Config(format!("unknown kind '{other}'"))),
        })
    }

    fn object(&self, payload: &Payload) -> Result<CollectedRecords, TaskError> {
        let Payload::Local(key) = payload else { return Err(TaskError::Config("not an object".into())) };
        self.objects.get(key).cloned().ok_or_else(|| TaskError::Config("the object is elsewhere".into()))
    }
}

impl NativeChain {
    fn emit(&self, number: u64, out: &mut Outputs) -> Result<(), TaskError> {
        let record = number.to_le_bytes();
        for (output, keyed) in self.keyed.iter().enumerate() {
            let target = if *keyed { Target::KeyHash(hash_key(&record)) } else { Target::Any };
            out.emit(output, target, &record)?;
        }
        Ok(())
    }

    fn take(&mut self, number: u64, out: &mut Outputs) -> Result<(), TaskError> {
        match &mut self.operator {
            NativeOperator::Numbers { .. } => return Err(TaskError::Config("a source has no input".into())),
            NativeOperator::Sum { sum } => {
                *sum += number;
                return Ok(());
            }
            NativeOperator::Fail { at, name } if *at == number => {
                return Err(OperatorFailure {
                    operator: name.clone(),
                    subtask: self.subtask,
                    parallelism: self.parallelism,
                    record: Some(number.to_string()),
                    error_type: "ValueError".into(),
                    message: "told to fail".into(),
                    traceback: None,
                    is_transient: false,
                }
                .into());
            }
            NativeOperator::Fail { .. } => {}
            NativeOperator::Slow { pause } => out.pause(*pause)?,
            NativeOperator::Stubborn { pause } => std::thread::sleep(*pause),
            NativeOperator::Panic => panic!("told to panic"),
            NativeOperator::Collect { into } => into.lock().expect("unpoisoned").push(number),
        }
        self.emit(number, out)
    }
}

impl Chain for NativeChain {
    fn open(&mut self, cx: &TaskContext) -> Result<(), TaskError> {
        self.metrics = Arc::clone(&cx.metrics);
        Ok(())
    }

    fn process(&mut self, input: &mut InputBatch<'_>, out: &mut Outputs) -> Result<(), TaskError> {
        while let Some((_, record)) = input.next()? {
            let number = u64::from_le_bytes(record.try_into().expect("eight bytes"));
            self.take(number, out)?;
        }
        Ok(())
    }

    fn poll_source(&mut self, out: &mut Outputs) -> Result<SourceStatus, TaskError> {
        for _ in 0..1000 {
            let NativeOperator::Numbers { next, step, count, after } = &mut self.operator else {
                return Err(TaskError::Config("not a source".into()));
            };
            if *next >= *count {
                match after {
                    AfterNumbers::End => return Ok(SourceStatus::Finished),
                    AfterNumbers::StartAgain => *next = u64::from(self.subtask),
                    AfterNumbers::StayOpen => return Ok(SourceStatus::Idle { wake_after: Duration::from_secs(60) }),
                }
            }
            let number = *next;
            *next += *step;
            self.metrics.add_records_in(1);
            self.emit(number, out)?;
        }
        Ok(SourceStatus::More)
    }

    fn on_time(&mut self, signal: TimeSignal, _: i64, out: &mut Outputs) -> Result<(), TaskError> {
        if let (NativeOperator::Sum { sum }, TimeSignal::Watermark(END_OF_TIME_MS)) = (&self.operator, signal) {
            self.emit(*sum, out)?;
        }
        out.tell_time_to_all(signal)
    }
}
