//! TLS and client certificates.

use std::{fs, net::SocketAddr, path::Path};

use holdfast_client::{Builder, Code, Holdfast, outbox::Outbox, token::Token};
use holdfast_tests::{
    auth,
    client::event,
    folder,
    scene::{SERVICE, Scene},
    tls::Authority,
    wait::{self, LONG},
};

/// What a call is told whose connection the server has ended: before it was sent, or when it was on its way.
const LOST: [Code; 2] = [Code::Unavailable, Code::Unknown];

fn put(folder: &Path, name: &str, content: &str) -> String {
    fs::write(folder.join(name), content).unwrap();
    format!("{:?}", folder.join(name).display().to_string())
}

/// A client that trusts this authority.
fn trusting(authority: &Authority, address: SocketAddr) -> Builder {
    let token = Token::new(auth::token(&auth::all_of(SERVICE))).unwrap();
    Holdfast::builder()
        .endpoint(format!("https://localhost:{}", address.port()))
        .ca_pem(authority.pem())
        .token(token)
}

fn orders(builder: Builder) -> Outbox {
    builder.build().unwrap().outbox(SERVICE).unwrap()
}

fn placed() -> holdfast_client::outbox::EventBuilder {
    holdfast_client::outbox::event("order.placed")
}

#[tokio::test]
async fn a_listener_with_a_certificate_is_open_to_others_and_takes_no_plain_calls() {
    let (authority, folder) = (Authority::new(), folder::scratch());
    let (certificate, key) = authority.issue();
    let scene = Scene::builder()
        .set("", "listen", "\"0.0.0.0:0\"")
        .set("tls", "certificate_file", &put(folder.path(), "tls.crt", &certificate))
        .set("tls", "key_file", &put(folder.path(), "tls.key", &key))
        .start()
        .await;
    let address = scene.server.address();

    let staged = orders(trusting(&authority, address)).stage_now([placed()]).await;

    assert!(staged.is_ok(), "{staged:?}");
    let plain = scene.client.try_stage_now(&[event("order.placed")]).await.unwrap_err();
    assert!(LOST.contains(&plain.code()), "{plain:?}");
    let stranger = orders(trusting(&Authority::new(), address)).stage_now([placed()]).await;
    assert_eq!(stranger.unwrap_err().code(), Code::Unavailable);
    scene.end(1).await;
}

#[tokio::test]
async fn with_client_certificates_asked_for_a_token_alone_does_not_do_and_a_certificate_alone_neither() {
    let (authority, folder) = (Authority::new(), folder::scratch());
    let (certificate, key) = authority.issue();
    let scene = Scene::builder()
        .set("tls", "certificate_file", &put(folder.path(), "tls.crt", &certificate))
        .set("tls", "key_file", &put(folder.path(), "tls.key", &key))
        .set("tls", "client_ca_file", &put(folder.path(), "clients.crt", &authority.pem()))
        .start()
        .await;
    let address = scene.server.address();
    let (own, own_key) = authority.issue();
    let (foreign, foreign_key) = Authority::new().issue();

    let both = orders(trusting(&authority, address).client_certificate(own.clone(), own_key.clone()));
    wait::until("a call with certificate and token", LONG, || both.stage_now([placed()])).await;

    let bare = orders(trusting(&authority, address)).stage_now([placed()]).await;
    assert!(LOST.contains(&bare.unwrap_err().code()));
    let other = trusting(&authority, address).client_certificate(foreign, foreign_key);
    assert!(LOST.contains(&orders(other).stage_now([placed()]).await.unwrap_err().code()));
    let tokenless = Holdfast::builder()
        .endpoint(format!("https://localhost:{}", address.port()))
        .ca_pem(authority.pem())
        .client_certificate(own, own_key);
    assert_eq!(orders(tokenless).stage_now([placed()]).await.unwrap_err().code(), Code::Unauthenticated);
    scene.end(1).await;
}

#[tokio::test]
async fn a_connection_that_never_shakes_hands_does_not_keep_the_server_from_stopping() {
    let (authority, folder) = (Authority::new(), folder::scratch());
    let (certificate, key) = authority.issue();
    let scene = Scene::builder()
        .set("tls", "certificate_file", &put(folder.path(), "tls.crt", &certificate))
        .set("tls", "key_file", &put(folder.path(), "tls.key", &key))
        .start()
        .await;
    let silent = tokio::net::TcpStream::connect(scene.server.address()).await.unwrap();

    tokio::time::timeout(std::time::Duration::from_secs(20), scene.end_as_it_is()).await.unwrap();

    drop(silent);
}
