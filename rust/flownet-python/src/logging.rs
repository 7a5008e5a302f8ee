//! Writes log lines of the Rust side to standard error, and into the log of their job. By default these are
//! warnings and errors; `FLOWNET_LOG` changes that.

use std::env;
use std::fmt::{self, Write};
use std::io::{self, IsTerminal};

use flownet_runtime::log::{self, LogEntry, LogKind, LogLevel};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// Environment variable with a filter such as `debug` or `flownet_net=trace`.
const VARIABLE: &str = "FLOWNET_LOG";

/// The RPC library warns of every connection that ends. flownet itself reports the meaning of such an end.
const DEFAULT_FILTER: &str = "warn,tarpc=error";

/// Installs the subscriber, once a process. An existing subscriber remains.
pub(crate) fn install() {
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr).with_ansi(io::stderr().is_terminal());
    // An error means that a subscriber exists, which is the goal.
    let _ = tracing_subscriber::registry().with(lines).with(IntoJob).with(filter()).try_init();
}

fn filter() -> Targets {
    let given = env::var(VARIABLE).ok().and_then(|filter| filter.parse().ok());
    given.unwrap_or_else(|| DEFAULT_FILTER.parse().expect("the default is a filter"))
}

/// Writes events into the log of the job that their thread belongs to. Never blocks.
struct IntoJob;

impl<S: Subscriber> Layer<S> for IntoJob {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let Some((log, speaker)) = log::here() else { return };
        let meta = event.metadata();
        let level = match *meta.level() {
            Level::TRACE | Level::DEBUG => LogLevel::Debug,
            Level::INFO => LogLevel::Info,
            Level::WARN => LogLevel::Warning,
            Level::ERROR => LogLevel::Error,
        };
        let mut text = EventText::default();
        event.record(&mut text);
        let kind = LogKind::Rust { level, target: meta.target().to_owned() };
        log.say(LogEntry::now(speaker, kind, text.0));
    }
}

/// The message of an event, followed by its other fields.
#[derive(Default)]
struct EventText(String);

impl Visit for EventText {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => {
                let fields = std::mem::take(&mut self.0);
                write!(self.0, "{value:?}{fields}")
            }
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}
