//! Rows that cannot be delivered are parked, with evidence, and convict nobody beside them (design, section 4).

use holdfast_proto::v1::EventState;
use holdfast_server::outbox::QUERIES;
use holdfast_tests::{
    client::{event, keyed},
    reconcile::reconcile,
    scene::{Scene, Stage},
    server::{ServerInProcess, ServerProcess},
    wait::{self, LONG},
};
use sqlx::Connection as _;

use super::{MISSED, Row, hold_drain_lock, put, row, row_is};

const PARKED: &str = "holdfast_parked_total";

async fn reason(stage: &Stage, id: &str) -> String {
    stage
        .database
        .one(&format!("SELECT coalesce(parked_reason, '') FROM holdfast.event_outbox WHERE id = '{id}'"))
        .await
}

#[tokio::test]
async fn a_row_that_no_broker_could_carry_is_parked_at_once_and_said_once_with_those_behind_it() {
    let scene = Scene::start().await;
    scene.logs.expect("an event is parked");
    // The drain looks at all three together.
    let holder = hold_drain_lock(&scene.database).await;
    let odd = put(&scene.database, &"x".repeat(256), Some("k"), &[]).await;
    let behind = [
        put(&scene.database, "order.paid", Some("k"), &[]).await,
        put(&scene.database, "order.shipped", Some("k"), &[]).await,
    ];
    holder.close().await.unwrap();

    let parked = scene.client.wait_for_state(&odd, EventState::Parked).await;

    assert!(parked.last_error.contains("255 bytes") && parked.attempts == 1, "{parked:?}");
    assert!(reason(&scene, &odd).await.contains("no broker could carry it"));
    for follower in &behind {
        row_is(&scene.database, follower, "set aside", Row::set_aside).await;
    }
    let other = scene.commit(&event("order.placed")).await;
    scene.client.wait_for_state(&other, EventState::Published).await;
    let said = scene.logs.with("an event is parked");
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].text.contains(&odd) && said[0].text.contains("rows.behind=2"), "{said:?}");
    assert_eq!(scene.server.metric(PARKED, "unsendable"), 1.0);
    assert_eq!(scene.consumer.ids(), [other]);
    let census = reconcile(&scene.database, 4).await;
    assert_eq!((census.parked, census.pending), (1, 2), "{census:?}");
    scene.end_as_it_is().await;
}

#[tokio::test]
async fn a_parked_row_lets_the_later_ones_of_its_key_pass_where_the_service_says_so() {
    let scene = Scene::builder().set("services.orders", "parked_blocks", "false").start().await;
    scene.logs.expect("an event is parked");
    let holder = hold_drain_lock(&scene.database).await;
    let odd = put(&scene.database, &"x".repeat(256), Some("k"), &[]).await;
    let behind = put(&scene.database, "order.paid", Some("k"), &[]).await;
    holder.close().await.unwrap();

    scene.client.wait_for_state(&behind, EventState::Published).await;

    scene.client.wait_for_state(&odd, EventState::Parked).await;
    let later = scene.commit(&keyed("order.shipped", "k")).await;
    scene.client.wait_for_state(&later, EventState::Published).await;
    assert_eq!(scene.consumer.ids(), [behind, later]);
    assert_eq!(scene.server.metric(MISSED, ""), 0.0);
    assert_eq!(scene.end(3).await.parked, 1);
}

#[tokio::test]
async fn a_row_that_no_claim_can_compute_with_is_parked_and_stops_nobody() {
    let scene = Scene::start().await;
    scene.logs.expect("cannot be drained");
    scene.logs.expect("an event is parked");
    let odd = put(&scene.database, "order.odd", None, &[("claim_generation", "9223372036854775807")]).await;
    let mut good = Vec::new();
    for _ in 0..5 {
        good.push(put(&scene.database, "order.placed", None, &[]).await);
    }
    good.push(scene.commit(&event("order.placed")).await);

    scene.consumer.wait_for_ids(&good, LONG).await;

    let parked = scene.client.wait_for_state(&odd, EventState::Parked).await;
    assert!(parked.last_error.contains("22003"), "{parked:?}");
    assert_eq!(scene.server.metric(PARKED, "unclaimable"), 1.0);
    assert_eq!(scene.end(7).await.parked, 1);
}

