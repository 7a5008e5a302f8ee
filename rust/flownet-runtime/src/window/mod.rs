//! Windows: how time is cut, and what is kept of each piece until it is over.
//!
//! Two stores serve all kinds. [`SlicedWindows`] is for windows that begin and end for all keys alike and fire once at
//! their end: what belongs together in time lies together in memory, a record costs one look at it, and windows that
//! overlap share slices. [`WindowsOfKey`] is for all others: sessions, windows with triggers of their own, and windows
//! without end.

mod assign;
mod by_key;
mod calendar;
mod merge;
mod pane;
mod rolling;
mod sliced;
mod trigger;

pub use self::assign::{AlignedWindows, Window};
pub use self::by_key::{Cell, WindowsOfKey};
pub use self::calendar::{Calendar, CalendarUnit, first_instant, second_instant, shown_ms};
pub(crate) use self::merge::{Merge, PartOf, key_of};
pub use self::pane::Pane;
pub use self::rolling::{RollingWindow, SliceRole, Sums};
pub(crate) use self::sliced::SliceEntry;
pub use self::sliced::{SlicePlacement, SlicedWindows};
pub use self::trigger::{BuiltIn, TriggerResult};
