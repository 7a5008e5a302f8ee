//! The operators of one task: a tree of stages.
//!
//! Records pass through it depth first, one at a time. They are encoded where they leave the task and decoded where
//! they enter it. Keyed operators head a task and get their records as bytes with the key in front, so operators that
//! only count never build a record.

use std::sync::Arc;

use flownet_core::{CustomEvent, Round};

use super::collector::Downstream;
use super::record::{KeyedRecord, take_stamp};
use super::stage::{OutputEdge, Stage, Target};
use super::{Collector, InspectedState, Inspection, Kind, ReceiveOutcome, RecordFormat};
use crate::chain::{AwaitedInput, SourceStatus, TaskContext};
use crate::error::TaskError;
use crate::input::InputBatch;
use crate::operator_counts::OperatorCounters;
use crate::outputs::Outputs;
use crate::snapshot::{IsOver, RestoredPart, WrittenState};
use crate::source::RateLimit;
use crate::state_stats::StateStats;
use crate::time::{NO_TIMESTAMP, TimeSignal};
use crate::watermark::split_events::{self, SPLITS_EVENT};
use crate::work::Work;

/// All operators of one task, fused: records between them are never serialised.
///
/// The task thread makes all calls, one at a time. It calls `open` first, then `restore` if there is state to load.
/// Then it calls any mix of `process` (tasks with inputs) or `poll_source` (tasks without), `on_time`, `on_custom`,
/// `on_timer` and `on_arrived`. If the input reached its own end and was not stopped without draining, `on_time`
/// follows for [`END_OF_TIME_MS`](crate::time::END_OF_TIME_MS). If the input ended at all, `commit` follows. `close`
/// comes last, always. After a call that returns an error, only `close` follows. Exceptions are `snapshot` and
/// `write_on`, whose errors only fail their checkpoint.
///
/// In a job with checkpoints, `snapshot` may be called at any time between `open` and `close`, between two records.
/// After each snapshot the chain learns, at once or later, whether its checkpoint completed.
///
/// Calls should be bounded: cancels and timers are checked between them.
pub struct OperatorChain<M: RecordFormat> {
    medium: M,
    /// Upstream first: a stage only emits to later stages. The first stage is the head of the chain.
    stages: Vec<Stage<M>>,
    exits: Vec<OutputEdge<M>>,
    /// The form in which records arrive, for each input of the task.
    entries: Vec<Entry>,
    /// True if the head takes records with their keys.
    is_keyed: bool,
    /// True if some operator may be full at times.
    may_be_full: bool,
    /// True if some operator aligns the source with others.
    is_aligned: bool,
    /// Rate limit of its source.
    rate_limit: Option<RateLimit>,
    /// Set once the chain is open.
    cx: Option<TaskContext>,
    is_open: bool,
}

/// The form in which records of one input reach the head of the chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The input of the operator, counted from 0.
    pub side: u8,
    /// True if records start with their key.
    pub keyed: bool,
    /// True if records carry their timestamps.
    pub stamps: bool,
}

impl<M: RecordFormat> OperatorChain<M> {
    /// Creates a chain of these stages, the head first, with one entry for each input of the task.
    pub fn new(
        medium: M,
        mut stages: Vec<Stage<M>>,
        exits: Vec<OutputEdge<M>>,
        entries: Vec<Entry>,
        rate_limit: Option<RateLimit>,
    ) -> Result<Self, TaskError> {
        let Some(head) = stages.first() else {
            return Err(TaskError::Config("a chain without operators".into()));
        };
        let is_keyed = head.is_keyed();
        ask_who_only_looks(&mut stages);
        let may_be_full = stages.iter().any(Stage::may_be_full);
        let is_aligned = stages.iter().any(Stage::is_aligned);
        Ok(Self {
            medium,
            stages,
            exits,
            entries,
            is_keyed,
            may_be_full,
            is_aligned,
            rate_limit,
            cx: None,
            is_open: false,
        })
    }

