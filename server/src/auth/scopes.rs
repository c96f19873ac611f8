//! What a caller may do, as values that only a [`Caller`] can make.

use std::collections::BTreeSet;
use std::sync::Arc;

use holdfast_proto::envelope;
use serde_json::Value;

use super::Check;

/// A scope that a caller would need and does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the token lacks the scope {scope}")]
pub struct MissingScope {
    /// The scope's name, `orders.write` say.
    pub scope: String,
}

/// Somebody whose token was good. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    sub: Arc<str>,
    scopes: Scopes,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Scopes {
    /// These and no others.
    Exactly(Arc<BTreeSet<String>>),
    /// A development server asks for no token.
    Open,
}

/// The `sub` of whoever calls a server that asks for no token.
const OPEN_SUB: &str = "(no token: development server)";

impl Caller {
    pub(super) fn new(sub: &str, scopes: BTreeSet<String>) -> Self {
        Self { sub: sub.into(), scopes: Scopes::Exactly(Arc::new(scopes)) }
    }

    /// Whoever calls a server that asks for no token: may do everything. For `holdfast dev` alone.
    #[must_use]
    pub fn of_open_server() -> Self {
        Self { sub: OPEN_SUB.into(), scopes: Scopes::Open }
    }

    /// Who it is: the token's `sub`, at most 255 bytes without control characters.
    #[must_use]
    pub fn sub(&self) -> &str {
        &self.sub
    }

    fn has(&self, scope: String) -> Result<(), MissingScope> {
        match &self.scopes {
            Scopes::Exactly(scopes) if !scopes.contains(&scope) => Err(MissingScope { scope }),
            _ => Ok(()),
        }
    }

    fn of_service(&self, service: &str, right: &str) -> Result<Arc<str>, MissingScope> {
        let scope = format!("{service}.{right}");
        // `holdfast.admin` is the whole fleet's and no service's, `payload.read` likewise; and a name that is none could be
        // made to look like either. The front refuses such names first; this holds without it.
        let nobodys =
            envelope::service_name_problem(service).is_some() && service != envelope::BUILT_IN_SERVICE;
        if nobodys {
            return Err(MissingScope { scope });
        }
        self.has(scope).map(|()| service.into())
    }

    /// Proves that it may stage for a service: scope `{service}.write`.
    ///
    /// # Errors
    /// It may not.
    pub fn write(&self, service: &str) -> Result<WriteScope, MissingScope> {
        self.of_service(service, "write").map(|service| WriteScope { service })
    }

    /// Proves that it may look at a service: scope `{service}.read`.
    ///
    /// # Errors
    /// It may not.
    pub fn read(&self, service: &str) -> Result<ReadScope, MissingScope> {
        self.of_service(service, "read").map(|service| ReadScope { service })
    }

    /// Proves that it may operate a service: scope `{service}.admin`. `holdfast.admin` does not imply it.
    ///
    /// # Errors
    /// It may not.
    pub fn admin(&self, service: &str) -> Result<AdminScope, MissingScope> {
        self.of_service(service, "admin").map(|service| AdminScope { service })
    }

    /// Proves that it may see a service's payloads: `payload.read` together with the service's read scope.
    ///
    /// # Errors
    /// It may not.
    pub fn payload(&self, read: &ReadScope) -> Result<PayloadScope, MissingScope> {
        self.has("payload.read".to_owned()).map(|()| PayloadScope { service: read.service.clone() })
    }

    /// Proves that it may operate the fleet: scope `holdfast.admin`.
    ///
    /// # Errors
    /// It may not.
    pub fn fleet_admin(&self) -> Result<FleetAdmin, MissingScope> {
        self.has("holdfast.admin".to_owned()).map(|()| FleetAdmin(()))
    }
}

macro_rules! proof {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name {
            service: Arc<str>,
        }

        impl $name {
            /// The service it was proven for, and the only one that it is good for.
            #[must_use]
            pub fn service(&self) -> &str {
                &self.service
            }
        }
    };
}

proof! {
    /// Proof that a caller may stage for a service; made by [`Caller::write`] alone.
    WriteScope
}
proof! {
    /// Proof that a caller may look at a service; made by [`Caller::read`] alone.
    ReadScope
}
proof! {
    /// Proof that a caller may operate a service; made by [`Caller::admin`] alone.
    AdminScope
}
proof! {
    /// Proof that a caller may see a service's payloads; made by [`Caller::payload`] alone.
    PayloadScope
}

/// Proof that a caller may operate the fleet; made by [`Caller::fleet_admin`] alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetAdmin(());

