//! Makes keys and signs tokens: for operators without an identity provider, for development and for tests. The server itself
//! never signs anything and never sees a private key.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RsaKeyPair,
};
use jsonwebtoken::EncodingKey;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::Algorithm;

/// The extension of a private key's file. Not `pem`: the server is told to read `*.pem`.
const PRIVATE: &str = "key";

/// Why a key or a token was not made.
#[derive(Debug, thiserror::Error)]
pub enum MintError {
    /// A file.
    #[error("{path}: {error}")]
    File {
        /// Which one.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// The file holds no private key that is supported.
    #[error("{path}: is no private key for EdDSA, ES256 or RS256 in a PEM file (PKCS #8)")]
    NoKey {
        /// Which one.
        path: PathBuf,
    },
    /// The key's file has a name that is no `kid`.
    #[error("{path}: name the key's kid, the file's name is none")]
    NoKid {
        /// Which one.
        path: PathBuf,
    },
    /// The library failed.
    #[error("the cryptographic library failed: {0}")]
    Crypto(String),
    /// Something that was asked for makes no sense.
    #[error("{field}: {problem}")]
    Invalid {
        /// Which argument.
        field: &'static str,
        /// What is wrong with it.
        problem: String,
    },
}

/// A new pair of keys.
pub struct Generated {
    /// Its name: the algorithm and the beginning of the public key's SHA-256.
    pub kid: String,
    /// PKCS #8, PEM.
    pub private_pem: String,
    /// SubjectPublicKeyInfo, PEM.
    pub public_pem: String,
}

/// Makes a pair of keys.
///
/// # Errors
/// The library's.
pub fn generate(algorithm: Algorithm) -> Result<Generated, MintError> {
    let failed = |_| MintError::Crypto("no key".into());
    let (private, public): (Vec<u8>, PublicKeyX509Der<'_>) = match algorithm {
        Algorithm::EdDSA => {
            let pair = Ed25519KeyPair::generate().map_err(failed)?;
            let private = pair.to_pkcs8v1().map_err(failed)?;
            (private.as_ref().to_vec(), pair.public_key().as_der().map_err(failed)?)
        }
        Algorithm::ES256 => {
            let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).map_err(failed)?;
            let private = pair.to_pkcs8v1().map_err(failed)?;
            (private.as_ref().to_vec(), pair.public_key().as_der().map_err(failed)?)
        }
        Algorithm::RS256 => {
            let pair = RsaKeyPair::generate(KeySize::Rsa3072).map_err(failed)?;
            let private: Pkcs8V1Der<'_> = pair.as_der().map_err(failed)?;
            (private.as_ref().to_vec(), pair.public_key().as_der().map_err(failed)?)
        }
    };
    let digest = Sha256::digest(public.as_ref());
    let short: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let pem = |tag: &str, der: &[u8]| {
        let config = ::pem::EncodeConfig::new().set_line_ending(::pem::LineEnding::LF);
        ::pem::encode_config(&::pem::Pem::new(tag, der), config)
    };
    Ok(Generated {
        kid: format!("{}-{short}", algorithm.to_string().to_lowercase()),
        private_pem: pem("PRIVATE KEY", &private),
        public_pem: pem("PUBLIC KEY", public.as_ref()),
    })
}

impl Generated {
    /// Writes `KID.key`, which only its owner may read, and `KID.pem` into a folder; gives their paths. Never replaces a file.
    ///
    /// # Errors
    /// A file's. The public key is written last: where it is, the pair is whole.
    pub fn write(&self, folder: &Path) -> Result<(PathBuf, PathBuf), MintError> {
        let private = folder.join(format!("{}.{PRIVATE}", self.kid));
        let public = folder.join(format!("{}.pem", self.kid));
        std::fs::create_dir_all(folder)
            .map_err(|error| MintError::File { path: folder.to_owned(), error })?;
        for (path, text, mode) in [(&private, &self.private_pem, 0o600), (&public, &self.public_pem, 0o644)] {
            OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(mode)
                .open(path)
                .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
                .map_err(|error| MintError::File { path: path.clone(), error })?;
        }
        Ok((private, public))
    }
}

/// A key that signs.
pub struct PrivateKey {
    kid: String,
    algorithm: Algorithm,
    encoding: EncodingKey,
}

/// What a token is to say.
#[derive(Debug, Clone)]
pub struct Order<'a> {
    /// Who it is for.
    pub sub: &'a str,
    /// Whom it is shown to.
    pub audience: &'a str,
    /// Who says so, if anybody is asked for.
    pub issuer: Option<&'a str>,
    /// What it allows: words with spaces between them.
    pub scope: &'a str,
    /// How long it is good, from now on.
    pub ttl: Duration,
}

/// The longest life of a token: it cannot be called back, only its key can.
const MAX_TTL: Duration = Duration::from_secs(366 * 24 * 3600);

#[derive(Serialize)]
struct Claims<'a> {
    sub: &'a str,
    aud: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    iss: Option<&'a str>,
    scope: &'a str,
    iat: u64,
    exp: u64,
}

impl PrivateKey {
    /// From a PEM text.
    ///
    /// # Errors
    /// `None`: it is no private key of ours.
    #[must_use]
    pub fn parse(kid: &str, pem: &[u8]) -> Option<Self> {
        let kid = kid.to_owned();
        if let Ok(encoding) = EncodingKey::from_ed_pem(pem) {
            Some(Self { kid, algorithm: Algorithm::EdDSA, encoding })
        } else if let Ok(encoding) = EncodingKey::from_ec_pem(pem) {
            Some(Self { kid, algorithm: Algorithm::ES256, encoding })
        } else {
            // The library takes a public RSA key here, too, and fails with the first signature.
            let block = ::pem::parse(pem).ok().filter(|block| block.tag().contains("PRIVATE"))?;
            drop(block);
            let encoding = EncodingKey::from_rsa_pem(pem).ok()?;
            Some(Self { kid, algorithm: Algorithm::RS256, encoding })
        }
    }

