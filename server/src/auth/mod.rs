//! Who calls and what they may do: bearer tokens, the keys that prove them, and scopes as values.
//!
//! A token is a JWT, signed by one of the operator's keys ([`keys`], read from files and read again when they change,
//! [`store`]), and checked claim by claim ([`claims`]). What comes out is a [`Caller`]. A caller's rights are *proof values*
//! ([`WriteScope`], [`ReadScope`], [`AdminScope`], [`PayloadScope`], [`FleetAdmin`]): only a caller can make one, it carries the
//! service it was proven for, and what acts on a service takes it as an argument. Who forgot to ask does not compile.
//!
//! Guarantees: the algorithm is the key's, never the token's; a token that lacks `exp`, `aud`, `sub` (or `iss` where one is
//! configured) is refused; which check failed is told to metrics and the log ([`Check`]), never to the caller; no token is
//! kept or printed. Does not: know how tokens travel, look anything up on the network, revoke single tokens (they are short
//! lived; a key is revoked by taking its file away). The clock is the machine's: `exp` and `nbf` were written by other
//! machines, not by a database. Design, section 12.

mod claims;
mod keys;
mod mint;
mod scopes;
mod store;
mod verifier;

use std::fmt;

pub use keys::{Algorithm, Key, KeySet, Problem};
pub use mint::{Generated, MintError, Order, PrivateKey, generate};
pub use scopes::{AdminScope, Caller, FleetAdmin, MissingScope, PayloadScope, ReadScope, WriteScope};
pub use store::{KeyFiles, Report};
pub use verifier::{Expectations, Verifier, bearer};

/// A longer token is refused before anything is computed with it. Identity providers stay below half of this; the
/// transport's own limit for all metadata of a call is 16 KiB.
pub const MAX_TOKEN_BYTES: usize = 8 * 1024;

/// The check that a call without a valid token failed. For metrics and the log: the caller is told only that it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Check {
    /// There is no `authorization` metadata.
    Missing,
    /// There is more than one, it is no text, or not `Bearer TOKEN`.
    Scheme,
    /// The token is longer than [`MAX_TOKEN_BYTES`].
    Size,
    /// It is no JWT: three parts of base64url, the first two JSON objects.
    Form,
    /// Its algorithm is not the key's.
    Algorithm,
    /// No key has its `kid`; or it names none, and there are several keys.
    Key,
    /// The key did not sign it.
    Signature,
    /// `exp` is missing, no number, or past.
    Expiry,
    /// `nbf` is no number, or to come.
    NotBefore,
    /// `aud` is missing or somebody else.
    Audience,
    /// `iss` is missing or somebody else.
    Issuer,
    /// `sub` is missing, empty, too long or has control characters.
    Subject,
    /// `scope` or `scp` is neither a string nor a list of strings.
    Scopes,
}

impl Check {
    /// All of them: a metric has a series for each from the start.
    pub const ALL: [Self; 13] = [
        Self::Missing,
        Self::Scheme,
        Self::Size,
        Self::Form,
        Self::Algorithm,
        Self::Key,
        Self::Signature,
        Self::Expiry,
        Self::NotBefore,
        Self::Audience,
        Self::Issuer,
        Self::Subject,
        Self::Scopes,
    ];

    /// Its name as a metric's label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Scheme => "scheme",
            Self::Size => "size",
            Self::Form => "form",
            Self::Algorithm => "algorithm",
            Self::Key => "key",
            Self::Signature => "signature",
            Self::Expiry => "expiry",
            Self::NotBefore => "not_before",
            Self::Audience => "audience",
            Self::Issuer => "issuer",
            Self::Subject => "subject",
            Self::Scopes => "scopes",
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}