    /// Shows the state of each operator, upstream first, between two batches. `decode` decodes keys and records.
    pub fn inspect<'m>(
        &self,
        token: M::Token<'m>,
        decode: impl Fn(&M, &[u8], &M::Info) -> Result<M::Record<'m>, TaskError>,
        mut tell: impl FnMut(&M::Info, OperatorInspection<'m, M>),
    ) -> Result<(), TaskError> {
        for stage in &self.stages {
            let Some(operator) = stage.kind.operator() else { continue };
            let mut found = InspectedState::new();
            operator.inspect(token, &mut found)?;
            tell(&stage.info, found.decoded(|bytes| decode(&self.medium, bytes, &stage.info))?);
        }
        Ok(())
    }

    /// Visits all operators in order, upstream first, so that downstream operators see the output of those before them.
    fn each_operator(
        &mut self,
        token: M::Token<'_>,
        out: &mut Outputs,
        now_ms: i64,
        mut work: impl FnMut(&mut Kind<M>, &mut Collector<'_, '_, M>) -> Result<(), TaskError>,
    ) -> Result<(), TaskError> {
        for at in 0..self.stages.len() {
            let (Stage { kind, links, work: stage_work, .. }, downstream) =
                Downstream::split(&mut self.stages, at, &mut self.exits);
            if matches!(kind, Kind::Source(_)) {
                continue;
            }
            out.metrics().begin(*stage_work);
            work(kind, &mut Collector::new(token, downstream, links, out, now_ms))?;
        }
        out.metrics().begin(Work::Rust);
        Ok(())
    }

    fn end_batch(&mut self, token: M::Token<'_>, out: &mut Outputs) -> Result<(), TaskError> {
        self.each_operator(token, out, NO_CLOCK_MS, |kind, collector| match kind.operator_mut() {
            Some(operator) => operator.end_batch(collector),
            None => Ok(()),
        })?;
        self.exits.iter_mut().try_for_each(|exit| exit.end_batch(token, out))
    }

    /// Processes records detached for as long as the head can. Returns a record that it cannot take.
    fn process_detached(&mut self, input: &mut InputBatch<'_>, out: &mut Outputs) -> Result<DetachedBatch, TaskError> {
        let now_ms = input.now_ms();
        let watermark_ms = input.watermark_ms();
        let head = &mut self.stages[0];
        let mut next = input.next()?;
        if let Some((index, bytes)) = next
            && self.is_keyed
            && head.key_kinds.is_unsure()
            && self.entries[index].keyed
        {
            head.key_kinds.check::<M>(self.entries[index].keyed_record(bytes, watermark_ms)?.key, &head.info)?;
        }
        while let Some((index, bytes)) = next {
            let entry = self.entries[index];
            if !(entry.keyed && self.is_keyed) {
                // Copied, because the input lends the bytes only until its next call.
                return Ok(DetachedBatch::UpTo { index, bytes: bytes.to_vec(), watermark_ms });
            }
            let record = entry.keyed_record(bytes, watermark_ms)?;
            if let Kind::Keyed(operator) = &mut head.kind
                && !operator.process_detached(&record, now_ms)?
            {
                return Ok(DetachedBatch::UpTo { index, bytes: bytes.to_vec(), watermark_ms });
            }
            head.taken.add(count_rows(&self.medium, record.value(), out));
            head.brake(out)?;
            next = input.next()?;
        }
        Ok(DetachedBatch::All)
    }

    /// Processes one record of an input, at the watermark of its channel.
    #[inline]
    fn push(
        &mut self,
        token: M::Token<'_>,
        ArrivedRecord { index, bytes, watermark_ms }: ArrivedRecord<'_>,
        out: &mut Outputs,
        now_ms: i64,
    ) -> Result<(), TaskError> {
        out.metrics().begin(Work::Rust);
        let entry = self.entries[index];
        let (head, downstream) = Downstream::split(&mut self.stages, 0, &mut self.exits);
        let (timestamp_ms, value) = if entry.keyed {
            let record = entry.keyed_record(bytes, watermark_ms)?;
            if self.is_keyed {
                head.taken.add(count_rows(&self.medium, record.value(), out));
                let collector = Collector::new(token, downstream, NO_LINKS, out, now_ms);
                return head.process_keyed(&record, collector.of_record(record.timestamp_ms, entry.side));
            }
            // A keyed edge may lead to an operator that needs no key: it gets the record alone.
            (record.timestamp_ms, record.value())
        } else {
            entry.split(bytes, watermark_ms)?
        };
        count_rows(&self.medium, value, out);
        match self.medium.receive(token, value, &head.info)? {
            ReceiveOutcome::Record(record) => {
                let collector = Collector::new(token, downstream, NO_LINKS, out, now_ms);
                head.process(record, collector.of_record(timestamp_ms, entry.side))
            }
            ReceiveOutcome::Gathered { is_enough: true } => self.push_gathered(token, out, now_ms),
            ReceiveOutcome::Gathered { is_enough: false } => Ok(()),
        }
    }

