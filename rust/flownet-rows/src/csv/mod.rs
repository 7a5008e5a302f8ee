//! Comma-separated values: splits files into records, and writes rows as lines.

mod scan;
mod write;

pub use self::scan::{CsvBlock, CsvFault, csv_records, csv_starts};
pub use self::write::write_csv;
