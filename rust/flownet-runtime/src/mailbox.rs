//! Letters to a running task: they wake its thread and are read between batches.
//!
//! # Invariants
//! - I1: a letter posted is either read by the task or outlives it unread; posting never blocks on the task.
//! - I2: the thread is woken after the letter is visible, so a task that saw an empty box and parks is woken again.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

use crate::error::TaskError;
use crate::snapshot::CheckpointOrder;
use crate::source::SourceOrder;

/// What can be said to a running task.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Mail {
    /// Stop without finishing.
    Cancel,
    /// How fast the source may go from now on.
    Order(SourceOrder),
    /// The source has ended. With `drain`, so has time: what waits for it fires.
    EndSource {
        /// Whether windows and timers fire.
        drain: bool,
    },
    /// The source may go so far in event time, in milliseconds, because of those it is aligned with.
    Align(i64),
    /// The source has more to read: splits, as its operator writes them.
    Splits(Arc<[u8]>),
    /// Of a checkpoint.
    Checkpoint(CheckpointOrder),
    /// Somebody asks what the operators hold.
    Count,
    /// Something has come that an operator waits for, from outside of the exchange.
    Arrived,
}

/// The letter box of one task. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Mailbox {
    shared: Arc<MailboxShared>,
}

#[derive(Debug, Default)]
struct MailboxShared {
    // Beside the queue because waits deep inside user code look at it where no letter can be handled.
    raised: AtomicU8,
    has_mail: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    queue: VecDeque<Mail>,
    owner: Option<Waker>,
}

impl Mailbox {
    /// An empty box that wakes nobody yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Names the thread to wake; letters posted before are found by the first [`take`](Self::take).
    pub fn set_owner(&self, waker: Waker) {
        self.lock().owner = Some(waker);
    }

    /// Leaves a letter and wakes the task.
    pub fn post(&self, mail: Mail) {
        let owner = {
            let mut inner = self.lock();
            let raised = match mail {
                Mail::Cancel => CANCELLED,
                // Between two records, however many the task has at hand.
                Mail::Checkpoint(CheckpointOrder::Overtake(_)) => ATTENTION,
                _ => 0,
            };
            // A second ring says nothing new: however often somebody rings, the box does not fill.
            if mail != Mail::Arrived || !inner.queue.contains(&mail) {
                inner.queue.push_back(mail);
            }
            self.shared.has_mail.store(true, Ordering::Release);
            // Behind the letter, which is what there is to attend to.
            if raised != 0 {
                self.shared.raised.fetch_or(raised, Ordering::Release);
            }
            inner.owner.clone()
        };
        if let Some(waker) = owner {
            waker.wake();
        }
    }

    /// The oldest letter.
    pub fn take(&self) -> Option<Mail> {
        if !self.has_mail() {
            return None;
        }
        let mut inner = self.lock();
        let mail = inner.queue.pop_front();
        self.shared.has_mail.store(!inner.queue.is_empty(), Ordering::Release);
        mail
    }

    /// Whether a letter waits; one atomic read.
    #[inline]
    pub fn has_mail(&self) -> bool {
        self.shared.has_mail.load(Ordering::Acquire)
    }

    /// What others ring when they have something for an operator.
    pub fn bell(&self) -> TaskWaker {
        TaskWaker { mailbox: self.clone() }
    }

    /// Ends the batch that the task is at, and wakes it: something wants its attention between two records.
    pub(crate) fn attention(&self) -> Waker {
        Arc::new(Attention { mailbox: self.clone() }).into()
    }

