//! Errors of a dataflow that cannot become a job.

use crate::settings::SettingsError;

/// Reason why a dataflow was refused before anything started.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The dataflow is empty.
    #[error("the dataflow has no operators")]
    Empty,
    /// Two operators have the same id.
    #[error("operator id {id} is used twice")]
    DuplicateId {
        /// Duplicate id.
        id: u32,
    },
    /// An edge names an operator that does not exist.
    #[error("edge {edge} names operator {id}, which does not exist")]
    UnknownOperator {
        /// Index of the edge.
        edge: usize,
        /// Unknown id.
        id: u32,
    },
    /// Two operators have the same uid.
    #[error("uid '{uid}' is used by operator '{first}' and by operator '{second}'; give one of them another uid")]
    DuplicateUid {
        /// Duplicate uid.
        uid: String,
        /// Name of the first operator with it.
        first: String,
        /// Name of the other operator.
        second: String,
    },
    /// The parallelism of an operator is out of range.
    #[error("operator '{operator}' has parallelism {parallelism}, allowed are 1 to 32768")]
    Parallelism {
        /// Name of the operator.
        operator: String,
        /// Configured parallelism.
        parallelism: u32,
    },
    /// The dataflow has a cycle.
    #[error("the dataflow has a cycle: {}", cycle_text(.operators))]
    Cycle {
        /// Names of its operators in the order of the edges.
        operators: Vec<String>,
    },
    /// The two sides of a forward edge, which connects subtasks one to one, differ in parallelism.
    #[error(
        "forward edge from '{from}' (parallelism {from_parallelism}) to '{to}' (parallelism {to_parallelism}): \
         give both one parallelism, or use rebalance() or rescale()"
    )]
    ForwardParallelism {
        /// Name of the emitting operator.
        from: String,
        /// Its parallelism.
        from_parallelism: u32,
        /// Name of the receiving operator.
        to: String,
        /// Its parallelism.
        to_parallelism: u32,
    },
    /// An operator has neither inputs nor outputs.
    #[error("operator '{operator}' has neither an input nor an output; connect it to a sink")]
    Unconnected {
        /// Name of the operator.
        operator: String,
    },
    /// A keyed operator has more subtasks than there are key groups.
    #[error(
        "keyed operator '{operator}' has parallelism {parallelism}, but max_parallelism is {max_parallelism}; \
         raise max_parallelism or lower the parallelism"
    )]
    KeyGroups {
        /// Name of the operator.
        operator: String,
        /// Its parallelism.
        parallelism: u32,
        /// Key groups of the job.
        max_parallelism: u32,
    },
    /// A worker needs a function that exists only in this process.
    #[error("operator '{operator}' uses an object of this process but runs in a worker; it cannot be shipped")]
    NotShippable {
        /// Name of the operator, or of the one whose output needs the object.
        operator: String,
    },
    /// User code and data exceed the limit for one worker.
    #[error(
        "the operators of worker {worker} carry {bytes} bytes of functions and data, at most {max_bytes} can be \
         shipped; operator '{operator}' carries most of them, {operator_bytes}: read large data with a source instead"
    )]
    TooLargeToShip {
        /// Name of the largest operator.
        operator: String,
        /// Bytes of this operator for the worker.
        operator_bytes: usize,
        /// Worker with the most bytes.
        worker: u32,
        /// Bytes for this worker.
        bytes: usize,
        /// Limit.
        max_bytes: usize,
    },
    /// An exchange exceeds the limit of channels.
    #[error(
        "the exchange from '{from}' to '{to}' would have {channels} channels, at most {max_channels} are allowed; \
         lower the parallelism of one side"
    )]
    TooManyChannels {
        /// Name of the emitting vertex.
        from: String,
        /// Name of the receiving vertex.
        to: String,
        /// Number of channels.
        channels: u64,
        /// Limit.
        max_channels: u64,
    },
    /// An operator was placed on a worker that the job does not have.
    #[error(
        "operator '{operator}' is placed on worker {worker}, but the job has {workers}; raise workers to {worker}, \
         or place it on another"
    )]
    UnknownWorker {
        /// Name of the operator, together with those of its task.
        operator: String,
        /// Configured worker.
        worker: u32,
        /// Number of workers of the job.
        workers: u32,
    },
    /// An operator that should align a source with others does not directly follow one.
    #[error(
        "operator '{operator}' aligns its source with others, but is not right behind one: {found}; assign timestamps and \
         watermarks to each source by itself, in as many subtasks as it has, before union(), key_by() or rebalance()"
    )]
    NotAtSource {
        /// Name of the operator.
        operator: String,
        /// Upstream of the operator.
        found: String,
    },
    /// An operator aligns a source but makes no watermarks, so the other sources would wait for it to its end.
    #[error(
        "operator '{operator}' aligns its source with others, but makes no watermarks, which these would wait for: \
         leave out with_watermark_alignment(), or use another strategy than no_watermarks()"
    )]
    AlignedWithoutWatermarks {
        /// Name of the operator.
        operator: String,
    },
    /// Two operators align the same source.
    #[error(
        "source '{source_name}' is aligned with others twice, by '{first}' and by '{second}': leave one of them out"
    )]
    AlignedTwice {
        /// Name of the source.
        source_name: String,
        /// Name of one operator.
        first: String,
        /// Name of the other operator.
        second: String,
    },
    /// Two operators of one watermark group have different alignment settings.
    #[error(
        "operators '{first}' and '{second}' are both of the watermark group '{group}', but differ in what they may drift \
         or in how often that is updated: give both the same, or groups of their own"
    )]
    AlignmentDiffers {
        /// Name of the group.
        group: String,
        /// Name of one operator in it.
        first: String,
        /// Name of the other operator.
        second: String,
    },
    /// An iteration with unaligned checkpoints, which cannot store overtaken records of its feedback queue.
    #[error(
        "operator '{operator}' (iterate) has records going round, which checkpoints that overtake cannot keep: leave out \
         unaligned and aligned_timeout"
    )]
    OvertakenIteration {
        /// Name of the operator at its end.
        operator: String,
    },
    /// An iteration lacks one of its ends.
    #[error("iteration '{operator}' has not one beginning and one end")]
    IterationEnds {
        /// Name of an end that exists.
        operator: String,
    },
    /// The step of an iteration does not use its input.
    #[error(
        "the step of iteration '{operator}' returns a stream that does not come from the one it is given, so nothing \
         can go round: build on its argument"
    )]
    IterationApart {
        /// Name of the operator at its end.
        operator: String,
    },
    /// The ends of an iteration are in different places.
    #[error(
        "iteration '{operator}' begins and ends in different places: what goes round stays in its process, so both ends \
         need one parallelism and the same workers"
    )]
    IterationPlaces {
        /// Name of the operator at its end.
        operator: String,
    },
    /// An iteration is nested in another.
    #[error(
        "iteration '{operator}' has '{inner}' of another iteration within its step, and the end of neither could be \
         found: run one behind the other, or make one step of both"
    )]
    NestedIteration {
        /// Name of the operator at the end of the outer iteration.
        operator: String,
        /// Name of an end of the inner iteration.
        inner: String,
    },
    /// An edge within an iteration connects some subtasks to some others, so the end of the iteration could not be
    /// detected.
    #[error(
        "'{from}' to '{to}' is rescale() between different parallelisms, within iteration '{operator}', whose end could \
         not be found: use rebalance(), or give both one parallelism"
    )]
    IterationRescale {
        /// Name of the operator at the end of the iteration.
        operator: String,
        /// Name of the emitting operator.
        from: String,
        /// Name of the receiving operator.
        to: String,
    },
    /// A source is non-replayable: a checkpoint cannot restore its position.
    #[error(
        "source '{operator}' ({kind}) cannot be repeated, so records would be missing after a failure: read from a \
         collection or from files, or accept that with allow_non_replayable=True"
    )]
    NonReplayable {
        /// Name of the source.
        operator: String,
        /// Kind of the source.
        kind: String,
    },
    /// The subtasks exceed the slots of the workers.
    #[error(
        "parallelism {parallelism} needs {needed} slots on a worker, slots_per_worker is {available}; \
         raise slots_per_worker or workers, or lower the parallelism"
    )]
    InsufficientSlots {
        /// Parallelism of the job.
        parallelism: u32,
        /// Slots that it needs on the fullest worker.
        needed: u32,
        /// Slots per worker.
        available: u32,
    },
    /// The memory of a worker is less than its tasks need.
    #[error(
        "{} needs at least {needed} buffers of {segment_bytes} bytes, but has {total}; raise network_memory \
         to {memory_bytes} bytes or more, or lower segment_size or the parallelism",
        worker_text(.worker)
    )]
    InsufficientBuffers {
        /// Worker that lacks the most; 0 is the submitting process.
        worker: u32,
        /// Fewest buffers with which its tasks can make progress.
        needed: usize,
        /// Buffers of the worker.
        total: usize,
        /// Bytes per buffer.
        segment_bytes: usize,
        /// Sufficient memory in bytes.
        memory_bytes: usize,
    },
    /// A setting is invalid.
    #[error(transparent)]
    Settings(#[from] SettingsError),
}

fn cycle_text(operators: &[String]) -> String {
    let mut names: Vec<String> = operators.iter().map(|name| format!("'{name}'")).collect();
    names.extend(names.first().cloned());
    names.join(" -> ")
}

fn worker_text(worker: &u32) -> String {
    match worker {
        0 => "the submitting process".to_owned(),
        worker => format!("worker {worker}"),
    }
}
