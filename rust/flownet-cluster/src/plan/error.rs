//! Why a dataflow cannot become a job.

use crate::settings::SettingsError;

/// Why a dataflow was refused before anything started.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// There is nothing to run.
    #[error("the dataflow has no operators")]
    Empty,
    /// Two operators have one id.
    #[error("operator id {id} is used twice")]
    DuplicateId {
        /// The id.
        id: u32,
    },
    /// An edge names an operator that is not there.
    #[error("edge {edge} names operator {id}, which does not exist")]
    UnknownOperator {
        /// Position of the edge.
        edge: usize,
        /// The id not found.
        id: u32,
    },
    /// Two operators have one uid.
    #[error("uid '{uid}' is used by operator '{first}' and by operator '{second}'; give one of them another uid")]
    DuplicateUid {
        /// The uid.
        uid: String,
        /// Name of the operator that had it first.
        first: String,
        /// Name of the other operator.
        second: String,
    },
    /// A parallelism that no operator can have.
    #[error("operator '{operator}' has parallelism {parallelism}, allowed are 1 to 32768")]
    Parallelism {
        /// Name of the operator.
        operator: String,
        /// What it was set to.
        parallelism: u32,
    },
    /// Records would go round.
    #[error("the dataflow has a cycle: {}", cycle_text(.operators))]
    Cycle {
        /// Names of its operators in the order of the edges.
        operators: Vec<String>,
    },
    /// A forward edge joins subtask to subtask, so both sides need as many.
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
    /// An operator that neither reads nor is read.
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
    /// A function that only exists in this process is needed in a worker.
    #[error("operator '{operator}' uses an object of this process but runs in a worker; it cannot be shipped")]
    NotShippable {
        /// Name of the operator, or of the one whose output needs the object.
        operator: String,
    },
    /// More user code and data than a worker can be sent.
    #[error(
        "the operators of worker {worker} carry {bytes} bytes of functions and data, at most {max_bytes} can be \
         shipped; operator '{operator}' carries most of them, {operator_bytes}: read large data with a source instead"
    )]
    TooLargeToShip {
        /// Name of the operator that carries most.
        operator: String,
        /// Bytes of it for the worker.
        operator_bytes: usize,
        /// The worker that would be sent most.
        worker: u32,
        /// Bytes for it.
        bytes: usize,
        /// Limit.
        max_bytes: usize,
    },
    /// More channels than a plan may hold.
    #[error(
        "the exchange from '{from}' to '{to}' would have {channels} channels, at most {max_channels} are allowed; \
         lower the parallelism of one side"
    )]
    TooManyChannels {
        /// Name of the emitting vertex.
        from: String,
        /// Name of the receiving vertex.
        to: String,
        /// Channels it would have.
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
        /// Name of the operator, with those of its task.
        operator: String,
        /// Where it should run.
        worker: u32,
        /// Workers of the job.
        workers: u32,
    },
    /// What is to wait for other sources cannot.
    #[error(
        "operator '{operator}' aligns its source with others, but is not right behind one: {found}; assign timestamps and \
         watermarks to each source by itself, in as many subtasks as it has, before union(), key_by() or rebalance()"
    )]
    NotAtSource {
        /// Its name.
        operator: String,
        /// What lies before it.
        found: String,
    },
    /// A source is aligned with others, who would wait for it to its end.
    #[error(
        "operator '{operator}' aligns its source with others, but makes no watermarks, which these would wait for: \
         leave out with_watermark_alignment(), or use another strategy than no_watermarks()"
    )]
    AlignedWithoutWatermarks {
        /// Its name.
        operator: String,
    },
    /// A source that two operators align.
    #[error(
        "source '{source_name}' is aligned with others twice, by '{first}' and by '{second}': leave one of them out"
    )]
    AlignedTwice {
        /// Its name.
        source_name: String,
        /// Name of an operator behind it.
        first: String,
        /// Name of another.
        second: String,
    },
    /// Sources that are to wait for each other are told different things.
    #[error(
        "operators '{first}' and '{second}' are both of the watermark group '{group}', but differ in what they may drift \
         or in how often that is updated: give both the same, or groups of their own"
    )]
    AlignmentDiffers {
        /// The group.
        group: String,
        /// Name of an operator of it.
        first: String,
        /// Name of another.
        second: String,
    },
    /// An iteration, of which no checkpoint can keep what goes round if it overtakes some of it.
    #[error(
        "operator '{operator}' (iterate) has records going round, which checkpoints that overtake cannot keep: leave out \
         unaligned and aligned_timeout"
    )]
    OvertakenIteration {
        /// Name of the operator at its end.
        operator: String,
    },
    /// An iteration without one of its ends.
    #[error("iteration '{operator}' has not one beginning and one end")]
    IterationEnds {
        /// Name of an end that it has.
        operator: String,
    },
    /// An iteration whose step does not use what it is given.
    #[error(
        "the step of iteration '{operator}' returns a stream that does not come from the one it is given, so nothing \
         can go round: build on its argument"
    )]
    IterationApart {
        /// Name of the operator at its end.
        operator: String,
    },
    /// An iteration whose ends are not in the same places.
    #[error(
        "iteration '{operator}' begins and ends in different places: what goes round stays in its process, so both ends \
         need one parallelism and the same workers"
    )]
    IterationPlaces {
        /// Name of the operator at its end.
        operator: String,
    },
    /// An iteration within another.
    #[error(
        "iteration '{operator}' has '{inner}' of another iteration within its step, and the end of neither could be \
         found: run one behind the other, or make one step of both"
    )]
    NestedIteration {
        /// Name of the operator at the end of the outer one.
        operator: String,
        /// An end of the other one.
        inner: String,
    },
    /// Some subtasks within an iteration hear of some others, so that its end could not be found.
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
    /// A source that a checkpoint cannot put back.
    #[error(
        "source '{operator}' ({kind}) cannot be repeated, so records would be missing after a failure: read from a \
         collection or from files, or accept that with allow_non_replayable=True"
    )]
    NonReplayable {
        /// Its name.
        operator: String,
        /// What it does.
        kind: String,
    },
    /// More subtasks than the workers have slots for.
    #[error(
        "parallelism {parallelism} needs {needed} slots on a worker, slots_per_worker is {available}; \
         raise slots_per_worker or workers, or lower the parallelism"
    )]
    InsufficientSlots {
        /// Parallelism that does not fit.
        parallelism: u32,
        /// Slots it needs on the fullest worker.
        needed: u32,
        /// Slots of a worker.
        available: u32,
    },
    /// The minimum of one worker does not fit its memory.
    #[error(
        "{} needs at least {needed} buffers of {segment_bytes} bytes, but has {total}; raise network_memory \
         to {memory_bytes} bytes or more, or lower segment_size or the parallelism",
        worker_text(.worker)
    )]
    InsufficientBuffers {
        /// The worker that lacks most; 0 is the submitting process.
        worker: u32,
        /// Buffers without which its tasks cannot move.
        needed: usize,
        /// Buffers it has.
        total: usize,
        /// Bytes of one.
        segment_bytes: usize,
        /// Memory that would do.
        memory_bytes: usize,
    },
    /// A setting is wrong.
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