/// Claimed, an hour ago, by a server that is gone.
const CRASHED: [(&str, &str); 3] =
    [("claimed_at", "now() - interval '1 hour'"), ("claimed_by", "'gone'"), ("claim_generation", "1")];

#[tokio::test]
async fn rows_that_are_claimed_alone_and_all_others_keep_their_order_and_starve_nobody() {
    let scene = Scene::start().await;
    let holder = hold_drain_lock(&scene.database).await;
    let mut crashed = Vec::new();
    for n in 0..20 {
        let more = [&CRASHED[..], &[("lone_claims", "1")]].concat();
        // Of one key, so that each waits for the one before it.
        crashed.push(put(&scene.database, "order.placed", Some("k"), &more).await);
        if n % 2 == 0 {
            put(&scene.database, "order.paid", Some(&format!("k-{n}")), &more).await;
        }
    }
    scene
        .database
        .run(
            "INSERT INTO holdfast.outbox_claim (claimed_at, claimed_by, ids, keys)
             SELECT claimed_at, claimed_by, array_agg(id), array_agg(ordering_key)
             FROM holdfast.event_outbox WHERE claimed_by = 'gone' GROUP BY claimed_at, claimed_by",
        )
        .await;
    let follower = put(&scene.database, "order.closed", Some("k"), &[]).await;
    scene
        .database
        .run(
            "INSERT INTO holdfast.event_outbox (event_type, envelope)
             SELECT 'order.ordinary', '{}'::jsonb FROM generate_series(1, 300)",
        )
        .await;
    scene
        .database
        .run(
            "CREATE TABLE beside (id uuid, others bigint);
             CREATE FUNCTION beside() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN
                 INSERT INTO public.beside SELECT NEW.id, count(*) FROM holdfast.event_outbox
                     WHERE claimed_at IS NOT NULL AND id <> NEW.id;
                 RETURN NULL;
             END $$;
             CREATE TRIGGER beside AFTER UPDATE ON holdfast.event_outbox FOR EACH ROW
                 WHEN (OLD.claimed_at IS NULL AND NEW.claimed_at IS NOT NULL AND NEW.lone_claims >= 2)
                 EXECUTE FUNCTION public.beside()",
        )
        .await;
    holder.close().await.unwrap();

    scene.consumer.wait_for(331, LONG).await;

    let in_order = [crashed.clone(), vec![follower.clone()]].concat();
    assert_eq!(super::only(scene.consumer.ids(), &in_order), in_order);
    row_is(&scene.database, &follower, "published", |row| row.published).await;
    let alone: String = scene.database.one("SELECT concat(count(*), ' ', max(others)) FROM beside").await;
    assert_eq!(alone, "30 0", "claims of such rows, and the most in flight beside one");
    let together: i64 = scene
        .database
        .one("SELECT count(*) FROM holdfast.event_outbox WHERE lone_claims > 0 OR parked_at IS NOT NULL")
        .await;
    assert_eq!(together, 0, "a confirm is an outcome");
    assert_eq!(scene.server.metric(MISSED, ""), 0.0);
    assert_eq!(scene.end(331).await.published, 331);
}