    /// Processes the records that the record format has gathered.
    fn push_gathered(&mut self, token: M::Token<'_>, out: &mut Outputs, now_ms: i64) -> Result<(), TaskError> {
        while let Some(record) = self.medium.take_gathered(token, &self.stages[0].info)? {
            let (head, downstream) = Downstream::split(&mut self.stages, 0, &mut self.exits);
            let collector = Collector::new(token, downstream, NO_LINKS, out, now_ms);
            head.process(record, collector.of_record(NO_TIMESTAMP, 0))?;
        }
        Ok(())
    }
}

/// Finds the links to passthroughs. A record with no other receiver passes through them uncopied, because the receiver
/// after them gets its own copy.
fn ask_who_only_looks<M: RecordFormat>(stages: &mut [Stage<M>]) {
    for at in 0..stages.len() {
        let (stage, after) = stages[at..].split_first_mut().expect("there is a stage at each index");
        let is_only_one = stage.links.all().count() == 1;
        for link in stage.links.all_mut() {
            if let Target::Stage(to) = link.to
                && let Some(next) = after.get(to.wrapping_sub(at + 1)).filter(|next| next.is_passthrough())
            {
                link.isolates &= !is_only_one;
                link.looks = next.goes_one_way();
            }
        }
    }
}

/// State of an operator, with decoded keys.
pub type OperatorInspection<'m, M> = Inspection<<M as RecordFormat>::Record<'m>, <M as RecordFormat>::Record<'m>>;

/// Counts the rows of a record that arrived, and returns their number.
#[inline]
fn count_rows<M: RecordFormat>(medium: &M, bytes: &[u8], out: &Outputs) -> u64 {
    let Some(rows) = medium.rows(bytes) else { return 1 };
    out.metrics().count_rows_in(rows);
    rows
}

/// The time for calls in which no operator reads the clock.
const NO_CLOCK_MS: i64 = i64::MIN;

/// Links of a new collector, until the stage sets its own.
const NO_LINKS: &super::Links = &super::Links::NONE;

impl Entry {
    #[inline]
    fn split(self, bytes: &[u8], watermark_ms: Option<i64>) -> Result<(i64, &[u8]), TaskError> {
        if self.stamps { Ok(take_stamp(bytes, watermark_ms)?) } else { Ok((NO_TIMESTAMP, bytes)) }
    }

    #[inline]
    fn keyed_record(self, bytes: &[u8], watermark_ms: Option<i64>) -> Result<KeyedRecord<'_>, TaskError> {
        let (timestamp_ms, body) = self.split(bytes, watermark_ms)?;
        Ok(KeyedRecord::parse(body)?.at(timestamp_ms, self.side))
    }
}

/// A record of an input of the task, at the watermark of its channel.
struct ArrivedRecord<'a> {
    index: usize,
    bytes: &'a [u8],
    watermark_ms: Option<i64>,
}

/// Progress of a batch before the record format is attached.
enum DetachedBatch {
    All,
    /// This record of an input, at its channel's watermark, has to be processed attached. The head has not taken it.
    UpTo {
        index: usize,
        bytes: Vec<u8>,
        watermark_ms: Option<i64>,
    },
}

impl<M: RecordFormat> OperatorChain<M> {
    /// Prepares the operators. State and timers start empty.
    pub(crate) fn open(&mut self, cx: &TaskContext) -> Result<(), TaskError> {
        self.is_open = true;
        self.cx = Some(cx.clone());
        cx.metrics.assume(M::WORK);
        let counters = self.stages.iter().map(|stage| stage.counter(&self.stages, &self.exits));
        cx.metrics.set_operators(OperatorCounters::new(counters.collect()));
        self.medium.open()?;
        M::attach(|token| self.stages.iter_mut().try_for_each(|stage| stage.open(token, cx)))
    }

