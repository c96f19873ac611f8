//! A service's database that refuses writes (25006, or its like on a standby): a standby, and a fail-over that leaves
//! connections to the old server open.

use std::{fs, path::Path, process::Command};

use holdfast_server::dev::{Postgres, postgres};
use holdfast_tests::{
    database::connect,
    folder,
    scene::Scene,
    services::PostgresAt,
    wait::{self, LONG},
};
use sqlx::Connection as _;

use super::{BILLING, ITS_LINES, Neighbour, assert_unavailable, delivered, others_flow, refusal};

fn options(dir: &Path) -> postgres::Options {
    postgres::Options::new(dir).setting("fsync = off")
}

/// The next start is a standby's: it reads, and refuses writes until it is promoted.
fn demote(dir: &Path) {
    fs::write(dir.join("data/standby.signal"), "").unwrap();
}

async fn promote(at: PostgresAt) {
    let mut admin = connect(&at.url("postgres")).await;
    sqlx::query("SELECT pg_promote()").execute(&mut admin).await.unwrap();
    admin.close().await.unwrap();
}

#[tokio::test]
async fn a_read_only_database_leaves_the_others_flowing_and_comes_back_when_it_is_promoted() {
    let dir = folder::scratch();
    let mut server = Postgres::start(options(dir.path())).await.unwrap();
    let at = PostgresAt { port: server.port() };
    let mut stage = Scene::builder().stage().await;
    let ill = Neighbour::on(at).await;
    stage.config.service(BILLING, &ill.database.url_through(ill.proxy.port()));
    stage.logs.expect(ITS_LINES);
    let waiting = ill.put().await;
    server.stop().await.unwrap();
    demote(dir.path());
    server.start_again().await.unwrap();
    let scene = stage.start().await;
    scene.logs.wait_for("service database cannot be drained").await;

    let staged = others_flow(&scene).await;

    assert_unavailable(&refusal(&scene).await, "DATABASE_READ_ONLY");
    assert!(!delivered(&scene, &waiting));
    promote(at).await;
    scene.consumer.wait_for_ids(&[waiting], LONG).await;
    ill.works(&scene).await;

    // And again, while the server runs.
    server.stop().await.unwrap();
    demote(dir.path());
    server.start_again().await.unwrap();
    wait::until("a refusal", LONG, || async {
        let status = refusal(&scene).await;
        if status.message().contains("refuses writes") { Ok(()) } else { Err(status) }
    })
    .await;
    let staged = staged + others_flow(&scene).await;
    promote(at).await;
    ill.works(&scene).await;
    scene.end(staged).await;
}

#[tokio::test]
async fn after_a_fail_over_no_connection_stays_with_the_old_server() {
    let (old_dir, new_dir) = (folder::scratch(), folder::scratch());
    let mut new = Postgres::start(options(new_dir.path())).await.unwrap();
    let mut stage = Scene::builder().stage().await;
    let ill = Neighbour::on(PostgresAt { port: new.port() }).await;
    // The old server is a copy that has become a standby.
    new.stop().await.unwrap();
    let copied = Command::new("cp").arg("-a").arg(new_dir.path().join("data")).arg(old_dir.path()).status();
    assert!(copied.unwrap().success());
    demote(old_dir.path());
    let old = Postgres::start(options(old_dir.path())).await.unwrap();
    new.start_again().await.unwrap();
    stage.config.service(BILLING, &ill.database.url_through(ill.proxy.port()));
    stage.logs.expect(ITS_LINES);
    ill.proxy.lead_to(old.port());
    let scene = stage.start().await;
    scene.logs.wait_for("service database cannot be drained").await;
    // Who only reads is not content with it either: a standby would answer for ever that there is nothing to do.
    scene.logs.wait_for("error=the database is a standby").await;
    let at_old = || async {
        let mut look = connect(&old.url("postgres")).await;
        let here: i64 =
            sqlx::query_scalar("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'holdfast'")
                .fetch_one(&mut look)
                .await
                .unwrap();
        look.close().await.unwrap();
        here
    };

    // The name leads elsewhere now, and nobody closes what is open.
    ill.proxy.lead_to(new.port());

    wait::until_equal("connections to the old server", LONG, 0, at_old).await;
    let waiting = ill.put().await;
    scene.consumer.wait_for_ids(&[waiting], LONG).await;
    ill.works(&scene).await;
    let staged = others_flow(&scene).await;
    scene.end(staged).await;
}