#[tokio::test]
async fn heavy_a_row_that_kills_its_publisher_is_parked_and_the_innocents_beside_it_are_delivered() {
    const INNOCENTS: i64 = 300;
    let stage = Scene::builder().with_broker_proxy().stage().await;
    for line in ["broker connection lost", "broker cannot be reached", "an event is parked"] {
        stage.logs.expect(line);
    }
    let poison = put(&stage.database, "order.poison", Some("k"), &[]).await;
    let behind = put(&stage.database, "order.paid", Some("k"), &[]).await;
    stage
        .database
        .run(&format!(
            "INSERT INTO holdfast.event_outbox (event_type, envelope, ordering_key)
             SELECT 'order.innocent', '{{}}', 'k-' || n % 50 FROM generate_series(1, {INNOCENTS}) AS n"
        ))
        .await;
    let is_poison = format!("id = '{poison}'");
    let claimed = "SELECT count(*) FROM holdfast.event_outbox WHERE claimed_at IS NOT NULL";
    let claims = format!("SELECT claim_generation FROM holdfast.event_outbox WHERE {is_poison}");

    for crash in 1..=7_i64 {
        stage.broker_proxy().pass().await;
        // Nothing is claimed until the broker has been reached and stands still.
        let holder = hold_drain_lock(&stage.database).await;
        let connections = stage.logs.with("broker connected").len();
        let mut server = ServerProcess::start(&stage.config).await;
        wait::until("the server to reach the broker", LONG, || async {
            let seen = stage.logs.with("broker connected").len();
            if seen > connections { Ok(()) } else { Err(seen) }
        })
        .await;
        stage.broker_proxy().stall();
        holder.close().await.unwrap();
        wait::until_equal("claims of the poison", LONG, crash, || async {
            stage.database.one(&claims).await
        })
        .await;
        let with_it: i64 = stage.database.one(claimed).await;
        assert!(
            if crash <= 2 { with_it > INNOCENTS } else { with_it == 1 },
            "crash {crash}: {with_it} in flight"
        );

        server.kill9().await;

        stage.broker_proxy().away().await;
        // The lease runs out. Of those that are claimed alone the poison comes first again.
        stage
            .database
            .run(
                "BEGIN;
                 UPDATE holdfast.event_outbox SET claimed_at = now() - interval '1 hour' WHERE claimed_at IS NOT NULL;
                 UPDATE holdfast.outbox_claim SET claimed_at = now() - interval '1 hour';
                 COMMIT",
            )
            .await;
        if crash < 7 {
            heal(&stage).await;
            stage
                .database
                .run(&format!(
                    "UPDATE holdfast.event_outbox
                     SET next_attempt_at = now() + CASE WHEN {is_poison} THEN interval '0' ELSE interval '1 hour' END
                     WHERE lone_claims >= 2"
                ))
                .await;
        }
    }

    stage.broker_proxy().pass().await;
    let lone = "SELECT count(*) FROM holdfast.event_outbox WHERE lone_claims = 2";
    assert_eq!(stage.database.one::<i64>(lone).await, INNOCENTS + 1, "the innocents were beside it twice");
    stage
        .database
        .run("UPDATE holdfast.event_outbox SET next_attempt_at = now() WHERE lone_claims = 2")
        .await;
    let heir = ServerInProcess::start(&stage.config).await;
    let delivered = "SELECT count(*) FROM holdfast.event_outbox WHERE published_at IS NOT NULL";
    wait::until_equal("innocents delivered", LONG * 2, INNOCENTS, || async {
        stage.database.one::<i64>(delivered).await
    })
    .await;
    let census = reconcile(&stage.database, 302).await;
    assert_eq!((census.parked, census.pending), (1, 1), "{census:?}");
    assert!(!row(&stage.database, &behind).await.published);
    let evidence = reason(&stage, &poison).await;
    assert!(evidence.contains("7 claims in a row") && evidence.contains("the last one by"), "{evidence}");
    heir.stop().await;
    stage.logs.check();
}

/// What a server does about claims whose lease ran out, in the server's own words.
async fn heal(stage: &Stage) {
    let heal = QUERIES.iter().find(|(name, _)| *name == "heal").unwrap().1;
    let mut connection = stage.database.connect().await;
    sqlx::query(heal).bind(60.0_f64).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}
