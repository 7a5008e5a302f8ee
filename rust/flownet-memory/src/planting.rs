//! Bugs on demand, to show that flownet-sim finds them: its simulation and its model checker must fail on each.
//!
//! Only the feature `planted-bugs` brings them in. No crate of the product enables it, `tests/python/meta` checks that;
//! without it every `planted!` is the constant `false`. With it they still sleep until one is planted, and then only on
//! that thread.

/// True when this bug is planted on this thread.
#[cfg(not(feature = "planted-bugs"))]
#[doc(hidden)]
#[macro_export]
macro_rules! planted {
    ($bug:ident) => {
        false
    };
}

/// True when this bug is planted on this thread.
#[cfg(feature = "planted-bugs")]
#[doc(hidden)]
#[macro_export]
macro_rules! planted {
    ($bug:ident) => {
        $crate::is_planted($crate::Bug::$bug)
    };
}

/// What can be planted: the known traps of a credit protocol, and of the pools below it.
#[cfg(feature = "planted-bugs")]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Bug {
    /// A producer without credit does not announce its backlog: without exclusive buffers nobody ever sends.
    SilentBacklog,
    /// A segment that a channel waited for stays with it although it was released meanwhile.
    LentAfterRelease,
    /// Credit from before a blocking event counts on after the resume, beside what is promised anew.
    CreditOutlivesBlock,
    /// A reader's entry among the ready ones is cleared after it was looked at and not before: what came in between is
    /// forgotten.
    ClearedAfterLooking,
    /// One data buffer more than there is credit.
    Overdraft,
    /// A pool is promised its minimum and has one segment of it in hand: others take the rest as overdraft, and wait for
    /// who waits for it.
    LazyPromise,
}

#[cfg(feature = "planted-bugs")]
impl Bug {
    /// All of them.
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

/// Plants a bug on this thread, or none.
#[cfg(feature = "planted-bugs")]
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

/// For the macro.
#[cfg(feature = "planted-bugs")]
#[doc(hidden)]
pub fn is_planted(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}
