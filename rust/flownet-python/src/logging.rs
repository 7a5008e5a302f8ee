//! Log lines of the Rust side: to standard error, warnings and worse unless `FLOWNET_LOG` says otherwise.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

/// Environment variable with a filter such as `debug` or `flownet_net=trace`.
const VARIABLE: &str = "FLOWNET_LOG";

/// The RPC library warns of every connection that ends; what an end means is said by flownet itself.
const DEFAULT_FILTER: &str = "warn,tarpc=error";

/// Installs the subscriber, once a process; a subscriber that is there already stays.
pub(crate) fn install() {
    let filter = EnvFilter::try_from_env(VARIABLE).unwrap_or_else(|_| EnvFilter::new(DEFAULT_FILTER));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    // An error says that there is a subscriber, which is what is wanted.
    let _ = lines.with_ansi(io::stderr().is_terminal()).try_init();
}
