//! Settings that cannot be right are refused by their name, before anything is connected.

use std::time::Duration;

use holdfast_client::token::Token;
use holdfast_client::{BuildError, Builder, Holdfast};

use crate::Outcome;
use crate::tls::Authority;

fn at(endpoint: &str) -> Builder {
    Holdfast::builder().endpoint(endpoint)
}

#[tokio::test]
async fn every_refusal_begins_with_the_setting_s_name() -> Outcome {
    let authority = Authority::new()?;
    let (certificate, key) = authority.issue("client")?;
    let (other, _) = authority.issue("other")?;
    let https = || at("https://localhost:1");
    let zero = Duration::ZERO;
    let second = Duration::from_secs(1);
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for (builder, begins) in [
        (Holdfast::builder(), "endpoint: none"),
        (at(""), "endpoint \"\": "),
        (at("localhost:50551"), "endpoint \"localhost:50551\": "),
        (at("amqp://localhost:1"), "endpoint \"amqp://localhost:1\": must begin"),
        (at("http://localhost:1/path"), "endpoint \"http://localhost:1/path\": must end"),
        (at("http://localhost:1?a=b"), "endpoint \"http://localhost:1?a=b\": must end"),
        (at("http://localhost:0"), "endpoint \"http://localhost:0\": "),
        (at("http://user:hidden@localhost:1"), "endpoint \"localhost\": must not have a user"),
        (at("http://user:hidden@local host:1"), "endpoint \"local host:1\": is no URI"),
        (at("http://a:1").endpoint("https://b:1"), "endpoint: all must"),
        (at("http://a:1").ca_pem(authority.pem()), "ca_pem: has no meaning"),
        (at("http://a:1").native_roots(), "native_roots: has no meaning"),
        (at("http://a:1").client_certificate("", ""), "client_certificate: has no meaning"),
        (at("http://a:1").domain("a"), "domain: has no meaning"),
        (https().ca_pem(""), "ca_pem: there is no certificate"),
        (https().ca_pem(broken), "ca_pem: "),
        (https().ca_pem(authority.pem()).ca_pem("no PEM"), "ca_pem: there is no certificate"),
        (https().ca_pem(authority.pem()).client_certificate("", &*key), "client_certificate: there is no"),
        (https().ca_pem(authority.pem()).client_certificate(&*certificate, ""), "client_certificate's key: "),
        (
            https().ca_pem(authority.pem()).client_certificate(other, &*key),
            "client_certificate's key: it cannot",
        ),
        (https().ca_pem(authority.pem()).domain("not a name"), "domain \"not a name\": "),
        (at("http://10.0.0.1:1").token(Token::new("hidden")?), "token: \"10.0.0.1\" is another machine"),
        (at("http://localhost.example:1").token(Token::new("hidden")?), "token: "),
        (https().ca_pem(authority.pem()).deadline(zero), "deadline: "),
        (https().ca_pem(authority.pem()).hint_deadline(zero), "hint_deadline: "),
        (https().ca_pem(authority.pem()).connect_timeout(zero), "connect_timeout: "),
        (https().ca_pem(authority.pem()).keep_alive(second, zero), "keep_alive: "),
    ] {
        let Err(error) = builder.build() else { return Err(format!("was built: {begins}").into()) };
        let said = error.to_string();
        assert!(said.starts_with(begins), "{said:?} begins with {begins:?}");
        assert!(!format!("{said} {error:?}").contains("hidden"), "{error:?}");
    }
    Ok(())
}

#[tokio::test]
async fn what_can_be_right_is_built_without_a_server() -> Outcome {
    let authority = Authority::new()?;
    let (certificate, key) = authority.issue("client")?;
    let token = || Token::new("t");
    for builder in [
        at("http://a.example"),
        at("http://[::1]:1/").token(token()?),
        at("http://127.1.2.3:1").token(token()?),
        at("http://LOCALHOST:1").token(token()?),
        at("http://10.0.0.1:1").token(token()?).allow_token_in_clear_text(),
        at("https://10.0.0.1:1").token(token()?).ca_pem(authority.pem()),
        at("https://a:1").endpoint("https://b:1").ca_pem(authority.pem()).domain("c"),
        at("https://a:1").ca_pem(authority.pem()).client_certificate(certificate, key),
    ] {
        let shown = format!("{builder:?}");
        builder.build().map_err(|error| format!("{shown}: {error}"))?;
    }
    Ok(())
}

#[test]
fn outside_of_a_runtime_nothing_is_built_and_nothing_panics() {
    assert!(matches!(at("http://localhost:1").build(), Err(BuildError::NoRuntime)));
}
