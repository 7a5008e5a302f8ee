//! One operator in its place in the tree, and the ways that lead on from it.

use std::sync::Arc;

use flownet_core::{CustomEvent, Round};

use super::key_kinds::KeyKinds;
use super::{Collector, Operator, OutputSerializer, RecordFormat, RecordPacer, Source, record};
use crate::chain::TaskContext;
use crate::error::TaskError;
use crate::operator_counts::{InputCounts, OperatorCounter};
use crate::outputs::Outputs;
use crate::snapshot::{FINISHED, IsOver, MEDIUM, RestoredPart, RestoredState, Snapshot, WrittenState};
use crate::time::{END_OF_TIME_MS, TimeSignal};
use crate::watermark::SplitSignal;
use crate::watermark::split_events::PendingSplits;
use crate::work::Work;

/// One operator in its place.
pub struct Stage<M: RecordFormat> {
    pub(super) info: M::Info,
    pub(super) kind: Kind<M>,
    /// What it works on.
    pub(super) work: Work,
    pub(super) links: Links,
    brake: Option<RecordPacer>,
    is_open: bool,
    /// What its state is called; empty for one that keeps none.
    uid: String,
    /// Its input has ended, and it was told so.
    has_finished: bool,
    /// So it was before the job was restored.
    had_finished: bool,
    /// Of the keys that came, of the head of a task.
    pub(super) key_kinds: KeyKinds,
    /// What came.
    pub(super) taken: Arc<InputCounts>,
}

/// What a stage does.
pub enum Kind<M: RecordFormat> {
    /// Makes records: the head of a task without inputs.
    Source(Box<dyn Source<M>>),
    /// Takes records.
    Operator(Box<dyn Operator<M>>),
}

/// Where a stage's records go.
#[derive(Clone, Debug, Default)]
pub struct Links {
    main: Vec<Link>,
    /// Side outputs, by the name of their tag.
    tagged: Vec<(Arc<str>, Link)>,
}

/// Where records go.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub(super) to: Target,
    /// Whether they get objects of their own, which they may change and keep.
    pub(super) isolates: bool,
    /// Whether it leads to a stage of [one way](Stage::only_looks) that is asked to [look](Operator::look) first.
    pub(super) looks: bool,
}

impl Link {
    /// One to there. With `isolates` the records get objects of their own there, which may be changed and kept.
    pub fn new(to: Target, isolates: bool) -> Self {
        Self { to, isolates, looks: false }
    }
}

/// Whom a link leads to.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// The stage of this index, which lies behind.
    Stage(usize),
    /// Out of the task, by the exit of this index.
    Exit(usize),
}

impl Links {
    pub(super) const NONE: Self = Self { main: Vec::new(), tagged: Vec::new() };

    /// Adds a way for the records of this tag, or for those without one.
    pub fn add(&mut self, tag: Option<&str>, link: Link) {
        match tag {
            None => self.main.push(link),
            Some(tag) => self.tagged.push((tag.into(), link)),
        }
    }

    /// All that there are.
    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut Link> {
        self.main.iter_mut().chain(self.tagged.iter_mut().map(|(_, link)| link))
    }

    /// For records without a tag.
    #[inline]
    pub(super) fn main(&self) -> &[Link] {
        &self.main
    }

    /// For records of a tag.
    pub(super) fn tagged(&self, tag: &str) -> impl DoubleEndedIterator<Item = Link> {
        self.tagged.iter().filter(move |(of, _)| &**of == tag).map(|(_, link)| *link)
    }

    /// The first way for records of each tag, and for those without one.
    fn first_of_each(&self) -> impl Iterator<Item = Link> {
        let is_first = |at: usize| self.tagged[..at].iter().all(|(tag, _)| *tag != self.tagged[at].0);
        let tagged = (0..self.tagged.len()).filter(move |at| is_first(*at)).map(|at| self.tagged[at].1);
        self.main.first().copied().into_iter().chain(tagged)
    }

    /// For all that is no record.
    pub(super) fn all(&self) -> impl Iterator<Item = Link> {
        self.main.iter().copied().chain(self.tagged.iter().map(|(_, link)| *link))
    }
}

