//! Whole servers: their cadence, what they tell, and a database in trouble.

use holdfast_tests::{
    client::event,
    health::Health,
    reconcile::reconcile,
    scene::Scene,
    server::ServerInProcess,
    wait::{self, LONG},
};

use super::{count, put_published};

const SUCCESS: &str = "holdfast_retention_last_success_timestamp_seconds";
const ORDERS: &str = "service=\"orders\"";

#[tokio::test]
async fn three_replicas_make_one_cycle_an_interval_together() {
    let scene = Scene::builder().set("retention", "interval", "\"1s\"").start().await;
    let more = [ServerInProcess::start(&scene.config).await, ServerInProcess::start(&scene.config).await];

    let mut starts: Vec<f64> = Vec::new();
    while starts.len() < 6 {
        let last = starts.last().copied().unwrap_or_default();
        let next = wait::until("the next cycle", LONG, || async {
            let started: Option<f64> = scene
                .database
                .one("SELECT max(extract(epoch FROM started_at))::float8 FROM holdfast.retention_cycle")
                .await;
            started.filter(|started| *started > last).ok_or("none yet")
        })
        .await;
        starts.push(next);
    }

    let gaps: Vec<f64> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().all(|gap| *gap >= 1.0), "{gaps:?}");
    for server in more {
        server.stop().await;
    }
    scene.end(0).await;
}

#[tokio::test]
async fn every_replica_tells_when_a_cycle_last_succeeded_also_after_a_restart() {
    let stage = Scene::builder().set("retention", "interval", "\"10m\"").stage().await;
    put_published(&stage.database, 5, "31 days").await;
    let mut scene = stage.start().await;
    wait::until_equal("rows", LONG, 0, || count(&scene.database, "event_outbox")).await;
    wait::until("the gauge", LONG, || async {
        if scene.server.metric(SUCCESS, ORDERS) > 0.0 { Ok(()) } else { Err(0) }
    })
    .await;

    let again = ServerInProcess::start(&scene.config).await;
    let second = ServerInProcess::start(&scene.config).await;
    let first = scene.replace_server(again);
    let told = first.metric(SUCCESS, ORDERS);
    assert_eq!(first.metric("holdfast_retention_pruned_total", ORDERS), 5.0);
    first.stop().await;

    for server in [&scene.server, &second] {
        wait::until_equal("the gauge", LONG, told, || async { server.metric(SUCCESS, ORDERS) }).await;
        assert_eq!(server.metric("holdfast_retention_pruned_total", ORDERS), 0.0);
    }
    let (written, generation): (f64, i64) = (
        scene
            .database
            .one("SELECT floor(extract(epoch FROM succeeded_at))::float8 FROM holdfast.retention_cycle")
            .await,
        scene.database.one("SELECT generation FROM holdfast.retention_cycle").await,
    );
    assert!((told - written).abs() <= 1.0, "{told} {written}");
    assert_eq!(generation, 1, "a restart begins no cycle");
    second.stop().await;
    scene.end(5).await;
}

#[tokio::test]
async fn a_database_that_refuses_is_warned_of_once_and_pruned_when_it_is_well_again() {
    // The gate would not serve a database without that table; what is looked at is who bears its absence.
    let stage = Scene::builder()
        .set("retention", "interval", "\"1s\"")
        .set("drain", "schema_check", "\"0s\"")
        .stage()
        .await;
    stage.logs.expect("retention fails");
    put_published(&stage.database, 5, "31 days").await;
    stage.database.run("ALTER TABLE holdfast.retention_cycle RENAME TO away").await;
    let scene = stage.start().await;
    wait::until("many failures", LONG, || async {
        let seen = scene.logs.with("retention failed").len();
        if seen >= 20 { Ok(()) } else { Err(seen) }
    })
    .await;
    assert_eq!(scene.logs.with("retention fails").len(), 1);
    // Nobody else is concerned, and health says nothing of it.
    Health::of(scene.server.address()).serves("service/orders").await;
    let id = scene.commit(&event("order.placed")).await;
    scene.consumer.wait_for_ids(&[id], LONG).await;
    assert_eq!(reconcile(&scene.database, 6).await.gone.get("pruned"), None);

    scene.database.run("ALTER TABLE holdfast.away RENAME TO retention_cycle").await;

    scene.logs.wait_for("retention works again").await;
    let census = scene.end(6).await;
    assert_eq!((census.published, census.gone["pruned"]), (1, 5));
}