/// The scopes of a token: `scope`, or, where there is none, `scp`. A string is split at spaces (RFC 6749), the words of a list
/// are taken as they are. Words are compared whole and exactly; one with anything else in it equals no scope of ours.
pub(super) fn of_claims(scope: Option<&Value>, scp: Option<&Value>) -> Result<BTreeSet<String>, Check> {
    let given = |claim: Option<&Value>| claim.filter(|value| !value.is_null()).cloned();
    match given(scope).or_else(|| given(scp)) {
        None => Ok(BTreeSet::new()),
        Some(Value::String(words)) => {
            Ok(words.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect())
        }
        Some(Value::Array(words)) => words
            .into_iter()
            .map(|word| match word {
                Value::String(word) => Ok(word),
                _ => Err(Check::Scopes),
            })
            .collect(),
        Some(_) => Err(Check::Scopes),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use serde_json::json;

    use super::*;

    fn caller(words: &[&str]) -> Caller {
        Caller::new("alice", words.iter().map(|word| (*word).to_owned()).collect())
    }

    fn of(scope: Value, scp: Value) -> Result<Vec<String>, Check> {
        of_claims(Some(&scope), Some(&scp)).map(|scopes| scopes.into_iter().collect())
    }

    #[test]
    fn scopes_are_a_string_or_a_list_of_words() {
        assert_eq!(of(json!("b.read  a.write"), Value::Null).unwrap(), ["a.write", "b.read"]);
        assert_eq!(of(json!(["b.read", "a.write"]), Value::Null).unwrap(), ["a.write", "b.read"]);
        assert_eq!(of(Value::Null, json!("a.write")).unwrap(), ["a.write"]);
        assert_eq!(of(Value::Null, json!(["a.write"])).unwrap(), ["a.write"]);
        assert_eq!(of(json!(""), Value::Null).unwrap(), [""; 0]);
        assert_eq!(of_claims(None, None).unwrap(), BTreeSet::new());
    }

    #[test]
    fn scope_wins_over_scp_even_when_it_is_empty() {
        assert_eq!(of(json!(""), json!("a.write")).unwrap(), [""; 0]);
        assert_eq!(of(json!([]), json!("a.write")).unwrap(), [""; 0]);
    }

    #[test]
    fn odd_shapes_are_refused() {
        for odd in
            [json!(7), json!(true), json!({"a.write": true}), json!(["a.write", 7]), json!([["a.write"]])]
        {
            assert_eq!(of(odd.clone(), Value::Null), Err(Check::Scopes), "{odd}");
            assert_eq!(of(Value::Null, odd.clone()), Err(Check::Scopes), "scp {odd}");
        }
    }

    #[test]
    fn words_that_only_resemble_a_scope_are_none() {
        let odd = of_claims(
            Some(&json!([
                "orders.write billing.write",
                "Orders.write",
                "orders.write\t",
                " orders.write",
                "orders.*",
                "*",
                "orders.",
                "xorders.write",
                "orders.writes"
            ])),
            None,
        );
        let odd = Caller::new("alice", odd.unwrap());
        assert_eq!(odd.write("orders").unwrap_err().scope, "orders.write");
        let tabs = Caller::new("alice", of_claims(Some(&json!("x\torders.write\nx")), None).unwrap());
        assert!(tabs.write("orders").is_err());
    }

    #[test]
    fn a_proof_is_good_for_its_service_and_its_right_alone() {
        let alice = caller(&["orders.write", "orders.read", "billing.admin"]);
        assert_eq!(alice.write("orders").unwrap().service(), "orders");
        assert_eq!(alice.read("orders").unwrap().service(), "orders");
        assert_eq!(alice.admin("billing").unwrap().service(), "billing");
        for missing in [
            alice.write("billing").unwrap_err(),
            alice.admin("orders").unwrap_err(),
            alice.fleet_admin().unwrap_err(),
            alice.payload(&alice.read("orders").unwrap()).unwrap_err(),
        ] {
            assert!(
                ["billing.write", "orders.admin", "holdfast.admin", "payload.read"]
                    .contains(&missing.scope.as_str()),
                "{missing}"
            );
        }
        let reader = caller(&["orders.read", "payload.read"]);
        assert_eq!(reader.payload(&reader.read("orders").unwrap()).unwrap().service(), "orders");
    }

    #[test]
    fn the_fleets_scopes_are_no_services() {
        let all = caller(&["holdfast.admin", "payload.read", "a.b.write", ".write"]);
        assert!(all.fleet_admin().is_ok());
        assert!(all.admin("holdfast").is_err());
        assert!(all.read("payload").is_err());
        assert!(all.write("a.b").is_err());
        assert!(all.write("").is_err());
        assert!(all.admin("orders").is_err(), "holdfast.admin is no service's");
        let own = caller(&["holdfast-control.admin"]);
        assert!(
            own.admin(envelope::BUILT_IN_SERVICE).is_ok(),
            "the control database's outbox has an operator, too"
        );
        assert!(Caller::of_open_server().admin("holdfast").is_err());
        assert!(Caller::of_open_server().write("orders").is_ok());
    }
}
