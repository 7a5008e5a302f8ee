//! Shortens a schedule that fails: what can be left out is left out (delta debugging, Zeller 2002).

use crate::action::Action;
use crate::guard::Failure;
use crate::plan::Plan;
use crate::schedule::replay;

/// A part of `schedule` that still fails at the same place, of which no single action can be left out, and how it
/// fails. `None` if the schedule does not fail.
#[must_use]
pub fn shorten(plan: &Plan, schedule: &[Action]) -> Option<(Vec<Action>, Failure)> {
    let mut failure = replay(plan, schedule).err()?;
    let mut kept = schedule.to_vec();
    let mut chunk = kept.len().div_ceil(2).max(1);
    loop {
        let mut has_shrunk = false;
        let mut at = 0;
        while at < kept.len() {
            let until = (at + chunk).min(kept.len());
            let without: Vec<_> = kept[..at].iter().chain(&kept[until..]).copied().collect();
            match replay(plan, &without) {
                Err(found) if found.place == failure.place => {
                    (kept, failure, has_shrunk) = (without, found, true);
                }
                _ => at = until,
            }
        }
        if chunk == 1 && !has_shrunk {
            return Some((kept, failure));
        }
        // At single actions once more after each success: one left out may make another superfluous.
        chunk = (chunk / 2).max(1);
    }
}
