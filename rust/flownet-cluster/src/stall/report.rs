//! Describes a stall in words.

use std::{fmt, time::Duration};

use flownet_runtime::inspection::PoolInspection;

use serde::Serialize;

use super::diagnosis::{Diagnosis, End, Wait, WaitLink};
use crate::{plan::Plan, shown};

/// Job in which nothing makes progress although records wait. It continues to wait.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stall {
    /// Time of the last movement, since the job was submitted.
    #[serde(serialize_with = "shown::seconds")]
    pub since: Duration,
    /// Time without movement.
    #[serde(rename = "seconds", serialize_with = "shown::seconds")]
    pub still_for: Duration,
    /// Kind of the cause.
    pub cause: StallCause,
    /// Cause in one line, without a time.
    pub summary: String,
    /// Tasks that wait for each other, one line per subtask. The last line names the subtask or worker for which all
    /// others wait. In a ring that subtask also waits.
    pub chain: Vec<String>,
    /// Number of subtasks without room in their outputs.
    pub waiting: u32,
}

/// Kind of cause of a stall.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StallCause {
    /// A function of the user, or another operator, does not return. Other tasks may wait for it legitimately.
    Function,
    /// A worker does not answer.
    Worker,
    /// The exchange itself: buffers, credit, a connection, or a task that was not woken.
    Exchange,
}

/// Stalls of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct StallHistory {
    /// Number of stalls.
    pub times: u32,
    /// Total time.
    pub total: Duration,
    /// Last stall.
    pub last: Stall,
}

impl Stall {
    /// Returns the stall in one line.
    #[must_use]
    pub fn headline(&self) -> String {
        format!("nothing has moved for {} although records wait: {}", seconds(self.still_for), self.summary)
    }

    /// Describes a diagnosis. `heard` returns the time of a worker's last report, `moved` the time of a task's last
    /// movement.
    pub(super) fn new(
        plan: &Plan,
        diagnosis: &Diagnosis,
        since: Duration,
        now: Duration,
        heard: impl Fn(u32) -> Duration,
        moved: impl Fn(u32) -> Duration,
    ) -> Self {
        let words = Words { plan };
        let ago = |then: Duration| now.saturating_sub(then);
        let summary = words.end(&diagnosis.end, &diagnosis.chain);
        let mut chain: Vec<String> = diagnosis.chain.iter().map(|link| words.link(link, diagnosis)).collect();
        match diagnosis.end {
            // The links of a ring describe its end.
            End::Ring => {}
            End::Silent { worker, .. } => chain.push(format!("{summary}, for {}", seconds(ago(heard(worker))))),
            End::AtWork { task } | End::Awaiting { task } => {
                chain.push(format!("{summary}, for {}", seconds(ago(moved(task)))))
            }
            _ => chain.push(summary.clone()),
        }
        if chain.len() > LONGEST_CHAIN {
            let left_out = chain.len() - LONGEST_CHAIN;
            chain.splice(LONGEST_CHAIN / 2..LONGEST_CHAIN / 2 + left_out, [format!("... {left_out} more")]);
        }
        let cause = match diagnosis.end {
            End::AtWork { .. } | End::Awaiting { .. } => StallCause::Function,
            End::Silent { .. } => StallCause::Worker,
            _ => StallCause::Exchange,
        };
        Self { since, still_for: ago(since), cause, summary, chain, waiting: diagnosis.waiting }
    }
}

/// Writes the block that is shown to users.
impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; since {} after its start, and it goes on waiting", self.headline(), seconds(self.since))?;
        for line in &self.chain {
            write!(f, "\n  {line}")?;
        }
        match self.waiting {
            0 => {}
            1 => write!(f, "\n  1 subtask cannot send on")?,
            count => write!(f, "\n  {count} subtasks cannot send on")?,
        }
        let advice = match self.cause {
            StallCause::Function => "it may be slow, or wait for something that never comes",
            StallCause::Worker => {
                "its process may be stopped or its machine out of reach; heartbeat_timeout ends the job"
            }
            StallCause::Exchange => "this should not happen: please report it with these lines",
        };
        write!(f, "\n  {advice}")
    }
}

impl fmt::Display for StallHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (total, summary) = (seconds(self.total), &self.last.summary);
        match self.times {
            1 => write!(f, "once, for {total}: {summary}"),
            times => write!(f, "{times} times, {total} altogether; the last time: {summary}"),
        }
    }
}

