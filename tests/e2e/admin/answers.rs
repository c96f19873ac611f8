//! What a run says when it could not do it, and by which exit code; and whom it goes to.

use holdfast_tests::{
    auth, folder,
    scene::Scene,
    terminal::{Terminal, run},
    tls::Authority,
};
use tokio::net::TcpListener;

#[tokio::test]
async fn who_has_no_token_or_not_the_scope_is_told_what_is_missing_and_gets_3() {
    let scene = Scene::start().await;
    let address = scene.server.address();

    let nobody = Terminal::nobody(address).admin(&["holds", "orders"]).await;
    assert_eq!((nobody.code, nobody.out.as_str()), (3, ""), "{nobody:?}");
    assert!(nobody.err.contains("UNAUTHENTICATED") && nobody.err.contains("request "), "{nobody:?}");
    let weak = Terminal::with_token(address, &auth::token("billing.admin")).admin(&["holds", "orders"]).await;
    assert_eq!(weak.code, 3, "{weak:?}");
    assert!(weak.err.contains("SCOPE_MISSING") && weak.err.contains("orders.read"), "{weak:?}");
    scene.end(0).await;
}

#[tokio::test]
async fn a_wrong_question_gets_2_and_names_the_field() {
    let scene = Scene::start().await;
    let terminal = Terminal::at(scene.server.address());

    let id = terminal.admin(&["event", "orders", "4711"]).await;
    assert_eq!(id.code, 2, "{id:?}");
    assert!(id.err.contains("\n  id: "), "{id:?}");
    let unknown = terminal.admin(&["event", "orders", "0198c2a5-7d1e-7c43-9d0c-2f6f0f0c9a11"]).await;
    assert_eq!(unknown.code, 2, "{unknown:?}");
    assert!(unknown.err.contains("EVENT_NOT_FOUND"), "{unknown:?}");
    for wrong in [
        vec!["frobnicate"],
        vec!["retry", "orders"],
        vec!["retry", "orders", "0198c2a5-7d1e-7c43-9d0c-2f6f0f0c9a11", "--all"],
        vec!["discard", "orders", "--all"],
        vec!["pause", "orders"],
        vec!["audit", "--from", "yesterday"],
    ] {
        let said = terminal.admin(&wrong).await;
        assert_eq!((said.code, said.out.as_str()), (2, ""), "{wrong:?}: {said:?}");
    }
    scene.end(0).await;
}

#[tokio::test]
async fn a_server_that_is_not_there_or_does_not_answer_gets_1_and_what_may_have_been_done_is_said() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let terminal = Terminal::nobody(silent.local_addr().unwrap());

    let late = terminal.admin(&["services", "--timeout", "300ms"]).await;
    assert_eq!(late.code, 1, "{late:?}");
    assert!(late.err.contains("no answer within 300ms"), "{late:?}");

    drop(silent);
    let away = terminal.admin(&["services"]).await;
    assert_eq!(away.code, 1, "{away:?}");
    assert!(away.err.contains("no connection, so nothing was done: Connection refused"), "{away:?}");
}

#[tokio::test]
async fn a_token_does_not_travel_in_clear_text_and_goes_over_tls_as_does_the_probe() {
    let (authority, folder) = (Authority::new(), folder::scratch());
    let (certificate, key) = authority.issue();
    let path = |name: &str| folder.path().join(name).display().to_string();
    for (name, text) in [("tls.crt", &certificate), ("tls.key", &key), ("ca.crt", &authority.pem())] {
        std::fs::write(path(name), text).unwrap();
    }
    let scene = Scene::builder()
        .set("tls", "certificate_file", &format!("{:?}", path("tls.crt")))
        .set("tls", "key_file", &format!("{:?}", path("tls.key")))
        .start()
        .await;
    let mut terminal = Terminal::at(scene.server.address());
    let token = path("token");
    std::fs::write(&token, auth::token("orders.read")).unwrap();

    let clear = terminal.admin(&["services", "--address", "http://192.0.2.1:50551"]).await;
    assert_eq!(clear.code, 1, "{clear:?}");
    assert!(clear.err.contains("clear text"), "{clear:?}");

    terminal.address = format!("https://localhost:{}", scene.server.address().port());
    let ca = path("ca.crt");
    let listed = terminal.does(&["services", "--ca", &ca]).await;
    assert!(listed.contains("orders"), "{listed}");
    let from_file = terminal.admin(&["--ca", &ca, "--token-file", &token, "audit", "orders"]).await;
    assert_eq!(from_file.code, 3, "the file's token counts, not the variable's: {from_file:?}");
    let unknown = terminal.admin(&["services"]).await;
    assert_eq!(unknown.code, 1, "{unknown:?}");
    assert!(unknown.err.contains("certificate"), "{unknown:?}");
    let probe = run(&mut terminal.command(&["probe", "--ca", &ca])).await;
    assert_eq!((probe.code, probe.out.as_str()), (0, "readiness: SERVING\n"), "{probe:?}");
    scene.end(0).await;
}
