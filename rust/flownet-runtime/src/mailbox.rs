//! Sends messages to a running task. They wake its thread, which reads them between batches.
//!
//! # Invariants
//! - I1: a posted message is either read by the task or remains unread after its end. Posting never blocks on the task.
//! - I2: the thread is woken after the message is visible. So a task that saw an empty mailbox and parks is woken
//!   again.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

use crate::error::TaskError;
use crate::snapshot::CheckpointOrder;
use crate::source::SourceOrder;

/// A message to a running task.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Mail {
    /// Stop without finishing.
    Cancel,
    /// The new rate limits of the source.
    Order(SourceOrder),
    /// Ends the source. With `drain`, event time ends too: pending timers and windows fire.
    EndSource {
        /// True if windows and timers fire.
        drain: bool,
    },
    /// The event time, in milliseconds, up to which the source may read, because of the sources that it is aligned
    /// with.
    Align(i64),
    /// More splits for the source, as its operator encodes them.
    Splits(Arc<[u8]>),
    /// An order about a checkpoint.
    Checkpoint(CheckpointOrder),
    /// A request to publish state stats.
    Count,
    /// Something that an operator awaits has arrived from outside the exchange.
    Arrived,
}

/// The mailbox of one task. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Mailbox {
    shared: Arc<MailboxShared>,
}

#[derive(Debug, Default)]
struct MailboxShared {
    // Separate from the queue, because waits deep inside user code read it where no message can be handled.
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
    /// An empty mailbox without an owner to wake.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the thread to wake. The first [`take`](Self::take) finds messages that were posted earlier.
    pub fn set_owner(&self, waker: Waker) {
        self.lock().owner = Some(waker);
    }

    /// Posts a message and wakes the task.
    pub fn post(&self, mail: Mail) {
        let owner = {
            let mut inner = self.lock();
            let raised = match mail {
                Mail::Cancel => CANCELLED,
                // Handled between two records, however many more the task has at hand.
                Mail::Checkpoint(CheckpointOrder::Overtake(_)) => ATTENTION,
                _ => 0,
            };
            // One pending wake-up is enough, so repeated wake-ups do not fill the mailbox.
            if mail != Mail::Arrived || !inner.queue.contains(&mail) {
                inner.queue.push_back(mail);
            }
            self.shared.has_mail.store(true, Ordering::Release);
            // Set after the message is queued, because the task then looks for it.
            if raised != 0 {
                self.shared.raised.fetch_or(raised, Ordering::Release);
            }
            inner.owner.clone()
        };
        // Woken after the message is visible (I2), and without the lock.
        if let Some(waker) = owner {
            waker.wake();
        }
    }

    /// Takes the oldest message.
    pub fn take(&self) -> Option<Mail> {
        if !self.has_mail() {
            return None;
        }
        let mut inner = self.lock();
        let mail = inner.queue.pop_front();
        self.shared.has_mail.store(!inner.queue.is_empty(), Ordering::Release);
        mail
    }

    /// Returns true if a message is queued; one atomic read.
    #[inline]
    pub fn has_mail(&self) -> bool {
        self.shared.has_mail.load(Ordering::Acquire)
    }

    /// Returns a handle that wakes the task when something has arrived for an operator.
    pub fn bell(&self) -> TaskWaker {
        TaskWaker { mailbox: self.clone() }
    }

    /// Returns a waker that ends the current batch and wakes the task, for work to be done between two records.
    pub(crate) fn attention(&self) -> Waker {
        Arc::new(Attention { mailbox: self.clone() }).into()
    }

    /// The read side of the cancel flag, for operators.
    pub fn cancel_token(&self) -> CancelToken {
        CancelToken { shared: Arc::clone(&self.shared) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.shared.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes the task from any thread when something has arrived for an operator. Clones wake the same task.
#[derive(Clone, Debug)]
pub struct TaskWaker {
    mailbox: Mailbox,
}

impl TaskWaker {
    /// Wakes the task, which then calls [`on_arrived`](crate::operator::WaitingOperator::on_arrived) of its operators.
    /// Call it once for everything that has arrived since the operator last checked.
    pub fn ring(&self) {
        self.mailbox.post(Mail::Arrived);
    }
}

/// The waker for work that cannot wait for the end of a batch.
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

/// Bits of `raised`.
const CANCELLED: u8 = 1;
const ATTENTION: u8 = 2;

/// Shows whether the task was cancelled. Cheap enough to check for each record.
#[derive(Clone, Debug)]
pub struct CancelToken {
    shared: Arc<MailboxShared>,
}

impl CancelToken {
    /// Returns true if the task was cancelled.
    #[inline]
    pub fn is_cancelled(&self) -> bool {
        self.shared.raised.load(Ordering::Relaxed) & CANCELLED != 0
    }

    /// Returns true if the task was cancelled or has to [interrupt](Mailbox::attention) its batch: one atomic read.
    #[inline]
    pub(crate) fn is_raised(&self) -> bool {
        self.shared.raised.load(Ordering::Relaxed) != 0
    }

    /// Returns true if the batch has to be interrupted, once for each request.
    #[inline]
    pub(crate) fn take_attention(&self) -> bool {
        self.is_raised() && self.shared.raised.fetch_and(!ATTENTION, Ordering::Acquire) & ATTENTION != 0
    }

    /// Returns [`TaskError::Cancelled`] if the task was cancelled.
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
