//! The words of the inbox: a delivery, what it is bound to, and what is to be done with it.

use std::fmt;
use std::time::Duration;

use holdfast_proto::v1;
use uuid::Uuid;

/// When to come again for an answer of a later release, which this one cannot act on.
const UNKNOWN_RETRY: Duration = Duration::from_secs(5);

/// A message as it was delivered from a queue: all that the inbox is told of it.
///
/// ```
/// use holdfast_client::inbox::Delivery;
/// use uuid::Uuid;
///
/// let delivery = Delivery::new("orders.payments", Uuid::now_v7())
///     .source_service("payments")
///     .event_type("payment.settled")
///     .redelivered(true)
///     .replay_id(Uuid::now_v7())
///     .cycle(1);
/// assert_eq!(delivery.queue(), "orders.payments");
/// assert_eq!(delivery.envelope_id().get_version_num(), 7);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    pub(crate) queue: String,
    pub(crate) envelope_id: Uuid,
    pub(crate) source_service: String,
    pub(crate) event_type: String,
    pub(crate) redelivered: bool,
    pub(crate) replay_id: Option<Uuid>,
    pub(crate) cycle: i32,
}

impl Delivery {
    /// From this queue (1 to 200 bytes; one of the service's `consumer_queues`), with this id: the CloudEvents `id`, which is the
    /// `message_id`, too.
    #[must_use]
    pub fn new(queue: impl Into<String>, envelope_id: Uuid) -> Self {
        Self {
            queue: queue.into(),
            envelope_id,
            source_service: String::new(),
            event_type: String::new(),
            redelivered: false,
            replay_id: None,
            cycle: 0,
        }
    }

    /// Who sent it (`app_id`), at most 255 bytes; for those who look later.
    #[must_use]
    pub fn source_service(mut self, service: impl Into<String>) -> Self {
        self.source_service = service.into();
        self
    }

    /// Its event type (`type`), at most 255 bytes; for those who look later.
    #[must_use]
    pub fn event_type(mut self, event_type: impl Into<String>) -> Self {
        self.event_type = event_type.into();
        self
    }

    /// What the broker said; decides nothing.
    #[must_use]
    pub fn redelivered(mut self, redelivered: bool) -> Self {
        self.redelivered = redelivered;
        self
    }

    /// The header `x-holdfast-replay`: the replay that sent it. A newer one than before begins a new series of attempts, if the last one
    /// is over.
    #[must_use]
    pub fn replay_id(mut self, id: Uuid) -> Self {
        self.replay_id = Some(id);
        self
    }

    /// The header `x-holdfast-cycle`: how often it was put back after it had been dead-lettered. A higher one than before begins a new
    /// series of attempts, if the last one is over.
    #[must_use]
    pub fn cycle(mut self, cycle: i32) -> Self {
        self.cycle = cycle;
        self
    }

    /// The queue.
    #[must_use]
    pub fn queue(&self) -> &str {
        &self.queue
    }

    /// The message's identity.
    #[must_use]
    pub fn envelope_id(&self) -> Uuid {
        self.envelope_id
    }
}

/// A time for which a message is in one's hands alone, and a token by which the holder is known again.
///
/// ```
/// use std::time::Duration;
///
/// let lease = holdfast_client::inbox::Lease::new(Duration::from_secs(60));
/// assert_eq!(lease.duration(), Duration::from_secs(60));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    pub(crate) duration: Duration,
    pub(crate) token: Uuid,
}

impl Lease {
    /// A new one, of 1 second to 12 hours. One for each delivery.
    #[must_use]
    pub fn new(duration: Duration) -> Self {
        Self { duration, token: Uuid::now_v7() }
    }

    /// How long.
    #[must_use]
    pub fn duration(&self) -> Duration {
        self.duration
    }
}

/// What to do with a delivery.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "it says whether the handler may run"]
pub enum Begun {
    /// Run the handler.
    Process(v1::Process),
    /// Ack: it was processed, and that is on disk.
    Duplicate(v1::Duplicate),
    /// It is in somebody else's hands. Neither run nor ack; ask again after this time.
    InProgress(Duration),
    /// Its attempts are used up: surface it, then ack.
    DeadLetter(v1::DeadLetter),
}

