//! What the benches share: the cost of this process so far, and the middle of a handful of runs.

use std::fs;
use std::io;

/// CPU time this process has used on all its threads, user and system, in nanoseconds.
///
/// Read from `/proc/self/stat`, in steps of a clock tick: measure runs of a second or more.
pub fn process_cpu_ns() -> io::Result<u64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The name of the program, in parentheses, may hold anything; after it come plain numbers.
    let (_, fields) = stat.rsplit_once(')').ok_or(io::ErrorKind::InvalidData)?;
    let ticks: u64 =
        fields.split_ascii_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(ticks * NS_PER_TICK)
}

/// The middle value; the lower one of two. `None` when there are none.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len().checked_sub(1)? / 2).copied()
}

/// Linux reports process times to user space in hundredths of a second on every architecture we run on.
const NS_PER_TICK: u64 = 10_000_000;
