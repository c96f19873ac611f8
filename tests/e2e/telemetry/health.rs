//! Health tells the truth within ten seconds, both ways, and costs no database connection (pitfalls: tonic-health's `""`
//! starts as SERVING).

use std::sync::{Arc, atomic::AtomicBool};

use holdfast_proto::v1::EventState;
use holdfast_server::{broker::Weather, db::Pulse, grpc::probes, health::Facts};
use holdfast_tests::{
    chaos::Proxy,
    client::event,
    health::{Health, ServingStatus},
    http,
    scene::{Scene, Server},
    wait,
};
use tokio::{net::TcpListener, sync::watch};
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::CancellationToken;

use crate::drain::{expect_broker_trouble, expect_database_trouble};

const ALL: [&str; 8] = [
    "",
    "liveness",
    "readiness",
    "control",
    "broker",
    "service/orders",
    "holdfast.v1.OutboxService",
    "holdfast.v1.ControlService",
];

#[tokio::test]
async fn nothing_serves_before_it_was_seen_good_and_only_liveness_once_the_server_stops() {
    let (_weather, weather) = watch::channel(Weather::Fair);
    let (_responsive, responsive) = watch::channel(true);
    let facts = Facts {
        listener: Arc::new(AtomicBool::new(false)),
        started: Arc::default(),
        stopping: CancellationToken::new(),
        control: Default::default(),
        services: vec![("orders".to_owned(), Pulse::default(), Default::default())],
        weather,
        responsive,
    };
    let (reporter, service) = probes::new(&facts).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let incoming = TcpListenerStream::new(listener);
    let server =
        tokio::spawn(tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming));
    let health = Health::of(address);
    for name in ALL {
        assert_eq!(health.status(name).await, Some(ServingStatus::NotServing), "{name:?} before any look");
    }

    let probing = tokio::spawn(probes::run(reporter, facts.clone()));
    let (open, stopping) = (facts.listener.clone(), facts.stopping.clone());
    let watching = tokio::spawn(probes::watch_listener(address, open, stopping));
    facts.control.0.beat();
    facts.services[0].1.beat();

    for name in ALL {
        health.serves(name).await;
    }
    facts.stopping.cancel();
    probing.await.unwrap();
    watching.await.unwrap();
    for name in ALL {
        let expected = if name == "liveness" { ServingStatus::Serving } else { ServingStatus::NotServing };
        assert_eq!(health.status(name).await, Some(expected), "{name:?} once it stops");
    }
    server.abort();
}

#[tokio::test]
async fn every_component_of_a_server_serves_and_no_other_is_known() {
    let scene = Scene::start().await;
    let health = Health::of(scene.server.address());

    for name in ALL {
        health.serves(name).await;
    }

    for unknown in ["service/", "service/billing", "service/holdfast-control", "postgres"] {
        assert_eq!(health.status(unknown).await, None, "{unknown:?}");
    }
    scene.end(0).await;
}

/// What happens to a service's database, and nothing else is ill meanwhile.
async fn ails(harm: impl AsyncFn(&Proxy)) {
    let scene = Scene::builder().with_database_proxy().start().await;
    expect_database_trouble(&scene);
    let health = Health::of(scene.server.address());
    health.serves("service/orders").await;
    let mut watched = health.watch("service/orders").await;
    assert_eq!(watched.next().await, ServingStatus::Serving);

    harm(scene.database_proxy()).await;

    health.does_not_serve("service/orders").await;
    for name in ["", "liveness", "readiness", "control", "broker"] {
        assert_eq!(health.status(name).await, Some(ServingStatus::Serving), "{name:?}");
    }
    let (status, _, text) = http::get(scene.server.admin_address(), "/readyz").await;
    let line = text.lines().find(|line| line.starts_with("service/orders ")).unwrap();
    assert_eq!(status, 200, "the other services can be served: {text}");
    assert!(line.starts_with("service/orders NOT_SERVING  no sign of life for "), "{line}");
    scene.database_proxy().pass().await;
    health.serves("service/orders").await;
    assert_eq!(watched.next().await, ServingStatus::NotServing);
    assert_eq!(watched.next().await, ServingStatus::Serving);
    let id = scene.commit(&event("order.placed")).await;
    scene.client.wait_for_state(&id, EventState::Published).await;
    scene.end(1).await;
}

#[tokio::test]
async fn a_service_whose_database_is_away_does_not_serve_and_comes_back() {
    ails(async |proxy| proxy.away().await).await;
}

#[tokio::test]
async fn a_service_whose_database_stands_still_does_not_serve_and_comes_back() {
    ails(async |proxy| proxy.stall()).await;
}

#[tokio::test]
async fn a_service_serves_again_when_its_old_connections_stand_still_and_new_ones_work() {
    // As after a fail-over that the old server's packets did not survive.
    let scene = Scene::builder().with_database_proxy().start().await;
    expect_database_trouble(&scene);
    let health = Health::of(scene.server.address());
    health.serves("service/orders").await;
    scene.database_proxy().swallow_replies();
    health.does_not_serve("service/orders").await;

    scene.database_proxy().pass().await;

    health.serves("service/orders").await;
    scene.end(0).await;
}

