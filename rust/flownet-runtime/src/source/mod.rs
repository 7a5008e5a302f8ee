//! Sources of records that need no exchange: text files, text sockets, a throttle, and the pace of a source.

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

/// Reason why a source could not read its input.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum SourceError {
    /// There is no such file or folder.
    #[error("no such file or folder: {path}")]
    Missing {
        /// The path as given, or as found in a folder.
        path: String,
    },
    /// The file or folder exists but cannot be read.
    #[error("cannot read {path}: {reason}")]
    Unreadable {
        /// The path as given, or as found in a folder.
        path: String,
        /// The error of the system.
        reason: String,
    },
    /// A device, pipe or socket in place of a file or folder.
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
        /// Offset of the line's first byte.
        offset: u64,
        /// The limit.
        max_bytes: usize,
    },
    /// A file was replaced or shortened since the job began.
    #[error(
        "{path} was {how} while the job read it: its result would not be that of any state of the file; \
         let writers append, or write a new file and rename it before the job begins"
    )]
    Changed {
        /// The path as given, or as found in a folder.
        path: String,
        /// The observed change.
        how: String,
    },
    /// A file that is followed cannot be read any further.
    #[error("{message}")]
    Followed {
        /// Its path.
        path: String,
        /// The reason, and the remedy.
        message: String,
    },
    /// A line of text is not UTF-8.
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
    /// The connection could not be established.
    #[error("cannot connect to {address}: {reason}")]
    Connect {
        /// Host and port as given.
        address: String,
        /// The error of the system.
        reason: String,
    },
    /// The connection broke.
    #[error("connection to {address} broke: {reason}")]
    Broken {
        /// Host and port as given.
        address: String,
        /// The error of the system.
        reason: String,
    },
}
