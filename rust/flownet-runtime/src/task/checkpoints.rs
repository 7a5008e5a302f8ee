//! Checkpoints of a task, and the restore at its start.

use std::time::{Duration, Instant};

use flownet_core::subpartition::OvertakenData;
use flownet_core::{Barrier, BarrierKind, ChannelIndex, CheckpointId, Event};

use super::Task;
use crate::chain::AwaitedInput;
use crate::error::TaskError;
use crate::operator::RecordFormat;
use crate::snapshot::{
    CheckpointOrder, CheckpointReport, InFlightChannel, Progress, RestoredPart, StatePart, TaskState, WrittenState,
    kept,
};
use crate::time_accounting::TimeState;

/// A snapshot of the operators, and of the in-flight data of the outputs.
pub(super) struct PendingSnapshot {
    checkpoint_id: CheckpointId,
    written: WrittenState,
    base: Option<u64>,
    /// `drain` of the end of the input, if that came before the snapshot. It may also come later, while unaligned
    /// barriers are awaited.
    end: Option<bool>,
    /// The longest single pause.
    stood_still: Duration,
    /// Time from the first barrier to the last, once that has come.
    aligned: Option<Duration>,
    /// The end of the last turn of writing, while operators have more to write.
    writes_since: Option<Instant>,
}

impl PendingSnapshot {
    /// Returns the start and the duration of the next turn of writing. The duration is that of the other work since the
    /// last turn, within bounds. So the task continues at half its pace at least, and long batches do not prolong the
    /// writing forever. `None` if it is too early and the task has other work.
    fn turn(&self, has_more: bool) -> Option<(Instant, Duration)> {
        let (since, now) = (self.writes_since?, Instant::now());
        let elapsed = now.duration_since(since);
        (!has_more || elapsed >= LEAST_WRITING).then(|| (now, elapsed.clamp(LEAST_WRITING, MOST_WRITING)))
    }
}

impl<M: RecordFormat> Task<M> {
    pub(super) fn restore(&mut self) -> Result<(), TaskError> {
        let Some(checkpointing) = self.checkpointing.take() else { return Ok(()) };
        self.progress = Some(Progress::new(&checkpointing));
        if checkpointing.has_finished {
            // Its output is stored downstream. Tasks with inputs get only the ends of their upstream tasks, which have
            // finished too.
            self.source_end = Some(true);
        }
        let (mut on_its_way, mut state) = (Vec::new(), Vec::new());
        for part in checkpointing.restored {
            match part {
                RestoredPart::Here(part) if part.share.is_in_flight() => on_its_way.push(part),
                other => state.push(other),
            }
        }
        if !state.is_empty() {
            self.chain.restore(&state)?;
        }
        // State is restored before in-flight data reaches the operators.
        if let Some(input) = &mut self.input
            && let Some(replay) = self.edges.replay(&on_its_way)?
        {
            replay.medium().iter().try_for_each(|item| self.chain.learn(item))?;
            input.begin_with(replay);
        }
        Ok(())
    }

    pub(super) fn follow(&mut self, order: CheckpointOrder) -> Result<(), TaskError> {
        let Some(progress) = &mut self.progress else { return Ok(()) };
        self.cx.metrics.switch(TimeState::Busy);
        match order {
            CheckpointOrder::Trigger(barrier) => {
                if let Some(input) = &mut self.input {
                    // The barrier may have come before this order.
                    let is_to_come = progress.is_news(barrier.checkpoint_id.get());
                    input.trigger(barrier)?;
                    self.await_input(if is_to_come { AwaitedInput::Barrier } else { AwaitedInput::Nothing });
                    return self.handle_signals();
                }
                self.take_checkpoint(barrier)?;
                self.complete_checkpoint(barrier.checkpoint_id, Duration::ZERO, &[])
            }
            CheckpointOrder::Overtake(barrier) => self.switch_to_unaligned(barrier),
            CheckpointOrder::Complete(id) => {
                self.chain.complete(id)?;
                progress.on_complete(id);
                Ok(())
            }
            CheckpointOrder::Abort(id) => {
                if let Some(input) = &mut self.input {
                    input.abort(CheckpointId::new(id))?;
                }
                self.forget(CheckpointId::new(id));
                self.await_input(AwaitedInput::Nothing);
                self.chain.abort(id)
            }
        }
    }

