//! A prepared transaction holds its ticket until it is decided, over a restart of PostgreSQL (design, section 3).

use holdfast_proto::v1::EventState;
use holdfast_server::dev::{Postgres, postgres};
use holdfast_tests::{
    client::event, folder, reconcile::reconcile, scene::Scene, services::PostgresAt, wait::LONG,
};

use super::expect_database_outage;
use crate::staging::gone;

#[tokio::test]
async fn a_prepared_transaction_is_open_until_it_is_decided() {
    let scene = Scene::start().await;
    let mut caller = scene.caller().await;
    let mut events = Vec::new();
    for gid in ["commits", "rolls_back"] {
        let ticket = caller.begin_with_ticket().await;
        events.push(event("order.placed"));
        scene.client.stage(ticket, &events[events.len() - 1..]).await;
        // Two databases of one server must not meet in a name: prepared transactions are the cluster's.
        caller.sql(&format!("PREPARE TRANSACTION '{gid}_{}'", scene.database.name())).await;
        scene.client.confirm(ticket).await;
    }

    let later = scene.marker(None).await;
    scene.client.wait_for_state(&later, EventState::Published).await;
    assert_eq!(reconcile(&scene.database, 3).await.unresolved, 2);

    caller.sql(&format!("COMMIT PREPARED 'commits_{}'", scene.database.name())).await;
    caller.sql(&format!("ROLLBACK PREPARED 'rolls_back_{}'", scene.database.name())).await;
    scene.client.wait_for_state(&events[0].id, EventState::Published).await;
    gone(&scene.client, &events[1].id).await;
    scene.end(3).await;
}

#[tokio::test]
async fn a_prepared_transaction_is_decided_after_an_immediate_shutdown() {
    let dir = folder::scratch();
    let mut server = Postgres::start(postgres::Options::new(dir.path())).await.unwrap();
    let scene = Scene::builder().on_postgres(PostgresAt { port: server.port() }).start().await;
    expect_database_outage(&scene.logs);
    let mut caller = scene.caller().await;
    let mut events = Vec::new();
    for gid in ["commits", "rolls_back"] {
        let ticket = caller.begin_with_ticket().await;
        events.push(event("order.placed"));
        scene.client.stage(ticket, &events[events.len() - 1..]).await;
        caller.sql(&format!("PREPARE TRANSACTION '{gid}'")).await;
    }

    server.kill_immediate().await.unwrap();
    server.start_again().await.unwrap();
    let marker = event("test.marker");
    holdfast_tests::wait::until("the server to stage again", LONG, || async {
        let mut caller = scene.caller().await;
        let ticket = caller.begin_with_ticket().await;
        let staged = scene.client.try_stage(ticket, std::slice::from_ref(&marker)).await;
        caller.commit().await;
        staged.map(drop)
    })
    .await;
    scene.client.wait_for_state(&marker.id, EventState::Published).await;
    assert_eq!(reconcile(&scene.database, 3).await.unresolved, 2);

    let mut caller = scene.caller().await;
    caller.sql("COMMIT PREPARED 'commits'").await;
    caller.sql("ROLLBACK PREPARED 'rolls_back'").await;
    scene.client.wait_for_state(&events[0].id, EventState::Published).await;
    gone(&scene.client, &events[1].id).await;
    let census = scene.end(3).await;
    assert_eq!(census.published, 2);
    drop(server);
}
