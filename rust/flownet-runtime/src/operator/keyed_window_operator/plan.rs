//! Builds the window operator for a planned window.

use std::sync::Arc;

use super::{Assigner, Calls, FiringRule, KeyedWindowOperator, Trigger};
use crate::error::TaskError;
use crate::operator::{Fold, KeyedOperator, RecordFormat, SliceWindowOperator};
use crate::spec::{TriggerSpec, TriggerWhen, WindowAssigner, WindowSpec};
use crate::state::KeyGroupRange;
use crate::window::BuiltIn;

/// A fold over windows. Aligned windows that fire once, at their end, are stored by time slice. All others are stored
/// by key.
pub fn over_windows<M, F, C>(
    fold: (F, C),
    window: &WindowSpec,
    range: KeyGroupRange,
) -> Result<Box<dyn KeyedOperator<M>>, TaskError>
where
    M: RecordFormat,
    F: Fold<M> + 'static,
    C: Calls<M> + 'static,
{
    let late_tag: Option<Arc<str>> = window.late_tag.as_deref().map(Arc::from);
    over_windows_of_two(fold, window, [late_tag.clone(), late_tag], range)
}

/// The same over two inputs. Late records of each input go to its own side output, if there is one.
pub fn over_windows_of_two<M, F, C>(
    (fold, calls): (F, C),
    window: &WindowSpec,
    late_tags: [Option<Arc<str>>; 2],
    range: KeyGroupRange,
) -> Result<Box<dyn KeyedOperator<M>>, TaskError>
where
    M: RecordFormat,
    F: Fold<M> + 'static,
    C: Calls<M> + 'static,
{
    let lateness_ms = i64::try_from(window.lateness_ms).unwrap_or(i64::MAX);
    let assigner = match (window.assign.grid()?, window.assign) {
        (Some(grid), _) => Assigner::Grid(grid),
        (None, WindowAssigner::Session { gap_ms }) => Assigner::Session(gap_ms),
        (None, _) => Assigner::Global,
    };
    if let Assigner::Grid(grid) = assigner
        && window.lies_by_time()
    {
        return Ok(Box::new(SliceWindowOperator::new(fold, window.clock, grid, lateness_ms, late_tags)));
    }
    let trigger = window.trigger.unwrap_or(TriggerSpec { when: TriggerWhen::AtEnd, purges: false });
    let when = match trigger.when {
        TriggerWhen::AtEnd => FiringRule::BuiltIn(BuiltIn::AtEnd),
        TriggerWhen::Count(records) => FiringRule::BuiltIn(BuiltIn::Count(records)),
        TriggerWhen::Every(interval_ms) => FiringRule::BuiltIn(BuiltIn::Every(interval_ms.max(1))),
        TriggerWhen::Never => FiringRule::BuiltIn(BuiltIn::Never),
        TriggerWhen::Own => FiringRule::Own,
    };
    let trigger = Trigger { when, purges: trigger.purges };
    let cut = (assigner, trigger, window.clock);
    Ok(Box::new(KeyedWindowOperator::new((fold, calls), cut, (lateness_ms, late_tags), range)))
}