impl From<v1::BeginConsumeResponse> for Begun {
    fn from(answer: v1::BeginConsumeResponse) -> Self {
        use v1::begin_consume_response::Outcome;
        match answer.outcome {
            Some(Outcome::Process(start)) => Self::Process(start),
            Some(Outcome::Duplicate(duplicate)) => Self::Duplicate(duplicate),
            Some(Outcome::DeadLetter(letter)) => Self::DeadLetter(letter),
            Some(Outcome::InProgress(busy)) => Self::InProgress(
                busy.retry_after.and_then(|after| after.try_into().ok()).unwrap_or(UNKNOWN_RETRY),
            ),
            // The contract: neither run nor ack.
            None => Self::InProgress(UNKNOWN_RETRY),
        }
    }
}

/// What comes after a start that failed.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "it says whether the delivery may be acked"]
pub enum Next {
    /// Try again, after a back-off.
    Retry(v1::Retry),
    /// Its attempts are used up: surface it, then ack.
    DeadLetter(v1::DeadLetter),
    /// It is processed after all: ack.
    Duplicate(v1::Duplicate),
}

impl From<v1::FailConsumeResponse> for Next {
    fn from(answer: v1::FailConsumeResponse) -> Self {
        use v1::fail_consume_response::Next as Answer;
        match answer.next {
            Some(Answer::Retry(retry)) => Self::Retry(retry),
            Some(Answer::DeadLetter(letter)) => Self::DeadLetter(letter),
            Some(Answer::Duplicate(duplicate)) => Self::Duplicate(duplicate),
            // The contract: do not ack. Whoever begins again is told.
            None => Self::Retry(v1::Retry::default()),
        }
    }
}

/// Why a handler did not process a message. Any error becomes the first kind by `?`. Its text is kept in the database and shown to
/// who may read the service: no payload, no secrets.
///
/// ```
/// use holdfast_client::inbox::HandlerError;
///
/// fn amount(text: &str) -> Result<u64, HandlerError> {
///     // No repetition makes it a number.
///     text.parse().map_err(HandlerError::dead_letter_now)
/// }
/// assert!(matches!(amount("x"), Err(HandlerError::DeadLetterNow(_))));
///
/// fn read() -> Result<String, HandlerError> {
///     Ok(std::fs::read_to_string("/does/not/exist")?)
/// }
/// assert!(matches!(read(), Err(HandlerError::Retry(_))));
/// assert!(matches!(HandlerError::give_back("the bank is closed"), HandlerError::GiveBack(_)));
/// ```
#[derive(Debug)]
pub enum HandlerError {
    /// Counted as an error, and tried again after a back-off, five times in all.
    Retry(Box<dyn std::error::Error + Send + Sync>),
    /// No repetition will help: counted as an error, and dead-lettered at once.
    DeadLetterNow(Box<dyn std::error::Error + Send + Sync>),
    /// It is not the message's fault: what the handler needs is away. Not counted; tried again after a back-off.
    GiveBack(Box<dyn std::error::Error + Send + Sync>),
}

impl HandlerError {
    /// To be tried again; also for a text.
    pub fn retry(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Retry(error.into())
    }

    /// To be dead-lettered at once; also for a text.
    pub fn dead_letter_now(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::DeadLetterNow(error.into())
    }

    /// Not the message's fault; also for a text.
    pub fn give_back(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::GiveBack(error.into())
    }

    /// As FailConsume calls it.
    #[must_use]
    pub fn kind(&self) -> v1::FailKind {
        match self {
            Self::Retry(_) => v1::FailKind::Error,
            Self::DeadLetterNow(_) => v1::FailKind::DeadLetter,
            Self::GiveBack(_) => v1::FailKind::GivenBack,
        }
    }
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Retry(error) | Self::DeadLetterNow(error) | Self::GiveBack(error)) = self;
        error.fmt(f)
    }
}

// As with `anyhow::Error`: it is no `std::error::Error` itself, so that `?` can make it of any.
impl<E: std::error::Error + Send + Sync + 'static> From<E> for HandlerError {
    fn from(error: E) -> Self {
        Self::Retry(Box::new(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_a_later_release_is_neither_run_nor_acked() {
        assert!(matches!(Begun::from(v1::BeginConsumeResponse::default()), Begun::InProgress(_)));
        assert!(matches!(Next::from(v1::FailConsumeResponse::default()), Next::Retry(_)));
    }
}
