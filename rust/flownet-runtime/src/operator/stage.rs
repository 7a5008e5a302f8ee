//! One operator of a chain, and its links to the stages downstream.

use std::sync::Arc;

use flownet_core::{CustomEvent, Round};

use super::key_kinds::KeyKinds;
use super::kind::Role;
use super::{Collector, Kind, OutputSerializer, RecordFormat, RecordPacer, record};
use crate::chain::TaskContext;
use crate::error::TaskError;
use crate::operator_counts::{InputCounts, OperatorCounter};
use crate::outputs::Outputs;
use crate::snapshot::{FINISHED, IsOver, MEDIUM, RestoredPart, RestoredState, Snapshot, WrittenState};
use crate::time::{END_OF_TIME_MS, TimeSignal};
use crate::watermark::split_events::PendingSplits;
use crate::watermark::{SplitSignal, SplitWatermarks};
use crate::work::Work;

/// One operator of a chain.
pub struct Stage<M: RecordFormat> {
    pub(super) info: M::Info,
    pub(super) kind: Kind<M>,
    /// The kind of work that it does.
    pub(super) work: Work,
    pub(super) links: Links,
    brake: Option<RecordPacer>,
    is_open: bool,
    /// Name of its state; empty for an operator without state.
    uid: String,
    /// The operator has processed the end of its input.
    has_finished: bool,
    /// The same, before the job was restored.
    had_finished: bool,
    /// Kinds of the keys that arrived, at the head of a task.
    pub(super) key_kinds: KeyKinds,
    /// Counts its input records.
    pub(super) taken: Arc<InputCounts>,
}

/// The links that lead on from a stage.
#[derive(Clone, Debug, Default)]
pub struct Links {
    main: Vec<Link>,
    /// Side outputs, by the name of their tag.
    tagged: Vec<(Arc<str>, Link)>,
}

/// A link to a stage or output edge.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub(super) to: Target,
    /// The receiver gets its own copies, which it may change and retain.
    pub(super) isolates: bool,
    /// The link leads to a stage with [one link](Stage::goes_one_way) whose operator has to
    /// [observe](super::TimestampAssigner::observe) the record first.
    pub(super) looks: bool,
}

impl Link {
    /// A link to this target. With `isolates`, records are copied, so the receiver may change and retain them.
    pub fn new(to: Target, isolates: bool) -> Self {
        Self { to, isolates, looks: false }
    }
}

/// The receiver of a link.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// The stage of this index, further downstream.
    Stage(usize),
    /// Out of the task, by the output edge of this index.
    Exit(usize),
}

impl Links {
    pub(super) const NONE: Self = Self { main: Vec::new(), tagged: Vec::new() };

    /// Adds a link for records of this tag, or for records without one.
    pub fn add(&mut self, tag: Option<&str>, link: Link) {
        match tag {
            None => self.main.push(link),
            Some(tag) => self.tagged.push((tag.into(), link)),
        }
    }

    /// All links.
    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut Link> {
        self.main.iter_mut().chain(self.tagged.iter_mut().map(|(_, link)| link))
    }

    /// Links for records without a tag.
    #[inline]
    pub(super) fn main(&self) -> &[Link] {
        &self.main
    }

    /// Links for records of this tag.
    pub(super) fn tagged(&self, tag: &str) -> impl DoubleEndedIterator<Item = Link> {
        self.tagged.iter().filter(move |(of, _)| &**of == tag).map(|(_, link)| *link)
    }

    /// The first link for each tag, and the first one without a tag.
    fn first_of_each(&self) -> impl Iterator<Item = Link> {
        let is_first = |at: usize| self.tagged[..at].iter().all(|(tag, _)| *tag != self.tagged[at].0);
        let tagged = (0..self.tagged.len()).filter(move |at| is_first(*at)).map(|at| self.tagged[at].1);
        self.main.first().copied().into_iter().chain(tagged)
    }

    /// Links for events, such as watermarks.
    pub(super) fn all(&self) -> impl Iterator<Item = Link> {
        self.main.iter().copied().chain(self.tagged.iter().map(|(_, link)| *link))
    }
}

