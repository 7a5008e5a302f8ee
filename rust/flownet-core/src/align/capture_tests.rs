//! Explores every order in which two channels can bring records, unaligned and timed-out barriers, cancels and ends,
//! and in which a task can take in and read them. A complete checkpoint must have read and captured exactly the
//! elements before each channel's barrier. Machines with a planted fault must each fail.

use super::model::ChannelInput::{self, Barrier as B, Cancel as C, End as E, Record as R};
use super::model::{self, CheckResult, EndedCheckpoints, resume};
use super::*;

/// Possible faults of the machine or of its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// Elements that were taken in and not read are lost.
    UnreadIsForgotten,
    /// Elements that a barrier overtook are lost.
    OvertakenIsForgotten,
    /// Elements that arrive before the channel's own barrier are lost.
    LaterIsForgotten,
    /// Elements after the channel's own barrier are also captured.
    CapturesForEver,
    /// A late barrier of another checkpoint counts for the one that is captured (FLINK-20645).
    LateCountsAsNew,
    /// Captured elements of an aborted checkpoint remain.
    AbortKeeps,
    /// Channels that are held at the timeout are not resumed.
    TimeoutHolds,
    /// The aligner waits for a channel that has ended.
    EndIsWaitedFor,
}

fn barrier(id: u64, kind: BarrierKind) -> Barrier {
    Barrier { checkpoint_id: CheckpointId::new(id), timestamp_ms: 0, kind }
}

/// Script of one channel, and the kind of its barriers.
type Script = (Vec<ChannelInput>, BarrierKind);

#[derive(Clone, Debug, Default)]
struct ChannelWorld {
    /// Number of script elements that the task has taken in, and read.
    taken: usize,
    read: usize,
    /// Barriers that arrived ahead of the elements they overtook.
    early: Vec<usize>,
    blocked: bool,
}

/// State of a task with its channels.
#[derive(Clone, Debug)]
struct World<'a> {
    capture: Capture<usize>,
    fault: Fault,
    scripts: &'a [Script],
    channels: Vec<ChannelWorld>,
    /// Read position of each channel when the snapshot was taken.
    snapshot: Option<(u64, Vec<usize>)>,
    done: EndedCheckpoints,
}

#[derive(Clone, Copy, Debug)]
enum Move {
    TakeIn(usize),
    Read(usize),
    /// The barrier at this place of the script arrives ahead.
    Overtake(usize, usize),
    /// This checkpoint has taken too long.
    Timeout(u64),
}