    /// From a file; unless told otherwise its `kid` is the file's name without the extension.
    ///
    /// # Errors
    /// The file's, or that it holds no private key.
    pub fn read(path: &Path, kid: Option<&str>) -> Result<Self, MintError> {
        let pem = std::fs::read(path).map_err(|error| MintError::File { path: path.to_owned(), error })?;
        let kid = kid
            .or_else(|| path.file_stem().and_then(|stem| stem.to_str()))
            .ok_or_else(|| MintError::NoKid { path: path.to_owned() })?;
        Self::parse(kid, &pem).ok_or_else(|| MintError::NoKey { path: path.to_owned() })
    }

    /// Signs a token.
    ///
    /// # Errors
    /// Nobody would take such a token, or the library failed.
    pub fn mint(&self, order: &Order<'_>) -> Result<String, MintError> {
        let invalid = |field, problem: &str| Err(MintError::Invalid { field, problem: problem.to_owned() });
        if order.sub.trim().is_empty() || order.sub.len() > 255 || order.sub.chars().any(char::is_control) {
            return invalid("sub", "must be 1 to 255 bytes without control characters");
        }
        if order.audience.is_empty() {
            return invalid("aud", "must not be empty");
        }
        if order.ttl < Duration::from_secs(1) || order.ttl > MAX_TTL {
            return invalid("ttl", "must be between 1s and 366d: a token cannot be called back");
        }
        if let Some(odd) = order.scope.split(' ').find(|word| !word.is_empty() && !is_scope(word)) {
            return Err(MintError::Invalid {
                field: "scope",
                problem: format!(
                    "{odd:?} is none: SERVICE.write, SERVICE.read, SERVICE.admin, payload.read or holdfast.admin"
                ),
            });
        }
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_err(|error| MintError::Crypto(error.to_string()))?;
        let claims = Claims {
            sub: order.sub,
            aud: order.audience,
            iss: order.issuer,
            scope: order.scope,
            iat: now.as_secs(),
            exp: (now + order.ttl).as_secs(),
        };
        self.sign(&claims)
    }

    pub(super) fn sign(&self, claims: &impl Serialize) -> Result<String, MintError> {
        let mut header = jsonwebtoken::Header::new(self.algorithm.jwt());
        header.kid = Some(self.kid.clone());
        jsonwebtoken::encode(&header, claims, &self.encoding)
            .map_err(|error| MintError::Crypto(error.to_string()))
    }
}

fn is_scope(word: &str) -> bool {
    if ["payload.read", "holdfast.admin"].contains(&word) {
        return true;
    }
    let Some((service, right)) = word.split_once('.') else { return false };
    let named = holdfast_proto::envelope::service_name_problem(service).is_none()
        || service == holdfast_proto::envelope::BUILT_IN_SERVICE;
    named && ["write", "read", "admin"].contains(&right)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn order() -> Order<'static> {
        Order {
            sub: "alice",
            audience: "holdfast",
            issuer: None,
            scope: "orders.write",
            ttl: Duration::from_secs(60),
        }
    }

    #[test]
    fn a_pair_is_written_once_and_the_private_half_is_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let pair = generate(Algorithm::ES256).unwrap();
        let (private, public) = pair.write(&folder.path().join("new")).unwrap();

        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&private), 0o600);
        assert!(public.ends_with(format!("{}.pem", pair.kid)) && private.extension().unwrap() == "key");
        assert!(
            matches!(pair.write(&folder.path().join("new")), Err(MintError::File { .. })),
            "nothing is replaced"
        );
        assert!(PrivateKey::read(&private, None).unwrap().mint(&order()).is_ok());
        assert!(matches!(PrivateKey::read(&public, None), Err(MintError::NoKey { .. })));
    }

    #[test]
    fn a_public_key_of_any_sort_signs_nothing() {
        for algorithm in Algorithm::ALL {
            assert!(PrivateKey::parse("k", generate(algorithm).unwrap().public_pem.as_bytes()).is_none());
        }
    }

    #[test]
    fn a_token_that_nobody_would_take_is_not_minted() {
        let key = PrivateKey::parse("k", generate(Algorithm::EdDSA).unwrap().private_pem.as_bytes()).unwrap();
        let refused = |order: Order<'_>| match key.mint(&order) {
            Err(MintError::Invalid { field, .. }) => field,
            other => format!("{other:?}").leak(),
        };
        assert_eq!(refused(Order { sub: " ", ..order() }), "sub");
        assert_eq!(refused(Order { audience: "", ..order() }), "aud");
        assert_eq!(refused(Order { ttl: Duration::ZERO, ..order() }), "ttl");
        assert_eq!(refused(Order { ttl: Duration::from_secs(400 * 24 * 3600), ..order() }), "ttl");
        for scope in ["orders", "orders.delete", "holdfast.write", "Orders.write", "orders.write,orders.read"]
        {
            assert_eq!(refused(Order { scope, ..order() }), "scope", "{scope}");
        }
        assert!(
            key.mint(&Order { scope: "holdfast-control.admin holdfast.admin payload.read", ..order() })
                .is_ok()
        );
    }
}
