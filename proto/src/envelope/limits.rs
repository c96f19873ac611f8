//! Every limit of an event and of a request, each with its reason. Design: section 2.

/// Events in one request. Enough for any unit of work, and one insert of it stays far below a second.
pub const MAX_EVENTS: usize = 1_000;

/// Bytes of one composed envelope: a whole claimed batch of such must fit in memory, and brokers are made for small ones.
pub const MAX_ENVELOPE_BYTES: usize = 1024 * 1024;

/// Bytes of one encoded request. Checked where requests are decoded, not by `validate`; large enough that a request
/// of [`MAX_EVENTS`] ordinary events passes.
pub const MAX_REQUEST_BYTES: usize = 8 * 1024 * 1024;

/// Bytes of an event type: it is the AMQP routing key, a short string.
pub const MAX_TYPE_BYTES: usize = 255;

/// Bytes of a subject or an ordering key: both are indexed, and a B-tree entry may have about 2,700 bytes.
pub const MAX_KEY_BYTES: usize = 1_024;

/// Bytes of a media type: what brokers and HTTP stacks take for granted.
pub const MAX_CONTENT_TYPE_BYTES: usize = 255;

/// Bytes of an extension's name. CloudEvents advises 20; this only keeps names from carrying payload.
pub const MAX_EXTENSION_NAME_BYTES: usize = 64;

/// Bytes of `traceparent` and `tracestate` together. Message headers are not split into frames, and a frame over
/// 128 KiB makes the broker close the connection; half of it leaves room for what is added later.
pub const HEADER_BYTES: usize = 64 * 1024;

/// Bytes of a hold's operation: it is a key of two indexes, and goes into log lines.
pub const MAX_OPERATION_BYTES: usize = 255;

/// Objects and arrays inside one another in JSON data. Readers stop at about 128.
pub const MAX_JSON_DEPTH: usize = 64;

/// Digits of a number in JSON data when its exponent is written out: what exact decimals of all languages carry.
/// It also bounds how much `jsonb`, which writes exponents out, can make a document grow.
pub const MAX_NUMBER_DIGITS: usize = 100;

/// Bytes of a service's name: a DNS label.
pub const MAX_SERVICE_BYTES: usize = 63;

/// The limits that a caller of `validate` may set lower. The default is the contract's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Events in one request.
    pub max_events: usize,
    /// Bytes of one composed envelope.
    pub max_envelope_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_events: MAX_EVENTS, max_envelope_bytes: MAX_ENVELOPE_BYTES }
    }
}
