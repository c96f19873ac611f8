//! `holdfast token`: keys and tokens without a server.

use std::{os::unix::fs::PermissionsExt as _, path::Path, process::Output};

use holdfast_server::auth::{Algorithm, Expectations, KeyFiles, Verifier};
use holdfast_tests::{folder, server};
use tokio::process::Command;

async fn holdfast(arguments: &[&str]) -> Output {
    let mut command = Command::new(server::binary());
    command.arg("token").args(arguments).kill_on_drop(true).output().await.unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The two files of a folder: the one that signs and the one that the server reads.
fn files(folder: &Path) -> (String, String) {
    let of = |extension: &str| {
        let mut found = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        found.find(|path| path.extension().is_some_and(|own| own == extension)).unwrap().display().to_string()
    };
    (of("key"), of("pem"))
}

#[tokio::test]
async fn a_key_of_each_algorithm_mints_tokens_that_its_public_half_verifies() {
    for algorithm in ["EdDSA", "ES256", "RS256"] {
        let folder = folder::scratch();
        let out = folder.path().display().to_string();
        let made = holdfast(&["keygen", "--out", &out, "--alg", algorithm]).await;
        assert!(made.status.success(), "{}", text(&made.stderr));
        let (private, public) = files(folder.path());
        assert!(text(&made.stdout).contains(&private) && text(&made.stdout).contains(&public));
        assert_eq!(std::fs::metadata(&private).unwrap().permissions().mode() & 0o777, 0o600);

        let minted = holdfast(&[
            "mint",
            "--key",
            &private,
            "--sub",
            "alice",
            "--scope",
            "orders.write orders.read",
            "--ttl",
            "5m",
            "--iss",
            "me",
        ])
        .await;

        assert!(minted.status.success(), "{}", text(&minted.stderr));
        let token = text(&minted.stdout);
        let keys = KeyFiles::open(&[format!("{out}/*.pem")], &Algorithm::ALL).unwrap();
        let expected = Expectations { audience: vec!["holdfast".into()], issuer: Some("me".into()) };
        let verified = Verifier::new(keys.current(), expected).verify(token.trim_end()).unwrap();
        assert_eq!(verified.caller.sub(), "alice");
        assert!(verified.caller.write("orders").is_ok() && verified.caller.admin("orders").is_err());
    }
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_by_name_and_prints_no_token() {
    let folder = folder::scratch();
    let out = folder.path().display().to_string();
    holdfast(&["keygen", "--out", &out]).await;
    let (private, public) = files(folder.path());
    let secret = std::fs::read_to_string(&private).unwrap().lines().nth(1).unwrap().to_owned();
    for (arguments, what) in [
        (vec!["mint", "--key", &private, "--sub", "a", "--scope", "orders"], "scope"),
        (vec!["mint", "--key", &private, "--sub", " ", "--scope", "orders.read"], "sub"),
        (vec!["mint", "--key", &private, "--sub", "a", "--scope", "orders.read", "--ttl", "500d"], "ttl"),
        (vec!["mint", "--key", &public, "--sub", "a", "--scope", "orders.read"], "private key"),
        (vec!["mint", "--key", "/nowhere.key", "--sub", "a", "--scope", "orders.read"], "/nowhere.key"),
        (vec!["keygen", "--out", &private], "holdfast: "),
        (vec!["keygen", "--out", &out, "--alg", "HS256"], "EdDSA, ES256 or RS256"),
    ] {
        let refused = holdfast(&arguments).await;
        let said = text(&refused.stderr);
        assert!(!refused.status.success() && said.contains(what), "{arguments:?}: {said}");
        assert!(refused.stdout.is_empty() && !said.contains(&secret), "{arguments:?}: {said}");
    }
}
