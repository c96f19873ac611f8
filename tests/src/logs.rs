//! The rule that a test's log is part of its claim: a WARN or ERROR that it did not announce fails it.
//!
//! In-process events come through a subscriber of the whole process (hence one process per test); lines of spawned
//! servers are added by `server::process`. The check is at [`Logs::check`], and on drop for who forgot.

use std::{
    fmt::{self, Write as _},
    sync::{Arc, Mutex, OnceLock},
};

use serde_json::Value;
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    Layer,
    filter::{LevelFilter, Targets},
    layer::{Context, SubscriberExt as _},
    util::SubscriberInitExt as _,
};

use crate::wait;

/// Warnings about the machine, not about the server: on a loaded one they come by luck.
const ABOUT_THE_MACHINE: [&str; 2] =
    ["slow statement", "acquired connection, but time to acquire exceeded slow threshold"];

/// One event, in process or from a spawned server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Its level.
    pub level: Level,
    /// The module it came from.
    pub target: String,
    /// The message and then all fields as `name=value`.
    pub text: String,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.level, self.target, self.text)
    }
}

#[derive(Debug, Default)]
struct Book {
    lines: Vec<Line>,
    expected: Vec<String>,
}

/// The test's log.
#[derive(Debug, Clone)]
pub struct Logs {
    book: Arc<Mutex<Book>>,
}

static LOGS: OnceLock<Logs> = OnceLock::new();

impl Logs {
    /// The log of this process; the first call starts the capture.
    pub fn capture() -> Self {
        LOGS.get_or_init(|| {
            crate::services::require_nextest();
            let logs = Self { book: Arc::default() };
            // Debug of our own code is for waiting on; of the libraries only what could be a complaint.
            let targets = Targets::new()
                .with_default(LevelFilter::INFO)
                .with_target("holdfast_server", LevelFilter::DEBUG)
                // As the server does: it logs every lost connection as an error, and returned messages whole.
                .with_target("lapin", LevelFilter::OFF)
                // Likewise: it warns of each dead connection of a pool.
                .with_target("sqlx_core", LevelFilter::ERROR);
            let print = tracing_subscriber::fmt::layer().with_test_writer().with_ansi(false);
            // One filter before both layers. With one for each layer a line was lost at times: the broker was connected, its
            // gauge said so, and the line was in neither place.
            tracing_subscriber::registry().with(targets).with(Capture(logs.clone())).with(print).init();
            logs
        })
        .clone()
    }

    /// Announces WARN or ERROR lines that contain `part` (in message, field or target), any number of them.
    pub fn expect(&self, part: &str) {
        self.book.lock().unwrap().expected.push(part.to_owned());
    }

    /// All lines so far that contain `part`.
    pub fn with(&self, part: &str) -> Vec<Line> {
        let book = self.book.lock().unwrap();
        book.lines.iter().filter(|line| line.to_string().contains(part)).cloned().collect()
    }

    /// Waits for a line that contains `part`.
    pub async fn wait_for(&self, part: &str) -> Line {
        wait::until(&format!("a log line with {part:?}"), wait::LONG, || async {
            self.with(part).into_iter().next().ok_or("no such line")
        })
        .await
    }

    /// Adds a line.
    pub(crate) fn add(&self, line: Line) {
        self.book.lock().unwrap().lines.push(line);
    }

    /// Fails if there are unannounced WARN or ERROR lines; forgets all lines.
    ///
    /// # Panics
    /// Listing them.
    pub fn check(&self) {
        let bad = self.unexpected();
        assert!(bad.is_empty(), "unannounced warnings or errors in the log:\n{}", bad.join("\n"));
    }

    fn unexpected(&self) -> Vec<String> {
        let mut book = self.book.lock().unwrap();
        let lines = std::mem::take(&mut book.lines);
        lines
            .iter()
            .filter(|line| line.level <= Level::WARN)
            .map(Line::to_string)
            .filter(|text| {
                let announced = book.expected.iter().map(String::as_str).chain(ABOUT_THE_MACHINE);
                !announced.into_iter().any(|part| text.contains(part))
            })
            .collect()
    }
}

/// The subscriber.
struct Capture(Logs);

impl<S: Subscriber> Layer<S> for Capture {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = Text::default();
        event.record(&mut text);
        let text = text.message + &text.fields;
        let meta = event.metadata();
        self.0.add(Line { level: *meta.level(), target: meta.target().to_owned(), text });
    }
}

#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

/// A JSON log line of a server as a [`Line`]; `None` if it is none.
pub(crate) fn parse_json(line: &str) -> Option<Line> {
    let all: Value = serde_json::from_str(line).ok()?;
    let level = all["level"].as_str()?.parse().ok()?;
    let target = all["target"].as_str().unwrap_or_default().to_owned();
    // Fields may be nested or flattened beside the rest.
    let fields = all["fields"].as_object().or_else(|| all.as_object())?;
    let mut text = fields.get("message").and_then(Value::as_str).unwrap_or_default().to_owned();
    for (name, value) in fields {
        if !["message", "level", "target", "timestamp", "span", "spans"].contains(&name.as_str()) {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let _ = write!(text, " {name}={value}");
        }
    }
    Some(Line { level, target, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_json_line_becomes_its_message_and_fields() {
        let line = r#"{"timestamp":"t","level":"WARN","fields":{"message":"away","service.name":"orders","n":3},"target":"x"}"#;
        let line = parse_json(line).map(|line| line.to_string());
        assert_eq!(line.as_deref(), Some("WARN x: away n=3 service.name=orders"));
        assert_eq!(parse_json("thread 'main' panicked"), None);
    }
}
