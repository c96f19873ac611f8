//! `PauseDrain` and `ResumeDrain`: once a pause was answered nothing is claimed, by no replica.

use holdfast_proto::v1::{
    EventState, GetServiceRequest, ListServicesRequest, PendingFilter, PendingWhy,
    control_service_client::ControlServiceClient,
};
use holdfast_tests::{
    auth::{self, Bearer},
    client::{Client, channel, event},
    health::Health,
    operator::Operator,
    scene::{SERVICE, Scene},
    server::ServerInProcess,
    wait::{self, LONG},
};
use sqlx::{Connection as _, Executor as _, PgConnection};
use uuid::Uuid;

use super::put_many;
use crate::drain::{DRAIN_LOCK, hold_drain_lock, put, row, row_is};

const PAUSED: &str = "holdfast_outbox_drain_paused";
const CLAIMED: &str = "SELECT count(*) FROM holdfast.event_outbox WHERE claim_generation > 0";

async fn shows(server: &ServerInProcess, paused: bool) {
    let wanted = if paused { 1.0 } else { 0.0 };
    wait::until_equal("the gauge", LONG, true, || async {
        (server.metric(PAUSED, "service=\"orders\"") - wanted).abs() < 0.1
    })
    .await;
}

/// The claim's own statement; how many rows it took.
async fn claim_by_hand(connection: &mut PgConnection, id: &str) -> usize {
    let (_, claim) = holdfast_server::outbox::QUERIES.iter().find(|(name, _)| *name == "claim").unwrap();
    sqlx::query(*claim)
        .bind(vec![id.parse::<Uuid>().unwrap()])
        .bind(Vec::<i64>::new())
        .bind("another replica")
        .bind(true)
        .bind(Vec::<i64>::new())
        .bind(true)
        .fetch_all(connection)
        .await
        .unwrap()
        .len()
}

/// A moment in which a pass would have claimed what may go.
async fn a_look_later(scene: &Scene) {
    let mark = scene.commit(&event("test.mark")).await;
    // The resolver goes on under a pause: it has looked once it has decided this one.
    row_is(&scene.database, &mark, "resolved", |row| row.resolved).await;
}

#[tokio::test]
async fn a_paused_drain_claims_nothing_on_any_replica_and_goes_on_when_it_is_resumed() {
    let scene = Scene::start().await;
    let second = ServerInProcess::start(&scene.config).await;
    let operator = Operator::of(&scene);
    let paused = operator.pause("the broker is being moved").await.unwrap();
    assert!(!paused.paused_before);
    for server in [&scene.server, &second] {
        shows(server, true).await;
    }
    put_many(&scene.database, "order.many", 50, &[]).await;
    let own = scene.commit(&event("order.placed")).await;
    let other = event("order.paid");
    Client::new(second.address(), SERVICE).stage_now(std::slice::from_ref(&other)).await;
    a_look_later(&scene).await;

    assert_eq!(scene.database.one::<i64>(CLAIMED).await, 0);
    row_is(&scene.database, &own, "resolved", |row| row.resolved).await;
    let seen = scene.client.get(&own).await.unwrap();
    assert!(seen.state() == EventState::Pending && seen.why.contains("paused"), "{seen:?}");
    let listed = operator.pending(PendingFilter::default(), 0).await;
    assert!(listed.iter().all(|one| one.why() == PendingWhy::Paused), "{listed:?}");
    Health::of(scene.server.address()).serves("service/orders").await;
    let ended = operator.resume().await.unwrap().unwrap();
    assert_eq!((ended.by.as_str(), ended.reason.as_str()), ("olga", "the broker is being moved"));
    scene.client.wait_for_state(&own, EventState::Published).await;
    scene.client.wait_for_state(&other.id, EventState::Published).await;
    for server in [&scene.server, &second] {
        shows(server, false).await;
    }
    second.stop().await;
    scene.end(53).await;
}

#[tokio::test]
async fn a_second_pause_keeps_the_first_and_a_second_resume_finds_none() {
    let scene = Scene::start().await;
    let olga = Operator::of(&scene);
    let otto =
        Operator::with_token(scene.server.address(), &auth::token_of("otto", &format!("{SERVICE}.admin")));

    let first = olga.pause("first").await.unwrap();
    let second = otto.pause("second").await.unwrap();

    assert_eq!((first.paused_before, second.paused_before), (false, true));
    assert_eq!(first.pause, second.pause);
    assert_eq!(second.pause.unwrap().reason, "first");
    // One that is there already needs no lock.
    let holder = hold_drain_lock(&scene.database).await;
    assert!(otto.pause("third").await.unwrap().paused_before);
    holder.close().await.unwrap();
    assert_eq!(otto.resume().await.unwrap().map(|pause| pause.by), Some("olga".to_owned()));
    assert_eq!(otto.resume().await.unwrap(), None);
    scene.end(0).await;
}