impl model::World for World<'_> {
    type Move = Move;

    fn key(&self) -> String {
        format!("{:?}", (&self.capture, &self.channels, &self.snapshot, &self.done))
    }

    fn moves(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        for (index, (channel, (script, kind))) in self.channels.iter().zip(self.scripts).enumerate() {
            if channel.read < channel.taken {
                moves.push(Move::Read(index));
            }
            // An unaligned barrier is handled before it is taken in.
            let is_due = |at: usize| {
                *kind == BarrierKind::Unaligned && matches!(script[at], B(_)) && !channel.early.contains(&at)
            };
            if channel.taken < script.len() && !channel.blocked && !is_due(channel.taken) {
                moves.push(Move::TakeIn(index));
            }
            let next =
                |from: usize, to| (from..to).find(|at| matches!(script[*at], B(_)) && !channel.early.contains(at));
            let (read, taken) = (channel.read, channel.taken);
            let (waits, ahead) = (next(read, taken), next(taken, script.len()).filter(|_| !channel.blocked));
            match kind {
                BarrierKind::Unaligned => moves.extend(ahead.map(|at| Move::Overtake(index, at))),
                // Any place in the queue, once the task has overtaken it.
                _ => {
                    let late = waits.or(ahead).filter(|at| self.is_late(index, script[*at]));
                    moves.extend(late.map(|at| Move::Overtake(index, at)));
                }
            }
        }
        let is_timed = |id: u64| {
            self.scripts
                .iter()
                .any(|(script, kind)| *kind == BarrierKind::AlignedWithTimeout && script.contains(&B(id)))
        };
        let aligner = self.capture.aligner();
        let may_be_late = |id: &u64| {
            let checkpoint_id = CheckpointId::new(*id);
            // A checkpoint of which no barrier has arrived is only considered if it is the first.
            let is_next = aligner.under_way().map_or(*id == 1, |under_way| under_way == checkpoint_id);
            is_timed(*id) && is_next && !aligner.is_capturing() && !aligner.is_done(checkpoint_id)
        };
        moves.extend([1, 2].into_iter().filter(may_be_late).map(Move::Timeout));
        moves
    }

    fn make(&mut self, one: Move) -> CheckResult {
        let step = match one {
            Move::TakeIn(index) => {
                self.take_in(index);
                return Ok(());
            }
            Move::Read(index) => {
                let at = self.channels[index].read;
                self.channels[index].read += 1;
                let channel = ChannelIndex::new(index as u32);
                match self.scripts[index].0[at] {
                    B(id) if !self.channels[index].early.contains(&at) => self.barrier(index, id, Vec::new()),
                    C(id) => self.forgetting(|capture| capture.on_cancel(CheckpointId::new(id))),
                    E if self.fault != Fault::EndIsWaitedFor => self.capture.on_end(channel),
                    _ => return Ok(()),
                }
            }
            Move::Overtake(index, at) => {
                self.channels[index].early.push(at);
                let B(id) = self.scripts[index].0[at] else { return Err("only barriers overtake".into()) };
                let taken = self.channels[index].taken;
                // A blocking barrier blocks its channel at the producer.
                self.channels[index].blocked |= self.scripts[index].1 != BarrierKind::Unaligned;
                let overtaken = self.records(index, taken.min(at), at);
                let overtaken = if at < taken { Vec::new() } else { overtaken };
                self.barrier(index, id, overtaken)
            }
            Move::Timeout(id) => {
                let unread = self.unread();
                let barrier = barrier(id, BarrierKind::AlignedWithTimeout);
                let mut step = self.capture.on_timeout(barrier, |channel| unread[channel.index()].clone());
                if self.fault == Fault::TimeoutHolds {
                    step.resumed.clear();
                }
                step
            }
        };
        self.follow(step)
    }

    /// Checks a state without moves: blocked channels wait for a reason, and every checkpoint that should be complete
    /// is.
    fn at_rest(&self) -> CheckResult {
        let all = || self.scripts.iter().map(|(script, _)| script);
        let is_off = |id: u64| all().flatten().any(|one| matches!(one, C(off) if *off >= id));
        for id in [1, 2] {
            let is_wanted = all().any(|script| script.contains(&B(id)));
            let comes = all().all(|script| script.contains(&B(id)) || script.contains(&E));
            // A later checkpoint may have replaced it.
            let is_last = !all().flatten().any(|one| matches!(one, B(later) if *later > id));
            if is_wanted && comes && is_last && !is_off(id) && !self.done.0.contains(&(id, true)) {
                return Err(format!("{id} was never complete: {:?}", self.done));
            }
        }
        let under_way = self.capture.aligner().under_way();
        match self.channels.iter().position(|channel| channel.blocked) {
            Some(index) if !self.capture.aligner().is_held(ChannelIndex::new(index as u32)) => {
                Err(format!("channel {index} is blocked, and nobody knows; {under_way:?} is under way"))
            }
            _ => Ok(()),
        }
    }
}