    /// Processes the records that have arrived, those of several buffers if there are more. Records left in the batch
    /// come again with the next call.
    pub(crate) fn process(&mut self, input: &mut InputBatch<'_>, out: &mut Outputs) -> Result<(), TaskError> {
        let DetachedBatch::UpTo { index, bytes, watermark_ms } = self.process_detached(input, out)? else {
            return Ok(());
        };
        let now_ms = input.now_ms();
        M::attached(out, |token, out| {
            self.push(token, ArrivedRecord { index, bytes: &bytes, watermark_ms }, out, now_ms)?;
            'batch: loop {
                if self.is_full() {
                    break;
                }
                let watermark_ms = input.watermark_ms();
                while let Some((index, bytes)) = input.next()? {
                    self.push(token, ArrivedRecord { index, bytes, watermark_ms }, out, now_ms)?;
                    if self.may_be_full && self.is_full() {
                        break 'batch;
                    }
                }
                if !input.next_buffer()? {
                    break;
                }
            }
            self.push_gathered(token, out, now_ms)?;
            self.end_batch(token, out)
        })
    }

    /// Emits some records of the source. Called only while the outputs are available.
    pub(crate) fn poll_source(&mut self, out: &mut Outputs) -> Result<SourceStatus, TaskError> {
        if let Kind::Source(source) = &mut self.stages[0].kind
            && let Some(status) = source.fill(out)?
        {
            return Ok(status);
        }
        M::attached(out, |token, out| {
            let (head, downstream) = Downstream::split(&mut self.stages, 0, &mut self.exits);
            let mut collector = Collector::new(token, downstream, &head.links, out, NO_CLOCK_MS);
            let status = match &mut head.kind {
                Kind::Source(source) => {
                    collector.begin(head.work);
                    source.emit(&mut collector)?
                }
                _ => collector.refuse("heads a task without inputs and is no source")?,
            };
            self.end_batch(token, out)?;
            Ok(status)
        })
    }

    /// Adds splits for the source, as its operator encodes them. The source skips those that it knows.
    pub(crate) fn add_splits(&mut self, splits: &Arc<[u8]>) {
        if let Kind::Source(source) = &mut self.stages[0].kind {
            source.add_splits(splits);
        }
    }

    /// The rate limit of a source, as set by the job's author. Called once, before the first poll.
    pub(crate) fn rate_limit(&self) -> Option<RateLimit> {
        self.rate_limit
    }

    /// Handles the event time of all inputs together, at `now_ms` of the wall clock. The chain sends it to its outputs,
    /// after the output that it causes. At the end of time, wall-clock timers fire too, so that nothing is lost.
    pub(crate) fn on_time(&mut self, signal: TimeSignal, now_ms: i64, out: &mut Outputs) -> Result<(), TaskError> {
        M::attached(out, |token, out| {
            let (head, downstream) = Downstream::split(&mut self.stages, 0, &mut self.exits);
            head.on_time(signal, Collector::new(token, downstream, NO_LINKS, out, now_ms))?;
            self.end_batch(token, out)
        })
    }

    /// Handles an event that the upstream chain [sent](Outputs::send_custom), in its place among the records of its
    /// channel.
    pub(crate) fn on_custom(&mut self, event: &CustomEvent, out: &mut Outputs) -> Result<(), TaskError> {
        if event.kind() != SPLITS_EVENT {
            return self.medium.on_custom(event, &self.stages[0].info);
        }
        let signals = split_events::decode(event)?;
        M::attached(out, |token, out| {
            for signal in signals {
                let (head, downstream) = Downstream::split(&mut self.stages, 0, &mut self.exits);
                head.on_split(signal, Collector::new(token, downstream, NO_LINKS, out, NO_CLOCK_MS))?;
            }
            self.end_batch(token, out)
        })
    }

    /// Handles a round that has arrived on all inputs within an iteration. The chain sends it to its outputs within the
    /// iteration, after the output of the records before it.
    pub(crate) fn on_round(&mut self, round: Round, out: &mut Outputs) -> Result<(), TaskError> {
        M::attached(out, |token, out| {
            let (head, downstream) = Downstream::split(&mut self.stages, 0, &mut self.exits);
            head.on_round(round, Collector::new(token, downstream, NO_LINKS, out, NO_CLOCK_MS))?;
            self.end_batch(token, out)
        })
    }

    /// The input has ended, with `drain` if it reached its own end. If the chain has ended too, it returns its own
    /// `drain`: false if it leaves work to the run that resumes the job. Otherwise it waits for its waker, and the task
    /// calls this again after each call of the waker.
    pub(crate) fn end_input(&mut self, drain: bool, now_ms: i64, out: &mut Outputs) -> Result<Option<bool>, TaskError> {
        M::attached(out, |token, out| {
            let (Stage { kind, links, .. }, downstream) = Downstream::split(&mut self.stages, 0, &mut self.exits);
            let Kind::IterationEntry(operator) = kind else { return Ok(Some(drain)) };
            let mut collector = Collector::new(token, downstream, links, out, now_ms);
            let ended = operator.end_input(drain, &mut collector)?;
            self.end_batch(token, out)?;
            Ok(ended)
        })
    }

    /// The time at which it wants `on_timer` next, in milliseconds of wall-clock time since the epoch.
    ///
    /// Called once per batch, so it must be cheap.
    pub(crate) fn next_timer_ms(&self) -> Option<i64> {
        self.stages.iter().filter_map(Stage::next_timer_ms).min()
    }

    /// Wall-clock time has reached `next_timer_ms`. Fires everything due at `now_ms`.
    pub(crate) fn on_timer(&mut self, now_ms: i64, out: &mut Outputs) -> Result<(), TaskError> {
        M::attached(out, |token, out| {
            self.each_operator(token, out, now_ms, |kind, collector| match kind.operator_mut() {
                Some(operator) => operator.on_timer(now_ms, collector),
                None => Ok(()),
            })?;
            self.end_batch(token, out)
        })
    }

    /// Loads the state of its operators, and skips that of others.
    pub(crate) fn restore(&mut self, parts: &[RestoredPart]) -> Result<(), TaskError> {
        let Self { medium, stages, cx: Some(cx), .. } = self else { return Ok(()) };
        M::attach(|token| stages.iter_mut().try_for_each(|stage| stage.restore(token, medium, cx, parts)))
    }

    /// Writes all state of the operators, and prepares the output that sinks commit with this checkpoint. It may build
    /// on the complete checkpoint `base`. Large state may be [written later](Self::write_on).
    pub(crate) fn snapshot(&mut self, checkpoint_id: u64, base: Option<u64>) -> Result<WrittenState, TaskError> {
        let Self { medium, stages, cx: Some(cx), .. } = self else { return Ok(WrittenState::default()) };
        let before = cx.metrics.begin(Work::Serialising);
        let written = M::attach(|token| {
            let mut all = WrittenState::default();
            for stage in stages {
                all.add(stage.snapshot(token, medium, cx, checkpoint_id, base)?);
            }
            Ok(all)
        });
        cx.metrics.resume(before);
        written
    }

    /// Returns true if part of the snapshot is yet to be written.
    pub(crate) fn is_writing(&self) -> bool {
        self.stages.iter().any(Stage::is_writing)
    }

    /// Continues to write the last snapshot, which is of this checkpoint, until all is written or `is_over` ends this
    /// turn. Returns the parts to add to the snapshot. An error only fails the checkpoint.
    pub(crate) fn write_on(&mut self, checkpoint_id: u64, is_over: IsOver<'_>) -> Result<WrittenState, TaskError> {
        let Self { medium, stages, cx: Some(cx), .. } = self else { return Ok(WrittenState::default()) };
        let before = cx.metrics.begin(Work::Serialising);
        let written = M::attach(|token| {
            let mut all = WrittenState::default();
            for stage in stages.iter_mut().filter(|stage| stage.is_writing()) {
                all.add(stage.write_on(token, medium, cx, checkpoint_id, is_over)?);
                if stage.is_writing() {
                    break;
                }
            }
            Ok(all)
        });
        cx.metrics.resume(before);
        written
    }

    /// The state stats of the operators, and the lag of the source. Called after `open`, and from time to time between
    /// two batches.
    pub(crate) fn tally(&self) -> StateStats {
        let mut tally = StateStats::default();
        for stage in &self.stages {
            match &stage.kind {
                Kind::Source(source) => source.tally(&mut tally),
                kind => kind.operator().into_iter().for_each(|operator| operator.tally(&mut tally)),
            }
        }
        tally
    }

    /// The data that is needed to decode records on their way to or from the chain, for a checkpoint that overtakes
    /// them.
    pub(crate) fn medium(&mut self) -> Result<Vec<Vec<u8>>, TaskError> {
        M::attach(|token| self.medium.snapshot(token, &self.stages[0].info))
    }

    /// Restores one item of [`medium`](Self::medium), before any record that needs it.
    pub(crate) fn learn(&mut self, kept: &[u8]) -> Result<(), TaskError> {
        M::attach(|token| self.medium.restore(token, kept, &self.stages[0].info))
    }

    /// The checkpoint is complete: sinks commit the output that they prepared for it and for earlier ones.
    pub(crate) fn complete(&mut self, checkpoint_id: u64) -> Result<(), TaskError> {
        M::attach(|token| self.stages.iter_mut().try_for_each(|stage| stage.complete(token, checkpoint_id)))
    }

    /// The checkpoint will never complete. The output that was prepared for it belongs to the next one, and no more is
    /// written for it.
    pub(crate) fn abort(&mut self, checkpoint_id: u64) -> Result<(), TaskError> {
        M::attach(|token| self.stages.iter_mut().try_for_each(|stage| stage.abort(token, checkpoint_id)))
    }

    /// The input that the task awaits. A chain that is full because of its own records then takes input in between.
    pub(crate) fn await_input(&mut self, awaited: AwaitedInput) {
        if let Some(Kind::IterationEntry(operator)) = self.stages.first_mut().map(|head| &mut head.kind) {
            operator.await_input(awaited);
        }
    }

    /// Returns true if it takes no more records for now, because its operators wait for something outside the exchange.
    /// The task then neither reads its input nor polls its source.
    ///
    /// Called once per batch, so it must be cheap.
    pub(crate) fn is_full(&self) -> bool {
        self.may_be_full && self.stages.iter().any(Stage::is_full)
    }

    /// Sets the event time up to which the source may read, because of the sources that it is aligned with.
    pub(crate) fn align(&mut self, limit_ms: i64) {
        self.stages.iter_mut().for_each(|stage| stage.align(limit_ms));
    }

    /// Returns true if the source has read past that time. The task does not poll it then.
    ///
    /// Called once per poll, so it must be cheap.
    pub(crate) fn is_ahead(&self) -> bool {
        self.is_aligned && self.stages.iter().any(Stage::is_ahead)
    }

    /// The [`TaskWaker`](crate::TaskWaker) was called: emits records that have arrived, at `now_ms` of the wall clock.
    pub(crate) fn on_arrived(&mut self, now_ms: i64, out: &mut Outputs) -> Result<(), TaskError> {
        M::attached(out, |token, out| {
            self.each_operator(token, out, now_ms, |kind, collector| match kind.waiting_mut() {
                Some(operator) => operator.on_arrived(collector),
                None => Ok(()),
            })?;
            self.end_batch(token, out)
        })
    }

    /// The last record has been processed: sinks commit their output.
    pub(crate) fn commit(&mut self, out: &mut Outputs) -> Result<(), TaskError> {
        M::attached(out, |token, out| {
            self.each_operator(token, out, NO_CLOCK_MS, |kind, collector| {
                let Some(operator) = kind.operator_mut() else { return Ok(()) };
                operator.end_batch(collector)?;
                operator.commit(collector)
            })
        })
    }

    /// Releases the resources that `open` acquired. Called once, after success or failure. An error fails a task that
    /// has not failed yet, because a sink may write its last bytes here.
    pub(crate) fn close(&mut self) -> Result<(), TaskError> {
        if !std::mem::take(&mut self.is_open) {
            return Ok(());
        }
        let closed = M::attach(|token| {
            let mut closed = Ok(());
            // Every stage is closed, whatever failed (I3 of the operator model).
            for stage in &mut self.stages {
                let result = stage.close(token);
                if let (Err(_), Err(error)) = (&closed, &result) {
                    let operator = M::name(&stage.info);
                    tracing::warn!(operator, %error, "close() failed, after that of an operator before it");
                }
                closed = closed.and(result);
            }
            self.stages.clear();
            self.exits.clear();
            closed
        });
        self.medium.close();
        closed
    }
}
