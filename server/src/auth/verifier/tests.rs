//! Every way in which a token can be no good, with real keys and real signatures.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::LazyLock;

use aws_lc_rs::hmac;
use serde_json::{Value, json};

use super::*;
use crate::auth::keys::{self, Algorithm};
use crate::auth::mint::{Generated, PrivateKey, generate};

const AUDIENCE: &str = "holdfast";
const ISSUER: &str = "https://id.example";
const NOW: f64 = 1_800_000_000.0;

/// A key of each sort; RSA keys take a while to make.
static PAIRS: LazyLock<Vec<Generated>> =
    LazyLock::new(|| Algorithm::ALL.into_iter().map(|algorithm| generate(algorithm).unwrap()).collect());

fn pair(algorithm: Algorithm) -> &'static Generated {
    PAIRS.iter().find(|pair| pair.kid.starts_with(&algorithm.to_string().to_lowercase())).unwrap()
}

fn signer(algorithm: Algorithm) -> PrivateKey {
    PrivateKey::parse(&pair(algorithm).kid, pair(algorithm).private_pem.as_bytes()).unwrap()
}

fn set(pairs: &[&Generated]) -> Arc<ArcSwap<KeySet>> {
    let keys = pairs.iter().flat_map(|pair| {
        let path = format!("/etc/keys/{}.pem", pair.kid);
        keys::read(path.as_ref(), pair.public_pem.as_bytes(), &Algorithm::ALL).unwrap()
    });
    Arc::new(ArcSwap::from_pointee(KeySet::of(keys).unwrap()))
}

fn verifier_of(pairs: &[&Generated]) -> Verifier {
    let expected =
        Expectations { audience: vec!["other".into(), AUDIENCE.into()], issuer: Some(ISSUER.into()) };
    Verifier::new(set(pairs), expected)
}

/// With all three keys.
fn verifier() -> Verifier {
    verifier_of(&PAIRS.iter().collect::<Vec<_>>())
}

fn good() -> Value {
    json!({"sub": "alice", "aud": AUDIENCE, "iss": ISSUER, "exp": NOW as u64 + 60, "scope": "orders.write"})
}

/// A good token's claims with one of them changed, or taken away by `null`.
fn with(name: &str, value: Value) -> Value {
    let mut claims = good();
    if value.is_null() {
        claims.as_object_mut().unwrap().remove(name);
    } else {
        claims[name] = value;
    }
    claims
}

fn judged(claims: &Value) -> Result<Verified, Check> {
    verifier().verify_at(&signer(Algorithm::EdDSA).sign(claims).unwrap(), NOW)
}

/// A token whose parts are made by hand.
fn token(header: &Value, claims: &Value, signature: &[u8]) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}.{}", part(header), part(claims), URL_SAFE_NO_PAD.encode(signature))
}

#[test]
fn a_good_token_of_each_algorithm_names_its_caller() {
    for algorithm in Algorithm::ALL {
        let token = signer(algorithm).sign(&good()).unwrap();
        let verified = verifier().verify_at(&token, NOW).unwrap();
        assert_eq!(verified.caller.sub(), "alice");
        assert_eq!(&*verified.kid, pair(algorithm).kid);
        assert!(verified.caller.write("orders").is_ok() && verified.caller.read("orders").is_err());
    }
}

#[test]
fn a_minted_token_is_good() {
    let order = crate::auth::Order {
        sub: "alice",
        audience: AUDIENCE,
        issuer: Some(ISSUER),
        scope: "orders.write payload.read",
        ttl: std::time::Duration::from_secs(60),
    };
    let token = signer(Algorithm::ES256).mint(&order).unwrap();
    assert_eq!(verifier().verify(&token).unwrap().caller.sub(), "alice");
}

#[test]
fn claims_that_are_missing_are_required() {
    for (claim, check) in
        [("aud", Check::Audience), ("iss", Check::Issuer), ("exp", Check::Expiry), ("sub", Check::Subject)]
    {
        assert_eq!(judged(&with(claim, Value::Null)), Err(check), "without {claim}");
    }
    assert!(judged(&with("scope", Value::Null)).is_ok(), "who may do nothing is still somebody");
}

#[test]
fn a_token_for_somebody_else_is_refused() {
    for audience in [
        json!("holdfast2"),
        json!(["a", "b"]),
        json!([]),
        json!(7),
        json!({"holdfast": 1}),
        json!("HOLDFAST"),
    ] {
        assert_eq!(judged(&with("aud", audience.clone())), Err(Check::Audience), "{audience}");
    }
    assert!(judged(&with("aud", json!(["a", AUDIENCE]))).is_ok());
    for issuer in [json!("https://id.example.evil"), json!(7), json!([ISSUER])] {
        assert_eq!(judged(&with("iss", issuer.clone())), Err(Check::Issuer), "{issuer}");
    }
}

