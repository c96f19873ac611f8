//! Keys that tokens are checked with: public ones, each with the one algorithm that it is good for.
//!
//! A PEM file holds one public key, and its name without the extension is the key's `kid`. A JWKS file (RFC 7517) holds
//! several that name themselves; those it offers for other purposes are passed over, secret ones are refused.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::Path;

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
    VerificationAlgorithm,
};
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{DecodingKey, DecodingKeyKind};
use serde_json::Value;

use super::Check;

/// The signature algorithms there are. None of them has a secret on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize)]
pub enum Algorithm {
    /// Ed25519.
    EdDSA,
    /// ECDSA on P-256.
    ES256,
    /// RSA, PKCS #1 v1.5, with SHA-256; keys of 2048 to 8192 bits.
    RS256,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::EdDSA, Self::ES256, Self::RS256];

    pub(super) fn jwt(self) -> jsonwebtoken::Algorithm {
        match self {
            Self::EdDSA => jsonwebtoken::Algorithm::EdDSA,
            Self::ES256 => jsonwebtoken::Algorithm::ES256,
            Self::RS256 => jsonwebtoken::Algorithm::RS256,
        }
    }

    fn verification(self) -> &'static dyn VerificationAlgorithm {
        match self {
            Self::EdDSA => &ED25519,
            Self::ES256 => &ECDSA_P256_SHA256_FIXED,
            Self::RS256 => &RSA_PKCS1_2048_8192_SHA256,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Their names in a token's header.
        fmt::Debug::fmt(self, f)
    }
}

impl std::str::FromStr for Algorithm {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|algorithm| algorithm.to_string() == name)
            .ok_or_else(|| "must be EdDSA, ES256 or RS256".to_owned())
    }
}

/// What is wrong with a key file, and which one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}")]
pub struct Problem {
    /// The file or the pattern.
    pub place: String,
    /// What is wrong.
    pub what: String,
}

/// A public key.
#[derive(Clone)]
pub struct Key {
    /// What tokens call it; a key from a JWKS may be without.
    pub kid: Option<String>,
    /// The one algorithm that it is good for.
    pub algorithm: Algorithm,
    pub(super) decoding: DecodingKey,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.kid.as_deref().unwrap_or("no kid"), self.algorithm)
    }
}

/// The keys that are good at a time, by `kid`.
#[derive(Debug, Default)]
pub struct KeySet {
    by_kid: BTreeMap<String, Key>,
    /// The only key of all, should it have no name.
    nameless: Option<Key>,
}

impl KeySet {
    /// Of all files' keys.
    ///
    /// # Errors
    /// A name is used twice; or one of several keys has none, and no token could mean it.
    pub fn of(keys: impl IntoIterator<Item = Key>) -> Result<Self, String> {
        let mut set = Self::default();
        for key in keys {
            match key.kid.clone() {
                None if set.nameless.is_none() => set.nameless = Some(key),
                None => return Err("two keys have no kid: with several keys each needs one".into()),
                Some(kid) if set.by_kid.contains_key(&kid) => {
                    return Err(format!("two keys have the kid {kid:?}"));
                }
                Some(kid) => drop(set.by_kid.insert(kid, key)),
            }
        }
        if set.nameless.is_some() && !set.by_kid.is_empty() {
            return Err("a key has no kid: with several keys each needs one".into());
        }
        Ok(set)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_kid.len() + usize::from(self.nameless.is_some())
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The keys' names.
    pub fn kids(&self) -> impl Iterator<Item = &str> {
        self.by_kid.keys().map(String::as_str)
    }

    /// The key that a token means. One that names none means the only one there is.
    pub(super) fn select(&self, kid: Option<&str>) -> Result<&Key, Check> {
        match kid {
            Some(kid) => self.by_kid.get(kid),
            None if self.len() == 1 => self.nameless.as_ref().or_else(|| self.by_kid.values().next()),
            None => None,
        }
        .ok_or(Check::Key)
    }
}

/// The keys of one file: a JWKS if it is JSON, else a PEM whose `kid` is the file's name without its extension.
pub(super) fn read(path: &Path, content: &[u8], allowed: &[Algorithm]) -> Result<Vec<Key>, String> {
    if content.trim_ascii_start().starts_with(b"{") {
        return jwks(content, allowed);
    }
    let kid = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    if kid.is_empty() || kid.len() > 128 || !kid.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(
            "the file's name is the key's kid, and must be 1 to 128 printable ASCII characters".into()
        );
    }
    let key = pem(kid, content)?;
    if !allowed.contains(&key.algorithm) {
        return Err(format!("is a key for {}, which auth.algorithms does not allow", key.algorithm));
    }
    Ok(vec![key])
}

