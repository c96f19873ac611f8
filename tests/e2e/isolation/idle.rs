//! P8: what a service costs that has nothing to do.

use std::time::{Duration, Instant};

use holdfast_tests::{
    chaos::Proxy,
    database::{Database, Kind},
    scene::Scene,
    services::PostgresAt,
    wait,
};

const SERVICES: u64 = 50;

async fn turns_reach(proxy: &Proxy, wanted: u64) {
    wait::until(&format!("{wanted} round trips"), Duration::from_secs(100), || async {
        let seen = proxy.turns();
        if seen >= wanted { Ok(()) } else { Err(seen) }
    })
    .await;
}

#[tokio::test]
async fn heavy_p8_fifty_idle_services_cost_at_most_two_round_trips_a_second_each() {
    let mut stage = Scene::builder().stage().await;
    let proxy = Proxy::before(PostgresAt::shared().port).await;
    let mut databases = Vec::new();
    for n in 0..SERVICES {
        let database = Database::fresh(PostgresAt::shared(), Kind::Service).await;
        stage.config.service(&format!("idle-{n}"), &database.url_through(proxy.port()));
        databases.push(database);
    }
    let scene = stage.start().await;
    // Past the start: everybody is connected, has passed once, has prepared what he asks each second, and has measured its depth
    // once, on a connection that was opened for it.
    turns_reach(&proxy, SERVICES * 45).await;
    // And has had its first retention cycle; the next ones come an hour later.
    wait::until("all retention cycles", wait::LONG, || async {
        let seen = scene.logs.with("nothing is past its retention").len() as u64;
        if seen >= SERVICES + 2 { Ok(()) } else { Err(seen) }
    })
    .await;

    let (from, begun) = (proxy.turns(), Instant::now());
    turns_reach(&proxy, from + SERVICES * 12).await;
    let (turns, seconds) = (proxy.turns() - from, begun.elapsed().as_secs_f64());

    let each = turns as f64 / SERVICES as f64 / seconds;
    eprintln!("{each:.2} round trips a second and service, over {seconds:.1} s");
    // A loaded machine makes it fewer, never more.
    assert!(each <= 2.0, "{each:.2} round trips a second and service");
    scene.end(0).await;
    drop(databases);
}