#[test]
fn an_issuer_is_asked_for_only_if_one_is_configured() {
    let expected = Expectations { audience: vec![AUDIENCE.into()], issuer: None };
    let verifier = Verifier::new(set(&[pair(Algorithm::EdDSA)]), expected);
    for issuer in [Value::Null, json!("anybody")] {
        let token = signer(Algorithm::EdDSA).sign(&with("iss", issuer)).unwrap();
        assert!(verifier.verify_at(&token, NOW).is_ok());
    }
}

#[test]
fn time_is_judged_with_thirty_seconds_of_leeway_also_for_a_token_that_is_remembered() {
    let verifier = verifier();
    let token = signer(Algorithm::EdDSA).sign(&with("nbf", json!(NOW as u64 - 60))).unwrap();
    for round in 0..2 {
        assert_eq!(verifier.verify_at(&token, NOW - 91.0), Err(Check::NotBefore), "{round}");
        assert!(verifier.verify_at(&token, NOW - 90.0).is_ok(), "{round}");
        assert!(verifier.verify_at(&token, NOW + 89.0).is_ok(), "{round}");
        assert_eq!(verifier.verify_at(&token, NOW + 90.0), Err(Check::Expiry), "{round}");
    }
}

#[test]
fn no_algorithm_but_the_keys_own_is_taken() {
    let kid = &pair(Algorithm::RS256).kid;
    for alg in ["none", "None", "NONE", "", "HS256", "ES256", "EdDSA", "RS512", "PS256"] {
        let header = json!({"alg": alg, "typ": "JWT", "kid": kid});
        for signature in [&b""[..], b"x"] {
            assert_eq!(
                verifier().verify_at(&token(&header, &good(), signature), NOW),
                Err(Check::Algorithm),
                "{alg}"
            );
        }
    }
    let without = json!({"typ": "JWT", "kid": kid});
    assert_eq!(verifier().verify_at(&token(&without, &good(), b""), NOW), Err(Check::Form));
}

#[test]
fn hs256_signed_with_the_public_key_as_its_secret_is_refused() {
    for algorithm in Algorithm::ALL {
        let pair = pair(algorithm);
        let header = json!({"alg": "HS256", "typ": "JWT", "kid": pair.kid});
        let der = ::pem::parse(&pair.public_pem).unwrap().into_contents();
        for secret in [pair.public_pem.as_bytes(), &der] {
            let signed = token(&header, &good(), b"");
            let message = signed.trim_end_matches('.');
            let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), message.as_bytes());
            let forged = token(&header, &good(), tag.as_ref());
            assert_eq!(verifier().verify_at(&forged, NOW), Err(Check::Algorithm));
            assert_eq!(verifier_of(&[pair]).verify_at(&forged, NOW), Err(Check::Algorithm));
        }
    }
}

#[test]
fn a_key_is_chosen_by_its_kid_alone() {
    let verifier = verifier_of(&[pair(Algorithm::EdDSA), pair(Algorithm::ES256)]);
    let own = signer(Algorithm::EdDSA).sign(&good()).unwrap();
    assert!(verifier.verify_at(&own, NOW).is_ok());

    let foreign = PrivateKey::parse("foreign", pair(Algorithm::EdDSA).private_pem.as_bytes()).unwrap();
    assert_eq!(verifier.verify_at(&foreign.sign(&good()).unwrap(), NOW), Err(Check::Key));

    // Somebody else's key under the name of ours.
    let other = generate(Algorithm::EdDSA).unwrap();
    let other = PrivateKey::parse(&pair(Algorithm::EdDSA).kid, other.private_pem.as_bytes()).unwrap();
    assert_eq!(verifier.verify_at(&other.sign(&good()).unwrap(), NOW), Err(Check::Signature));
}

#[test]
fn a_token_that_names_no_key_means_the_only_one_and_none_of_several() {
    let header = json!({"alg": "EdDSA", "typ": "JWT"});
    let unsigned = token(&header, &good(), b"");
    let signer =
        jsonwebtoken::EncodingKey::from_ed_pem(pair(Algorithm::EdDSA).private_pem.as_bytes()).unwrap();
    let message = unsigned.trim_end_matches('.');
    let signature =
        jsonwebtoken::crypto::sign(message.as_bytes(), &signer, jsonwebtoken::Algorithm::EdDSA).unwrap();
    let nameless = format!("{message}.{signature}");

    assert!(verifier_of(&[pair(Algorithm::EdDSA)]).verify_at(&nameless, NOW).is_ok());
    assert_eq!(verifier().verify_at(&nameless, NOW), Err(Check::Key));
}

#[test]
fn a_changed_token_is_refused() {
    let token = signer(Algorithm::ES256).sign(&good()).unwrap();
    let [header, claims, signature] = token.split('.').collect::<Vec<_>>()[..] else { unreachable!() };
    let more = URL_SAFE_NO_PAD.encode(with("scope", json!("holdfast.admin")).to_string());
    let mut flipped = URL_SAFE_NO_PAD.decode(signature).unwrap();
    flipped[10] ^= 1;
    let flipped = URL_SAFE_NO_PAD.encode(flipped);
    for bad in [
        format!("{header}.{more}.{signature}"),
        format!("{header}.{claims}.{flipped}"),
        format!("{header}.{claims}."),
    ] {
        assert_eq!(verifier().verify_at(&bad, NOW), Err(Check::Signature));
    }
}

