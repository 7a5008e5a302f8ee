//! Explores every order in which channels can bring barriers, cancels and ends, and checks the rules. Machines with a
//! planted fault must each fail.

use super::model::{self, CheckResult, EndedCheckpoints, resume};
use super::*;

use super::model::ChannelInput::{self, Barrier as B, Cancel as C, End as E, Record as R};

fn barrier(id: u64) -> Barrier {
    Barrier { checkpoint_id: CheckpointId::new(id), timestamp_ms: 0, kind: BarrierKind::Aligned }
}

/// Possible faults of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// The aligner waits for a channel that has ended.
    EndIsWaitedFor,
    /// A cancelled checkpoint is forgotten at once, so that its late barriers start it again.
    CancelIsForgotten,
    /// An abort leaves its channels held.
    AbortHolds,
    /// A newer barrier counts for the older checkpoint.
    NewerCountsAsOlder,
    /// Barriers are counted by number instead of by channel, so one that came twice counts twice.
    SnapshotOneEarly,
    /// A barrier of a finished checkpoint leaves its channel held.
    ObsoleteHolds,
}

/// The machine, optionally with a fault.
#[derive(Clone, Debug)]
struct Machine {
    aligner: Aligner,
    fault: Fault,
}

impl Machine {
    fn on(&mut self, channel: u32, brought: ChannelInput) -> Step {
        let index = ChannelIndex::new(channel);
        match (brought, self.fault) {
            (R, _) | (E, Fault::EndIsWaitedFor) => Step::default(),
            (B(id), Fault::NewerCountsAsOlder) => {
                let id = self.aligner.under_way().map_or(id, CheckpointId::get);
                self.aligner.on_barrier(index, barrier(id))
            }
            (B(id), Fault::SnapshotOneEarly) => {
                let step = self.aligner.on_barrier(index, barrier(id));
                if step.began.is_none() || step.taken.is_some() {
                    return step;
                }
                let other = ChannelIndex::new(u32::from(channel == 0));
                self.aligner.on_barrier(other, barrier(id))
            }
            (B(id), Fault::ObsoleteHolds) if self.aligner.is_done(CheckpointId::new(id)) => Step::default(),
            (B(id), _) => self.aligner.on_barrier(index, barrier(id)),
            (C(id), Fault::CancelIsForgotten) => {
                let before = self.aligner.last_done;
                let step = self.aligner.on_cancel(CheckpointId::new(id));
                self.aligner.last_done = before;
                step
            }
            (C(id), Fault::AbortHolds) => {
                let step = self.aligner.on_cancel(CheckpointId::new(id));
                Step { resumed: vec![], ..step }
            }
            (C(id), _) => self.aligner.on_cancel(CheckpointId::new(id)),
            (E, _) => self.aligner.on_end(index),
        }
    }
}

/// State of a task with its channels.
#[derive(Clone, Debug)]
struct World<'a> {
    machine: Machine,
    scripts: &'a [Vec<ChannelInput>],
    /// Number of script elements that each channel has brought.
    at: Vec<usize>,
    blocked: Vec<bool>,
    done: EndedCheckpoints,
}

