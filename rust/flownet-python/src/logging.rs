//! Log lines of the Rust side: to standard error, warnings and worse unless `FLOWNET_LOG` says otherwise.

use std::io;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// Environment variable with a filter such as `debug` or `flownet_net=trace`.
const VARIABLE: &str = "FLOWNET_LOG";

/// Installs the subscriber, once a process; a subscriber that is there already stays.
pub(crate) fn install() {
    let filter =
        EnvFilter::builder().with_default_directive(LevelFilter::WARN.into()).with_env_var(VARIABLE).from_env_lossy();
    // An error says that there is a subscriber, which is what is wanted.
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).try_init();
}