impl<M: RecordFormat> Stage<M> {
    /// A stage that is not open yet.
    pub fn new(info: M::Info, kind: Kind<M>, links: Links, brake: Option<RecordPacer>) -> Self {
        Self {
            info,
            work: kind.work(),
            kind,
            links,
            brake,
            is_open: false,
            uid: String::new(),
            has_finished: false,
            had_finished: false,
            key_kinds: KeyKinds::default(),
            taken: Arc::default(),
        }
    }

    /// The same, with state of this name: [`OperatorSpec::state_uid`](crate::spec::OperatorSpec::state_uid).
    #[must_use]
    pub fn with_state_of(self, uid: String) -> Self {
        Self { uid, ..self }
    }

    /// Writes the state of the operator, and the data that is needed to decode it.
    pub(super) fn snapshot(
        &mut self,
        token: M::Token<'_>,
        medium: &M,
        cx: &TaskContext,
        checkpoint_id: u64,
        base: Option<u64>,
    ) -> Result<WrittenState, TaskError> {
        let mut to = Snapshot::new(&self.uid, cx.subtask, checkpoint_id).on(base);
        match self.kind.role() {
            Role::Source(source) => source.snapshot(token, &mut to)?,
            Role::Operator(operator) => operator.snapshot(token, &mut to)?,
        }
        if self.is_finished() {
            to.add_items(FINISHED, [cx.parallelism.to_le_bytes()]);
        }
        // Data for decoding is written last (I1 of snapshots).
        if !to.is_empty() && !self.is_writing() {
            add_what_it_takes(token, medium, &mut self.key_kinds, &self.info, &mut to)?;
        }
        Ok(to.into_written())
    }

    /// Returns true if part of the last snapshot is yet to be written.
    pub(super) fn is_writing(&self) -> bool {
        matches!(&self.kind, Kind::Keyed(operator) if operator.is_writing())
    }

    /// Continues to write. Returns the written state; it is complete once [`is_writing`](Self::is_writing) returns
    /// false.
    pub(super) fn write_on(
        &mut self,
        token: M::Token<'_>,
        medium: &M,
        cx: &TaskContext,
        checkpoint_id: u64,
        is_over: IsOver<'_>,
    ) -> Result<WrittenState, TaskError> {
        let mut to = Snapshot::new(&self.uid, cx.subtask, checkpoint_id);
        if let Kind::Keyed(operator) = &mut self.kind {
            operator.write_on(token, &mut to, is_over)?;
        }
        if !self.is_writing() {
            add_what_it_takes(token, medium, &mut self.key_kinds, &self.info, &mut to)?;
        }
        Ok(to.into_written())
    }

    pub(super) fn restore(
        &mut self,
        token: M::Token<'_>,
        medium: &M,
        cx: &TaskContext,
        parts: &[RestoredPart],
    ) -> Result<(), TaskError> {
        let from = RestoredState::of_restored(&self.uid, parts, cx.subtask, cx.key_group_range);
        if from.is_empty() {
            return Ok(());
        }
        self.key_kinds.restore(&from)?;
        // Before the operator decodes values that need it.
        for (_, mut kept) in from.items(MEDIUM)? {
            medium.restore(token, kept.rest(), &self.info)?;
        }
        // True if all former subtasks have finished, or the one that this subtask replaces.
        let mut finished = 0;
        for (subtask, mut parallelism) in from.items(FINISHED)? {
            let before = parallelism.rest().try_into().map_or(0, u32::from_le_bytes);
            finished += 1;
            self.had_finished |= finished == before || (before == cx.parallelism && subtask == cx.subtask);
        }
        match self.kind.role() {
            Role::Source(source) => source.restore(token, &from),
            Role::Operator(operator) => operator.restore(token, &from),
        }
    }

    /// Returns true if it has processed the end of its input. An end before the restore does not count if records have
    /// come since.
    fn is_finished(&self) -> bool {
        self.has_finished || (self.had_finished && self.taken.is_empty())
    }

    pub(super) fn complete(&mut self, token: M::Token<'_>, checkpoint_id: u64) -> Result<(), TaskError> {
        match self.kind.role() {
            Role::Source(source) => source.complete(token, checkpoint_id),
            Role::Operator(operator) => operator.complete(token, checkpoint_id),
        }
    }

