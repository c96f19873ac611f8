//! Access tokens: where they come from. They are sent as `authorization: Bearer …`.
//!
//! Guarantees: a token shows in no `Debug`, no error and no log of this crate or of the transport below it (its header is
//! marked sensitive). The source is asked for each attempt of each call, and told when the server refused what it gave.
//! What a token must say is the server's business. Design: section 12.

mod file;
mod provider;

use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use http::HeaderValue;
use tokio::time::Instant;

pub use file::TokenFile;
pub use provider::TokenProvider;

/// A longer one would not pass: all headers of a call together may have 16 KiB.
const MAX_BYTES: usize = 15 * 1024;

/// One access token.
///
/// ```
/// use holdfast_client::token::Token;
///
/// # fn main() -> Result<(), holdfast_client::token::TokenError> {
/// let token = Token::new("eyJhbGciOiJFZERTQSJ9.e30.c2ln")?;
/// assert_eq!(format!("{token:?}"), "Token(secret)");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Token {
    header: HeaderValue,
    renew_at: Option<Instant>,
}

impl Token {
    /// A token as the issuer gave it: without `Bearer `; white space around it is cut off.
    ///
    /// # Errors
    /// [`TokenError`]: it is empty, over 15 KiB, or has a character that no bearer token has.
    pub fn new(text: impl AsRef<str>) -> Result<Self, TokenError> {
        let text = text.as_ref().trim();
        if text.is_empty() {
            return Err(TokenError::Empty);
        }
        if text.len() > MAX_BYTES {
            return Err(TokenError::TooLong { actual: text.len(), limit: MAX_BYTES });
        }
        // RFC 6750, `b64token`.
        let odd = |byte: u8| !(byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte));
        if let Some(at) = text.bytes().position(odd) {
            return Err(TokenError::Malformed { at });
        }
        let mut header =
            HeaderValue::try_from(format!("Bearer {text}")).map_err(|_| TokenError::Malformed { at: 0 })?;
        header.set_sensitive(true);
        Ok(Self { header, renew_at: None })
    }

    /// Says for how long it is good from now on. A [`TokenProvider`] asks for the next one after nine tenths of it, so
    /// that no call sets out with one that is about to expire.
    #[must_use]
    pub fn valid_for(mut self, life: Duration) -> Self {
        // Too far away to be an instant is for ever.
        self.renew_at = Instant::now().checked_add(life / 10 * 9);
        self
    }

    pub(crate) fn header(&self) -> HeaderValue {
        self.header.clone()
    }

    fn is_fresh(&self, now: Instant) -> bool {
        self.renew_at.is_none_or(|at| now < at)
    }
}

/// Equal as sent; until when they are good does not count.
impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        self.header == other.header
    }
}

impl Eq for Token {}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(secret)")
    }
}

/// Why there is no token. A call that fails with it was not sent.
///
/// Source: the file system's or the provider's own error, where there is one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// There is nothing but white space.
    #[error("the access token is empty")]
    Empty,
    /// It would not fit into a call's headers.
    #[error("the access token has {actual} bytes, more than {limit}")]
    TooLong {
        /// Its bytes.
        actual: usize,
        /// How many are allowed.
        limit: usize,
    },
    /// It has a character that no bearer token has, such as the space in `Bearer …`.
    #[error(
        "the access token has a character at byte {at} that a bearer token cannot have (give it without `Bearer `)"
    )]
    Malformed {
        /// The byte's index in the token, from 0.
        at: usize,
    },
    /// The file of a [`TokenFile`] cannot be read.
    #[error("the access token's file {path} cannot be read: {source}")]
    File {
        /// The file, as it was given.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// A source's own error. Its text must not hold the token.
    #[error("no access token: {0}")]
    Other(#[source] Box<dyn StdError + Send + Sync>),
}

impl TokenError {
    /// Wraps an error of a source's own.
    pub fn other(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::Other(error.into())
    }
}

/// What [`TokenSource::token`] gives.
pub type TokenFuture<'a> = Pin<Box<dyn Future<Output = Result<Token, TokenError>> + Send + 'a>>;

/// Where access tokens come from. Asked for each attempt of each call, so keep what was dear to get: [`TokenProvider`]
/// does, around any async function, and is what to use for an identity provider.
///
/// [`Token`] itself is the source that always gives that one; [`TokenFile`] reads a file that somebody renews.
///
/// ```
/// use holdfast_client::token::{Token, TokenError, TokenFuture, TokenSource};
///
/// /// From the environment, at each call.
/// struct FromEnvironment;
///
/// impl TokenSource for FromEnvironment {
///     fn token(&self) -> TokenFuture<'_> {
///         Box::pin(async { Token::new(std::env::var("HOLDFAST_TOKEN").map_err(TokenError::other)?) })
///     }
/// }
/// ```
pub trait TokenSource: Send + Sync + 'static {
    /// The token for the next attempt. The call's deadline runs meanwhile; when it passes, the future is dropped.
    fn token(&self) -> TokenFuture<'_>;

    /// The server did not accept `refused` (UNAUTHENTICATED). Forget it, and say whether it is worth asking again: then the
    /// call is tried once more. Say no if the last one was refused only a moment ago, or a server that accepts none of them
    /// makes each call fetch one. Default: no.
    fn invalidate(&self, refused: &Token) -> bool {
        let _ = refused;
        false
    }
}

impl TokenSource for Token {
    fn token(&self) -> TokenFuture<'_> {
        let token = self.clone();
        Box::pin(async { Ok(token) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_judged_and_never_shown() {
        let token = Token::new(" abc.DEF-123_~+/== \n");
        assert!(token.as_ref().is_ok_and(|token| token.header().as_bytes() == b"Bearer abc.DEF-123_~+/=="));
        assert!(token.as_ref().is_ok_and(|token| token.header().is_sensitive()));
        assert!(!format!("{token:?}").contains("abc"));

        assert!(matches!(Token::new(" \n"), Err(TokenError::Empty)));
        assert!(matches!(Token::new("Bearer abc"), Err(TokenError::Malformed { at: 6 })));
        assert!(matches!(Token::new("abc\ndef"), Err(TokenError::Malformed { at: 3 })));
        assert!(matches!(Token::new("ä"), Err(TokenError::Malformed { at: 0 })));
        assert!(Token::new("a".repeat(MAX_BYTES)).is_ok());
        assert!(matches!(Token::new("a".repeat(MAX_BYTES + 1)), Err(TokenError::TooLong { .. })));
    }

    #[test]
    fn a_token_is_renewed_before_its_life_is_over() -> Result<(), TokenError> {
        let before = Instant::now();
        let token = Token::new("a")?.valid_for(Duration::from_secs(1_000));
        let after = Instant::now();
        assert!(token.is_fresh(before + Duration::from_secs(899)));
        assert!(!token.is_fresh(after + Duration::from_secs(900)));
        assert!(Token::new("a")?.valid_for(Duration::MAX).is_fresh(after));
        Ok(())
    }
}