impl World<'_> {
    fn take_in(&mut self, index: usize) {
        let (script, kind) = &self.scripts[index];
        let at = self.channels[index].taken;
        self.channels[index].taken += 1;
        match script[at] {
            R if self.fault == Fault::LaterIsForgotten => {}
            R if self.fault == Fault::CapturesForEver && self.capture.aligner().is_capturing() => {
                self.capture.kept[index].push(at);
            }
            R => self.capture.on_element(ChannelIndex::new(index as u32), || Some(at)),
            B(_) if *kind != BarrierKind::Unaligned && !self.channels[index].early.contains(&at) => {
                self.channels[index].blocked = true
            }
            _ => {}
        }
    }

    fn barrier(&mut self, index: usize, id: u64, overtaken: Vec<usize>) -> Step {
        let unread = self.unread();
        let overtaken = if self.fault == Fault::OvertakenIsForgotten { Vec::new() } else { overtaken };
        let id = match self.capture.aligner().under_way() {
            Some(current) if self.fault == Fault::LateCountsAsNew => current.get(),
            _ => id,
        };
        let kind = self.scripts[index].1;
        let barrier = barrier(id, kind);
        let channel = ChannelIndex::new(index as u32);
        self.forgetting(|capture| {
            capture.on_barrier(channel, barrier, overtaken, |channel| unread[channel.index()].clone())
        })
    }

    /// Returns whether it is a barrier of the captured checkpoint, for which the task waits.
    fn is_late(&self, index: usize, brought: ChannelInput) -> bool {
        let aligner = self.capture.aligner();
        let is_captured = aligner.is_captured(ChannelIndex::new(index as u32));
        is_captured && matches!(brought, B(id) if aligner.under_way() == Some(CheckpointId::new(id)))
    }

    fn forgetting(&mut self, change: impl FnOnce(&mut Capture<usize>) -> Step) -> Step {
        let before = self.capture.kept.clone();
        let step = change(&mut self.capture);
        if self.fault == Fault::AbortKeeps && step.aborted.is_some() {
            for (kept, before) in self.capture.kept.iter_mut().zip(before) {
                kept.splice(0..0, before);
            }
        }
        step
    }

    /// Returns the elements of each channel that were taken in and not read.
    fn unread(&self) -> Vec<Vec<usize>> {
        let unread = self.channels.iter().enumerate().map(|(index, channel)| match self.fault {
            Fault::UnreadIsForgotten => Vec::new(),
            _ => self.records(index, channel.read, channel.taken),
        });
        unread.collect()
    }

    fn records(&self, index: usize, from: usize, to: usize) -> Vec<usize> {
        (from..to).filter(|at| self.scripts[index].0[*at] == R).collect()
    }

    fn follow(&mut self, step: Step) -> CheckResult {
        if let Some(id) = step.aborted {
            self.snapshot = None;
            self.done.add(id.get(), false)?;
        }
        if let Some(taken) = step.taken {
            let read = self.channels.iter().map(|channel| channel.read).collect();
            if self.snapshot.replace((taken.checkpoint_id.get(), read)).is_some() {
                return Err("two are taken at a time".into());
            }
        }
        if let Some(id) = step.completed {
            let captured = self.capture.take();
            let Some((taken, read)) = self.snapshot.take() else { return Err(format!("{id} was never taken")) };
            if taken != id.get() {
                return Err(format!("{taken} was taken, and {id} is complete"));
            }
            self.done.add(taken, true)?;
            for (index, read) in read.into_iter().enumerate() {
                let of_channel = captured.iter().find(|(channel, _)| channel.index() == index);
                self.is_whole(index, taken, read, of_channel.map_or(&[], |(_, kept)| kept))?;
            }
        }
        let mut resumed = step.resumed.into_iter();
        resumed.try_for_each(|resumed| resume(resumed, &mut self.channels[resumed.index()].blocked))
    }

    /// Checks C1.
    fn is_whole(&self, index: usize, id: u64, read: usize, kept: &[usize]) -> CheckResult {
        let script = &self.scripts[index].0;
        let Some(end) = script.iter().position(|one| *one == B(id)).or(script.iter().position(|one| *one == E)) else {
            return Err(format!("{id} is complete, and channel {index} has not brought it"));
        };
        let read_beyond = read > end && !self.records(index, end, read).is_empty();
        let wanted = self.records(index, read.min(end), end);
        if read_beyond || kept != wanted {
            return Err(format!("{id} has read {read} of channel {index} and kept {kept:?}, wanted {wanted:?}"));
        }
        Ok(())
    }
}