    pub(super) fn abort(&mut self, token: M::Token<'_>, checkpoint_id: u64) -> Result<(), TaskError> {
        match self.kind.role() {
            Role::Source(_) => Ok(()),
            Role::Operator(operator) => operator.abort(token, checkpoint_id),
        }
    }

    pub(super) fn open(&mut self, token: M::Token<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        // Set first, so that a failed `open` is closed too.
        self.is_open = true;
        match self.kind.role() {
            Role::Source(source) => source.open(token, cx),
            Role::Operator(operator) => operator.open(token, cx),
        }
    }

    pub(super) fn close(&mut self, token: M::Token<'_>) -> Result<(), TaskError> {
        if !std::mem::take(&mut self.is_open) {
            return Ok(());
        }
        match self.kind.role() {
            Role::Source(source) => source.close(token),
            Role::Operator(operator) => operator.close(token),
        }
    }

    pub(super) fn next_timer_ms(&self) -> Option<i64> {
        self.kind.operator().and_then(|operator| operator.next_timer_ms())
    }

    /// Returns true if it takes records with their keys. The answer never changes.
    pub(super) fn is_keyed(&self) -> bool {
        matches!(self.kind, Kind::Keyed(_))
    }

    pub(super) fn may_be_full(&self) -> bool {
        self.kind.waiting().is_some()
    }

    pub(super) fn is_full(&self) -> bool {
        self.kind.waiting().is_some_and(|operator| operator.is_full())
    }

    pub(super) fn is_passthrough(&self) -> bool {
        matches!(&self.kind, Kind::Timestamps(operator) if operator.is_passthrough())
    }

    /// Returns true if records follow a single link from here, and no pacer slows them.
    pub(super) fn goes_one_way(&self) -> bool {
        self.brake.is_none() && self.links.tagged.is_empty() && self.links.main.len() == 1
    }

    /// Observes a record to forward unchanged. Returns its timestamp and its link, or `None` if it has to be processed.
    #[inline]
    pub(super) fn observe(&mut self, record: &M::Record<'_>, timestamp_ms: i64) -> Option<(i64, Link)> {
        let (Kind::Timestamps(operator), [link]) = (&mut self.kind, self.links.main()) else { return None };
        let timestamp_ms = operator.observe(record, timestamp_ms)?;
        self.taken.add(M::rows_of(record));
        Some((timestamp_ms, *link))
    }

    /// Returns true if it aligns the source of the task with other sources, so that the source may have to wait.
    pub(super) fn is_aligned(&self) -> bool {
        self.kind.watermarks().is_some_and(SplitWatermarks::is_aligned)
    }

    /// Returns true if the source has read past the event time up to which it may read.
    pub(super) fn is_ahead(&self) -> bool {
        self.kind.watermarks().is_some_and(SplitWatermarks::is_ahead)
    }

    /// Sets the event time up to which the source may read.
    pub(super) fn align(&mut self, limit_ms: i64) {
        if let Kind::Timestamps(operator) = &mut self.kind {
            operator.watermarks_mut().align(limit_ms);
        }
    }

    /// Returns the counter for its input and for the input of the stages and edges directly downstream.
    pub(super) fn counter(&self, stages: &[Self], exits: &[OutputEdge<M>]) -> OperatorCounter {
        let taken_by = |link: Link| match link.to {
            Target::Stage(stage) => Arc::clone(&stages[stage].taken),
            Target::Exit(exit) => Arc::clone(&exits[exit].taken),
        };
        OperatorCounter { taken: Arc::clone(&self.taken), ways: self.links.first_of_each().map(taken_by).collect() }
    }

    /// Waits, detached, for the turn of a record.
    #[inline]
    pub(super) fn brake(&mut self, out: &mut Outputs) -> Result<(), TaskError> {
        match &mut self.brake {
            Some(brake) => brake.pass(out),
            None => Ok(()),
        }
    }