    /// The read side of cancelling, for operators.
    pub fn cancel_token(&self) -> CancelToken {
        CancelToken { shared: Arc::clone(&self.shared) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.shared.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Rung by whoever has something for an operator of the task, from any thread. Clones ring the same task.
#[derive(Clone, Debug)]
pub struct TaskWaker {
    mailbox: Mailbox,
}

impl TaskWaker {
    /// Wakes the task, which then calls [`Chain::on_arrived`](crate::Chain::on_arrived). Ring once for all that has
    /// gathered since the operator last looked.
    pub fn ring(&self) {
        self.mailbox.post(Mail::Arrived);
    }
}

/// Raised by what came for the task and does not wait for the end of a batch.
struct Attention {
    mailbox: Mailbox,
}

impl Wake for Attention {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.mailbox.shared.raised.fetch_or(ATTENTION, Ordering::Release);
        let owner = self.mailbox.lock().owner.clone();
        if let Some(owner) = owner {
            owner.wake();
        }
    }
}

/// What may be raised.
const CANCELLED: u8 = 1;
const ATTENTION: u8 = 2;

/// Tells whether the task was told to stop. Cheap enough to ask for each record.
#[derive(Clone, Debug)]
pub struct CancelToken {
    shared: Arc<MailboxShared>,
}

impl CancelToken {
    /// Whether the task was told to stop.
    #[inline]
    pub fn is_cancelled(&self) -> bool {
        self.shared.raised.load(Ordering::Relaxed) & CANCELLED != 0
    }

    /// Whether the task was told to stop, or its [attention](Mailbox::attention) is wanted: one atomic read.
    #[inline]
    pub(crate) fn is_raised(&self) -> bool {
        self.shared.raised.load(Ordering::Relaxed) != 0
    }

    /// Whether its attention is wanted; asked once for each time.
    #[inline]
    pub(crate) fn take_attention(&self) -> bool {
        self.is_raised() && self.shared.raised.fetch_and(!ATTENTION, Ordering::Acquire) & ATTENTION != 0
    }

    /// [`TaskError::Cancelled`] if the task was told to stop.
    #[inline]
    pub fn check(&self) -> Result<(), TaskError> {
        if self.is_cancelled() { Err(TaskError::Cancelled) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flownet_net::ThreadParker;

    #[test]
    fn mail_posted_before_the_owner_is_known_is_found() {
        let mailbox = Mailbox::new();
        mailbox.post(Mail::Cancel);
        assert!(mailbox.has_mail() && mailbox.cancel_token().is_cancelled());
        assert_eq!(mailbox.take(), Some(Mail::Cancel));
        assert_eq!((mailbox.take(), mailbox.has_mail()), (None, false));
        assert_eq!(mailbox.cancel_token().check(), Err(TaskError::Cancelled), "a cancel read stays a cancel");
    }

    #[test]
    fn rings_that_nobody_has_heard_yet_are_one() {
        let mailbox = Mailbox::new();
        let bell = mailbox.bell();
        (0..100).for_each(|_| bell.ring());
        mailbox.post(Mail::Cancel);
        bell.ring();
        assert_eq!([mailbox.take(), mailbox.take(), mailbox.take()], [Some(Mail::Arrived), Some(Mail::Cancel), None]);
        bell.ring();
        assert_eq!(mailbox.take(), Some(Mail::Arrived));
    }

    #[test]
    fn attention_is_wanted_once_for_all_that_came_and_is_no_cancel() {
        let mailbox = Mailbox::new();
        let (attention, token) = (mailbox.attention(), mailbox.cancel_token());
        assert!(!token.is_raised() && !token.take_attention());
        attention.wake_by_ref();
        attention.wake();
        assert_eq!((token.is_raised(), token.check()), (true, Ok(())));
        assert_eq!((token.take_attention(), token.take_attention(), token.is_raised()), (true, false, false));
        mailbox.post(Mail::Cancel);
        assert_eq!((token.take_attention(), token.is_raised(), token.is_cancelled()), (false, true, true));
    }

    #[test]
    fn posting_wakes_the_owner() {
        let mailbox = Mailbox::new();
        let parker = ThreadParker::current();
        mailbox.set_owner(parker.waker().clone());
        let poster = mailbox.clone();
        let thread = std::thread::spawn(move || poster.post(Mail::Cancel));
        parker.park();
        assert_eq!(mailbox.take(), Some(Mail::Cancel));
        thread.join().unwrap();
    }
}
