//! What lies behind a stage: the ways of a record, of event time and of the end of a batch.

use std::time::Duration;

use flownet_core::Round;

use super::stage::{Link, Links, OutputEdge, Stage, Target};
use super::{Kind, RecordFormat};
use crate::error::TaskError;
use crate::mailbox::CancelToken;
use crate::outputs::Outputs;
use crate::processor::TimeSpent;
use crate::time::{END_OF_TIME_MS, NO_TIMESTAMP, TimeSignal};
use crate::time_accounting::TimeState;
use crate::watermark::SplitSignal;
use crate::work::{Mark, Work};

/// What lies behind a stage, while the medium is attached.
pub struct Collector<'a, 'm, M: RecordFormat> {
    /// What it takes to work on records.
    pub token: M::Token<'m>,
    /// Event time of the record that is being worked on, and of what is emitted for it; [`NO_TIMESTAMP`] if it has none.
    pub timestamp_ms: i64,
    /// Wall-clock time of the batch, of the timers or of the watermark, in milliseconds since the epoch.
    pub now_ms: i64,
    side: u8,
    after: &'a mut [Stage<M>],
    /// Index of the first stage of `after` in the chain.
    offset: usize,
    links: &'a Links,
    exits: &'a mut [OutputEdge<M>],
    out: &'a mut Outputs,
}