impl model::World for World<'_> {
    type Move = usize;

    fn key(&self) -> String {
        format!("{:?}", (&self.machine.aligner, &self.at, &self.blocked, &self.done))
    }

    fn moves(&self) -> Vec<usize> {
        let can_move = |channel: &usize| !self.blocked[*channel] && self.at[*channel] < self.scripts[*channel].len();
        (0..self.scripts.len()).filter(can_move).collect()
    }

    fn make(&mut self, channel: usize) -> CheckResult {
        let brought = self.scripts[channel][self.at[channel]];
        self.at[channel] += 1;
        let holds = self.machine.aligner.holds;
        if let B(_) = brought {
            self.blocked[channel] = true;
        }
        let step = self.machine.on(channel as u32, brought);
        if let Some(id) = step.aborted {
            self.done.add(id.get(), false)?;
        }
        if let Some(taken) = step.taken {
            let id = taken.checkpoint_id.get();
            self.done.add(id, true)?;
            for other in 0..self.scripts.len() {
                self.is_cut(other, id, holds)?;
            }
        }
        step.resumed.into_iter().try_for_each(|resumed| resume(resumed, &mut self.blocked[resumed.index()]))
    }

    /// Checks a state without moves: all channels have reached their end, and every checkpoint that should be taken
    /// was.
    fn at_rest(&self) -> CheckResult {
        for stuck in (0..self.at.len()).filter(|channel| self.at[*channel] < self.scripts[*channel].len()) {
            let Some(B(id)) = self.at[stuck].checked_sub(1).map(|at| self.scripts[stuck][at]) else {
                return Err(format!("channel {stuck} stopped without a barrier"));
            };
            if !self.scripts.iter().any(|script| is_silent(script, id)) {
                return Err(format!("channel {stuck} is stuck before {:?}", &self.scripts[stuck][self.at[stuck]..]));
            }
        }
        let said = |one: ChannelInput| self.scripts.iter().filter(|script| script.contains(&one)).count();
        let open: Vec<_> = self.scripts.iter().filter(|script| !script.contains(&E)).collect();
        for id in 1..=2 {
            let is_wanted = said(B(id)) > 0 && open.iter().all(|script| script.contains(&B(id)));
            let is_off = said(C(id)) > 0 || (id == 1 && said(B(2)) + said(C(2)) > 0 && !self.comes_in_order());
            if is_wanted && !is_off && !self.done.0.contains(&(id, true)) {
                return Err(format!("{id} was never taken: {:?}", self.done));
            }
            let is_told = |(script, at): (&Vec<ChannelInput>, &usize)| script[..*at].contains(&C(id));
            let is_past = self.machine.aligner.under_way().is_some_and(|aligning| id < aligning.get());
            if self.scripts.iter().zip(&self.at).any(is_told)
                && !is_past
                && !self.done.0.iter().any(|(done, _)| *done >= id)
            {
                return Err(format!("{id} is off, and nobody was told"));
            }
        }
        Ok(())
    }
}

impl World<'_> {
    /// Checks that each channel with a barrier has brought exactly the elements before it, and that the others have
    /// ended.
    fn is_cut(&self, channel: usize, id: u64, holds: bool) -> CheckResult {
        let (brought, left) = self.scripts[channel].split_at(self.at[channel]);
        let is_whole = match brought.iter().position(|one| *one == B(id)) {
            Some(at) => !holds || at + 1 == brought.len(),
            None => brought.last() == Some(&E),
        };
        if is_whole { Ok(()) } else { Err(format!("{id} was taken with {left:?} left of channel {channel}")) }
    }

    /// Returns whether no channel can bring the second checkpoint before all have brought the first.
    fn comes_in_order(&self) -> bool {
        self.machine.aligner.holds
            && self.scripts.iter().all(|script| {
                let place = |one| script.iter().position(|brought| *brought == one);
                !script.contains(&C(2))
                    && !script.contains(&C(1))
                    && place(B(1)) < place(B(2)).or(Some(usize::MAX))
                    && place(B(1)).is_some()
            })
    }
}

/// Returns whether a channel neither ends nor mentions this checkpoint or a later one, so that others wait rightly.
fn is_silent(script: &[ChannelInput], id: u64) -> bool {
    script.iter().all(|brought| match brought {
        R => true,
        B(said) | C(said) => *said < id,
        E => false,
    })
}

/// Explores every order. Returns the number of states, or the first error.
fn explore(scripts: &[Vec<ChannelInput>], holds: bool, fault: Fault) -> Result<usize, String> {
    let channels = scripts.len();
    let aligner = if holds { Aligner::exactly_once(channels) } else { Aligner::at_least_once(channels) };
    let machine = Machine { aligner, fault };
    let first = World {
        machine,
        scripts,
        at: vec![0; channels],
        blocked: vec![false; channels],
        done: EndedCheckpoints::default(),
    };
    model::explore(first).map_err(|what| format!("{what}, in {scripts:?}"))
}

/// Returns the scripts of one channel. For each of two checkpoints: its barrier, its cancel, or neither if the channel
/// ends before.
fn scripts_of_a_channel() -> Vec<Vec<ChannelInput>> {
    let mut all = Vec::new();
    for first in [B(1), C(1)] {
        all.push(vec![R, first, E]);
        all.push(vec![first, R]);
        for second in [B(2), C(2)] {
            all.push(vec![R, first, R, second, R]);
            all.push(vec![first, second, E]);
        }
    }
    all.extend([vec![E], vec![R, E], vec![B(2), R], vec![C(2), R], vec![R]]);
    all
}

