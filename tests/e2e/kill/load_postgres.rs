//! PostgreSQL shut down at once under a steady load, three times (design, section 15, invariant 1; section 3, "12
//! immediate shutdowns … 17,193 commits, none without its stage").

use holdfast_tests::{folder, services::PostgresAt};

use super::{
    load::Load,
    postgres::{AWAY, start},
    stand::{Setup, Stand},
};

#[tokio::test]
async fn immediate_shutdowns_under_load_lose_no_acknowledged_commit() {
    let folder = folder::scratch();
    let mut postgres = start(folder.path()).await;
    let setup = Setup { postgres: PostgresAt { port: postgres.port() }, ..Setup::shared(true) };
    let stand = Stand::start_both(setup).await;
    AWAY.iter().for_each(|line| stand.logs.expect(line));
    let load = Load::start(&stand);
    for _ in 0..3 {
        load.commits(60).await;
        postgres.kill_immediate().await.unwrap();
        postgres.start_again().await.unwrap();
    }
    load.commits(60).await;
    load.end(stand.place()).await.hold(&stand, false).await;
    stand.end().await;
}