#[tokio::test]
async fn the_control_database_away_is_told_and_stops_neither_staging_nor_delivery() {
    let mut stage = Scene::builder().stage().await;
    let proxy = Proxy::before(stage.control.server().port).await;
    stage.config.text("control", "database_url", &stage.control.url_through(proxy.port()));
    stage.logs.expect("service.name=holdfast-control");
    let scene = stage.start().await;
    let health = Health::of(scene.server.address());
    health.serves("control").await;

    proxy.away().await;

    health.does_not_serve("control").await;
    for name in ["", "readiness", "service/orders"] {
        assert_eq!(health.status(name).await, Some(ServingStatus::Serving), "{name:?}");
    }
    let id = scene.commit(&event("order.placed")).await;
    scene.client.wait_for_state(&id, EventState::Published).await;
    proxy.pass().await;
    health.serves("control").await;
    scene.end(1).await;
}

/// What happens to the broker.
async fn broker_ails(harm: impl AsyncFn(&Proxy)) {
    let scene = Scene::builder().with_broker_proxy().start().await;
    expect_broker_trouble(&scene);
    let health = Health::of(scene.server.address());
    health.serves("broker").await;

    harm(scene.broker_proxy()).await;

    health.does_not_serve("broker").await;
    for name in ["", "liveness", "readiness", "control", "service/orders"] {
        assert_eq!(
            health.status(name).await,
            Some(ServingStatus::Serving),
            "{name:?}: staging needs no broker"
        );
    }
    let id = scene.commit(&event("order.placed")).await;
    scene.broker_proxy().pass().await;
    health.serves("broker").await;
    scene.client.wait_for_state(&id, EventState::Published).await;
    scene.end(1).await;
}

#[tokio::test]
async fn a_broker_that_is_away_is_told_and_leaves_the_server_ready() {
    broker_ails(async |proxy| proxy.away().await).await;
}

#[tokio::test]
async fn a_broker_that_does_not_answer_is_told_before_its_heartbeat_ends_and_leaves_the_server_ready() {
    broker_ails(async |proxy| proxy.stall()).await;
}

#[tokio::test]
async fn connections_that_are_reset_are_replaced_and_everything_serves_again() {
    let scene = Scene::builder().with_database_proxy().with_broker_proxy().start().await;
    expect_database_trouble(&scene);
    expect_broker_trouble(&scene);
    let health = Health::of(scene.server.address());
    for _ in 0..3 {
        scene.database_proxy().cut().await;
        scene.broker_proxy().cut().await;
        let id = scene.commit(&event("order.placed")).await;
        scene.client.wait_for_state(&id, EventState::Published).await;
        for name in ALL {
            health.serves(name).await;
        }
    }
    scene.end(3).await;
}

#[tokio::test]
async fn a_thousand_probes_ask_no_database() {
    let scene = Scene::builder().with_database_proxy().start().await;
    let health = Health::of(scene.server.address());
    health.serves("service/orders").await;
    // The first retention cycle comes soon after the start, and then not for an hour.
    wait::until("the retention cycle of orders", wait::LONG, || async {
        let seen = scene.logs.with("nothing is past its retention");
        if seen.iter().any(|line| line.text.contains("service.name=orders")) { Ok(()) } else { Err(seen) }
    })
    .await;
    let (begun, accepted, turns) =
        (std::time::Instant::now(), scene.database_proxy().accepted(), scene.database_proxy().turns());

    for _ in 0..1_000 {
        assert_eq!(health.status("service/orders").await, Some(ServingStatus::Serving));
    }
    for _ in 0..50 {
        assert_eq!(http::get(scene.server.admin_address(), "/readyz").await.0, 200);
    }

    // What an idle service costs anyway, twice.
    let allowed = 20 + 4 * begun.elapsed().as_secs();
    let asked = scene.database_proxy().turns() - turns;
    assert!(asked <= allowed, "{asked} round trips");
    assert!(scene.database_proxy().accepted() - accepted <= 1);
    scene.end(0).await;
}

#[tokio::test]
async fn the_admin_port_says_that_it_stops_until_it_is_gone() {
    let mut scene = Scene::builder().start_process().await;
    let admin = scene.server.admin_address();
    Health::of(Server::address(&scene.server)).serves("readiness").await;
    assert_eq!(http::get(admin, "/healthz").await.0, 200);
    assert_eq!(http::get(admin, "/readyz").await.0, 200);
    assert_eq!(http::get(admin, "/").await.0, 404);
    // A call that is not over keeps the stop from ending at once.
    let mut watched = Health::of(Server::address(&scene.server)).watch("").await;
    assert_eq!(watched.next().await, ServingStatus::Serving);

    scene.server.sigterm();

    assert_eq!(watched.next().await, ServingStatus::NotServing);
    let (status, _, text) = http::get(admin, "/readyz").await;
    assert!(status == 503 && text.contains("readiness NOT_SERVING  the server is stopping"), "{text}");
    assert_eq!(http::get(admin, "/healthz").await.0, 200, "a restart would mend nothing");
    drop(watched);
    assert!(scene.server.exit_status(std::time::Duration::from_secs(25)).await.success());
    let new = holdfast_tests::server::ServerProcess::start(&scene.config).await;
    drop(scene.replace_server(new));
    scene.end(0).await;
}