fn explore_all(holds: bool, fault: Fault) -> Result<usize, String> {
    let all = scripts_of_a_channel();
    let mut states = 0;
    for first in &all {
        for second in &all {
            states += explore(&[first.clone(), second.clone()], holds, fault)?;
        }
    }
    // Three channels, so that one is held while two others differ.
    for first in &all[..6] {
        for second in &all {
            states += explore(&[first.clone(), second.clone(), vec![B(1), R, B(2)]], holds, fault)?;
        }
    }
    Ok(states)
}

#[test]
fn every_order_of_two_checkpoints_cancels_and_ends_keeps_the_rules() {
    for holds in [true, false] {
        let states = explore_all(holds, Fault::None).unwrap_or_else(|found| panic!("{found}"));
        assert!(states > 5_000, "{states}");
    }
}

#[test]
fn planted_faults_are_found() {
    let faults = [
        Fault::EndIsWaitedFor,
        Fault::CancelIsForgotten,
        Fault::AbortHolds,
        Fault::NewerCountsAsOlder,
        Fault::SnapshotOneEarly,
        Fault::ObsoleteHolds,
    ];
    for fault in faults {
        assert!(explore_all(true, fault).is_err(), "{fault:?} was not found");
    }
}

#[test]
fn the_last_barrier_takes_the_checkpoint_and_lets_all_go_on() {
    let mut aligner = Aligner::exactly_once(2);
    let (first, second) = (ChannelIndex::new(0), ChannelIndex::new(1));
    let began = aligner.on_barrier(first, barrier(7));
    assert_eq!(began, Step { began: Some(CheckpointId::new(7)), ..Step::default() });
    assert!(aligner.is_held(first) && !aligner.is_held(second));
    let taken = aligner.on_barrier(second, barrier(7));
    assert_eq!(
        taken,
        Step {
            taken: Some(barrier(7)),
            completed: Some(CheckpointId::new(7)),
            resumed: vec![first, second],
            ..Step::default()
        }
    );
    assert_eq!(aligner.on_barrier(second, barrier(7)), Step { resumed: vec![second], ..Step::default() });
}

#[test]
fn an_end_may_be_what_was_waited_for() {
    let mut aligner = Aligner::exactly_once(2);
    let _ = aligner.on_barrier(ChannelIndex::new(0), barrier(1));
    let step = aligner.on_end(ChannelIndex::new(1));
    assert_eq!((step.taken, step.resumed), (Some(barrier(1)), vec![ChannelIndex::new(0)]));
}

#[test]
fn what_the_coordinator_asks_for_or_gives_up_waiting_for_ends_what_is_older() {
    let ids = [1, 2].map(CheckpointId::new);
    let begun = || {
        let mut aligner = Aligner::exactly_once(2);
        let _ = aligner.on_barrier(ChannelIndex::new(0), barrier(1));
        aligner
    };
    let timed_out = begun().on_timeout(barrier(2));
    assert_eq!((timed_out.aborted, timed_out.began), (Some(ids[0]), Some(ids[1])));
    assert_eq!(timed_out.resumed, [ChannelIndex::new(0)]);
    assert_eq!(begun().on_timeout(barrier(1)).aborted, None);

    let asked = begun().on_trigger(barrier(2));
    assert_eq!((asked.aborted, asked.resumed), (Some(ids[0]), vec![ChannelIndex::new(0)]));
    assert_eq!(begun().on_trigger(barrier(1)), Step::default(), "its channels bring it");
}

#[test]
fn a_task_knows_whether_any_of_its_channels_waits() {
    for (mut aligner, holds) in [(Aligner::exactly_once(2), true), (Aligner::at_least_once(2), false)] {
        assert!(!aligner.holds_any());
        let _ = aligner.on_barrier(ChannelIndex::new(0), barrier(1));
        assert_eq!(aligner.holds_any(), holds);
        let _ = aligner.on_barrier(ChannelIndex::new(1), barrier(1));
        assert!(!aligner.holds_any());
    }
}