    /// Processes a record. `collector` is the downstream side of this stage.
    #[inline]
    pub(super) fn process<'m>(
        &mut self,
        record: M::Record<'m>,
        collector: Collector<'_, 'm, M>,
    ) -> Result<(), TaskError> {
        let mut collector = collector.along(&self.links);
        let Some(operator) = self.kind.operator_mut() else { return collector.refuse("takes no records") };
        if let Some(brake) = &mut self.brake
            && let Some(wait) = brake.take()
        {
            // The operator emits its gathered records before the pause (I2 of the operator model).
            operator.end_batch(&mut collector)?;
            collector.pause(wait)?;
        }
        self.taken.add(M::rows_of(&record));
        // Downstream stages set their own work marker. Restoring ours here would force a copy of the `Result`.
        collector.begin(self.work);
        operator.process(record, &mut collector)
    }

    /// Processes a record of a keyed edge.
    #[inline]
    pub(super) fn process_keyed(
        &mut self,
        record: &record::KeyedRecord<'_>,
        collector: Collector<'_, '_, M>,
    ) -> Result<(), TaskError> {
        let mut collector = collector.along(&self.links);
        let Kind::Keyed(operator) = &mut self.kind else { return collector.refuse("takes no records by key") };
        if let Some(brake) = &mut self.brake
            && let Some(wait) = brake.take()
        {
            collector.pause(wait)?;
        }
        collector.begin(self.work);
        operator.process_keyed(record, &mut collector)
    }

    /// Passes event time on, after all output that it makes the operator emit.
    pub(super) fn on_time(&mut self, signal: TimeSignal, collector: Collector<'_, '_, M>) -> Result<(), TaskError> {
        let mut collector = collector.along(&self.links);
        let mut passes = true;
        let is_finished = self.is_finished();
        let before = collector.begin(self.work);
        if let Some(operator) = self.kind.operator_mut() {
            if let TimeSignal::Watermark(timestamp_ms) = signal {
                operator.on_watermark(timestamp_ms, &mut collector)?;
                if timestamp_ms == END_OF_TIME_MS && !is_finished {
                    self.has_finished = true;
                    operator.finish(&mut collector)?;
                }
            }
            let is_end = signal == TimeSignal::Watermark(END_OF_TIME_MS);
            passes = match &mut self.kind {
                // The end of time also passes operators that make their own watermarks.
                Kind::Timestamps(_) => is_end,
                kind => !kind.waiting_mut().is_some_and(|operator| operator.hold(signal)),
            };
        }
        collector.resume(before);
        if passes { collector.emit_time(signal) } else { Ok(()) }
    }
}

impl<M: RecordFormat> Stage<M> {
    /// Passes a round on, after all output of the records before it.
    pub(super) fn on_round(&mut self, round: Round, collector: Collector<'_, '_, M>) -> Result<(), TaskError> {
        let mut collector = collector.along(&self.links);
        let passes = match &mut self.kind {
            Kind::Source(_) => return collector.refuse("takes no rounds"),
            Kind::IterationExit(operator) => return operator.return_round(round),
            kind => !kind.waiting_mut().is_some_and(|operator| operator.hold_round(round)),
        };
        if passes { collector.emit_round(round) } else { Ok(()) }
    }

    /// Passes a split signal on, in its place among the records.
    pub(super) fn on_split(&mut self, signal: SplitSignal, collector: Collector<'_, '_, M>) -> Result<(), TaskError> {
        let mut collector = collector.along(&self.links);
        let Some(operator) = self.kind.operator_mut() else { return Ok(()) };
        operator.on_split(signal, &mut collector)?;
        let is_held = self.kind.waiting_mut().is_some_and(|operator| operator.hold_split(signal));
        if is_held { Ok(()) } else { collector.tell_split(signal) }
    }

    /// The split that the source should read next.
    pub(super) fn wanted_split(&self) -> Option<u32> {
        self.kind.watermarks().and_then(SplitWatermarks::wanted)
    }
}

/// An edge out of the task, with the event time that its readers know.
pub struct OutputEdge<M: RecordFormat> {
    exit: M::Serializer,
    /// Index among the task's outputs.
    output: usize,
    /// True if records carry their timestamps.
    stamps: bool,
    /// True if the edge is part of an iteration.
    in_iteration: bool,
    /// Pending split signals, if downstream makes watermarks per split.
    splits: Option<Box<PendingSplits>>,
    watermark_ms: Option<i64>,
    is_idle: bool,
    /// Counts the records that leave.
    taken: Arc<InputCounts>,
}

