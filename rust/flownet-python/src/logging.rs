//! Log lines of the Rust side: to standard error, warnings and worse unless `FLOWNET_LOG` says otherwise.

use std::env;
use std::io::{self, IsTerminal};

use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Environment variable with a filter such as `debug` or `flownet_net=trace`.
const VARIABLE: &str = "FLOWNET_LOG";

/// The RPC library warns of every connection that ends; what an end means is said by flownet itself.
const DEFAULT_FILTER: &str = "warn,tarpc=error";

/// Installs the subscriber, once a process; a subscriber that is there already stays.
pub(crate) fn install() {
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr).with_ansi(io::stderr().is_terminal());
    // An error says that there is a subscriber, which is what is wanted.
    let _ = tracing_subscriber::registry().with(lines).with(filter()).try_init();
}

fn filter() -> Targets {
    let given = env::var(VARIABLE).ok().and_then(|filter| filter.parse().ok());
    given.unwrap_or_else(|| DEFAULT_FILTER.parse().expect("the default is a filter"))
}