/// Explores every order. Returns the number of states, or the first error.
fn explore(scripts: &[Script], fault: Fault) -> Result<usize, String> {
    let capture = Capture::new(Aligner::exactly_once(scripts.len()));
    let channels = vec![ChannelWorld::default(); scripts.len()];
    let first = World { capture, fault, scripts, channels, snapshot: None, done: EndedCheckpoints::default() };
    model::explore(first).map_err(|what| format!("{what}, in {scripts:?}"))
}

fn scripts_of_a_channel() -> Vec<Vec<ChannelInput>> {
    vec![
        vec![R, B(1), R],
        vec![R, B(1), R, B(2), R],
        vec![R, C(1), R, B(2), R],
        vec![R, B(1), C(1), R, B(2)],
        vec![R, C(1), R, C(2)],
        vec![R, R, E],
        vec![R, B(2), R],
        vec![R, B(1), R, E],
    ]
}

fn explore_all(fault: Fault) -> Result<usize, String> {
    use BarrierKind::{AlignedWithTimeout, Unaligned};
    let (all, mut states) = (scripts_of_a_channel(), 0);
    let kinds = [(Unaligned, Unaligned), (Unaligned, AlignedWithTimeout), (AlignedWithTimeout, AlignedWithTimeout)];
    for (at, first) in all.iter().enumerate() {
        for (of_first, of_second) in kinds {
            // The order of two channels of one kind is irrelevant.
            let others = if of_first == of_second { &all[at..] } else { &all[..] };
            for second in others {
                states += explore(&[(first.clone(), of_first), (second.clone(), of_second)], fault)?;
            }
        }
    }
    Ok(states)
}

#[test]
fn what_is_read_and_captured_is_what_came_before_the_barriers() {
    let states = explore_all(Fault::None).unwrap_or_else(|found| panic!("{found}"));
    assert!(states > 20_000, "{states}");
}

#[test]
fn planted_faults_are_found() {
    let faults = [
        Fault::UnreadIsForgotten,
        Fault::OvertakenIsForgotten,
        Fault::LaterIsForgotten,
        Fault::CapturesForEver,
        Fault::LateCountsAsNew,
        Fault::AbortKeeps,
        Fault::TimeoutHolds,
        Fault::EndIsWaitedFor,
    ];
    for fault in faults {
        assert!(explore_all(fault).is_err(), "{fault:?} was not found");
    }
}

#[test]
fn a_task_whose_channels_have_ended_takes_what_the_coordinator_asks_for() {
    let barrier = |id| barrier(id, BarrierKind::Unaligned);
    let mut capture = Capture::<()>::new(Aligner::exactly_once(2));
    let _ = capture.on_end(ChannelIndex::new(0));
    assert_eq!(capture.on_trigger(barrier(1)), Step::default(), "the other channel may bring it");
    let step = capture.on_end(ChannelIndex::new(1));
    assert_eq!((step.taken, step.completed), (Some(barrier(1)), Some(CheckpointId::new(1))));
    let step = capture.on_trigger(barrier(2));
    assert_eq!((step.taken, step.completed), (Some(barrier(2)), Some(CheckpointId::new(2))));
    assert_eq!(capture.on_trigger(barrier(2)), Step::default());
}

#[test]
fn of_a_checkpoint_that_the_coordinator_cancels_nothing_is_kept() {
    let (first, id) = (ChannelIndex::new(0), CheckpointId::new(1));
    let mut capture = Capture::new(Aligner::exactly_once(2));
    let _ = capture.on_barrier(first, barrier(1, BarrierKind::Unaligned), [7], |_| vec![5]);
    assert_eq!(capture.on_cancel(id).aborted, Some(id));
    assert_eq!(capture.take(), []);
    let late = capture.on_barrier(ChannelIndex::new(1), barrier(1, BarrierKind::Unaligned), [8], |_| vec![5]);
    assert_eq!((late, capture.take()), (Step::default(), vec![]), "and it does not begin again");
}
