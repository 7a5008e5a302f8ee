//! Assigns windows to records, and stores the values of windows until they are over.
//!
//! Two stores serve all kinds of windows. [`SlicedWindows`] is for windows that begin and end for all keys alike and
//! fire once, at their end. Values of the same time slice are adjacent in memory, a record costs one access to it, and
//! overlapping windows share slices. [`WindowsOfKey`] is for all others: sessions, windows with their own triggers, and
//! windows without end.

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
