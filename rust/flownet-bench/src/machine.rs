//! Where and with what it was measured: without these a figure says nothing.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use serde::{Deserialize, Serialize};

/// The machine, as far as it matters for figures.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Machine {
    /// Model name of the first core.
    pub cpu: String,
    /// Cores this process may use.
    pub cores: usize,
    /// Memory of the machine in MiB.
    pub memory_mib: u64,
    /// Release of the kernel.
    pub kernel: String,
    /// Threads that ran or wanted to run, averaged over the last minute, when the bench began: other work on the
    /// machine shows here.
    pub load_before: f64,
}

impl Machine {
    /// This machine, now. What cannot be found out stays empty.
    #[must_use]
    pub fn here() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned())
        };
        let first_number = |text: String| text.split_ascii_whitespace().next().map(str::to_owned).unwrap_or_default();
        let memory_kib: u64 =
            first_number(field(&read("/proc/meminfo"), "MemTotal").unwrap_or_default()).parse().unwrap_or_default();
        Self {
            cpu: field(&read("/proc/cpuinfo"), "model name").unwrap_or_default(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_mib: memory_kib / 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            load_before: first_number(read("/proc/loadavg")).parse().unwrap_or_default(),
        }
    }
}

/// Version of flownet and how it was built.
pub(crate) fn versions() -> BTreeMap<String, String> {
    let build = if cfg!(debug_assertions) { "debug" } else { "release" };
    BTreeMap::from([("build".into(), build.into()), ("flownet".into(), env!("CARGO_PKG_VERSION").into())])
}

/// Most memory this process ever had in RAM, in bytes.
pub(crate) fn peak_rss_bytes() -> io::Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
    Ok(kib.map(|kib: u64| kib * 1024).ok_or(io::ErrorKind::InvalidData)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_kernel_cores_and_memory() {
        let machine = Machine::here();
        assert!(machine.cores > 0 && machine.memory_mib > 0 && !machine.kernel.is_empty(), "{machine:?}");
    }

    #[test]
    fn the_peak_holds_what_was_touched() {
        let touched = vec![1_u8; 8 << 20];
        assert!(peak_rss_bytes().unwrap() > touched.len() as u64);
    }
}