#[tokio::test]
async fn control_tells_who_paused_and_when_and_a_restart_does_not_end_it() {
    let mut scene = Scene::start().await;
    let paused = Operator::of(&scene).pause("inventory").await.unwrap().pause;

    let restarted = ServerInProcess::start(&scene.config).await;
    scene.replace_server(restarted).stop().await;

    shows(&scene.server, true).await;
    let token = Bearer::new(&auth::token(&auth::all_of(SERVICE)));
    let mut control = ControlServiceClient::new(token.over(channel(scene.server.address())));
    let request = GetServiceRequest { service: SERVICE.to_owned() };
    let told = control.get_service(request).await.unwrap().into_inner();
    assert_eq!(told.drain_pause, paused);
    Health::of(scene.server.address()).serves("service/orders").await;
    let listed = control.list_services(ListServicesRequest {}).await.unwrap().into_inner();
    assert!(listed.services[0].drain_paused);
    Operator::of(&scene).resume().await.unwrap();
    let told = control.get_service(GetServiceRequest { service: SERVICE.to_owned() }).await.unwrap();
    assert_eq!(told.into_inner().drain_pause, None);
    scene.end(0).await;
}

#[tokio::test]
async fn what_was_in_hand_before_the_pause_is_published_and_stamped() {
    let scene = Scene::builder().with_broker_proxy().start().await;
    scene.logs.wait_for("broker connected").await;
    scene.broker_proxy().stall();
    let before = scene.commit(&event("order.placed")).await;
    row_is(&scene.database, &before, "claimed", |row| row.claimed).await;
    let operator = Operator::of(&scene);

    operator.pause("a look").await.unwrap();
    let after = scene.commit(&event("order.paid")).await;
    scene.broker_proxy().pass().await;

    scene.client.wait_for_state(&before, EventState::Published).await;
    let left = row_is(&scene.database, &after, "resolved", |row| row.resolved).await;
    assert_eq!(left.generation, 0);
    operator.resume().await.unwrap();
    scene.end(2).await;
}

#[tokio::test]
async fn a_pause_waits_for_a_claim_that_is_open_and_no_later_one_is_made() {
    let scene = Scene::start().await;
    let operator = Operator::of(&scene);
    // A claim of another replica's, not committed.
    let mut claim = hold_drain_lock(&scene.database).await;
    let claimed = put(&scene.database, "order.placed", None, &[]).await;
    let other = put(&scene.database, "order.paid", None, &[]).await;
    assert_eq!(claim_by_hand(&mut claim, &claimed).await, 1);

    let pausing = tokio::spawn({
        let operator = operator.clone();
        async move { operator.pause("a race").await }
    });
    wait::until_equal("the pause to have asked for the lock", LONG, true, || async {
        let asked = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()
                     AND state = 'idle in transaction' AND query LIKE '%pg_try_advisory_xact_lock($1%')";
        scene.database.one::<bool>(asked).await
    })
    .await;
    assert!(!pausing.is_finished(), "it must not be answered while the claim may yet commit");
    claim.execute("COMMIT").await.unwrap();
    pausing.await.unwrap().unwrap();

    // The server's own pass may have had the lock before the pause had it.
    let before = row(&scene.database, &other).await.generation;
    a_look_later(&scene).await;
    assert_eq!(row(&scene.database, &other).await.generation, before, "nothing after the answer");
    assert_eq!(row(&scene.database, &claimed).await.generation, 1, "the open claim counts");
    operator.resume().await.unwrap();
    scene.client.wait_for_state(&other, EventState::Published).await;
    claim.close().await.unwrap();
    scene.end_as_it_is().await;
}

#[tokio::test]
async fn a_claim_waits_for_a_pause_that_is_open_and_then_claims_nothing() {
    let scene = Scene::start().await;
    let mut pause = scene.database.connect().await;
    pause.execute("BEGIN").await.unwrap();
    pause.execute(DRAIN_LOCK).await.unwrap();
    pause
        .execute("INSERT INTO holdfast.drain_pause (paused_by, reason) VALUES ('otto', 'a race')")
        .await
        .unwrap();
    let waits = put(&scene.database, "order.placed", None, &[]).await;
    let own = scene.commit(&event("order.paid")).await;
    pause.execute("COMMIT").await.unwrap();
    shows(&scene.server, true).await;
    a_look_later(&scene).await;

    for id in [&waits, &own] {
        assert_eq!(row(&scene.database, id).await.generation, 0);
    }
    Operator::of(&scene).resume().await.unwrap();
    scene.client.wait_for_state(&waits, EventState::Published).await;
    pause.close().await.unwrap();
    scene.end(3).await;
}

#[tokio::test]
async fn the_claims_own_statement_sees_a_pause() {
    let scene = Scene::start().await;
    let mut session = hold_drain_lock(&scene.database).await;
    let id = put(&scene.database, "order.placed", None, &[]).await;
    session
        .execute("INSERT INTO holdfast.drain_pause (paused_by, reason) VALUES ('otto', 'by hand')")
        .await
        .unwrap();

    assert_eq!(claim_by_hand(&mut session, &id).await, 0);

    session.execute("ROLLBACK").await.unwrap();
    session.close().await.unwrap();
    scene.client.wait_for_state(&id, EventState::Published).await;
    scene.end(1).await;
}
