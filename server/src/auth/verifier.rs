//! A token in, a caller out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Validation;
use jsonwebtoken::errors::ErrorKind;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::claims::{Claims, Validity};
use super::keys::KeySet;
use super::{Caller, Check, MAX_TOKEN_BYTES};

/// What a token must say, besides being signed and in time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expectations {
    /// One of these must be its audience.
    pub audience: Vec<String>,
    /// If given, its issuer.
    pub issuer: Option<String>,
}

/// Verified tokens that are remembered: a caller sends the same one with every call, and a signature costs more than all the
/// rest of a small call. What is remembered is a digest, never the token.
const MOST_REMEMBERED: usize = 4_096;

/// Checks tokens.
#[derive(Debug)]
pub struct Verifier {
    keys: Arc<ArcSwap<KeySet>>,
    expected: Expectations,
    remembered: Mutex<Remembered>,
}

#[derive(Debug, Default)]
struct Remembered {
    /// The keys they were verified with; with others nothing is remembered.
    keys: Option<Arc<KeySet>>,
    tokens: HashMap<[u8; 32], (Verified, Validity)>,
}

/// Whose token it is, and which key said so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// The caller.
    pub caller: Caller,
    /// The key's name; `""` for the only key of all, if it has none.
    pub kid: Arc<str>,
}

/// What of a header chooses the key. All else that a header can say is the library's to judge, or nobody's.
#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
}

/// The token of an `authorization` value.
///
/// # Errors
/// It is not `Bearer TOKEN`.
pub fn bearer(authorization: &str) -> Result<&str, Check> {
    let (scheme, token) = authorization.split_once(' ').ok_or(Check::Scheme)?;
    let token = token.trim_matches(' ');
    if !scheme.eq_ignore_ascii_case("bearer") || token.is_empty() || token.contains(' ') {
        return Err(Check::Scheme);
    }
    Ok(token)
}

impl Verifier {
    /// With these keys, now and as they change.
    #[must_use]
    pub fn new(keys: Arc<ArcSwap<KeySet>>, expected: Expectations) -> Self {
        Self { keys, expected, remembered: Mutex::default() }
    }

    /// Whose token it is.
    ///
    /// # Errors
    /// The check that it failed.
    pub fn verify(&self, token: &str) -> Result<Verified, Check> {
        // Before 1970 no token is good.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        self.verify_at(token, now)
    }

    fn verify_at(&self, token: &str, now: f64) -> Result<Verified, Check> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(Check::Size);
        }
        let keys = self.keys.load_full();
        let digest: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        let known = self.recall(&keys, &digest);
        let fresh = known.is_none();
        let (verified, validity) = match known {
            Some(known) => known,
            None => self.decode(&keys, token)?,
        };
        validity.check(now)?;
        if fresh {
            self.remember(&keys, digest, (verified.clone(), validity));
        }
        Ok(verified)
    }

    fn decode(&self, keys: &KeySet, token: &str) -> Result<(Verified, Validity), Check> {
        let header = header(token)?;
        let key = keys.select(header.kid.as_deref())?;
        // The key says which algorithm; the token may only agree. `none` agrees with nobody.
        if header.alg != key.algorithm.to_string() {
            return Err(Check::Algorithm);
        }
        let mut validation = Validation::new(key.algorithm.jwt());
        // Times are judged in `claims`, for what is remembered, too.
        validation.validate_exp = false;
        validation.validate_nbf = false;
        validation.set_audience(&self.expected.audience);
        // The library takes a claim that is not there for good unless it is required.
        let mut required = vec!["aud", "sub"];
        if let Some(issuer) = &self.expected.issuer {
            validation.set_issuer(&[issuer]);
            required.push("iss");
        }
        validation.set_required_spec_claims(&required);
        let decoded = jsonwebtoken::decode::<Claims>(token, &key.decoding, &validation)
            .map_err(|error| check(error.kind()))?;
        let (caller, validity) = decoded.claims.read()?;
        let kid = key.kid.as_deref().unwrap_or_default().into();
        Ok((Verified { caller, kid }, validity))
    }

    fn recall(&self, keys: &Arc<KeySet>, digest: &[u8; 32]) -> Option<(Verified, Validity)> {
        let remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        let same = remembered.keys.as_ref().is_some_and(|used| Arc::ptr_eq(used, keys));
        remembered.tokens.get(digest).filter(|_| same).cloned()
    }

    fn remember(&self, keys: &Arc<KeySet>, digest: [u8; 32], known: (Verified, Validity)) {
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        let same = remembered.keys.as_ref().is_some_and(|used| Arc::ptr_eq(used, keys));
        // Only good tokens get here, so nobody fills it but who holds that many; starting anew then is as good as any order.
        if !same || remembered.tokens.len() >= MOST_REMEMBERED {
            *remembered = Remembered { keys: Some(keys.clone()), tokens: HashMap::new() };
        }
        remembered.tokens.insert(digest, known);
    }
}

fn header(token: &str) -> Result<Header, Check> {
    let mut parts = token.split('.');
    let (Some(header), Some(_), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(Check::Form);
    };
    let header = URL_SAFE_NO_PAD.decode(header).map_err(|_| Check::Form)?;
    serde_json::from_slice(&header).map_err(|_| Check::Form)
}

fn check(kind: &ErrorKind) -> Check {
    match kind {
        ErrorKind::InvalidSignature => Check::Signature,
        ErrorKind::InvalidAudience => Check::Audience,
        ErrorKind::InvalidIssuer => Check::Issuer,
        ErrorKind::InvalidSubject => Check::Subject,
        ErrorKind::MissingRequiredClaim(claim) | ErrorKind::InvalidClaimFormat(claim) => match claim.as_str()
        {
            "aud" => Check::Audience,
            "iss" => Check::Issuer,
            "sub" => Check::Subject,
            _ => Check::Form,
        },
        ErrorKind::InvalidAlgorithm | ErrorKind::UnsupportedAlgorithm | ErrorKind::InvalidAlgorithmName => {
            Check::Algorithm
        }
        // `crit`, `b64`, parts that are no base64url, no JSON objects, or have a claim twice.
        _ => Check::Form,
    }
}

#[cfg(test)]
mod tests;
