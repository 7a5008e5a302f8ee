//! Derives from workers' answers which tasks wait for which, and where the waiting ends.
//!
//! Waiting points downstream: a task waits for room towards a consumer, or for a consumer to read. If a segment is
//! missing, it points to the task with the most excess over its share of that worker's memory, which may be upstream.
//! So chains can form a ring.

use std::collections::BTreeMap;

use flownet_runtime::{
    TaskInspection,
    inspection::{OutputInspection, PoolInspection},
    spec::FlowControl,
    time_accounting::TimeState,
};

use crate::{plan::Plan, rpc::Inspection};

/// Reason why a job is stalled.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Diagnosis {
    /// Chain from a waiting task to the end of the waiting. A ring ends with the task that it began with.
    pub(super) chain: Vec<WaitLink>,
    pub(super) end: End,
    /// Number of blocked subtasks in the whole job.
    pub(super) waiting: u32,
}

/// Task of a chain and its wait state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct WaitLink {
    pub(super) task: u32,
    pub(super) wait: Wait,
}

/// Reason why a task waits for the next one of the chain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Wait {
    /// Its output has no room; `queued` elements wait for the next task.
    Room { queued: u64, pool: PoolInspection },
    /// Its output has no room; the next task has taken its buffers and not read them.
    Unread { pool: PoolInspection },
    /// It has `queued` elements for the next task, and may make progress itself.
    Delivery { queued: u64 },
    /// It lacks a segment that its pool may hold; the next task holds `excess` more than its share.
    Segment { pool: PoolInspection, excess: u64 },
}

/// End of a chain of waiting tasks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum End {
    /// The chain returned to one of its own tasks.
    Ring,
    /// This worker does not answer.
    Silent { worker: u32, task: u32 },
    /// A pool is short of segments, and no task holds more than its share.
    NoSegment { task: u32, pool: PoolInspection },
    /// The task could make progress, and does not.
    Asleep { task: u32, readable: u64 },
    /// The task's input gives no credit to a producer that has data.
    NoCredit { task: u32, pool: Option<PoolInspection> },
    /// Buffers that were sent to the task, or may be sent, do not arrive.
    Connection { task: u32, from: u32 },
    /// All segments of the task's output are on their way to consumers.
    Underway { task: u32, pool: PoolInspection },
    /// The task's thread is at work.
    AtWork { task: u32 },
    /// The task waits for async I/O calls of its functions, and reads no records meanwhile.
    Awaiting { task: u32 },
}

impl Diagnosis {
    /// Follows the chains of all waiting tasks. Returns `None` if no task waits.
    pub(super) fn of(plan: &Plan, answers: &BTreeMap<u32, Inspection>) -> Option<Self> {
        let graph = Graph::new(plan, answers);
        let starts: Vec<Start> = (0..plan.tasks.len() as u32).flat_map(|task| graph.starts(task)).collect();
        let waiting = (0..plan.tasks.len() as u32).filter(|&task| graph.is_blocked(task)).count() as u32;
        let mut ends: Vec<(End, usize, Vec<WaitLink>)> = Vec::new();
        for start in starts {
            let (chain, end) = graph.follow(start);
            match ends.iter_mut().find(|(known, ..)| end.is_same(known)) {
                // The longest chain to an end is the most informative.
                Some((_, count, known)) => {
                    *count += 1;
                    if chain.len() > known.len() {
                        *known = chain;
                    }
                }
                None => ends.push((end, 1, chain)),
            }
        }
        // Of ends with equal weight, most chains lead to this one; the first, if there are several.
        let worst = ends.into_iter().rev().max_by_key(|(end, count, _)| (end.weight(), *count))?;
        let (end, _, chain) = worst;
        Some(Self { chain, end, waiting })
    }

    /// Returns the task whose function does not return, if that is the only cause.
    pub(super) fn slow_function(&self) -> Option<u32> {
        match self.end {
            End::AtWork { task } | End::Awaiting { task } => Some(task),
            _ => None,
        }
    }
}

impl End {
    /// Returns the weight of an end; the heaviest end is the cause. An error of the exchange outweighs a function, for
    /// which other tasks may wait legitimately. The less a function explains an end, the heavier it is.
    fn weight(&self) -> u32 {
        match self {
            Self::Silent { .. } => 4,
            Self::Ring | Self::NoSegment { .. } | Self::Asleep { .. } => 3,
            Self::NoCredit { .. } => 2,
            Self::AtWork { .. } | Self::Awaiting { .. } => 1,
            // If channels share sockets without credit, a function can block connections.
            Self::Connection { .. } | Self::Underway { .. } => 0,
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Silent { worker, .. }, Self::Silent { worker: other, .. }) => worker == other,
            _ => self.task() == other.task() && std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }

    /// Returns the task at the end.
    pub(super) fn task(&self) -> Option<u32> {
        match *self {
            Self::Ring => None,
            Self::Silent { task, .. }
            | Self::NoSegment { task, .. }
            | Self::Asleep { task, .. }
            | Self::NoCredit { task, .. }
            | Self::Connection { task, .. }
            | Self::Underway { task, .. }
            | Self::AtWork { task }
            | Self::Awaiting { task } => Some(task),
        }
    }
}

/// Start of a chain: a task that is blocked, has unread data, or has data for another task.
enum Start {
    At(u32),
    Towards { from: u32, channel: (u64, u32), queued: u64 },
}

enum Step {
    On(Wait, u32, Option<(u64, u32)>),
    End(End),
}

struct Graph<'a> {
    plan: &'a Plan,
    answers: &'a BTreeMap<u32, Inspection>,
    tasks: BTreeMap<u32, &'a TaskInspection>,
    /// Reader of each subpartition.
    readers: BTreeMap<(u64, u32), u32>,
}

impl<'a> Graph<'a> {
    fn new(plan: &'a Plan, answers: &'a BTreeMap<u32, Inspection>) -> Self {
        let tasks = answers.values().flat_map(|answer| &answer.tasks).map(|(task, inspection)| (*task, inspection));
        let channels = plan.tasks.iter().flat_map(|placed| {
            let channels = placed.spec.inputs.iter().flat_map(|input| &input.channels);
            channels.map(|channel| ((channel.partition, channel.subpartition), placed.spec.task_id))
        });
        Self { plan, answers, tasks: tasks.collect(), readers: channels.collect() }
    }

    fn starts(&self, task: u32) -> Vec<Start> {
        let Some(seen) = self.tasks.get(&task) else { return Vec::new() };
        let has_unread = seen.state.is_some() && seen.input.readable + seen.unread_buffers > 0;
        if self.is_blocked(task) || has_unread {
            return vec![Start::At(task)];
        }
        let towards = |(partition, output): (u64, &OutputInspection)| {
            let fullest = output.fullest.clone().into_iter();
            fullest.map(move |(sub, queued)| Start::Towards { from: task, channel: (partition, sub), queued })
        };
        self.outputs(task).flat_map(towards).collect()
    }

    /// Whether a task waits for room in an output. A source that the coordinator holds back does not.
    fn is_blocked(&self, task: u32) -> bool {
        let Some(seen) = self.tasks.get(&task) else { return false };
        match seen.state {
            Some(TimeState::HardBackPressured(_)) => true,
            Some(TimeState::SoftBackPressured(_)) => {
                !self.may_be_held(task) || seen.outputs.iter().any(|output| !output.is_available)
            }
            // A source that is ahead of the sources it is aligned with waits for them, and they may wait for anything.
            Some(
                TimeState::Busy
                | TimeState::Interpreter
                | TimeState::Idle
                | TimeState::Awaiting
                | TimeState::Aligning
                | TimeState::Barrier,
            )
            | None => false,
        }
    }

    fn follow(&self, start: Start) -> (Vec<WaitLink>, End) {
        let mut chain: Vec<WaitLink> = Vec::new();
        let (mut task, mut came_by) = match start {
            Start::At(task) => (task, None),
            Start::Towards { from, channel, queued } => {
                chain.push(WaitLink { task: from, wait: Wait::Delivery { queued } });
                (self.readers.get(&channel).copied().unwrap_or(from), Some(channel))
            }
        };
        loop {
            if let Some(begin) = chain.iter().position(|link| link.task == task) {
                // Tasks that only lead to the ring are not part of it.
                chain.drain(..begin);
                return (chain, End::Ring);
            }
            match self.step(task, came_by) {
                Step::End(end) => return (chain, end),
                Step::On(wait, next, channel) => {
                    chain.push(WaitLink { task, wait });
                    (task, came_by) = (next, channel);
                }
            }
        }
    }

    /// Returns the wait state of a task. `came_by` is the channel by which another task waits for it.
    fn step(&self, task: u32, came_by: Option<(u64, u32)>) -> Step {
        let Some(seen) = self.tasks.get(&task) else {
            return Step::End(End::Silent { worker: self.plan.tasks[task as usize].worker, task });
        };
        if self.is_blocked(task) {
            return self.step_output(task, seen);
        }
        match seen.state {
            Some(TimeState::Busy | TimeState::Interpreter) => Step::End(End::AtWork { task }),
            Some(TimeState::Awaiting) => Step::End(End::Awaiting { task }),
            _ => self.step_input(task, seen, came_by),
        }
    }