    /// Takes a snapshot of the operators, and forwards the barrier after their output, or ahead of it. If the snapshot
    /// fails, the checkpoint is cancelled and the task continues.
    pub(super) fn take_checkpoint(&mut self, barrier: Barrier) -> Result<(), TaskError> {
        let Some(progress) = &mut self.progress else { return Ok(()) };
        let (id, started) = (barrier.checkpoint_id, Instant::now());
        if !progress.begin(id.get()) {
            return Ok(());
        }
        let base = progress.complete();
        // An earlier snapshot that is still being written will never complete.
        self.taken = None;
        // Done before the snapshot, so that it also applies if the checkpoint is declined.
        self.await_input(AwaitedInput::Nothing);
        match self.chain.snapshot(id.get(), base) {
            Ok(mut written) => {
                if barrier.kind == BarrierKind::Unaligned {
                    written.parts.extend(self.overtake(barrier)?);
                } else {
                    self.outputs.send_to_all(&Event::Barrier(barrier))?;
                }
                let (end, stood_still) = (self.ended, started.elapsed());
                let writes_since = self.chain.is_writing().then(Instant::now);
                let aligned = None;
                self.taken =
                    Some(PendingSnapshot { checkpoint_id: id, written, base, end, stood_still, aligned, writes_since });
                Ok(())
            }
            Err(TaskError::Cancelled) => Err(TaskError::Cancelled),
            Err(error) => {
                self.outputs.send_to_all(&Event::CancelBarrier { checkpoint_id: id })?;
                if let Some(progress) = &mut self.progress {
                    progress.report(CheckpointReport::declined(id.get(), &error));
                }
                Ok(())
            }
        }
    }

    /// All barriers of the checkpoint have come. `in_flight` is the data that they overtook.
    pub(super) fn complete_checkpoint(
        &mut self,
        id: CheckpointId,
        aligned: Duration,
        in_flight: &[(ChannelIndex, InFlightChannel)],
    ) -> Result<(), TaskError> {
        // A declined checkpoint was reported already.
        let Some(taken) = self.taken.as_mut().filter(|taken| taken.checkpoint_id == id) else { return Ok(()) };
        if !in_flight.is_empty() {
            let medium = self.chain.medium()?;
            let parts = in_flight.iter().map(|(index, recorded)| self.edges.of_input(*index, recorded, &medium));
            taken.written.parts.extend(parts);
        }
        taken.aligned = Some(aligned);
        self.tell_if_taken();
        Ok(())
    }

    /// Reports the checkpoint, if all its barriers have come and all state is written.
    fn tell_if_taken(&mut self) {
        let is_all = |taken: &mut PendingSnapshot| taken.writes_since.is_none() && taken.aligned.is_some();
        let Some(taken) = self.taken.take_if(is_all) else { return };
        let PendingSnapshot { checkpoint_id, written, base, end, stood_still, aligned, .. } = taken;
        let (aligned_us, snapshot_us) = (microseconds(aligned.unwrap_or_default()), microseconds(stood_still));
        if let Some(progress) = &mut self.progress {
            progress.report(CheckpointReport::Acknowledged {
                checkpoint_id: checkpoint_id.get(),
                state: TaskState { written, base },
                end,
                aligned_us,
                snapshot_us,
            });
        }
    }

    /// Returns true if part of the last snapshot is yet to be written.
    pub(super) fn is_writing(&self) -> bool {
        self.taken.as_ref().is_some_and(|taken| taken.writes_since.is_some())
    }

