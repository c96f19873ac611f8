//! A dead letter's body: the `_dlx` wrapper, version 1 (ADR-022, #1181 and #1196). Pure.
//!
//! Whoever collects letters reads `_dlx`; whoever sends one again puts `body` and `properties` back as they were. The body is a text
//! where it is UTF-8, so that people can read it in the broker's own pages, else base64: either way it survives byte for byte.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::sql::Row;
use super::{Cause, Refused, Token};

const VERSION: i32 = 1;
/// An event of ours has at most 1 MiB; others' messages may be larger, and a letter must fit the broker with all of its escapes.
pub(super) const MOST_BODY_BYTES: usize = 4 * 1024 * 1024;
/// What one frame of headers holds, with room to spare.
pub(super) const MOST_PROPERTY_BYTES: usize = 64 * 1024;

/// A message as it was delivered.
#[derive(Debug, Clone)]
pub struct Letter {
    /// Its body.
    pub body: Vec<u8>,
    /// Its properties, as JSON.
    pub properties: Value,
    /// Where it came from.
    pub exchange: String,
    /// With which key.
    pub routing_key: String,
}

impl Letter {
    /// Whether it fits.
    ///
    /// # Errors
    /// It does not.
    pub fn check(&self) -> Result<(), Refused> {
        let sizes = [
            ("body", self.body.len(), MOST_BODY_BYTES),
            ("properties", self.properties.to_string().len(), MOST_PROPERTY_BYTES),
        ];
        match sizes.into_iter().find(|(_, actual, limit)| actual > limit) {
            Some((field, actual, limit)) => Err(Refused::TooLarge { field, actual, limit }),
            None => Ok(()),
        }
    }

    /// The letter's body on the wire.
    pub(super) fn wrapped(self, token: &Token, row: &Row, cause: Cause) -> String {
        let mut letter = Map::new();
        letter.insert(
            "_dlx".to_owned(),
            json!({
                "v": VERSION,
                "token": token.to_string(),
                "envelope_id": token.key.envelope_id.to_string(),
                "original_queue": token.key.queue,
                "source_service": row.source_service,
                "event_type": row.event_type,
                "surfaced_at": text(row.looked_at),
                "received_at": text(row.received_at),
                "cause": cause.as_str(),
                "failures": row.failures,
                "lost_starts": row.lost_starts,
                "cycle": row.cycle,
                "replay_id": row.replay_id.map(|id| id.to_string()),
                "last_error": row.last_error,
                "exchange": self.exchange,
                "routing_key": self.routing_key,
                "properties": self.properties,
            }),
        );
        match String::from_utf8(self.body) {
            Ok(body) => letter.insert("body".to_owned(), Value::String(body)),
            Err(error) => {
                letter.insert("body_base64".to_owned(), Value::String(STANDARD.encode(error.as_bytes())))
            }
        };
        Value::Object(letter).to_string()
    }
}

/// A time that can be written as text; hand-written SQL may have put in others.
fn text(at: OffsetDateTime) -> Option<String> {
    at.format(&Rfc3339).ok()
}
