//! The thread that samples a task, and the handle of the request.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use super::tree::Tree;
use super::{Flame, FlameOrder, StackOf, Stacks, is_back_pressured, stack_of};
use crate::metrics::TaskMetrics;
use crate::time_accounting::{TimeShares, TimeState};

/// A task that is being sampled. Dropping it ends the sampling.
#[derive(Debug)]
pub struct SamplingGuard {
    shared: Arc<SamplerShared>,
    thread: Thread,
}

#[derive(Debug)]
struct SamplerShared {
    metrics: Arc<TaskMetrics>,
    order: FlameOrder,
    began: Instant,
    /// Time accounting at the beginning.
    before: TimeShares,
    is_left: AtomicBool,
    found: Mutex<SampledStacks>,
}

/// The samples so far.
#[derive(Debug, Default)]
struct SampledStacks {
    taken: u32,
    back_pressured: u32,
    has_ended: bool,
    tree: Tree,
}

impl SamplingGuard {
    /// Begins to sample, on a thread of its own. There `stacks` creates the reader of stacks, if the task has
    /// stacks. `on_end` is called on that thread after the last sample, or when the task has ended.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn start(
        metrics: Arc<TaskMetrics>,
        order: FlameOrder,
        stacks: impl FnOnce() -> Option<Box<dyn Stacks>> + Send + 'static,
        on_end: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let (began, before) = (Instant::now(), metrics.time());
        let (is_left, found) = (AtomicBool::new(false), Mutex::default());
        let shared = Arc::new(SamplerShared { metrics, order, began, before, is_left, found });
        let sampler = Arc::clone(&shared);
        let body = move || {
            sampler.sample_all(stacks());
            on_end();
        };
        let thread = thread::Builder::new().name("flownet-sample".to_owned()).spawn(body)?.thread().clone();
        Ok(Self { shared, thread })
    }

    /// The result so far.
    pub fn flame(&self) -> Flame {
        let SamplerShared { metrics, order, began, before, .. } = &*self.shared;
        let (lasted, time) = (began.elapsed(), metrics.time().since(before));
        let found = self.shared.found();
        let SampledStacks { taken, back_pressured, has_ended, ref tree } = *found;
        Flame { asked: order.samples(), taken, back_pressured, lasted, time, has_ended, frames: tree.frames() }
    }
}

impl Drop for SamplingGuard {
    fn drop(&mut self) {
        self.shared.is_left.store(true, Ordering::Relaxed);
        self.thread.unpark();
    }
}

impl SamplerShared {
    fn sample_all(&self, mut stacks: Option<Box<dyn Stacks>>) {
        let mut next = 0;
        while next < self.order.samples() && self.sleep_until(self.order.due(next)) {
            let Some(now) = self.metrics.period() else {
                self.found().has_ended = true;
                return;
            };
            next = self.sample(next, now, stacks.as_deref_mut());
        }
    }

    /// Takes the samples from `next` on that have fallen due. Returns the first one that has not.
    fn sample(&self, next: u32, now: (TimeState, Instant), stacks: Option<&mut (dyn Stacks + 'static)>) -> u32 {
        let (state, since) = now;
        // The last of them is due now; the earlier ones are the same if the state is.
        let last = self.passed().max(next + 1);
        let is_same = |number: &u32| number + 1 == last || self.began + self.order.due(*number) >= since;
        let samples = (next..last).filter(is_same).count() as u32;
        let Some((of, stacks)) = stack_of(state).zip(stacks) else {
            self.found().add(state, None, Vec::new(), samples);
            return last;
        };
        let asked = Instant::now();
        let stack = stacks.read(of);
        // A sampler that had to wait is admitted where functions end, which is not where the task was when
        // the sample was due.
        let is_sure = !stack.is_empty() || state != TimeState::Busy || asked.elapsed() < PROMPT;
        if is_sure && self.metrics.period() == Some(now) {
            let waited = self.passed().saturating_sub(last);
            self.found().add(state, Some(of), stack, samples + waited);
            return last + waited;
        }
        match state {
            TimeState::Busy => self.found().add_missed(samples),
            _ => self.found().add(state, None, Vec::new(), samples),
        }
        last
    }

    fn passed(&self) -> u32 {
        self.order.passed(self.began.elapsed())
    }

    /// Sleeps until the sample is due, or the task ends. Returns false if the request was dropped.
    fn sleep_until(&self, due: Duration) -> bool {
        loop {
            if self.is_left.load(Ordering::Relaxed) {
                return false;
            }
            let left = due.saturating_sub(self.began.elapsed());
            if left.is_zero() || self.metrics.period().is_none() {
                return true;
            }
            thread::park_timeout(left.min(LONGEST_NAP));
        }
    }

    fn found(&self) -> MutexGuard<'_, SampledStacks> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SampledStacks {
    fn add(&mut self, state: TimeState, of: Option<StackOf>, stack: Vec<super::StackFrame>, samples: u32) {
        self.taken += samples;
        if is_back_pressured(state) {
            self.back_pressured += samples;
        }
        self.tree.add(state, of, stack, samples);
    }

    fn add_missed(&mut self, samples: u32) {
        self.taken += samples;
        self.tree.add_missed(samples);
    }
}

/// If reading took longer than this and found no function, the task may still have been in one when the
/// sample was due.
const PROMPT: Duration = Duration::from_millis(1);
/// Longest delay until it notices that the task has ended.
const LONGEST_NAP: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::super::{FlameFrame, StackFrame, TaskActivity};
    use super::*;
    use crate::time_accounting::BackpressureCause;

