//! The connection's settings, each with its default and its reason, judged in one place.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use http::Uri;
use tonic::transport::Endpoint;

use super::endpoints::Endpoints;
use super::tls::Tls;
use super::transport::Transport;
use super::{Deadlines, Holdfast};
use crate::token::TokenSource;

/// A call's time, retries included: the caller's locks are held meanwhile. The server itself gives up on a database
/// after 20 s.
const DEADLINE: Duration = Duration::from_secs(10);

/// A hint that takes longer is worth nothing: the server looks by itself.
const HINT_DEADLINE: Duration = Duration::from_secs(2);

/// Several attempts fit into [`DEADLINE`].
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// A peer that vanished is noticed after both together, before [`DEADLINE`]; else a call would wait for TCP to give up.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(3);

/// The settings of a connection; [`Holdfast::builder`] begins one. The last call of a method wins, but [`Self::endpoint`]
/// and [`Self::ca_pem`] add.
///
/// ```no_run
/// use std::time::Duration;
///
/// use holdfast_client::Holdfast;
/// use holdfast_client::token::TokenFile;
///
/// # fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let holdfast = Holdfast::builder()
///     .endpoint("https://holdfast-0.internal:50551")
///     .endpoints(["https://10.0.0.7:50551"])
///     // The certificates are this authority's or one of the system's, and have one name, whatever the endpoint says.
///     .ca_pem(std::fs::read("ca.pem")?)
///     .native_roots()
///     .domain("holdfast.internal")
///     .client_certificate(std::fs::read("client.pem")?, std::fs::read("client.key")?)
///     .token(TokenFile::new("/var/run/secrets/holdfast/token"))
///     .deadline(Duration::from_secs(5))
///     .hint_deadline(Duration::from_secs(1))
///     .connect_timeout(Duration::from_secs(1))
///     .keep_alive(Duration::from_secs(3), Duration::from_secs(1))
///     .build()?;
///
/// // Where a mesh encrypts:
/// let meshed = Holdfast::builder()
///     .endpoint("http://holdfast:50551")
///     .token(TokenFile::new("/var/run/secrets/holdfast/token"))
///     .allow_token_in_clear_text()
///     .build()?;
/// # Ok(()) }
/// ```
#[must_use = "a builder connects nothing before `build`"]
pub struct Builder {
    endpoints: Vec<String>,
    tls: Tls,
    token: Option<Box<dyn TokenSource>>,
    token_in_clear_text: bool,
    deadlines: Deadlines,
    connect_timeout: Duration,
    keep_alive_interval: Duration,
    keep_alive_timeout: Duration,
}

