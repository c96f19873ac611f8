//! Memory and disk alarms of the broker, raised while events flow (pitfalls: confirms never come, and the next publish itself
//! hangs): staging goes on, no attempt is burnt, a stop ends in time, and all is delivered when the alarm is over.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use holdfast_proto::v1::EventState;
use holdfast_server::dev::{RabbitMq, rabbitmq};
use holdfast_tests::{
    broker::control,
    caller::Caller,
    client::{event, ids, keyed},
    folder,
    health::{Health, ServingStatus},
    reconcile::Census,
    scene::Scene,
    server::ServerProcess,
    services::BrokerAt,
    wait::{self, LONG},
};

use tokio::net::TcpStream;

use super::{expect_broker_trouble, row, row_is};

/// Stages in transactions that roll back, until the server is gone; counts the stages that were answered.
fn stages_and_rolls_back(
    scene: &Scene<ServerProcess>,
    answered: Arc<AtomicUsize>,
) -> impl Future<Output = ()> + Send + 'static {
    let (client, url) = (scene.client.clone(), scene.database.url());
    async move {
        let mut caller = Caller::connect(&url).await;
        loop {
            let ticket = caller.begin_with_ticket().await;
            let staged = client.try_stage(ticket, &[event("order.undone")]).await;
            caller.rollback().await;
            if staged.is_err() {
                caller.close().await;
                return;
            }
            answered.fetch_add(1, SeqCst);
        }
    }
}

/// An alarm that `raise` puts up and `clear` takes away, under a server that is at work.
async fn weathered(folder: &Path, raise: &[&str], clear: &[&str]) {
    let options = rabbitmq::Options::new(folder).plugin("rabbitmq_management");
    let broker = RabbitMq::start(options).await.unwrap();
    let at = BrokerAt { port: broker.port(), management_port: broker.management_port().unwrap() };
    let mut scene = Scene::builder().on_broker(at).start_process().await;
    scene.logs.expect("broker blocks publishing");
    expect_broker_trouble(&scene);
    let before = scene.commit(&event("order.placed")).await;
    scene.client.wait_for_state(&before, EventState::Published).await;
    control(folder, raise).await;

    // The first publish is what the broker answers with "blocked".
    let mut events = vec![keyed("order.placed", "k")];
    scene.commit_all(&events).await;
    scene.logs.wait_for("broker blocks publishing").await;
    let meanwhile = [keyed("order.paid", "k"), event("order.placed"), event("order.placed")];
    scene.commit_all(&meanwhile).await;
    let now = event("order.shipped");
    scene.client.stage_now(std::slice::from_ref(&now)).await;
    events.extend(meanwhile);
    events.push(now);

    for one in &events[1..] {
        let waiting = row_is(&scene.database, &one.id, "resolved", |row| row.resolved).await;
        assert_eq!((waiting.attempts, waiting.generation), (0, 0), "not even claimed: {waiting:?}");
    }
    // The alarm is told, and keeps nobody from staging.
    let health = Health::of(scene.server.address());
    health.does_not_serve("broker").await;
    for component in ["", "readiness", "service/orders"] {
        assert_eq!(health.status(component).await, Some(ServingStatus::Serving), "{component:?}");
    }
    // Everything that a stop could wait for is there: who says nothing on either port, who watches, a transaction with
    // staged events that does not end, and callers who stage for as long as they are answered.
    let silent = TcpStream::connect(scene.server.address()).await.unwrap();
    let silent_admin = TcpStream::connect(scene.server.admin_address()).await.unwrap();
    let mut watched = health.watch("").await;
    assert_eq!(watched.next().await, ServingStatus::Serving);
    let mut open = scene.caller().await;
    let ticket = open.begin_with_ticket().await;
    scene.client.stage(ticket, &[event("order.open")]).await;
    let answered = Arc::new(AtomicUsize::new(0));
    let callers: Vec<_> =
        (0..4).map(|_| tokio::spawn(stages_and_rolls_back(&scene, answered.clone()))).collect();
    wait::until("callers at work", LONG, || async {
        let seen = answered.load(SeqCst);
        if seen >= 20 { Ok(()) } else { Err(seen) }
    })
    .await;
    scene.server.sigterm();
    assert!(scene.server.exit_status(Duration::from_secs(25)).await.success());
    assert_eq!(watched.next().await, ServingStatus::NotServing);
    drop((silent, silent_admin));
    open.rollback().await;
    for caller in callers {
        caller.await.unwrap();
    }
    let discarded = 1 + answered.load(SeqCst);
    for one in &events {
        let waiting = row(&scene.database, &one.id).await;
        assert_eq!((waiting.attempts, waiting.claimed, waiting.published), (0, false, false), "{waiting:?}");
    }
    // Another one meets the alarm from its start.
    let new = ServerProcess::start(&scene.config).await;
    drop(scene.replace_server(new));
    let last = keyed("order.closed", "k");
    scene.commit(&last).await;
    events.push(last);

    control(folder, clear).await;

    let all = ids(&events);
    scene.consumer.wait_for_ids(&all, 2 * LONG).await;
    let of_key = [&events[0], &events[1], &events[5]].map(|event| event.id.clone());
    assert_eq!(super::only(super::first_deliveries(scene.consumer.ids()), &of_key), of_key);
    let census = wait::until("the outbox to settle", LONG, || async {
        let census = Census::take(&scene.database).await;
        if census.moving() == 0 { Ok(census) } else { Err(census) }
    })
    .await;
    assert_eq!((census.published, census.rows), (7, 7), "{census:?}");
    // Of each caller one stage may have been written that was not answered.
    let undone = usize::try_from(census.gone["rolled_back"]).unwrap();
    assert!((discarded..=discarded + 4).contains(&undone), "{undone} undone, {discarded} answered");
    scene.end_as_it_is().await;
}

#[tokio::test]
async fn heavy_events_outlast_a_memory_alarm() {
    let folder = folder::scratch();
    let limit = "set_vm_memory_high_watermark";
    weathered(folder.path(), &[limit, "absolute", "1MB"], &[limit, "absolute", "512MB"]).await;
}

#[tokio::test]
async fn heavy_events_outlast_a_disk_alarm() {
    let folder = folder::scratch();
    let limit = "set_disk_free_limit";
    weathered(folder.path(), &[limit, "100000GB"], &[limit, "100MB"]).await;
}
