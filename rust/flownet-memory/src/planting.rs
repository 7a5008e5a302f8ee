//! Deliberate bugs, to show that flownet-sim finds them: its simulation and its model checker must fail on each.
//!
//! Only the feature `planted-bugs` compiles them in. No crate of the product enables it, as `tests/python/meta` checks.
//! Without it, every `planted!` is the constant `false`. With it, a bug is inactive until it is planted, and then
//! active only on that thread.

/// Returns true if this bug is planted on this thread.
#[cfg(not(feature = "planted-bugs"))]
#[doc(hidden)]
#[macro_export]
macro_rules! planted {
    ($bug:ident) => {
        false
    };
}

/// Returns true if this bug is planted on this thread.
#[cfg(feature = "planted-bugs")]
#[doc(hidden)]
#[macro_export]
macro_rules! planted {
    ($bug:ident) => {
        $crate::is_planted($crate::Bug::$bug)
    };
}

/// Bugs that can be planted: the known traps of a credit protocol and of its pools.
#[cfg(feature = "planted-bugs")]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Bug {
    /// A producer without credit does not announce its backlog. Without exclusive buffers, no producer ever sends.
    SilentBacklog,
    /// A channel retains a segment that it waited for, although it was released meanwhile.
    LentAfterRelease,
    /// Credit from before a blocking event stays valid after the resume, in addition to the new credit.
    CreditOutlivesBlock,
    /// A reader's entry in the ready queue is cleared after its turn and not before: changes in between are lost.
    ClearedAfterLooking,
    /// The producer sends one data buffer more than it has credit for.
    Overdraft,
    /// A pool gets a promise of its minimum but holds only one segment of it. Others take the rest as overdraft and
    /// then wait for tasks that wait for them.
    LazyPromise,
}

#[cfg(feature = "planted-bugs")]
impl Bug {
    /// All bugs.
    pub const ALL: [Self; 6] = [
        Self::SilentBacklog,
        Self::LentAfterRelease,
        Self::CreditOutlivesBlock,
        Self::ClearedAfterLooking,
        Self::Overdraft,
        Self::LazyPromise,
    ];
}

#[cfg(feature = "planted-bugs")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Plants a bug on this thread, or removes it with `None`.
#[cfg(feature = "planted-bugs")]
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

/// Implementation of the macro.
#[cfg(feature = "planted-bugs")]
#[doc(hidden)]
pub fn is_planted(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}