#[test]
fn what_is_no_token_is_refused_and_never_panics() {
    let token = signer(Algorithm::EdDSA).sign(&good()).unwrap();
    let parts: Vec<_> = token.split('.').collect();
    let kid = &pair(Algorithm::EdDSA).kid;
    let list = URL_SAFE_NO_PAD.encode("[1]");
    let number = URL_SAFE_NO_PAD.encode(json!({"alg": "EdDSA", "kid": 7}).to_string());
    for bad in [
        String::new(),
        ".".into(),
        "..".into(),
        "...".into(),
        "a.b".into(),
        format!("{token}.x"),
        format!("{}.{}", parts[0], parts[1]),
        format!("\u{e9}.{}.{}", parts[1], parts[2]),
        format!("{list}.{}.{}", parts[1], parts[2]),
        format!("{number}.{}.{}", parts[1], parts[2]),
        format!("{}=.{}.{}", parts[0], parts[1], parts[2]),
    ] {
        assert_eq!(verifier().verify_at(&bad, NOW), Err(Check::Form), "{bad}");
    }
    // Signed, and still none.
    let sign = |header: Value, claims: &str| {
        let message =
            format!("{}.{}", URL_SAFE_NO_PAD.encode(header.to_string()), URL_SAFE_NO_PAD.encode(claims));
        let key =
            jsonwebtoken::EncodingKey::from_ed_pem(pair(Algorithm::EdDSA).private_pem.as_bytes()).unwrap();
        let signature =
            jsonwebtoken::crypto::sign(message.as_bytes(), &key, jsonwebtoken::Algorithm::EdDSA).unwrap();
        format!("{message}.{signature}")
    };
    let plain = json!({"alg": "EdDSA", "kid": kid});
    for claims in ["7", "[]", "\"x\"", "{", r#"{"sub":"a","sub":"b"}"#] {
        assert_eq!(verifier().verify_at(&sign(plain.clone(), claims), NOW), Err(Check::Form), "{claims}");
    }
    let critical = json!({"alg": "EdDSA", "kid": kid, "crit": ["exp"], "exp": 1});
    assert_eq!(verifier().verify_at(&sign(critical, &good().to_string()), NOW), Err(Check::Form));
}

#[test]
fn a_token_of_twenty_kilobytes_is_refused_unread() {
    let token = signer(Algorithm::EdDSA).sign(&with("filler", json!("x".repeat(15_000)))).unwrap();
    assert!(token.len() > 20_000);
    assert_eq!(verifier().verify_at(&token, NOW), Err(Check::Size));
}

#[test]
fn odd_scopes_are_refused_and_other_words_are_nobodys() {
    assert_eq!(judged(&with("scope", json!({"orders.write": true}))), Err(Check::Scopes));
    let verified = judged(&with("scope", json!(["openid", "orders.read"]))).unwrap();
    assert!(verified.caller.read("orders").is_ok() && verified.caller.write("orders").is_err());
}

#[test]
fn a_remembered_token_is_forgotten_with_the_keys_it_was_checked_with() {
    let verifier = verifier();
    let token = signer(Algorithm::EdDSA).sign(&good()).unwrap();
    assert!(verifier.verify_at(&token, NOW).is_ok());
    assert_eq!(verifier.remembered.lock().unwrap().tokens.len(), 1);

    verifier.keys.store(set(&[pair(Algorithm::ES256)]).load_full());

    assert_eq!(verifier.verify_at(&token, NOW), Err(Check::Key));
}

#[test]
fn no_more_tokens_are_remembered_than_there_is_room_for() {
    let verifier = verifier();
    let keys = verifier.keys.load_full();
    let known = judged(&good()).map(|verified| (verified, good_validity())).unwrap();
    for number in 0..MOST_REMEMBERED + 10 {
        let mut digest = [0; 32];
        digest[..8].copy_from_slice(&number.to_le_bytes());
        verifier.remember(&keys, digest, known.clone());
        assert!(verifier.remembered.lock().unwrap().tokens.len() <= MOST_REMEMBERED);
    }
}

fn good_validity() -> Validity {
    serde_json::from_value::<Claims>(good()).unwrap().read().unwrap().1
}

#[test]
fn a_bearer_token_is_one_word_after_its_scheme() {
    assert_eq!(bearer("Bearer abc"), Ok("abc"));
    assert_eq!(bearer("bearer  abc "), Ok("abc"));
    for bad in ["", "Bearer", "Bearer ", "Basic abc", "abc", "Bearer a b", "Bearerabc"] {
        assert_eq!(bearer(bad), Err(Check::Scheme), "{bad:?}");
    }
}