impl<'a, 'm, M: RecordFormat> Collector<'a, 'm, M> {
    /// What lies behind the stage of index `offset - 1`, of no record yet.
    pub(super) fn new(
        token: M::Token<'m>,
        (after, offset): (&'a mut [Stage<M>], usize),
        links: &'a Links,
        exits: &'a mut [OutputEdge<M>],
        (out, now_ms): (&'a mut Outputs, i64),
    ) -> Self {
        Self { token, timestamp_ms: NO_TIMESTAMP, now_ms, side: 0, after, offset, links, exits, out }
    }

    /// The same for a record.
    #[inline]
    pub(super) fn of_record(self, timestamp_ms: i64, side: u8) -> Self {
        Self { timestamp_ms, side, ..self }
    }

    #[inline]
    pub(super) fn along<'b>(self, links: &'b Links) -> Collector<'b, 'm, M>
    where
        'a: 'b,
    {
        Collector { links, ..self }
    }

    /// Which input of the task's head the record came by, from 0.
    pub fn side(&self) -> u8 {
        self.side
    }

    /// Hands a record to everything that is linked to the stage.
    #[inline]
    pub fn emit(&mut self, record: M::Record<'m>) -> Result<(), TaskError> {
        let Some((last, others)) = self.links.main().split_last() else { return Ok(()) };
        for link in others {
            self.follow(*link, M::share(&record))?;
        }
        self.follow(*last, record)
    }

    /// Hands a record to those who asked for this side output.
    pub fn emit_to(&mut self, tag: &str, record: &M::Record<'m>) -> Result<(), TaskError> {
        let links = self.links;
        links.tagged(tag).try_for_each(|link| self.follow(link, M::share(record)))
    }

    /// Hands on a record at a time of its own.
    #[inline]
    pub fn emit_at(&mut self, timestamp_ms: i64, record: M::Record<'m>) -> Result<(), TaskError> {
        let before = std::mem::replace(&mut self.timestamp_ms, timestamp_ms);
        let emitted = self.emit(record);
        self.timestamp_ms = before;
        emitted
    }

    /// Hands on a record of a source; `measure` says how many bytes it has, where they are counted. False when it was the
    /// last for this poll: more would pass the source's rate, or need overdraft, which is there to finish a record.
    #[inline]
    pub fn emit_paced(
        &mut self,
        record: M::Record<'m>,
        measure: impl FnOnce(&M::Record<'m>) -> Result<usize, TaskError>,
    ) -> Result<bool, TaskError> {
        let bytes = if self.out.counts_bytes() { measure(&record)? } else { 0 };
        let before = self.out.metrics().at();
        let emitted = self.emit(record);
        // What is behind the source leaves its own mark.
        self.resume(before);
        emitted?;
        Ok(self.out.spend(bytes) && self.out.is_available())
    }

    /// Tells everything behind the stage of event time.
    pub fn emit_time(&mut self, signal: TimeSignal) -> Result<(), TaskError> {
        let links = self.links;
        links.all().try_for_each(|link| match link.to {
            Target::Exit(exit) => self.exits[exit].tell_time(self.token, signal, self.out),
            Target::Stage(index) => {
                let (stage, collector) = self.behind(index);
                stage.on_time(signal, collector)
            }
        })
    }

    /// The same where an operator makes time of its own: it is then how far time has come in the task.
    pub fn begin_time(&mut self, signal: TimeSignal) -> Result<(), TaskError> {
        if let TimeSignal::Watermark(timestamp_ms) = signal {
            self.out.metrics().set_watermark(timestamp_ms);
        }
        self.emit_time(signal)
    }

    /// Counts records that did not move event time, as they were too far ahead of the others.
    pub fn count_ahead(&self, records: u64) {
        if records > 0 {
            self.out.metrics().add_records_ahead(records);
        }
    }

    /// Says how far the source has come, for those that are aligned with it; none: they need not wait for it.
    pub fn tell_aligned(&self, reached_ms: Option<i64>) {
        self.out.metrics().set_aligned(reached_ms.unwrap_or(END_OF_TIME_MS));
    }

    /// Hands a round of an iteration to everything behind the stage that lies within it.
    pub fn emit_round(&mut self, round: Round) -> Result<(), TaskError> {
        let links = self.links;
        links.all().try_for_each(|link| match link.to {
            Target::Exit(exit) => self.exits[exit].tell_round(self.token, round, self.out),
            Target::Stage(index) => {
                let (stage, collector) = self.behind(index);
                stage.on_round(round, collector)
            }
        })
    }

    /// Tells everything behind the stage of the parts of the source's input.
    pub fn tell_split(&mut self, signal: SplitSignal) -> Result<(), TaskError> {
        let links = self.links;
        links.all().try_for_each(|link| match link.to {
            Target::Exit(exit) => {
                self.exits[exit].tell_split(signal);
                Ok(())
            }
            Target::Stage(index) => {
                let (stage, collector) = self.behind(index);
                stage.on_split(signal, collector)
            }
        })
    }

    /// The part of its input that a source had better read next, so that event time is held back least.
    pub fn wanted_split(&self) -> Option<u32> {
        self.after.iter().find_map(Stage::wanted_split)
    }

    /// Ends a batch early, for everything behind the stage: it may wait long for its next record.
    pub fn end_batch(&mut self) -> Result<(), TaskError> {
        for index in self.offset..self.offset + self.after.len() {
            let (stage, collector) = self.behind(index);
            let Stage { kind: Kind::Operator(operator), links, .. } = stage else { continue };
            operator.end_batch(&mut collector.along(links))?;
        }
        Ok(())
    }

    /// Lets others be attached, if one has waited for it: for what is long and runs no code of the user's, at which the
    /// interpreter changes hands by itself.
    pub fn yield_token(&mut self) {
        M::detached(self.token, self.out, |_| ());
    }

    /// Sleeps, unless the task is told to stop meanwhile; the time counts as busy.
    pub(super) fn pause(&mut self, wait: Duration) -> Result<(), TaskError> {
        M::detached(self.token, self.out, move |out| out.pause(wait))
    }

    /// Sleeps until something may have come for the operator from outside of the exchange, at most for `limit`: look right
    /// before, and again behind it. What emits in between may sleep too, and be woken in its place. What is behind the
    /// stage has to [have](Self::end_batch) what it gathered.
    pub fn await_arrival(&mut self, limit: Option<Duration>) -> Result<(), TaskError> {
        M::detached(self.token, self.out, move |out| out.await_arrival(limit))
    }

    /// The stage is [full](super::Operator::is_full), or [ahead](super::Operator::is_ahead), with the record that is being
    /// worked on: a source that is before it in the chain ends its poll.
    pub fn end_poll(&mut self) {
        self.out.end_poll();
    }

    /// Runs a call that may wait for something outside.
    pub fn idle_unless_at_work<R>(&mut self, pull: impl FnOnce() -> R) -> R {
        self.out.idle_unless_at_work(pull)
    }

    /// The same, for who takes account of time in line for a processor by [`time_spent`](Self::time_spent).
    pub fn idle_unless_computing<R>(&mut self, pull: impl FnOnce() -> R) -> R {
        self.out.idle_unless_computing(pull)
    }

    /// Where the task's time went so far.
    pub fn time_spent(&self) -> TimeSpent {
        self.out.time_spent()
    }

    /// Of what counted as idle or busy lately, `idle` is idle, and not `counted`.
    pub fn set_idle(&mut self, counted: Duration, idle: Duration) {
        self.out.recount(TimeState::Idle, TimeState::Busy, counted.saturating_sub(idle));
        self.out.recount(TimeState::Busy, TimeState::Idle, idle.saturating_sub(counted));
    }

    /// Whether records can leave the task at once, and may. Who waits for others is not idle.
    pub fn is_available(&self) -> bool {
        self.out.is_available() && !self.out.pace.is_held()
    }

    /// Set when the task is told to stop.
    pub fn cancel(&self) -> &CancelToken {
        self.out.cancel_token()
    }

    /// The operator was given what it cannot take: a chain that was built wrongly.
    #[cold]
    pub fn refuse<T>(&self, what: &str) -> Result<T, TaskError> {
        Err(TaskError::Config(format!("operator {} of the chain {what}", self.offset.saturating_sub(1))))
    }

    /// The task works on this from now on; gives what it was at.
    #[inline]
    pub(super) fn begin(&self, work: Work) -> Mark {
        self.out.metrics().begin(work)
    }

    /// It is again at what it was at.
    #[inline]
    pub(super) fn resume(&self, before: Mark) {
        self.out.metrics().resume(before);
    }

    #[inline]
    fn follow(&mut self, link: Link, record: M::Record<'m>) -> Result<(), TaskError> {
        if link.looks { self.follow_looking(link, record) } else { self.hand_on(link, record) }
    }

    #[inline]
    fn hand_on(&mut self, link: Link, record: M::Record<'m>) -> Result<(), TaskError> {
        match link.to {
            Target::Exit(exit) => {
                let exit = &mut self.exits[exit];
                let record = if link.isolates { M::isolate(self.token, record, exit.info())? } else { record };
                exit.emit(self.token, &record, self.timestamp_ms, self.out)
            }
            Target::Stage(index) => {
                let (stage, collector) = self.behind(index);
                let record = if link.isolates { M::isolate(collector.token, record, &stage.info)? } else { record };
                stage.process(record, collector)
            }
        }
    }

    /// Past a stage that only looks at the record, if that is all it does.
    #[inline(never)]
    fn follow_looking(&mut self, link: Link, mut record: M::Record<'m>) -> Result<(), TaskError> {
        let Target::Stage(index) = link.to else { return self.hand_on(link, record) };
        let stage = &mut self.after[index - self.offset];
        if link.isolates {
            record = M::isolate(self.token, record, &stage.info)?;
        }
        let before = self.out.metrics().begin(stage.work);
        let looked = stage.observe(&record, self.timestamp_ms);
        self.out.metrics().resume(before);
        let Some((timestamp_ms, next)) = looked else {
            return self.hand_on(Link { isolates: false, ..link }, record);
        };
        let before = std::mem::replace(&mut self.timestamp_ms, timestamp_ms);
        let handed_on = self.follow(next, record);
        self.timestamp_ms = before;
        handed_on
    }

    /// The stage of this index, and what lies behind it.
    #[inline]
    fn behind(&mut self, index: usize) -> (&mut Stage<M>, Collector<'_, 'm, M>) {
        let behind = self.after[index - self.offset..].split_first_mut();
        let (stage, after) = behind.expect("links lead to stages behind, as the chain was built");
        // The stage goes along its own links.
        let collector = Collector {
            token: self.token,
            timestamp_ms: self.timestamp_ms,
            now_ms: self.now_ms,
            side: 0,
            after,
            offset: index + 1,
            links: self.links,
            exits: self.exits,
            out: self.out,
        };
        (stage, collector)
    }
}