/// Why there is no [`Holdfast`]: what is wrong with which setting. Nothing was connected.
///
/// Source: the transport's own error, where there is one.
///
/// ```
/// use holdfast_client::{BuildError, Holdfast};
///
/// assert!(matches!(Holdfast::builder().build(), Err(BuildError::NoEndpoint)));
/// let Err(error) = Holdfast::builder().endpoint("holdfast:50551/path").build() else { panic!("no such form") };
/// assert!(error.to_string().starts_with("endpoint"));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// [`Builder::endpoint`] was not called.
    #[error("endpoint: none was given")]
    NoEndpoint,
    /// An endpoint is not of the form `http://host[:port]` or `https://host[:port]`.
    #[error("endpoint {endpoint:?}: {problem}")]
    Endpoint {
        /// As it was given, without a password.
        endpoint: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// Some endpoints begin with `http://` and some with `https://`.
    #[error("endpoint: all must begin with http://, or all with https://")]
    MixedSchemes,
    /// A setting of TLS was made, and the endpoints begin with `http://`.
    #[error("{0}: has no meaning with http:// endpoints; use https://")]
    TlsWithoutHttps(&'static str),
    /// [`Builder::ca_pem`]: there is no certificate in it, or one that cannot be read.
    #[error("ca_pem: {0}")]
    CaCertificate(String),
    /// [`Builder::client_certificate`]: there is no certificate in it, or one that cannot be read.
    #[error("client_certificate: {0}")]
    ClientCertificate(String),
    /// [`Builder::client_certificate`]: the key cannot be read, or is not the certificate's.
    #[error("client_certificate's key: {0}")]
    ClientKey(String),
    /// [`Builder::domain`] is neither a DNS name nor an address.
    #[error("domain {0:?}: is no DNS name and no IP address")]
    Domain(String),
    /// The system's certificate authorities could not be loaded.
    #[error("native_roots: the system's certificates cannot be loaded")]
    NativeRoots(#[source] tonic::transport::Error),
    /// A token would travel unencrypted to another machine.
    #[error(
        "token: {host:?} is another machine, and http:// would show it the token in clear text; use https:// (or \
         allow_token_in_clear_text, where a mesh encrypts)"
    )]
    TokenInClearText {
        /// The first endpoint's host of that kind.
        host: String,
    },
    /// A time that must be positive is zero.
    #[error("{0}: must be longer than 0")]
    Zero(&'static str),
    /// [`Builder::build`] was called outside of a tokio runtime.
    #[error("build: must be called inside a tokio runtime")]
    NoRuntime,
}

impl Builder {
    pub(super) fn new() -> Self {
        Self {
            endpoints: Vec::new(),
            tls: Tls::default(),
            token: None,
            token_in_clear_text: false,
            deadlines: Deadlines { call: DEADLINE, hint: HINT_DEADLINE },
            connect_timeout: CONNECT_TIMEOUT,
            keep_alive_interval: KEEP_ALIVE_INTERVAL,
            keep_alive_timeout: KEEP_ALIVE_TIMEOUT,
        }
    }

    /// Adds a replica of the server: `http://host:port` or `https://host:port`. Calls go round the replicas that can be
    /// connected to; no proxy is needed between. A DNS name is one replica, whatever it resolves to.
    pub fn endpoint(mut self, uri: impl Into<String>) -> Self {
        self.endpoints.push(uri.into());
        self
    }

    /// Adds several, see [`Self::endpoint`].
    pub fn endpoints(mut self, uris: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.endpoints.extend(uris.into_iter().map(Into::into));
        self
    }

    /// Trusts the certificate authorities of this PEM text, **instead of** the system's (unless [`Self::native_roots`]
    /// is called, too). Each call adds.
    pub fn ca_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.tls.ca_pem.push(pem.into());
        self
    }

    /// Trusts the system's certificate authorities. The default where [`Self::ca_pem`] is not called.
    pub fn native_roots(mut self) -> Self {
        self.tls.native_roots = true;
        self
    }

    /// Shows the server this certificate (with its intermediates) when it asks for one. Both are PEM texts.
    pub fn client_certificate(mut self, pem: impl Into<Vec<u8>>, key_pem: impl Into<Vec<u8>>) -> Self {
        self.tls.client = Some((pem.into(), key_pem.into()));
        self
    }

    /// The name that the server's certificate must have. Default: the endpoint's host.
    pub fn domain(mut self, domain: impl Into<String>) -> Self {
        self.tls.domain = Some(domain.into());
        self
    }

    /// Where access tokens come from: a [`Token`](crate::token::Token), a [`TokenFile`](crate::token::TokenFile), a
    /// [`TokenProvider`](crate::token::TokenProvider), or a [`TokenSource`] of your own. Sent with every call, as
    /// `authorization: Bearer …`. Default: none.
    ///
    /// After UNAUTHENTICATED the source is asked for another one, and the call sent again, once.
    pub fn token(mut self, source: impl TokenSource) -> Self {
        self.token = Some(Box::new(source));
        self
    }

    /// Allows the token to be sent over `http://` to other machines. For where something else encrypts, such as a
    /// service mesh. Default: only to `localhost`, `127.0.0.0/8` and `::1`.
    pub fn allow_token_in_clear_text(mut self) -> Self {
        self.token_in_clear_text = true;
        self
    }

    /// The time that one call may take, retries and their waits included. Default: 10 s.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadlines.call = deadline;
        self
    }

    /// The same for a hint (`confirm_staged`, `commit_and_confirm`), which the server can do without. Default: 2 s.
    pub fn hint_deadline(mut self, deadline: Duration) -> Self {
        self.deadlines.hint = deadline;
        self
    }

    /// The time that a connection may take, and as much again for the TLS handshake. Default: 2 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// After how long without traffic the peer is asked whether it lives, and how long it has to answer. Default: 5 s and
    /// 3 s, so that a dead connection is noticed within 8 s, which is before the default deadline.
    pub fn keep_alive(mut self, interval: Duration, timeout: Duration) -> Self {
        (self.keep_alive_interval, self.keep_alive_timeout) = (interval, timeout);
        self
    }

    /// Judges the settings. Connects at the first call, not here, so a service starts while Holdfast is away. Must be
    /// called inside a tokio runtime.
    ///
    /// # Errors
    /// [`BuildError`]: the first setting that cannot be right, by its name.
    pub fn build(self) -> Result<Holdfast, BuildError> {
        for (name, time) in [
            ("deadline", self.deadlines.call),
            ("hint_deadline", self.deadlines.hint),
            ("connect_timeout", self.connect_timeout),
            ("keep_alive", self.keep_alive_interval.min(self.keep_alive_timeout)),
        ] {
            if time.is_zero() {
                return Err(BuildError::Zero(name));
            }
        }
        let uris = self.endpoints.iter().map(|text| parse(text)).collect::<Result<Vec<_>, _>>()?;
        let first = uris.first().ok_or(BuildError::NoEndpoint)?;
        if uris.iter().any(|uri| uri.scheme() != first.scheme()) {
            return Err(BuildError::MixedSchemes);
        }
        let encrypted = first.scheme_str() == Some("https");
        if encrypted {
            self.tls.check()?;
        } else {
            if let Some(setting) = self.tls.first_set() {
                return Err(BuildError::TlsWithoutHttps(setting));
            }
            if self.token.is_some()
                && !self.token_in_clear_text
                && let Some(uri) = uris.iter().find(|uri| !is_loopback(uri))
            {
                let host = uri.host().unwrap_or_default().to_owned();
                return Err(BuildError::TokenInClearText { host });
            }
        }
        let endpoints =
            uris.into_iter().map(|uri| self.connectable(uri, encrypted)).collect::<Result<_, _>>()?;
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(BuildError::NoRuntime);
        }
        Ok(Holdfast {
            transport: Transport::new(Endpoints::new(endpoints), self.token),
            deadlines: self.deadlines,
        })
    }

    fn connectable(&self, uri: Uri, encrypted: bool) -> Result<Endpoint, BuildError> {
        let endpoint = Endpoint::from(uri)
            .connect_timeout(self.connect_timeout)
            .http2_keep_alive_interval(self.keep_alive_interval)
            .keep_alive_timeout(self.keep_alive_timeout)
            .keep_alive_while_idle(true);
        let endpoint = endpoint
            .user_agent(concat!("holdfast-client/", env!("CARGO_PKG_VERSION")))
            .map_err(|_| wrong(&self.endpoints.join(" "), "the user agent is no header"))?;
        if encrypted { self.tls.onto(endpoint, self.connect_timeout) } else { Ok(endpoint) }
    }
}