    /// Returns the stack that a function of the test returns.
    struct ReaderFn<F>(F);

    impl<F: FnMut(StackOf) -> Vec<StackFrame>> Stacks for ReaderFn<F> {
        fn read(&mut self, of: StackOf) -> Vec<StackFrame> {
            (self.0)(of)
        }
    }

    fn order(samples: u64) -> FlameOrder {
        FlameOrder::new(samples, 10).expect("within its bounds")
    }

    /// Samples a task until it ends.
    fn flame<F>(metrics: &Arc<TaskMetrics>, order: FlameOrder, read: F) -> Flame
    where
        F: FnMut(StackOf) -> Vec<StackFrame> + Send + 'static,
    {
        let (ended, is_over) = mpsc::channel();
        let stacks = move || Some(Box::new(ReaderFn(read)) as Box<dyn Stacks>);
        let end = move || drop(ended);
        let sampling = SamplingGuard::start(Arc::clone(metrics), order, stacks, end).expect("a thread");
        let _: Result<(), _> = is_over.recv();
        sampling.flame()
    }

    fn burn() -> Vec<StackFrame> {
        vec![StackFrame::new("burn", "job.py", 1, 2)]
    }

    fn samples(flame: &Flame, is_it: impl Fn(&TaskActivity) -> bool) -> u32 {
        flame.frames.iter().filter(|FlameFrame { place, .. }| is_it(place)).map(|frame| frame.samples).sum()
    }

    #[test]
    fn a_task_that_works_is_found_in_its_functions() {
        let metrics = Arc::new(TaskMetrics::new());
        metrics.switch(TimeState::Busy);
        let flame = flame(&metrics, order(5), |of| if of == StackOf::Task { burn() } else { vec![] });
        assert_eq!((flame.asked, flame.taken, flame.back_pressured, flame.has_ended), (5, 5, 0, false));
        assert_eq!(samples(&flame, |place| matches!(place, TaskActivity::Function { name, .. } if name == "burn")), 5);
        assert_eq!(flame.frames.len(), 1);
        assert_eq!(flame.time.total(), flame.time.busy);
    }

    #[test]
    fn who_waits_for_outputs_is_found_waiting_and_nobody_is_called() {
        let metrics = Arc::new(TaskMetrics::new());
        metrics.switch(TimeState::SoftBackPressured(BackpressureCause::Credit));
        let flame = flame(&metrics, order(5), |_| unreachable!("it has no stack"));
        assert_eq!((flame.taken, flame.back_pressured), (5, 5));
        assert_eq!(
            samples(&flame, |place| *place
                == TaskActivity::State(TimeState::SoftBackPressured(BackpressureCause::Credit))),
            5
        );
        assert_eq!(flame.time.total(), flame.time.back_pressured());
    }

    #[test]
    fn a_stack_of_another_state_than_the_one_that_was_due_does_not_count() {
        let metrics = Arc::new(TaskMetrics::new());
        metrics.switch(TimeState::Busy);
        let switched = Arc::clone(&metrics);
        let flame = flame(&metrics, order(4), move |_| {
            switched.switch(TimeState::Interpreter);
            switched.switch(TimeState::Busy);
            burn()
        });
        assert_eq!(samples(&flame, |place| *place == TaskActivity::Missed), flame.taken);
        assert!(flame.taken >= 1);
    }

    #[test]
    fn no_function_is_a_sign_of_rust_only_where_nobody_had_to_wait() {
        let metrics = Arc::new(TaskMetrics::new());
        metrics.switch(TimeState::Busy);
        let late = flame(&metrics, order(3), |_| {
            thread::sleep(PROMPT);
            vec![]
        });
        assert_eq!(samples(&late, |place| *place == TaskActivity::Missed), late.taken);
        let without = SamplingGuard::start(metrics, order(1), || None, || {}).expect("a thread");
        while without.flame().taken == 0 {
            thread::yield_now();
        }
        assert_eq!(samples(&without.flame(), |place| *place == TaskActivity::State(TimeState::Busy)), 1);
    }

    #[test]
    fn samples_that_fall_due_while_a_stack_is_waited_for_are_found_in_it() {
        let metrics = Arc::new(TaskMetrics::new());
        metrics.switch(TimeState::Busy);
        let order = order(10);
        let mut times = 0;
        let (read, reads) = mpsc::channel();
        let flame = flame(&metrics, order, move |_| {
            times += 1;
            let _ = read.send(times);
            thread::sleep(order.whole());
            burn()
        });
        assert_eq!(flame.taken, 10);
        assert_eq!(reads.iter().count(), 1);
    }

    #[test]
    fn the_end_of_a_task_ends_it_and_so_does_who_leaves() {
        let metrics = Arc::new(TaskMetrics::new());
        metrics.close();
        let ended = flame(&metrics, order(1000), |_| vec![]);
        assert_eq!((ended.taken, ended.has_ended), (0, true));
        let (ended, is_over) = mpsc::channel();
        let metrics = Arc::new(TaskMetrics::new());
        let left = SamplingGuard::start(metrics, order(1000), || None, move || drop(ended)).expect("a thread");
        drop(left);
        let _: Result<(), _> = is_over.recv();
    }
}
