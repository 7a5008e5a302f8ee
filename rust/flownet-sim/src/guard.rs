//! Runs what may panic, and says what and where.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

use crate::plan::Plan;
use crate::world::World;

/// What was wrong: the text of an assertion and its place.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Failure {
    /// What the assertion said.
    pub message: String,
    /// File and line.
    pub place: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.place)
    }
}

thread_local! {
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
    static FAILURE: RefCell<Option<Failure>> = const { RefCell::new(None) };
}

/// Builds a world and runs `act` on it. After a panic nothing of the world is touched again: its machines are in an
/// unknown state, and another panic while they are dropped would be the end of the process.
pub(crate) fn in_world<R>(plan: &Plan, act: impl FnOnce(&mut World) -> R) -> Result<R, Failure> {
    let mut world = ManuallyDrop::new(watch(|| World::new(plan.clone()))?);
    let result = watch(|| act(&mut world))?;
    drop(ManuallyDrop::into_inner(world));
    Ok(result)
}

/// Runs `act`, keeps its panic from the terminal and gives it back as a value.
fn watch<R>(act: impl FnOnce() -> R) -> Result<R, Failure> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let loud = take_hook();
        set_hook(Box::new(move |info| {
            if !IS_GUARDED.get() {
                return loud(info);
            }
            let payload = info.payload();
            let text = payload.downcast_ref::<String>().map(String::as_str);
            let message = text.or(payload.downcast_ref().copied()).unwrap_or("a panic without words").to_owned();
            let place = info.location().map_or_else(String::new, |at| format!("{}:{}", at.file(), at.line()));
            FAILURE.with_borrow_mut(|failure| {
                // A first one is the cause of any that follows.
                failure.get_or_insert(Failure { message, place });
            });
        }));
    });
    FAILURE.with_borrow_mut(|failure| *failure = None);
    IS_GUARDED.set(true);
    let outcome = catch_unwind(AssertUnwindSafe(act));
    IS_GUARDED.set(false);
    outcome.map_err(|_| {
        let failure = FAILURE.with_borrow_mut(Option::take);
        failure.unwrap_or_else(|| Failure { message: "a panic without words".into(), place: String::new() })
    })
}
