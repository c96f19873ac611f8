//! What a key file may hold, and what is refused when it is read.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::LazyLock;

use jsonwebtoken::EncodingKey;
use jsonwebtoken::jwk::Jwk;
use serde_json::json;

use super::*;
use crate::auth::{Generated, generate};

// Made with openssl; nobody has their other halves any more.
const RSA_1024: &str = "-----BEGIN PUBLIC KEY-----
MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDInvuvJpz1ASVgfBhLWqmKY/cn
xiUAzH8rx8AOVPRmt8dMPNy7J3QUFMG+sVNk6pcczFnohhaUhCJTzwlb/QRiJrIu
JG//5Q8XnWy32p8H43L811v8SurfI4244kyv1bPo9peLIswtO0+2mYMDMO9cfVy2
w6tZrnUnu/PgXDJSqwIDAQAB
-----END PUBLIC KEY-----
";
const P384: &str = "-----BEGIN PUBLIC KEY-----
MHYwEAYHKoZIzj0CAQYFK4EEACIDYgAEVIvv+DHZ+KtbeyjGaXVEMcs8/FrQvyFL
jwpLrN4SnB65oBGe5Hobi5YjgBc0P2F7ADyoZ/sjIYNi2Q+w4D7+ee3IDt02mt9d
u0B2LBX74DFvA8RD30+uueJZaMhPy4sZ
-----END PUBLIC KEY-----
";
const SECP256K1: &str = "-----BEGIN PUBLIC KEY-----
MFYwEAYHKoZIzj0CAQYFK4EEAAoDQgAEnK4QBRKvd6hAXh0mJzKVTGfwcuPc7hx/
7NZkmBL1nTMH4w7HIAS4kSA2CH1uUbwpNtj39NllDKfVIAt5KVb6CA==
-----END PUBLIC KEY-----
";

fn file(content: &str) -> Result<Vec<Key>, String> {
    read("/etc/keys/one.pem".as_ref(), content.as_bytes(), &Algorithm::ALL)
}

fn refusal(content: &str) -> String {
    file(content).map(drop).unwrap_err()
}

/// A key as a JWK, with some members set besides.
fn jwk(algorithm: Algorithm, members: Value) -> Value {
    // RSA keys take a while to make, and one will do.
    static RSA: LazyLock<Generated> = LazyLock::new(|| generate(Algorithm::RS256).unwrap());
    let pair = if algorithm == Algorithm::RS256 { &RSA } else { &generate(algorithm).unwrap() };
    let pem = pair.private_pem.as_bytes();
    let key = match algorithm {
        Algorithm::EdDSA => EncodingKey::from_ed_pem(pem),
        Algorithm::ES256 => EncodingKey::from_ec_pem(pem),
        Algorithm::RS256 => EncodingKey::from_rsa_pem(pem),
    };
    let mut jwk =
        serde_json::to_value(Jwk::from_encoding_key(&key.unwrap(), algorithm.jwt()).unwrap()).unwrap();
    jwk.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    jwk
}

fn named(kid: &str, key: Key) -> Key {
    Key { kid: Some(kid.into()), ..key }
}

#[test]
fn a_pem_files_name_is_the_keys_kid() {
    for algorithm in Algorithm::ALL {
        let keys = file(&generate(algorithm).unwrap().public_pem).unwrap();
        assert_eq!((keys.len(), keys[0].kid.as_deref(), keys[0].algorithm), (1, Some("one"), algorithm));
    }
    let good = generate(Algorithm::EdDSA).unwrap().public_pem;
    assert!(
        read("/etc/keys/a b.pem".as_ref(), good.as_bytes(), &Algorithm::ALL).unwrap_err().contains("kid")
    );
}

