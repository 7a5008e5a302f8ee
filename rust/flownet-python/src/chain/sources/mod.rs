//! Sources: where records enter a dataflow.

mod collection;
mod iterable;
mod lines;
mod script;
mod socket;
mod split_mark;
mod splits;
mod text;
mod waits;

pub(super) use collection::Collection;
pub(super) use iterable::{Iterable, IteratorOrigin};
pub(super) use lines::LineDecoder;
pub(super) use script::Script;
pub(super) use socket::SocketText;
pub(crate) use split_mark::PySplitMark;
pub(super) use splits::Splits;
pub(super) use text::ReadText;

/// Records of one poll: enough to amortise an attachment, few enough that a cancellation or a timer is
/// noticed soon.
const POLL_RECORDS: usize = 1024;