fn pem(kid: &str, content: &[u8]) -> Result<Key, String> {
    let blocks = ::pem::parse_many(content).map_err(|_| "is neither PEM nor JSON".to_owned())?;
    let [block] = blocks.as_slice() else {
        return Err(format!("has {} PEM blocks; one public key a file", blocks.len()));
    };
    match block.tag() {
        "PUBLIC KEY" | "RSA PUBLIC KEY" => {}
        tag if tag.contains("PRIVATE") => {
            return Err(
                "is a private key: keep it with whoever signs, and give the server the public one".into()
            );
        }
        "CERTIFICATE" => {
            return Err("is a certificate; take its public key (openssl x509 -pubkey -noout)".into());
        }
        _ => return Err("is no PUBLIC KEY".into()),
    }
    let (algorithm, decoding) = if let Ok(key) = DecodingKey::from_ed_pem(content) {
        (Algorithm::EdDSA, key)
    } else if let Ok(key) = DecodingKey::from_ec_pem(content) {
        (Algorithm::ES256, key)
    } else if let Ok(key) = DecodingKey::from_rsa_pem(content) {
        (Algorithm::RS256, key)
    } else {
        return Err("is no key of a sort that is supported: Ed25519, P-256 or RSA".into());
    };
    checked(Key { kid: Some(kid.to_owned()), algorithm, decoding })
}

fn jwks(content: &[u8], allowed: &[Algorithm]) -> Result<Vec<Key>, String> {
    let set: Value = serde_json::from_slice(content).map_err(|_| "is no JSON".to_owned())?;
    let listed = set.get("keys").and_then(Value::as_array).ok_or("is no JWKS: has no list `keys`")?;
    let mut keys = Vec::new();
    for (index, one) in listed.iter().enumerate() {
        let at = |what: &str| format!("keys[{index}] {what}");
        if one.get("kty").and_then(Value::as_str) == Some("oct") || one.get("k").is_some() {
            return Err(at("is a shared secret: whoever could check tokens could also sign them"));
        }
        if one.get("d").is_some() {
            return Err(at("is a private key: keep it with whoever signs"));
        }
        let jwk: Jwk = serde_json::from_value(one.clone()).map_err(|_| at("is no JWK"))?;
        if let Some(key) = usable(&jwk, allowed).map_err(|what| at(&what))? {
            keys.push(key);
        }
    }
    if keys.is_empty() {
        return Err("has no key for signatures that auth.algorithms allows".into());
    }
    Ok(keys)
}

/// `None`: a key for another purpose or another algorithm, which an identity provider may well list beside ours.
fn usable(jwk: &Jwk, allowed: &[Algorithm]) -> Result<Option<Key>, String> {
    let common = &jwk.common;
    let signs = common.public_key_use.as_ref().is_none_or(|purpose| *purpose == PublicKeyUse::Signature)
        && common
            .key_operations
            .as_ref()
            .is_none_or(|operations| operations.contains(&KeyOperations::Verify));
    let algorithm = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => Algorithm::RS256,
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => Algorithm::ES256,
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => Algorithm::EdDSA,
        _ => return Ok(None),
    };
    let meant = common.key_algorithm.is_none_or(|own| own.to_string() == algorithm.to_string());
    if !signs || !meant || !allowed.contains(&algorithm) {
        return Ok(None);
    }
    let decoding = DecodingKey::from_jwk(jwk).map_err(|_| "is no key".to_owned())?;
    checked(Key { kid: common.key_id.clone(), algorithm, decoding }).map(Some)
}

/// Of a modulus: 2048 to 8192 bits.
const RSA_BYTES: RangeInclusive<usize> = 256..=1024;

/// The library takes any bytes for a key and finds out with the first token; a file is refused when it is read.
fn checked(key: Key) -> Result<Key, String> {
    let what = match key.algorithm {
        Algorithm::EdDSA => "is no Ed25519 key",
        Algorithm::ES256 => "is no key on the curve P-256",
        Algorithm::RS256 => "is no RSA key of 2048 to 8192 bits",
    };
    let good = match key.decoding.kind() {
        DecodingKeyKind::SecretOrDer(der) if key.algorithm == Algorithm::RS256 => {
            aws_lc_rs::rsa::PublicKey::from_der(der).is_ok_and(|key| RSA_BYTES.contains(&key.modulus_len()))
        }
        DecodingKeyKind::SecretOrDer(point) => {
            ParsedPublicKey::new(key.algorithm.verification(), point).is_ok()
        }
        DecodingKeyKind::RsaModulusExponent { n, e } => {
            RSA_BYTES.contains(&n.len())
                && RsaPublicKeyComponents { n, e }.to_parsed_public_key(&RSA_PKCS1_2048_8192_SHA256).is_ok()
        }
    };
    if good { Ok(key) } else { Err(what.into()) }
}

#[cfg(test)]
mod tests;