fn wrong(endpoint: &str, problem: &'static str) -> BuildError {
    BuildError::Endpoint { endpoint: endpoint.to_owned(), problem }
}

fn parse(text: &str) -> Result<Uri, BuildError> {
    let uri: Uri =
        text.parse().map_err(|_| wrong(text.split('@').next_back().unwrap_or_default(), "is no URI"))?;
    let Some(authority) = uri.authority() else {
        return Err(wrong(text, "must be http://host:port or https://host:port"));
    };
    if authority.as_str().contains('@') {
        return Err(wrong(uri.host().unwrap_or_default(), "must not have a user or password; use token"));
    }
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(wrong(text, "must begin with http:// or https://"));
    }
    if !matches!(uri.path_and_query().map(|rest| rest.as_str()), None | Some("/")) {
        return Err(wrong(text, "must end with the port: the path is the RPC's"));
    }
    if uri.host().is_none_or(str::is_empty) || uri.port_u16() == Some(0) {
        return Err(wrong(text, "must be http://host:port or https://host:port"));
    }
    Ok(uri)
}

fn is_loopback(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Neither keys nor tokens.
impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("endpoints", &self.endpoints)
            .field("domain", &self.tls.domain)
            .field("token", &self.token.is_some())
            .field("deadlines", &self.deadlines)
            .finish_non_exhaustive()
    }
}
