//! Passes records, event time and the end of a batch to the stages downstream of an operator.

use std::time::Duration;

use flownet_core::Round;

use super::RecordFormat;
use super::stage::{Link, Links, OutputEdge, Stage, Target};
use crate::control::TaskControl;
use crate::error::TaskError;
use crate::mailbox::CancelToken;
use crate::outputs::Outputs;
use crate::time::{END_OF_TIME_MS, NO_TIMESTAMP, TimeSignal};
use crate::watermark::SplitSignal;
use crate::work::{Mark, Work};

/// The downstream side of a stage, while the record format is attached.
pub struct Collector<'a, 'm, M: RecordFormat> {
    /// Proof that records may be touched.
    pub token: M::Token<'m>,
    /// Event time of the current record and of its output; [`NO_TIMESTAMP`] if it has none.
    pub timestamp_ms: i64,
    /// Wall-clock time of the batch, of the timers or of the watermark, in milliseconds since the epoch.
    pub now_ms: i64,
    side: u8,
    downstream: Downstream<'a, M>,
    links: &'a Links,
    out: &'a mut Outputs,
}

/// The stages and output edges downstream of a stage.
pub(super) struct Downstream<'a, M: RecordFormat> {
    stages: &'a mut [Stage<M>],
    /// Index of the first one of `stages` in the chain.
    offset: usize,
    exits: &'a mut [OutputEdge<M>],
}

impl<'a, M: RecordFormat> Downstream<'a, M> {
    /// The stage of this index in a whole chain, and everything downstream of it.
    #[inline]
    pub(super) fn split(
        stages: &'a mut [Stage<M>],
        index: usize,
        exits: &'a mut [OutputEdge<M>],
    ) -> (&'a mut Stage<M>, Self) {
        let (stage, stages) = stages[index..].split_first_mut().expect("the chain has a stage of this index");
        (stage, Self { stages, offset: index + 1, exits })
    }
}

impl<'a, 'm, M: RecordFormat> Collector<'a, 'm, M> {
    /// The downstream side of a stage, without a current record.
    pub(super) fn new(
        token: M::Token<'m>,
        downstream: Downstream<'a, M>,
        links: &'a Links,
        out: &'a mut Outputs,
        now_ms: i64,
    ) -> Self {
        Self { token, timestamp_ms: NO_TIMESTAMP, now_ms, side: 0, downstream, links, out }
    }

    /// The same for one record.
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

    /// The input of the task's head that the record came from, counted from 0.
    pub fn side(&self) -> u8 {
        self.side
    }

    /// Emits a record to every stage and output that is linked to this stage.
    #[inline]
    pub fn emit(&mut self, record: M::Record<'m>) -> Result<(), TaskError> {
        // The last link takes the record itself, which saves one `share`.
        let Some((last, others)) = self.links.main().split_last() else { return Ok(()) };
        for link in others {
            self.follow(*link, M::share(&record))?;
        }
        self.follow(*last, record)
    }

    /// Emits a record to the consumers of this side output.
    pub fn emit_to(&mut self, tag: &str, record: &M::Record<'m>) -> Result<(), TaskError> {
        let links = self.links;
        links.tagged(tag).try_for_each(|link| self.follow(link, M::share(record)))
    }

    /// Emits a record with its own timestamp.
    #[inline]
    pub fn emit_at(&mut self, timestamp_ms: i64, record: M::Record<'m>) -> Result<(), TaskError> {
        let before = std::mem::replace(&mut self.timestamp_ms, timestamp_ms);
        let emitted = self.emit(record);
        self.timestamp_ms = before;
        emitted
    }