impl<M: RecordFormat> Stage<M> {
    /// A stage that is not open.
    pub fn new(info: M::Info, kind: Kind<M>, links: Links, brake: Option<RecordPacer>) -> Self {
        let work = match &kind {
            Kind::Source(source) => source.work(),
            Kind::Operator(operator) => operator.work(),
        };
        Self {
            info,
            kind,
            work,
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

    /// Writes out what the operator keeps, and what it takes to read it.
    pub(super) fn snapshot(
        &mut self,
        token: M::Token<'_>,
        medium: &M,
        (cx, checkpoint_id, base): (&TaskContext, u64, Option<u64>),
    ) -> Result<WrittenState, TaskError> {
        let mut to = Snapshot::new(&self.uid, cx.subtask, checkpoint_id).on(base);
        match &mut self.kind {
            Kind::Source(source) => source.snapshot(token, &mut to)?,
            Kind::Operator(operator) => operator.snapshot(token, &mut to)?,
        }
        if self.is_finished() {
            to.add_items(FINISHED, [cx.parallelism.to_le_bytes()]);
        }
        if !to.is_empty() && !self.is_writing() {
            add_what_it_takes(token, medium, &mut self.key_kinds, &self.info, &mut to)?;
        }
        Ok(to.into_written())
    }

    /// Whether some of the last snapshot has yet to be written.
    pub(super) fn is_writing(&self) -> bool {
        matches!(&self.kind, Kind::Operator(operator) if operator.is_writing())
    }

    /// Writes on, and gives what there is once that is all.
    pub(super) fn write_on(
        &mut self,
        token: M::Token<'_>,
        medium: &M,
        (cx, checkpoint_id, is_over): (&TaskContext, u64, IsOver<'_>),
    ) -> Result<WrittenState, TaskError> {
        let mut to = Snapshot::new(&self.uid, cx.subtask, checkpoint_id);
        if let Kind::Operator(operator) = &mut self.kind {
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
        (cx, parts): (&TaskContext, &[RestoredPart]),
    ) -> Result<(), TaskError> {
        let from = RestoredState::of_restored(&self.uid, parts, cx.subtask, cx.key_group_range);
        if from.is_empty() {
            return Ok(());
        }
        self.key_kinds.restore(&from)?;
        for (_, mut kept) in from.items(MEDIUM)? {
            medium.restore(token, kept.rest(), &self.info)?;
        }
        // All that there were have finished, or the one whose place this is.
        let mut finished = 0;
        for (subtask, mut parallelism) in from.items(FINISHED)? {
            let before = parallelism.rest().try_into().map_or(0, u32::from_le_bytes);
            finished += 1;
            self.had_finished |= finished == before || (before == cx.parallelism && subtask == cx.subtask);
        }
        match &mut self.kind {
            Kind::Source(source) => source.restore(token, &from),
            Kind::Operator(operator) => operator.restore(token, &from),
        }
    }

    /// Whether it was told of the end of its input. An end before the job was restored is none if records have come since.
    fn is_finished(&self) -> bool {
        self.has_finished || (self.had_finished && self.taken.is_empty())
    }

    pub(super) fn complete(&mut self, token: M::Token<'_>, checkpoint_id: u64) -> Result<(), TaskError> {
        match &mut self.kind {
            Kind::Source(source) => source.complete(token, checkpoint_id),
            Kind::Operator(operator) => operator.complete(token, checkpoint_id),
        }
    }

    pub(super) fn abort(&mut self, token: M::Token<'_>, checkpoint_id: u64) -> Result<(), TaskError> {
        match &mut self.kind {
            Kind::Source(_) => Ok(()),
            Kind::Operator(operator) => operator.abort(token, checkpoint_id),
        }
    }

    pub(super) fn open(&mut self, token: M::Token<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        // Set first: an `open` that fails half way is closed too.
        self.is_open = true;
        match &mut self.kind {
            Kind::Source(source) => source.open(token, cx),
            Kind::Operator(operator) => operator.open(token, cx),
        }
    }

    pub(super) fn close(&mut self, token: M::Token<'_>) -> Result<(), TaskError> {
        if !std::mem::take(&mut self.is_open) {
            return Ok(());
        }
        match &mut self.kind {
            Kind::Source(source) => source.close(token),
            Kind::Operator(operator) => operator.close(token),
        }
    }

    pub(super) fn next_timer_ms(&self) -> Option<i64> {
        match &self.kind {
            Kind::Source(_) => None,
            Kind::Operator(operator) => operator.next_timer_ms(),
        }
    }

    /// Whether it takes records with their keys; it does so for good.
    pub(super) fn is_keyed(&self) -> bool {
        match &self.kind {
            Kind::Source(_) => false,
            Kind::Operator(operator) => operator.is_keyed(),
        }
    }

    pub(super) fn may_be_full(&self) -> bool {
        matches!(&self.kind, Kind::Operator(operator) if operator.may_be_full())
    }

    pub(super) fn is_full(&self) -> bool {
        matches!(&self.kind, Kind::Operator(operator) if operator.is_full())
    }

    pub(super) fn is_passthrough(&self) -> bool {
        matches!(&self.kind, Kind::Operator(operator) if operator.is_passthrough())
    }

    /// Whether records go one way from here, at no rate of its own.
    pub(super) fn goes_one_way(&self) -> bool {
        self.brake.is_none() && self.links.tagged.is_empty() && self.links.main.len() == 1
    }

    /// The time of a record that is to be handed on as it is, and the way it goes; none: it is to be processed.
    #[inline]
    pub(super) fn observe(&mut self, record: &M::Record<'_>, timestamp_ms: i64) -> Option<(i64, Link)> {
        let (Kind::Operator(operator), [link]) = (&mut self.kind, self.links.main()) else { return None };
        let timestamp_ms = operator.observe(record, timestamp_ms)?;
        self.taken.add(M::rows_of(record));
        Some((timestamp_ms, *link))
    }

    pub(super) fn is_aligned(&self) -> bool {
        matches!(&self.kind, Kind::Operator(operator) if operator.is_aligned())
    }

    pub(super) fn is_ahead(&self) -> bool {
        matches!(&self.kind, Kind::Operator(operator) if operator.is_ahead())
    }

    /// What counts what comes to it, and to those behind it, which are of these.
    pub(super) fn counter(&self, stages: &[Self], exits: &[OutputEdge<M>]) -> OperatorCounter {
        let taken_by = |link: Link| match link.to {
            Target::Stage(stage) => Arc::clone(&stages[stage].taken),
            Target::Exit(exit) => Arc::clone(&exits[exit].taken),
        };
        OperatorCounter { taken: Arc::clone(&self.taken), ways: self.links.first_of_each().map(taken_by).collect() }
    }

    pub(super) fn operator(&mut self) -> Option<&mut dyn Operator<M>> {
        match &mut self.kind {
            Kind::Source(_) => None,
            Kind::Operator(operator) => Some(operator.as_mut()),
        }
    }

    /// Waits, not attached, for the turn of a record.
    #[inline]
    pub(super) fn brake(&mut self, out: &mut Outputs) -> Result<(), TaskError> {
        match &mut self.brake {
            Some(brake) => brake.pass(out),
            None => Ok(()),
        }
    }

    /// Takes a record; `collector` is everything behind this stage.
    #[inline]
    pub(super) fn process<'m>(
        &mut self,
        record: M::Record<'m>,
        collector: Collector<'_, 'm, M>,
    ) -> Result<(), TaskError> {
        let mut collector = collector.along(&self.links);
        let Kind::Operator(operator) = &mut self.kind else { return collector.refuse("takes no records") };
        if let Some(brake) = &mut self.brake
            && let Some(wait) = brake.take()
        {
            operator.end_batch(&mut collector)?;
            collector.pause(wait)?;
        }
        self.taken.add(M::rows_of(&record));
        // Whoever goes on behind it has a mark of its own: to set this one's back would be to copy the result.
        collector.begin(self.work);
        operator.process(record, &mut collector)
    }

    /// Takes a record of a keyed edge, for which [`Operator::is_keyed`].
    #[inline]
    pub(super) fn process_keyed(
        &mut self,
        record: &record::KeyedRecord<'_>,
        collector: Collector<'_, '_, M>,
    ) -> Result<(), TaskError> {
        let mut collector = collector.along(&self.links);
        let Kind::Operator(operator) = &mut self.kind else { return collector.refuse("takes no records") };
        if let Some(brake) = &mut self.brake
            && let Some(wait) = brake.take()
        {
            collector.pause(wait)?;
        }
        collector.begin(self.work);
        operator.process_keyed(record, &mut collector)
    }

    /// Lets event time pass, behind all that it makes the operator emit.
    pub(super) fn on_time(&mut self, signal: TimeSignal, collector: Collector<'_, '_, M>) -> Result<(), TaskError> {
        let mut collector = collector.along(&self.links);
        let mut passes = true;
        let is_finished = self.is_finished();
        let before = collector.begin(self.work);
        if let Kind::Operator(operator) = &mut self.kind {
            if let TimeSignal::Watermark(timestamp_ms) = signal {
                operator.on_watermark(timestamp_ms, &mut collector)?;
                if timestamp_ms == END_OF_TIME_MS && !is_finished {
                    self.has_finished = true;
                    operator.finish(&mut collector)?;
                }
            }
            let is_end = signal == TimeSignal::Watermark(END_OF_TIME_MS);
            passes = (is_end || operator.passes_time()) && !operator.hold(signal);
        }
        collector.resume(before);
        if passes { collector.emit_time(signal) } else { Ok(()) }
    }
}

impl<M: RecordFormat> Stage<M> {
    /// Lets a round pass, behind all that came of the records before it.
    pub(super) fn on_round(&mut self, round: Round, collector: Collector<'_, '_, M>) -> Result<(), TaskError> {
        let mut collector = collector.along(&self.links);
        let Kind::Operator(operator) = &mut self.kind else { return collector.refuse("takes no rounds") };
        if operator.hold_round(round, &mut collector)? { Ok(()) } else { collector.emit_round(round) }
    }

    /// Lets what the source says of its parts pass, in its place among the records.
    pub(super) fn on_split(&mut self, signal: SplitSignal, collector: Collector<'_, '_, M>) -> Result<(), TaskError> {
        let mut collector = collector.along(&self.links);
        let Kind::Operator(operator) = &mut self.kind else { return Ok(()) };
        operator.on_split(signal, &mut collector)?;
        if operator.hold_split(signal) { Ok(()) } else { collector.tell_split(signal) }
    }

    pub(super) fn wanted_split(&self) -> Option<u32> {
        match &self.kind {
            Kind::Source(_) => None,
            Kind::Operator(operator) => operator.wanted_split(),
        }
    }
}

/// A way out of the task, with what its readers know of event time.
pub struct OutputEdge<M: RecordFormat> {
    exit: M::Serializer,
    /// Index among the task's outputs.
    output: usize,
    /// Whether records carry their timestamps.
    stamps: bool,
    /// Whether it lies within an iteration.
    in_iteration: bool,
    /// Of one that leads to whoever makes watermarks by split.
    splits: Option<Box<PendingSplits>>,
    watermark_ms: Option<i64>,
    is_idle: bool,
    /// What left.
    taken: Arc<InputCounts>,
}

impl<M: RecordFormat> OutputEdge<M> {
    /// The way of the task's `output`; with `stamps` if somebody behind it wants timestamps.
    pub fn new(exit: M::Serializer, output: usize, stamps: bool) -> Self {
        let taken = Arc::default();
        Self { exit, output, stamps, in_iteration: false, splits: None, watermark_ms: None, is_idle: false, taken }
    }

    /// The same, within an iteration or not: rounds go this way.
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
                // Nobody listens to the watermarks of who is idle.
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

    /// Takes a split signal, to send it with the next record or at the end of the batch.
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

/// Adds what it takes to read what was written, once that is all.
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
