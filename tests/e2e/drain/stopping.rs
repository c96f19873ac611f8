//! Starting and stopping: health tells the truth, what is away delays nobody, SIGTERM under load loses nothing (design,
//! section 13; pitfalls: tonic-health's `""` starts as SERVING; a connection that never sends its preface).

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use holdfast_proto::v1::EventState;
use holdfast_tests::{
    chaos::Proxy,
    client::{Client, event, keyed},
    database::{Database, Kind},
    reconcile::{Census, settled},
    scene::{SERVICE, Scene},
    server::{ServerInProcess, ServerProcess},
    wait::{self, LONG},
};
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use super::{expect_broker_trouble, expect_database_trouble};

/// From SIGTERM to the end (design, section 13).
const STOP: Duration = Duration::from_secs(25);

fn health(address: std::net::SocketAddr) -> HealthClient<Channel> {
    HealthClient::new(Endpoint::from_shared(format!("http://{address}")).unwrap().connect_lazy())
}

async fn status(client: &HealthClient<Channel>, name: &str) -> ServingStatus {
    let request = HealthCheckRequest { service: name.to_owned() };
    client.clone().check(request).await.unwrap().into_inner().status()
}

#[tokio::test]
async fn sigterm_tells_who_watches_health_before_the_server_is_gone() {
    let mut scene = Scene::builder().start_process().await;
    let mut client = health(scene.server.address());
    wait::until_equal("health", LONG, ServingStatus::Serving, || status(&client, "")).await;
    let request = HealthCheckRequest { service: String::new() };
    let mut changes = client.watch(request).await.unwrap().into_inner();
    assert_eq!(changes.message().await.unwrap().unwrap().status(), ServingStatus::Serving);

    scene.server.sigterm();

    assert_eq!(changes.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);
    drop((changes, client));
    assert!(scene.server.exit_status(STOP).await.success());
    let new = ServerProcess::start(&scene.config).await;
    drop(scene.replace_server(new));
    scene.end(0).await;
}

#[tokio::test]
async fn sigterm_under_load_ends_with_exit_code_0_and_loses_nothing() {
    let mut scene = Scene::builder().start_process().await;
    let enough = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..4)
        .map(|n| {
            let (client, url, enough) = (scene.client.clone(), scene.database.url(), enough.clone());
            tokio::spawn(async move {
                let mut caller = holdfast_tests::caller::Caller::connect(&url).await;
                let mut committed = Vec::new();
                while !enough.load(SeqCst) {
                    let ticket = caller.begin_with_ticket().await;
                    let one = keyed("order.placed", &format!("k-{n}"));
                    match client.try_stage(ticket, std::slice::from_ref(&one)).await {
                        Ok(_) => {
                            caller.commit().await;
                            committed.push(one.id);
                        }
                        Err(_) => {
                            caller.rollback().await;
                            break;
                        }
                    }
                }
                caller.close().await;
                committed
            })
        })
        .collect();
    scene.consumer.wait_for(50, LONG).await;

    scene.server.sigterm();
    assert!(scene.server.exit_status(STOP).await.success());

    enough.store(true, SeqCst);
    let mut committed = Vec::new();
    for writer in writers {
        committed.push(writer.await.unwrap());
    }
    let new = ServerProcess::start(&scene.config).await;
    drop(scene.replace_server(new));
    let all = committed.concat();
    scene.consumer.wait_for_ids(&all, LONG).await;
    let first = super::first_deliveries(scene.consumer.ids());
    for of_key in &committed {
        assert_eq!(super::only(first.clone(), of_key), *of_key);
    }
    // A stage whose answer was lost may have been written; its caller rolled back, so it is gone and counted.
    let census = wait::until("the outbox to settle", LONG, || async {
        let census = Census::take(&scene.database).await;
        if census.moving() == 0 { Ok(census) } else { Err(census) }
    })
    .await;
    assert_eq!((census.published, census.rows), (all.len() as i64, all.len() as i64), "{census:?}");
    scene.end_as_it_is().await;
}

#[tokio::test]
async fn a_connection_that_says_nothing_does_not_keep_the_server_from_stopping() {
    let mut scene = Scene::builder().start_process().await;
    let silent = TcpStream::connect(scene.server.address()).await.unwrap();
    // Accepted after the silent one.
    let id = scene.commit(&event("order.placed")).await;
    scene.client.wait_for_state(&id, EventState::Published).await;

    scene.server.sigterm();

    assert!(scene.server.exit_status(STOP).await.success());
    drop(silent);
    let new = ServerProcess::start(&scene.config).await;
    drop(scene.replace_server(new));
    scene.end(1).await;
}

#[tokio::test]
async fn a_stalled_database_of_one_service_does_not_stop_the_delivery_of_another() {
    let mut stage = Scene::builder().with_database_proxy().stage().await;
    let (other_database, other_service) =
        (Database::fresh(stage.database.server(), Kind::Service).await, "billing");
    stage.config.service(other_service, &other_database.url());
    expect_database_trouble(&stage);
    let server = ServerInProcess::start(&stage.config).await;
    let stalled = Client::new(server.address(), SERVICE);
    let mut caller = stage.caller().await;
    let ticket = caller.begin_with_ticket().await;
    let waiting = event("order.placed");
    stalled.stage(ticket, std::slice::from_ref(&waiting)).await;
    stage.database_proxy().stall();
    caller.commit().await;

    let client = Client::new(server.address(), other_service);
    let mut caller = holdfast_tests::caller::Caller::connect(&other_database.url()).await;
    for _ in 0..10 {
        let ticket = caller.begin_with_ticket().await;
        let one = event("invoice.sent");
        client.stage(ticket, std::slice::from_ref(&one)).await;
        caller.commit().await;
        client.wait_for_state(&one.id, EventState::Published).await;
    }

    let census = holdfast_tests::reconcile::reconcile(&stage.database, 1).await;
    assert_eq!(census.published, 0, "{census:?}");
    stage.database_proxy().pass().await;
    stage.consumer.wait_for_ids(&[waiting.id], LONG).await;
    settled(&stage.database, 1, LONG).await;
    settled(&other_database, 10, LONG).await;
    server.stop().await;
    stage.logs.check();
}

#[tokio::test]
async fn neither_an_unreachable_database_nor_the_broker_delays_the_start_or_the_other_service() {
    let mut stage = Scene::builder().with_broker_proxy().stage().await;
    expect_database_trouble(&stage);
    expect_broker_trouble(&stage);
    // One that swallows every byte and one that nobody listens at.
    let black_hole = Proxy::before(stage.database.server().port).await;
    black_hole.stall();
    let closed = Proxy::before(stage.database.server().port).await;
    closed.away().await;
    stage.config.service("stalled", &stage.database.url_through(black_hole.port()));
    stage.config.service("refused", &stage.database.url_through(closed.port()));
    stage.broker_proxy().away().await;

    let server = ServerProcess::start(&stage.config).await;

    let client = health(server.address());
    wait::until_equal("health", LONG, ServingStatus::Serving, || status(&client, "readiness")).await;
    let client = Client::new(server.address(), SERVICE);
    let mut caller = stage.caller().await;
    let ticket = caller.begin_with_ticket().await;
    let one = event("order.placed");
    client.stage(ticket, std::slice::from_ref(&one)).await;
    caller.commit().await;
    stage.broker_proxy().pass().await;
    stage.consumer.wait_for_ids(&[one.id], LONG).await;
    settled(&stage.database, 1, LONG).await;
    let mut server = server;
    server.sigterm();
    assert!(server.exit_status(STOP).await.success());
    stage.logs.expect("stopped hard after");
    stage.logs.check();
}
