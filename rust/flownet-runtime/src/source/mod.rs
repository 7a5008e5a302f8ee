//! Sources of records that need no exchange: text files, text sockets, a brake, and the pace of a source.

mod files;
mod lines;
mod pace;
mod socket;
mod text;
mod throttle;

pub use self::files::TextFiles;
pub use self::pace::{BURST, Pace, RateLimit, RateUnit, SourceOrder, Turn};
pub use self::socket::{SocketLines, SocketPoll};
pub use self::text::{DEFAULT_SPLIT_BYTES, FileState, TextReader, TextSplit, TextSplits};
pub use self::throttle::Throttle;

use serde::{Deserialize, Serialize};

/// Why a source could not read its input.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum SourceError {
    /// There is no such file or folder.
    #[error("no such file or folder: {path}")]
    Missing {
        /// The path as given, or as found in a folder.
        path: String,
    },
    /// The file or folder is there but cannot be read.
    #[error("cannot read {path}: {reason}")]
    Unreadable {
        /// The path as given, or as found in a folder.
        path: String,
        /// What the system said.
        reason: String,
    },
    /// A device, pipe or socket was given where a file or folder belongs.
    #[error("neither a file nor a folder: {path}")]
    NotAFile {
        /// The path as given.
        path: String,
    },
    /// A line is longer than the limit.
    #[error(
        "line at byte {offset} of {input} is longer than {max_bytes} bytes, the largest record; \
         raise max_record_size, or see whether it is text in lines"
    )]
    LineTooLong {
        /// The path or address.
        input: String,
        /// Where the line begins.
        offset: u64,
        /// The limit.
        max_bytes: usize,
    },
    /// A file is not the one that was there when the job began, or not all of it.
    #[error(
        "{path} was {how} while the job read it: its result would not be that of any state of the file; \
         let writers append, or write a new file and rename it before the job begins"
    )]
    Changed {
        /// The path as given, or as found in a folder.
        path: String,
        /// What was seen.
        how: String,
    },
    /// A file that is followed cannot be read on.
    #[error("{message}")]
    Followed {
        /// Its path.
        path: String,
        /// Why, and what to do.
        message: String,
    },
    /// A line that was to be text is not UTF-8.
    #[error(
        "{input}: a line is not UTF-8, at byte {at} of {line}; errors='replace' puts U+FFFD there, 'ignore' leaves it out"
    )]
    NotUtf8 {
        /// The path or address.
        input: String,
        /// The line as Python would show it, shortened.
        line: String,
        /// First byte of the line that begins no character, from 0.
        at: usize,
    },
    /// No connection could be made.
    #[error("cannot connect to {address}: {reason}")]
    Connect {
        /// Host and port as given.
        address: String,
        /// What the system said.
        reason: String,
    },
    /// The connection broke.
    #[error("connection to {address} broke: {reason}")]
    Broken {
        /// Host and port as given.
        address: String,
        /// What the system said.
        reason: String,
    },
}