    /// Continues to write the snapshot, if it is time. `has_more` is true if there is other work. If writing fails, the
    /// checkpoint is cancelled and the task continues.
    #[cold]
    pub(super) fn write_on(&mut self, has_more: bool) -> Result<(), TaskError> {
        let Some((now, at_once)) = self.taken.as_ref().and_then(|taken| taken.turn(has_more)) else { return Ok(()) };
        self.switch(TimeState::Busy);
        let Some(taken) = &mut self.taken else { return Ok(()) };
        let id = taken.checkpoint_id.get();
        match self.chain.write_on(id, &mut || now.elapsed() >= at_once) {
            Ok(written) => {
                taken.written.add(written);
                taken.stood_still = taken.stood_still.max(now.elapsed());
                taken.writes_since = self.chain.is_writing().then(Instant::now);
                self.tell_if_taken();
                Ok(())
            }
            Err(TaskError::Cancelled) => Err(TaskError::Cancelled),
            Err(error) => {
                // Its barrier has been forwarded. The coordinator informs the tasks that took the checkpoint.
                self.taken = None;
                if let Some(progress) = &mut self.progress {
                    progress.report(CheckpointReport::declined(id, &error));
                }
                Ok(())
            }
        }
    }

    /// A checkpoint was queued for too long. The task takes it now, if it has not yet, and its barrier overtakes queued
    /// data, at the outputs if it is queued there.
    #[cold]
    fn switch_to_unaligned(&mut self, barrier: Barrier) -> Result<(), TaskError> {
        let checkpoint_id = barrier.checkpoint_id;
        let overtaken = self.outputs.expire(checkpoint_id);
        let parts = self.parts_of(overtaken)?;
        if let Some(input) = &mut self.input {
            input.overtake(barrier)?;
            self.handle_signals()?;
        } else {
            self.take_checkpoint(Barrier { kind: BarrierKind::Unaligned, ..barrier })?;
            self.complete_checkpoint(checkpoint_id, Duration::ZERO, &[])?;
        }
        if let Some(progress) = &mut self.progress {
            let state = TaskState { written: WrittenState { parts, ..WrittenState::default() }, base: None };
            progress.report(CheckpointReport::Overtook { checkpoint_id: checkpoint_id.get(), state });
        }
        Ok(())
    }

    /// Sends a barrier ahead of the queued data of the outputs, which becomes part of the checkpoint.
    #[cold]
    fn overtake(&mut self, barrier: Barrier) -> Result<Vec<StatePart>, TaskError> {
        let overtaken = self.outputs.overtake(barrier)?;
        self.parts_of(overtaken)
    }

    /// Returns the parts for the overtaken data of the outputs, by output and subpartition.
    fn parts_of(&mut self, overtaken: Vec<Vec<OvertakenData>>) -> Result<Vec<StatePart>, TaskError> {
        let mut found = Vec::new();
        for (output, subpartitions) in overtaken.into_iter().enumerate() {
            for (subpartition, overtaken) in (0..).zip(subpartitions) {
                let kept: Vec<_> = overtaken.elements.iter().filter_map(kept).collect();
                if !kept.is_empty() {
                    found.push((output, subpartition, InFlightChannel { watermark_ms: overtaken.watermark_ms, kept }));
                }
            }
        }
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let medium = self.chain.medium()?;
        let part = |(output, subpartition, recorded): &(usize, u32, InFlightChannel)| {
            self.edges.of_output(*output, *subpartition, recorded, &medium)
        };
        Ok(found.iter().map(part).collect())
    }

    /// Handles priority barriers and orders ahead of everything else. Either may be the reason for the interruption.
    #[cold]
    pub(super) fn take_urgent(&mut self) -> Result<(), TaskError> {
        while self.mailbox.has_mail() {
            self.read_mail()?;
        }
        if let Some(input) = &mut self.input {
            input.take_urgent()?;
        }
        self.handle_signals()
    }

    pub(super) fn forget(&mut self, id: CheckpointId) {
        self.taken.take_if(|taken| taken.checkpoint_id <= id);
    }
}

/// Bounds of a turn of writing.
const LEAST_WRITING: Duration = Duration::from_millis(5);
const MOST_WRITING: Duration = Duration::from_millis(20);

fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