impl<M: RecordFormat> OutputEdge<M> {
    /// The edge to the task's `output`. With `stamps` if a downstream operator needs timestamps.
    pub fn new(exit: M::Serializer, output: usize, stamps: bool) -> Self {
        let taken = Arc::default();
        Self { exit, output, stamps, in_iteration: false, splits: None, watermark_ms: None, is_idle: false, taken }
    }

    /// The same, within an iteration or not. Rounds pass only edges within one.
    #[must_use]
    pub fn in_iteration(self, in_iteration: bool) -> Self {
        Self { in_iteration, ..self }
    }

    /// The same, with the split signals of the task's source if `tells_splits`.
    #[must_use]
    pub fn telling_splits(self, tells_splits: bool) -> Self {
        Self { splits: tells_splits.then(Box::default), ..self }
    }

    pub(super) fn info(&self) -> &M::Info {
        self.exit.info()
    }

    #[inline]
    pub(super) fn emit(
        &mut self,
        token: M::Token<'_>,
        record: &M::Record<'_>,
        timestamp_ms: i64,
        out: &mut Outputs,
    ) -> Result<(), TaskError> {
        self.taken.add(M::rows_of(record));
        if let Some(splits) = &mut self.splits {
            // The record belongs to the split of the last signal, so signals go first.
            let events = splits.before_record();
            self.send_events(token, events, out)?;
        }
        let stamp = self.stamps.then(|| record::difference(timestamp_ms, self.watermark_ms));
        self.exit.emit(token, record, stamp, out)
    }

    pub(super) fn tell_time(
        &mut self,
        token: M::Token<'_>,
        signal: TimeSignal,
        out: &mut Outputs,
    ) -> Result<(), TaskError> {
        match signal {
            TimeSignal::Watermark(timestamp_ms) => {
                // Readers ignore the watermarks of an idle channel, so end the idle state first.
                if std::mem::take(&mut self.is_idle) {
                    self.send(token, TimeSignal::Idle(false), out)?;
                }
                self.watermark_ms = Some(timestamp_ms);
            }
            TimeSignal::Idle(idle) if self.is_idle == idle => return Ok(()),
            TimeSignal::Idle(idle) => self.is_idle = idle,
        }
        self.send(token, signal, out)
    }

    /// Takes a split signal, and sends it before the next record or at the end of the batch.
    pub(super) fn tell_split(&mut self, signal: SplitSignal) {
        self.splits.iter_mut().for_each(|splits| splits.add(signal));
    }

    pub(super) fn end_batch(&mut self, token: M::Token<'_>, out: &mut Outputs) -> Result<(), TaskError> {
        let Some(splits) = &mut self.splits else { return Ok(()) };
        let events = splits.at_end_of_batch();
        self.send_events(token, events, out)
    }

    fn send_events(&self, token: M::Token<'_>, events: Vec<CustomEvent>, out: &mut Outputs) -> Result<(), TaskError> {
        let output = self.output;
        events.into_iter().try_for_each(|event| M::detached(token, out, |out| out.send_custom(output, event)))
    }

    pub(super) fn tell_round(&self, token: M::Token<'_>, round: Round, out: &mut Outputs) -> Result<(), TaskError> {
        if !self.in_iteration {
            return Ok(());
        }
        let output = self.output;
        M::detached(token, out, move |out| out.send_round(output, round))
    }

    fn send(&self, token: M::Token<'_>, signal: TimeSignal, out: &mut Outputs) -> Result<(), TaskError> {
        let output = self.output;
        M::detached(token, out, move |out| out.tell_time(output, signal))
    }
}

/// Adds the data that is needed to decode the written state, once all of it is written.
fn add_what_it_takes<M: RecordFormat>(
    token: M::Token<'_>,
    medium: &M,
    key_kinds: &mut KeyKinds,
    info: &M::Info,
    to: &mut Snapshot<'_>,
) -> Result<(), TaskError> {
    key_kinds.snapshot::<M>(to);
    let medium = medium.snapshot(token, info)?;
    if !medium.is_empty() {
        to.add_items(MEDIUM, medium);
    }
    Ok(())
}
