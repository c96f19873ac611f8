//! Log lines: one readable message, facts as fields; JSON for machines, text for people. Never payloads, whatever the filter.

use std::io::IsTerminal;

use tracing::{Level, Metadata};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// How lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// One JSON object a line, the spans it is in with their fields.
    Json,
    /// For a terminal.
    #[default]
    Text,
}

/// What is logged without being asked: ours from info on, others' warnings. The broker client logs each lost connection as
/// an error of its own, and returned messages with their payload; the database client warns of each dead connection of a
/// pool. We say all of it ourselves, once and without payload.
const DEFAULT_FILTER: &str = "warn,holdfast=info,holdfast_server=info,lapin=off,sqlx_core=error";

/// Sets up logging for this process, once, on stderr. `HOLDFAST_LOG` overrides the filter, up to what [`may_be_logged`].
///
/// # Errors
/// A filter that cannot be parsed, or logging was set up before.
pub fn init(format: Format) -> anyhow::Result<()> {
    init_to(format, std::io::stderr().is_terminal(), BoxMakeWriter::new(std::io::stderr))
}

/// The same, to somewhere else.
///
/// # Errors
/// As [`init`].
pub fn init_to(format: Format, colours: bool, writer: BoxMakeWriter) -> anyhow::Result<()> {
    let wanted = std::env::var("HOLDFAST_LOG").unwrap_or_else(|_| DEFAULT_FILTER.to_owned());
    let registry =
        tracing_subscriber::registry().with(EnvFilter::try_new(wanted)?).with(filter_fn(may_be_logged));
    let layer = tracing_subscriber::fmt::layer().with_writer(writer);
    match format {
        Format::Json => registry.with(layer.json().flatten_event(true)).try_init()?,
        Format::Text => registry.with(layer.with_ansi(colours)).try_init()?,
    }
    Ok(())
}

/// The ceiling that no filter lifts. Below INFO the libraries log what goes through them: the broker client its frames with
/// message bodies and the login (as lists of bytes), HTTP and HTTP/2 headers with bearer tokens, the database client statements with their
/// values. The broker client says even returned messages whole, at ERROR. Ours are written not to.
fn may_be_logged(metadata: &Metadata<'_>) -> bool {
    let target = metadata.target();
    let ours =
        target.split("::").next().is_some_and(|name| name == "holdfast" || name.starts_with("holdfast_"));
    ours || (*metadata.level() <= Level::INFO && !target.starts_with("lapin::returned_messages"))
}
