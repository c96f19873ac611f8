//! The content hash: what "the same event" means when an id comes again.
//!
//! Guarantees: two requests have the same hash if and only if every field of the event (and the hold) is as it was
//! sent, before defaults; the order in which extensions were given does not matter, nor the case of the id's letters.
//! The service and the ticket are not in it: a retry comes with a new ticket. Each part has a tag and its length, so no
//! two different events share a byte sequence. A field at its default adds nothing, so a field that a later release
//! adds leaves the hashes of this one as they are. The layout is part of what is stored: it never changes.
//! Design: section 3.

use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::v1;

/// Begins every hash, so that it cannot be taken for a hash of anything else.
const DOMAIN: &[u8] = b"holdfast.v1/content/1";

/// Tags of the parts: the field numbers of `Event`, and beyond them what is not in it.
const TAG_HOLD: u8 = 200;

struct Hasher(Sha256);

impl Hasher {
    fn part(&mut self, tag: u8, bytes: &[u8]) {
        self.0.update([tag]);
        // usize has at most 64 bits on every platform Rust knows.
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    fn text(&mut self, tag: u8, text: &str) {
        if !text.is_empty() {
            self.part(tag, text.as_bytes());
        }
    }
}

/// The hash of an event as it was sent. `id` is the one that was sent, `None` if it was left to the server.
pub(super) fn content_hash(event: &v1::Event, id: Option<Uuid>, hold: Option<&v1::Hold>) -> [u8; 32] {
    let mut hasher = Hasher(Sha256::new());
    hasher.0.update(DOMAIN);
    if let Some(id) = id {
        hasher.part(1, id.as_bytes());
    }
    hasher.text(2, &event.r#type);
    hasher.text(3, &event.subject);
    if let Some(time) = &event.time {
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&time.seconds.to_le_bytes());
        bytes[8..].copy_from_slice(&time.nanos.to_le_bytes());
        hasher.part(4, &bytes);
    }
    hasher.text(5, &event.data_content_type);
    match &event.data {
        None => {}
        Some(v1::event::Data::Json(text)) => hasher.part(6, text.as_bytes()),
        Some(v1::event::Data::Binary(bytes)) => hasher.part(7, bytes),
    }
    if let Some(key) = &event.ordering_key {
        hasher.part(8, key.as_bytes());
    }
    hasher.text(9, &event.traceparent);
    hasher.text(10, &event.tracestate);
    hasher.text(11, &event.correlation_id);
    hasher.text(12, &event.causation_id);
    // The map is sorted by name.
    for (name, value) in &event.extensions {
        hasher.part(13, name.as_bytes());
        hasher.part(13, value.as_bytes());
    }
    if let Some(hold) = hold {
        hasher.part(TAG_HOLD, hold.operation_id.as_bytes());
        hasher.part(TAG_HOLD, &hold.generation.to_le_bytes());
    }
    hasher.0.finalize().into()
}
