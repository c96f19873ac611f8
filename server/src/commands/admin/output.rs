//! What a command line prints: tables for people, JSON for programs, both made of the same messages.
//!
//! Guarantees: what comes from events and errors cannot move a terminal's cursor; JSON is the contract's own mapping (names
//! in lowerCamelCase, 64-bit numbers as strings), one document a line; a reader that goes away early is no failure.

use std::io::{self, ErrorKind, Write as _};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use comfy_table::{Table, presets};
use holdfast_proto::FILE_DESCRIPTOR_SET;
use prost::{Message, Name};
use prost_reflect::{DescriptorPool, DynamicMessage, SerializeOptions};
use serde_json::Value;

/// How a column's values are shown.
#[derive(Debug, Clone, Copy)]
pub(super) enum Show {
    /// As they are.
    Plain,
    /// Seconds, as a person says them.
    Seconds,
    /// An enum's value, without this beginning and in lower case.
    Word(&'static str),
    /// True and false as yes and no.
    YesNo,
}

/// A column of a table: its title, where its value is (names of the JSON mapping with dots between; of several with `|` between, the
/// first that is there), and how it is shown.
pub(super) type Column = (&'static str, &'static str, Show);

/// A message as the contract's JSON mapping has it, every field of it.
pub(super) fn json<M: Message + Name>(message: &M) -> anyhow::Result<Value> {
    static POOL: OnceLock<Result<DescriptorPool, String>> = OnceLock::new();
    let decode = || DescriptorPool::decode(FILE_DESCRIPTOR_SET).map_err(|error| error.to_string());
    let pool =
        POOL.get_or_init(decode).as_ref().map_err(|error| anyhow!("this binary's contract: {error}"))?;
    let name = M::full_name();
    let descriptor = pool.get_message_by_name(&name).with_context(|| format!("no message {name}"))?;
    let message = DynamicMessage::decode(descriptor, message.encode_to_vec().as_slice())?;
    let options = SerializeOptions::new().skip_default_fields(false);
    Ok(message.serialize_with_options(serde_json::value::Serializer, &options)?)
}

/// Prints text. Whoever reads no further (`| head`) has what he wanted.
pub(super) fn print(text: &str) -> io::Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// A table without lines, as operators' tools have it.
pub(super) fn table(columns: &[Column], rows: &[Value]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(columns.iter().map(|(title, ..)| *title));
    for row in rows {
        table.add_row(columns.iter().map(|(_, path, show)| cell(at(row, path), *show)));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    lines(&table.to_string())
}

/// One message: a line a column that has something in it.
pub(super) fn record(columns: &[Column], value: &Value) -> String {
    let said = columns.iter().filter(|(_, path, _)| !is_empty(at(value, path)));
    let width = said.clone().map(|(title, ..)| title.len()).max().unwrap_or_default();
    said.map(|(title, path, show)| format!("{title:width$}  {}\n", cell(at(value, path), *show))).collect()
}

fn is_empty(value: &Value) -> bool {
    value.is_null() || value.as_str().is_some_and(str::is_empty)
}

/// Ends of lines without the padding.
fn lines(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

fn at<'a>(row: &'a Value, path: &str) -> &'a Value {
    let found = |path: &str| path.split('.').try_fold(row, |value, name| value.get(name));
    path.split('|').find_map(found).unwrap_or(&Value::Null)
}

fn cell(value: &Value, show: Show) -> String {
    let text = match value {
        Value::Null => return "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match show {
        Show::Plain if text.is_empty() => "-".to_owned(),
        Show::Plain => harmless(&text),
        Show::Seconds => match text.parse() {
            Ok(seconds) => humantime::format_duration(Duration::from_secs(seconds)).to_string(),
            Err(_) => harmless(&text),
        },
        Show::Word(beginning) => match text.strip_prefix(beginning).unwrap_or(&text) {
            "UNSPECIFIED" => "-".to_owned(),
            word => harmless(word).to_ascii_lowercase(),
        },
        Show::YesNo => if text == "true" { "yes" } else { "no" }.to_owned(),
    }
}

/// Text of events and errors, with whatever a terminal would act upon written out.
pub(super) fn harmless(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        // The second group: marks that change the direction of what follows.
        if c.is_control()
            || matches!(c, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        {
            plain.extend(c.escape_default());
        } else {
            plain.push(c);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use holdfast_proto::v1;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_table_has_its_columns_and_what_is_not_there_is_a_dash() {
        let columns: [Column; 4] = [
            ("NAME", "title|name", Show::Plain),
            ("AGE", "of.seconds", Show::Seconds),
            ("STATE", "state", Show::Word("EVENT_STATE_")),
            ("DONE", "done", Show::YesNo),
        ];
        let rows = [
            json!({"name": "orders", "of": {"seconds": "3723"}, "state": "EVENT_STATE_HELD", "done": true}),
            json!({"name": "b", "state": "EVENT_STATE_UNSPECIFIED", "done": false}),
        ];
        assert_eq!(
            table(&columns, &rows),
            "NAME    AGE       STATE  DONE\norders  1h 2m 3s  held   yes\nb       -         -      no\n"
        );
    }

    #[test]
    fn text_from_outside_moves_no_cursor() {
        let rows = [json!({"error": "\u{1b}[2Jgone\nnext \u{202e}live"})];
        let shown = table(&[("ERROR", "error", Show::Plain)], &rows);
        assert_eq!(shown, "ERROR\n\\u{1b}[2Jgone\\nnext \\u{202e}live\n");
    }

    #[test]
    fn a_message_is_shown_by_the_names_of_the_contract() -> anyhow::Result<()> {
        let summary = v1::ServiceSummary {
            name: "orders".into(),
            health: Some(v1::ComponentHealth { serving: true, ..Default::default() }),
            ..Default::default()
        };
        let value = json(&summary)?;
        assert_eq!(value["health"], json!({"name": "", "serving": true, "why": ""}));
        let columns = [
            ("service", "name", Show::Plain),
            ("why not", "health.why", Show::Plain),
            ("serving", "health.serving", Show::YesNo),
        ];
        assert_eq!(record(&columns, &value), "service  orders\nserving  yes\n");
        let event = v1::GetEventResponse { seq: i64::MAX, ..Default::default() };
        assert_eq!(json(&event)?["seq"], "9223372036854775807");
        Ok(())
    }
}
