//! The connection to the server: its replicas, TLS, access tokens, time limits.
//!
//! Guarantees: nothing is sent before the settings were judged; a service starts while the server is away; a dead
//! connection is noticed before a call's default deadline; a token goes to another machine encrypted or, by default, not at
//! all. Design: sections 1 and 12.

mod builder;
mod endpoints;
mod tls;
mod transport;

use std::time::Duration;

pub use builder::{BuildError, Builder};
pub use transport::Transport;
pub(crate) use transport::{Renewable, is_unconnected};

use crate::Control;
use crate::inbox::Inbox;
use crate::outbox::{Outbox, ServiceNameError};

/// How long calls may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadlines {
    pub(crate) call: Duration,
    pub(crate) hint: Duration,
}

/// A Holdfast server, or several replicas of it. Cheap to clone; the clones share the connections, which are made when
/// they are needed and again after they broke.
///
/// ```
/// use holdfast_client::{BuildError, Holdfast, token::TokenFile};
///
/// fn connect(ca: &[u8]) -> Result<Holdfast, BuildError> {
///     Holdfast::builder()
///         .endpoints(["https://holdfast-0.internal:50551", "https://holdfast-1.internal:50551"])
///         .ca_pem(ca)
///         .token(TokenFile::new("/var/run/secrets/holdfast/token"))
///         .build()
/// }
/// ```
#[derive(Debug, Clone)]
pub struct Holdfast {
    transport: Transport,
    deadlines: Deadlines,
}

impl Holdfast {
    /// Begins a connection; [`Builder`] has the settings.
    ///
    /// ```
    /// use holdfast_client::{BuildError, Holdfast};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), BuildError> {
    /// let holdfast = Holdfast::builder().endpoint("http://localhost:50551").build()?;
    ///
    /// let error = Holdfast::builder().endpoint("localhost:50551").build().err();
    /// assert!(matches!(error, Some(BuildError::Endpoint { .. })));
    /// # Ok(()) }
    /// ```
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// The outbox of a service, by its name in the server's configuration.
    ///
    /// # Errors
    /// The name breaks the rules of `[a-z][a-z0-9-]{0,62}`, or is reserved.
    ///
    /// ```
    /// # async fn example(holdfast: holdfast_client::Holdfast) -> Result<(), Box<dyn std::error::Error>> {
    /// let outbox = holdfast.outbox("orders")?;
    /// # Ok(()) }
    /// ```
    pub fn outbox(&self, service: impl Into<String>) -> Result<Outbox, ServiceNameError> {
        Outbox::new(self.transport.clone(), self.deadlines, service.into())
    }

    /// The inbox of a service that consumes, by its name in the server's configuration.
    ///
    /// # Errors
    /// As [`Self::outbox`].
    ///
    /// ```
    /// # async fn example(holdfast: holdfast_client::Holdfast) -> Result<(), Box<dyn std::error::Error>> {
    /// let inbox = holdfast.inbox("orders")?;
    /// # Ok(()) }
    /// ```
    pub fn inbox(&self, service: impl Into<String>) -> Result<Inbox, ServiceNameError> {
        Inbox::new(self.transport.clone(), self.deadlines, service.into())
    }

    /// What the server says of itself and its services.
    #[must_use]
    pub fn control(&self) -> Control {
        Control::new(self.transport.clone(), self.deadlines)
    }

    /// What a generated client of [`crate::v1`] is made of, for the RPCs that this crate has no method for.
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.transport.clone()
    }
}
