//! Keys change under a running server.

use std::{fs, path::PathBuf, time::Duration};

use holdfast_server::auth::{Algorithm, Generated, Order, PrivateKey, generate};
use holdfast_tests::{
    auth::AUDIENCE,
    client::{Client, event},
    folder,
    scene::{SERVICE, Scene},
    wait::{self, LONG},
};
use tempfile::TempDir;
use tonic::Code;

/// A key that was taken away is refused after this at the latest; a look at the files and some patience.
const REFUSED_AFTER: Duration = Duration::from_secs(10);

struct Keys(TempDir);

impl Keys {
    fn put(&self, pair: &Generated) -> PathBuf {
        let path = self.0.path().join(format!("{}.pem", pair.kid));
        fs::write(&path, &pair.public_pem).unwrap();
        path
    }

    async fn server(&self) -> Scene {
        let pattern = self.0.path().join("*.pem").display().to_string();
        Scene::builder().set("auth", "keys", &format!("[{pattern:?}]")).start().await
    }
}

fn client(scene: &Scene, pair: &Generated) -> Client {
    let key = PrivateKey::parse(&pair.kid, pair.private_pem.as_bytes()).unwrap();
    let (ttl, scope) = (Duration::from_secs(600), "orders.read");
    let token = key.mint(&Order { sub: "alice", audience: AUDIENCE, issuer: None, scope, ttl }).unwrap();
    Client::with_token(scene.server.address(), SERVICE, &token)
}

/// NOT_FOUND for a caller that is let in.
async fn judged(client: &Client) -> Code {
    client.get(&event("").id).await.unwrap_err().code()
}

async fn becomes(client: &Client, code: Code) {
    wait::until_equal("what a key's caller is told", REFUSED_AFTER, code, || judged(client)).await;
}

#[tokio::test]
async fn a_new_key_is_taken_beside_the_old_one_and_the_one_taken_away_is_refused() {
    let (old, new) = (generate(Algorithm::EdDSA).unwrap(), generate(Algorithm::ES256).unwrap());
    let keys = Keys(folder::scratch());
    let old_file = keys.put(&old);
    let scene = keys.server().await;
    let (with_old, with_new) = (client(&scene, &old), client(&scene, &new));
    assert_eq!((judged(&with_old).await, judged(&with_new).await), (Code::NotFound, Code::Unauthenticated));

    keys.put(&new);
    becomes(&with_new, Code::NotFound).await;
    assert_eq!(judged(&with_old).await, Code::NotFound, "both live");

    fs::remove_file(old_file).unwrap();
    becomes(&with_old, Code::Unauthenticated).await;
    assert_eq!(judged(&with_new).await, Code::NotFound);
    assert!((scene.server.metric("holdfast_auth_keys", "") - 1.0).abs() < 0.5);
    scene.end(0).await;
}

#[tokio::test]
async fn a_file_that_breaks_keeps_its_key_in_force_and_is_said_once() {
    let pair = generate(Algorithm::EdDSA).unwrap();
    let keys = Keys(folder::scratch());
    let file = keys.put(&pair);
    let scene = keys.server().await;
    let caller = client(&scene, &pair);
    assert!((scene.server.metric("holdfast_auth_key_files_good", "") - 1.0).abs() < 0.5);

    scene.logs.expect("a key file cannot be used");
    fs::write(&file, "half of a ke").unwrap();
    scene.logs.wait_for("a key file cannot be used").await;
    wait::until_equal("the gauge", LONG, 0, || async {
        scene.server.metric("holdfast_auth_key_files_good", "") as i64
    })
    .await;
    assert_eq!(judged(&caller).await, Code::NotFound);

    // More looks at the same file say nothing more: a key that is added is seen by a later one.
    keys.put(&generate(Algorithm::EdDSA).unwrap());
    wait::until_equal("keys", LONG, 2, || async { scene.server.metric("holdfast_auth_keys", "") as i64 })
        .await;
    assert_eq!(scene.logs.with("a key file cannot be used").len(), 1);

    keys.put(&pair);
    scene.logs.wait_for("the key files are good again").await;
    wait::until_equal("the gauge", LONG, 1, || async {
        scene.server.metric("holdfast_auth_key_files_good", "") as i64
    })
    .await;
    assert_eq!(judged(&caller).await, Code::NotFound);
    scene.end(0).await;
}