struct Words<'a> {
    plan: &'a Plan,
}

impl Words<'_> {
    fn task(&self, task: u32) -> String {
        let placed = &self.plan.tasks[task as usize];
        let spec = &placed.spec;
        let place = if self.has_workers() { format!(", worker {}", placed.worker) } else { String::new() };
        format!("{} (subtask {} of {}{place})", spec.name, spec.subtask + 1, spec.parallelism)
    }

    fn has_workers(&self) -> bool {
        self.plan.tasks.iter().any(|task| task.worker > 0)
    }

    fn memory_of(&self, task: u32) -> String {
        if self.has_workers() {
            format!("the memory of worker {}", self.plan.tasks[task as usize].worker)
        } else {
            "the network memory".to_owned()
        }
    }

    /// Describes a link together with the next one, or with the end of the chain.
    fn link(&self, link: &WaitLink, diagnosis: &Diagnosis) -> String {
        let at = diagnosis.chain.iter().position(|other| other.task == link.task).unwrap_or_default();
        let next = diagnosis.chain.get(at + 1).map(|next| next.task).or_else(|| diagnosis.end.task());
        let next = self.task(next.unwrap_or(diagnosis.chain[0].task));
        let task = self.task(link.task);
        match link.wait {
            Wait::Room { queued, pool } => {
                format!("{task} waits for room: {} for {next}; its output {}", elements(queued), segments(pool))
            }
            Wait::Unread { pool } => {
                format!("{task} waits for room: {next} has its buffers and reads none; its output {}", segments(pool))
            }
            Wait::Delivery { queued } => format!("{task} has {} for {next}", elements(queued)),
            Wait::Segment { pool, excess } => {
                let memory = self.memory_of(link.task);
                format!(
                    "{task} waits for a segment: it {}, {memory} has none left, and {next} has {excess} more than its share",
                    segments(pool)
                )
            }
        }
    }

    fn ring(&self, chain: &[WaitLink]) -> String {
        let tasks: Vec<String> = chain.iter().map(|link| self.task(link.task)).collect();
        match tasks.as_slice() {
            [only] => format!("{only} waits for itself"),
            [first, .., last] => format!("{} subtasks wait for each other, {first} to {last} and back", tasks.len()),
            [] => String::new(),
        }
    }

    fn end(&self, end: &End, chain: &[WaitLink]) -> String {
        match *end {
            End::Ring => self.ring(chain),
            End::Silent { worker, task } => format!("worker {worker} does not answer, where {} runs", self.task(task)),
            End::AtWork { task } => format!("{} is at work and does not return", self.task(task)),
            End::Awaiting { task } => {
                format!("{} waits for calls of its functions, none of which returns", self.task(task))
            }
            End::NoSegment { task, pool } => format!(
                "{} waits for a segment: it {}, {} has none left, and nobody has more than its share",
                self.task(task),
                segments(pool),
                self.memory_of(task)
            ),
            End::Asleep { task, readable: 0 } => format!("{} could go on and was not woken", self.task(task)),
            End::Asleep { task, readable } => {
                format!("{} sleeps although it could read {}", self.task(task), elements(readable))
            }
            End::NoCredit { task, pool } => {
                let pool = pool.map(|pool| format!("; it {}", segments(pool))).unwrap_or_default();
                format!("{} has no buffer to promise for it{pool}", self.task(task))
            }
            End::Connection { task, from } => {
                format!("{} gets nothing over the connection from {}", self.task(task), self.task(from))
            }
            End::Underway { task, pool } => {
                format!("what {} has sent does not arrive; its output {}", self.task(task), segments(pool))
            }
        }
    }
}

/// `holds 3 of 2 segments (2 guaranteed)`.
fn segments(pool: PoolInspection) -> String {
    format!("holds {} of {} segments ({} guaranteed)", pool.held, pool.size, pool.guaranteed)
}

fn elements(count: u64) -> String {
    if count == 1 { "1 buffer".to_owned() } else { format!("{count} buffers") }
}

/// Formats seconds, without decimals from ten on.
fn seconds(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 9.95 { format!("{seconds:.1} s") } else { format!("{seconds:.0} s") }
}

/// Longest shown chain; job graphs are rarely deeper.
const LONGEST_CHAIN: usize = 12;