    /// Emits a record of a source. `measure` returns its size in bytes, if bytes are counted. Returns false if it was
    /// the last one for this poll. One more would exceed the source's rate, or need overdraft, which only serves to
    /// finish a record.
    #[inline]
    pub fn emit_paced(
        &mut self,
        record: M::Record<'m>,
        measure: impl FnOnce(&M::Record<'m>) -> Result<usize, TaskError>,
    ) -> Result<bool, TaskError> {
        let bytes = if self.out.control.pace.counts_bytes() { measure(&record)? } else { 0 };
        let before = self.out.metrics().at();
        let emitted = self.emit(record);
        // Stages downstream of the source set their own work marker.
        self.resume(before);
        emitted?;
        Ok(self.out.control.pace.spend(bytes) && self.out.is_available())
    }

    /// Emits a signal of event time to everything downstream of the stage.
    pub fn emit_time(&mut self, signal: TimeSignal) -> Result<(), TaskError> {
        let links = self.links;
        links.all().try_for_each(|link| match link.to {
            Target::Exit(exit) => self.downstream.exits[exit].tell_time(self.token, signal, self.out),
            Target::Stage(index) => {
                let (stage, collector) = self.behind(index);
                stage.on_time(signal, collector)
            }
        })
    }

    /// The same for an operator that makes its own watermarks, which then are the event time of the task.
    pub fn begin_time(&mut self, signal: TimeSignal) -> Result<(), TaskError> {
        if let TimeSignal::Watermark(timestamp_ms) = signal {
            self.out.metrics().set_watermark(timestamp_ms);
        }
        self.emit_time(signal)
    }

    /// Counts records that did not advance event time because they were too far ahead of the others.
    pub fn count_ahead(&self, records: u64) {
        if records > 0 {
            self.out.metrics().add_records_ahead(records);
        }
    }

    /// Reports the source's event time to the sources aligned with it. With `None` they need not wait for it.
    pub fn tell_aligned(&self, reached_ms: Option<i64>) {
        self.out.metrics().set_aligned(reached_ms.unwrap_or(END_OF_TIME_MS));
    }

    /// Emits a round of an iteration to everything downstream of the stage within the iteration.
    pub fn emit_round(&mut self, round: Round) -> Result<(), TaskError> {
        let links = self.links;
        links.all().try_for_each(|link| match link.to {
            Target::Exit(exit) => self.downstream.exits[exit].tell_round(self.token, round, self.out),
            Target::Stage(index) => {
                let (stage, collector) = self.behind(index);
                stage.on_round(round, collector)
            }
        })
    }

    /// Passes a signal about the source's splits to everything downstream of the stage.
    pub fn tell_split(&mut self, signal: SplitSignal) -> Result<(), TaskError> {
        let links = self.links;
        links.all().try_for_each(|link| match link.to {
            Target::Exit(exit) => {
                self.downstream.exits[exit].tell_split(signal);
                Ok(())
            }
            Target::Stage(index) => {
                let (stage, collector) = self.behind(index);
                stage.on_split(signal, collector)
            }
        })
    }

    /// The split that the source should read next to delay event time least.
    pub fn wanted_split(&self) -> Option<u32> {
        self.downstream.stages.iter().find_map(Stage::wanted_split)
    }

    /// Ends a batch early for everything downstream of the stage, because its next record may take long.
    pub fn end_batch(&mut self) -> Result<(), TaskError> {
        for index in self.downstream.offset..self.downstream.offset + self.downstream.stages.len() {
            let (stage, collector) = self.behind(index);
            let Stage { kind, links, .. } = stage;
            let Some(operator) = kind.operator_mut() else { continue };
            operator.end_batch(&mut collector.along(links))?;
        }
        Ok(())
    }

    /// Briefly detaches if another thread waits to be attached. Call this in long work that runs no user code. In user
    /// code, the interpreter switches threads by itself.
    pub fn yield_token(&mut self) {
        M::detached(self.token, self.out, |_| ());
    }

    /// Sleeps until the time is over or the task is cancelled. The time counts as busy.
    pub fn pause(&mut self, wait: Duration) -> Result<(), TaskError> {
        M::detached(self.token, self.out, move |out| out.control.pause(wait))
    }

    /// Sleeps until records may have arrived for the operator from outside the exchange, at most for `limit`. Check for
    /// them right before the call and again after it. An emit in between may sleep too and consume the wake-up. Call
    /// [`end_batch`](Self::end_batch) first, so that downstream stages have emitted their gathered records.
    pub fn await_arrival(&mut self, limit: Option<Duration>) -> Result<(), TaskError> {
        M::detached(self.token, self.out, move |out| out.control.await_arrival(limit))
    }

    /// Returns true if records can leave the task at once and may do so. A source that the coordinator stops is not
    /// idle.
    pub fn is_available(&self) -> bool {
        self.out.is_available() && !self.out.control.pace.is_held()
    }

    /// Pace, waits and time accounting of the task.
    pub fn control(&mut self) -> &mut TaskControl {
        &mut self.out.control
    }

    /// Set when the task is cancelled.
    pub fn cancel(&self) -> &CancelToken {
        self.out.control.cancel()
    }

    /// Returns an error because the operator got an element that it cannot take: the chain was built wrongly.
    #[cold]
    pub fn refuse<T>(&self, what: &str) -> Result<T, TaskError> {
        Err(TaskError::Config(format!("operator {} of the chain {what}", self.downstream.offset.saturating_sub(1))))
    }

    /// Sets the current work of the task. Returns the previous work.
    #[inline]
    pub(super) fn begin(&self, work: Work) -> Mark {
        self.out.metrics().begin(work)
    }

    /// Sets the work back to `before`.
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
                let exit = &mut self.downstream.exits[exit];
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

    /// Forwards a record past a passthrough, if the stage only has to observe it.
    #[inline(never)]
    fn follow_looking(&mut self, link: Link, mut record: M::Record<'m>) -> Result<(), TaskError> {
        let Target::Stage(index) = link.to else { return self.hand_on(link, record) };
        let stage = &mut self.downstream.stages[index - self.downstream.offset];
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

    /// Returns the stage of this index and its downstream side.
    #[inline]
    fn behind(&mut self, index: usize) -> (&mut Stage<M>, Collector<'_, 'm, M>) {
        let Downstream { stages, offset, exits } = &mut self.downstream;
        let (stage, stages) =
            stages[index - *offset..].split_first_mut().expect("links lead to stages behind, as the chain was built");
        // The stage follows its own links.
        let collector = Collector {
            token: self.token,
            timestamp_ms: self.timestamp_ms,
            now_ms: self.now_ms,
            side: 0,
            downstream: Downstream { stages, offset: index + 1, exits },
            links: self.links,
            out: self.out,
        };
        (stage, collector)
    }
}