#[test]
fn what_is_no_public_key_of_a_sort_that_is_supported_is_refused_when_it_is_read() {
    let pair = generate(Algorithm::EdDSA).unwrap();
    for (content, what) in [
        (pair.private_pem.as_str(), "private key"),
        (&pair.private_pem.replace("PRIVATE", "EC PRIVATE"), "private key"),
        (&pair.public_pem.replace("PUBLIC KEY", "CERTIFICATE"), "certificate"),
        (&pair.public_pem.replace("PUBLIC KEY", "X509 CRL"), "no PUBLIC KEY"),
        (&format!("{0}{0}", pair.public_pem), "2 PEM blocks"),
        ("", "0 PEM blocks"),
        ("ssh-ed25519 AAAA", "0 PEM blocks"),
        (&pair.public_pem.replacen('M', "A", 3), ""),
        (RSA_1024, "2048"),
        (P384, "P-256"),
        (SECP256K1, "P-256"),
        ("{", "no JSON"),
        ("{}", "no JWKS"),
        (r#"{"keys":[]}"#, "no key"),
        (r#"{"keys":[7]}"#, "keys[0]"),
    ] {
        let said = refusal(content);
        assert!(said.contains(what), "{content}: {said}");
    }
}

#[test]
fn a_key_for_an_algorithm_that_is_not_allowed_is_refused() {
    let rsa = generate(Algorithm::RS256).unwrap().public_pem;
    let said = read("/k/one.pem".as_ref(), rsa.as_bytes(), &[Algorithm::EdDSA]).map(drop).unwrap_err();
    assert!(said.contains("RS256") && said.contains("auth.algorithms"), "{said}");
}

#[test]
fn a_jwks_gives_its_signature_keys_and_passes_over_the_others() {
    let set = json!({"keys": [
        jwk(Algorithm::EdDSA, json!({"kid": "ed", "use": "sig"})),
        jwk(Algorithm::ES256, json!({"kid": "ec", "key_ops": ["verify"]})),
        jwk(Algorithm::RS256, json!({"kid": "rsa"})),
        jwk(Algorithm::RS256, json!({"kid": "for encryption", "use": "enc"})),
        jwk(Algorithm::RS256, json!({"kid": "for another algorithm", "alg": "PS512"})),
        jwk(Algorithm::ES256, json!({"kid": "for another operation", "key_ops": ["deriveKey"]})),
        {"kty": "EC", "crv": "P-384", "kid": "another curve", "x": "AA", "y": "AA"},
        {"kty": "something new", "kid": "new"},
    ]});
    let keys = file(&set.to_string()).unwrap();
    let set = KeySet::of(keys).unwrap();
    assert_eq!(set.kids().collect::<Vec<_>>(), ["ec", "ed", "rsa"]);
    assert_eq!(set.select(Some("rsa")).unwrap().algorithm, Algorithm::RS256);
}

#[test]
fn a_jwks_with_secrets_or_broken_keys_is_refused() {
    for (key, what) in [
        (json!({"kty": "oct", "kid": "s", "k": "AAAA", "alg": "HS256"}), "shared secret"),
        (jwk(Algorithm::EdDSA, json!({"d": "AAAA"})), "private key"),
        (jwk(Algorithm::EdDSA, json!({"x": "AAAA"})), "Ed25519"),
        (jwk(Algorithm::ES256, json!({"y": "AAAA"})), "P-256"),
        (jwk(Algorithm::RS256, json!({"n": "AAAA"})), "2048"),
        (jwk(Algorithm::RS256, json!({"e": ""})), "RSA"),
        (jwk(Algorithm::RS256, json!({"n": "!"})), "no key"),
    ] {
        let said = refusal(&json!({"keys": [key]}).to_string());
        assert!(said.contains(what) && said.starts_with("keys[0] "), "{said}");
    }
}

#[test]
fn with_several_keys_each_needs_a_name_of_its_own() {
    let key = || file(&generate(Algorithm::EdDSA).unwrap().public_pem).unwrap().remove(0);
    let nameless = || Key { kid: None, ..key() };
    assert!(KeySet::of([nameless()]).unwrap().select(None).is_ok());
    assert!(KeySet::of([nameless(), nameless()]).is_err());
    assert!(KeySet::of([nameless(), key()]).is_err());
    assert!(KeySet::of([named("a", key()), named("a", key())]).unwrap_err().contains("\"a\""));
    let two = KeySet::of([named("a", key()), named("b", key())]).unwrap();
    assert_eq!(two.len(), 2);
    assert!(two.select(None).is_err() && two.select(Some("c")).is_err());
}