    fn step_output(&self, task: u32, seen: &TaskInspection) -> Step {
        // In the middle of a record all outputs may count as available. Then it waits for the one with the fewest
        // segments.
        let blocked = self.outputs(task).find(|(_, output)| !output.is_available);
        let fewest = || self.outputs(task).min_by_key(|(_, output)| output.pool.held);
        let is_in_record = matches!(seen.state, Some(TimeState::HardBackPressured(_)));
        let Some((partition, output)) = blocked.or_else(|| is_in_record.then(fewest).flatten()) else {
            return Step::End(End::Asleep { task, readable: seen.input.readable });
        };
        let pool = output.pool;
        if pool.held < pool.guaranteed
            && let Some(step) = self.step_segment(task, pool)
        {
            return step;
        }
        if let Some(&(sub, queued)) = output.fullest.first() {
            let channel = (partition, sub);
            let reader = self.readers.get(&channel).copied().unwrap_or(task);
            return Step::On(Wait::Room { queued, pool }, reader, Some(channel));
        }
        if let Some((channel, reader)) = self.holder_of_unread(partition) {
            return Step::On(Wait::Unread { pool }, reader, Some(channel));
        }
        let underway = Step::End(End::Underway { task, pool });
        if pool.held < pool.size { self.step_segment(task, pool).unwrap_or(underway) } else { underway }
    }

    fn step_input(&self, task: u32, seen: &TaskInspection, came_by: Option<(u64, u32)>) -> Step {
        let readable = seen.input.readable + seen.unread_buffers;
        let Some(channel) = came_by.filter(|_| readable == 0) else {
            return Step::End(End::Asleep { task, readable });
        };
        let is_without_credit = seen.input.without_credit.contains(&channel);
        // The list is cut off: then nothing is known of a channel that is not in it.
        let is_cut = seen.input.channels_without_credit > seen.input.without_credit.len() as u64;
        if !is_without_credit && (!is_cut || !self.has_credit(task)) {
            let from = self.producer_of(channel.0).unwrap_or(task);
            return Step::End(End::Connection { task, from });
        }
        let pool = seen.input.pool;
        let short = pool.filter(|pool| pool.held < pool.size);
        let missing = short.and_then(|pool| self.step_segment(task, pool));
        missing.unwrap_or(Step::End(End::NoCredit { task, pool }))
    }

    /// If a pool is short because the worker has no free segment, returns the step to the task that holds too many.
    fn step_segment(&self, task: u32, pool: PoolInspection) -> Option<Step> {
        let answer = self.answers.get(&self.plan.tasks[task as usize].worker)?;
        if answer.free > 0 {
            return None;
        }
        let holder =
            answer.tasks.iter().map(|(holder, seen)| (excess(seen), *holder)).max_by_key(|&(excess, _)| excess);
        Some(match holder {
            Some((excess @ 1.., holder)) => Step::On(Wait::Segment { pool, excess }, holder, None),
            _ => Step::End(End::NoSegment { task, pool }),
        })
    }

    fn holder_of_unread(&self, partition: u64) -> Option<((u64, u32), u32)> {
        let readers = self.readers.range((partition, 0)..=(partition, u32::MAX));
        let unread = |task: &u32| self.tasks.get(task).map_or(0, |seen| seen.unread_buffers);
        let holder = readers.max_by_key(|(_, reader)| unread(reader));
        holder.filter(|(_, reader)| unread(reader) > 0).map(|(&channel, &reader)| (channel, reader))
    }

    /// Whether the coordinator may hold back a task: some kinds of flow control let it stop sources.
    fn may_be_held(&self, task: u32) -> bool {
        let is_source = self.plan.tasks[task as usize].spec.is_source();
        is_source && self.plan.exchanges.iter().any(|exchange| exchange.flow_control.is_of_the_job())
    }

    fn has_credit(&self, task: u32) -> bool {
        let mut inputs = self.plan.tasks[task as usize].spec.inputs.iter();
        inputs.any(|input| input.flow_control == FlowControl::Credit)
    }

    fn producer_of(&self, partition: u64) -> Option<u32> {
        let writes = |task: &&crate::plan::PlacedTask| task.spec.outputs.iter().any(|out| out.partition == partition);
        self.plan.tasks.iter().find(writes).map(|placed| placed.spec.task_id)
    }

    fn outputs(&self, task: u32) -> impl Iterator<Item = (u64, &'a OutputInspection)> {
        let specs = self.plan.tasks[task as usize].spec.outputs.iter().map(|output| output.partition);
        let seen = self.tasks.get(&task).into_iter().flat_map(|seen| &seen.outputs);
        specs.zip(seen)
    }
}

/// Returns the number of segments that the pools of a task hold beyond their sizes.
fn excess(seen: &TaskInspection) -> u64 {
    let pools = seen.outputs.iter().map(|output| &output.pool).chain(&seen.input.pool);
    pools.map(|pool| pool.held.saturating_sub(pool.size)).sum()
}
