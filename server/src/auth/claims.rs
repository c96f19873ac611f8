//! The claims of a token whose signature is good.

use serde::Deserialize;
use serde_json::Value;

use super::{Caller, Check, scopes};

/// How far the clocks of who signed and who checks may be apart.
pub(super) const LEEWAY_SECONDS: f64 = 30.0;
/// As long as a `sub` may be; it is written into the audit.
const MAX_SUB_BYTES: usize = 255;

/// What we look at ourselves; audience and issuer are the library's to judge. Whatever shape a claim has, it is read: which one
/// is wrong must be known.
#[derive(Debug, Deserialize)]
pub(super) struct Claims {
    exp: Option<Value>,
    nbf: Option<Value>,
    sub: Option<Value>,
    iss: Option<Value>,
    scope: Option<Value>,
    scp: Option<Value>,
}

/// When a token is good, in seconds of the epoch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Validity {
    expires: f64,
    not_before: Option<f64>,
}

impl Validity {
    /// Whether it is good at this time, give or take the leeway.
    pub(super) fn check(self, now: f64) -> Result<(), Check> {
        if now - LEEWAY_SECONDS >= self.expires {
            return Err(Check::Expiry);
        }
        if self.not_before.is_some_and(|from| now + LEEWAY_SECONDS < from) {
            return Err(Check::NotBefore);
        }
        Ok(())
    }
}

impl Claims {
    /// Who it is, and from when until when.
    pub(super) fn read(&self) -> Result<(Caller, Validity), Check> {
        let expires = self.exp.as_ref().and_then(seconds).ok_or(Check::Expiry)?;
        let not_before = match &self.nbf {
            None => None,
            Some(nbf) => Some(seconds(nbf).ok_or(Check::NotBefore)?),
        };
        // The library takes a list of issuers for its members; a token has one.
        if self.iss.as_ref().is_some_and(|iss| !iss.is_string()) {
            return Err(Check::Issuer);
        }
        let sub = self.sub.as_ref().and_then(Value::as_str).ok_or(Check::Subject)?;
        if sub.trim().is_empty() || sub.len() > MAX_SUB_BYTES || sub.chars().any(char::is_control) {
            return Err(Check::Subject);
        }
        let scopes = scopes::of_claims(self.scope.as_ref(), self.scp.as_ref())?;
        Ok((Caller::new(sub, scopes), Validity { expires, not_before }))
    }
}

/// A NumericDate: seconds, with a fraction where the issuer likes it. (The library, whose numbers are integers here, would
/// refuse a fraction: it does not know this build's `arbitrary_precision`.)
fn seconds(value: &Value) -> Option<f64> {
    value.as_number().and_then(serde_json::Number::as_f64).filter(|seconds| seconds.is_finite())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use serde_json::json;

    use super::*;

    fn read(claims: Value) -> Result<(Caller, Validity), Check> {
        serde_json::from_str::<Claims>(&claims.to_string()).unwrap().read()
    }

    #[test]
    fn a_token_is_good_from_nbf_to_exp_give_or_take_thirty_seconds() {
        let (_, validity) = read(json!({"sub": "a", "exp": 2000, "nbf": 1000})).unwrap();
        for (now, judged) in [
            (969.0, Err(Check::NotBefore)),
            (970.0, Ok(())),
            (1500.0, Ok(())),
            (2029.0, Ok(())),
            (2030.0, Err(Check::Expiry)),
        ] {
            assert_eq!(validity.check(now), judged, "{now}");
        }
    }

    #[test]
    fn a_time_may_have_a_fraction_and_must_be_a_number() {
        let text = r#"{"sub":"a","exp":1.5e9,"nbf":1000.25}"#;
        let (_, validity) = serde_json::from_str::<Claims>(text).unwrap().read().unwrap();
        assert_eq!(validity, Validity { expires: 1.5e9, not_before: Some(1000.25) });
        for exp in [json!("2000"), json!(null), json!([2000]), json!({})] {
            assert_eq!(read(json!({"sub": "a", "exp": exp})), Err(Check::Expiry));
        }
        assert_eq!(read(json!({"sub": "a"})), Err(Check::Expiry));
        assert_eq!(read(json!({"sub": "a", "exp": 2000, "nbf": "1000"})), Err(Check::NotBefore));
        let beyond = r#"{"sub":"a","exp":1e999}"#;
        assert_eq!(serde_json::from_str::<Claims>(beyond).unwrap().read(), Err(Check::Expiry));
    }

    #[test]
    fn a_subject_is_a_name_that_can_be_written_down() {
        for sub in [
            json!(null),
            json!(""),
            json!("  "),
            json!(7),
            json!(["a"]),
            json!("a\u{0}b"),
            json!("a\nb"),
            json!("x".repeat(256)),
        ] {
            assert_eq!(read(json!({"sub": sub, "exp": 2000})), Err(Check::Subject), "{sub}");
        }
        let (caller, _) =
            read(json!({"sub": "svc:orders@prod", "exp": 2000, "scope": "orders.write"})).unwrap();
        assert_eq!(caller.sub(), "svc:orders@prod");
        assert!(caller.write("orders").is_ok());
    }

    #[test]
    fn an_issuer_is_one() {
        assert_eq!(read(json!({"sub": "a", "exp": 2000, "iss": ["me", "other"]})), Err(Check::Issuer));
    }
}
