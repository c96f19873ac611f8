//! The group insert: one insert and one commit for what waits, and nobody suffers for a neighbour (design, section 3).

use std::time::Duration;

use holdfast_proto::v1::{Event, EventState, Outcome, StagedEvent};
use holdfast_tests::{
    client::{Client, event, ids, keyed},
    reconcile::reconcile,
    scene::Scene,
    server::ServerInProcess,
    wait::{self, LONG},
};
use sqlx::Executor as _;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;
use uuid::Uuid;

use super::{gate::Gate, refusal};
use crate::tickets::end;

#[tokio::test]
async fn the_events_of_a_request_keep_their_order_whatever_their_ids() {
    let scene = Scene::start().await;
    let mut events: Vec<Event> = (0..100).map(|_| keyed("order.placed", "k")).collect();
    for event in &mut events {
        // In no order at all; rows are inserted sorted by id.
        event.id = Uuid::new_v4().to_string();
    }

    scene.commit_all(&events).await;

    let marker = scene.marker(Some("k")).await;
    scene.consumer.assert_only(&ids(&events), marker).await;
    let mut connection = scene.database.connect().await;
    let by_seq: Vec<String> =
        sqlx::query_scalar("SELECT id::text FROM holdfast.event_outbox ORDER BY seq LIMIT 100")
            .fetch_all(&mut connection)
            .await
            .unwrap();
    assert_eq!(by_seq, ids(&events));
    scene.end(101).await;
}

/// Sends all requests at once; answers in their order.
async fn at_once(client: &Client, requests: &[(i64, Event)]) -> Vec<Result<Vec<StagedEvent>, Status>> {
    let calls = requests.iter().map(|(ticket, event)| client.try_stage(*ticket, std::slice::from_ref(event)));
    futures::future::join_all(calls).await
}

#[tokio::test]
async fn what_waits_goes_into_fewer_transactions_than_there_are_requests() {
    let scene = Scene::start().await;
    let gate = Gate::before_inserts(&scene.database).await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    let requests: Vec<_> = (0..100).map(|_| (ticket, event("order.placed"))).collect();
    gate.close().await;

    let (answers, ()) = tokio::join!(at_once(&scene.client, &requests), async {
        // The first group stands at the gate; the rest can only wait for it.
        gate.somebody_waits().await;
        gate.open().await;
    });

    assert!(answers.iter().all(Result::is_ok));
    let transactions: i64 =
        scene.database.one("SELECT count(DISTINCT xmin::text) FROM holdfast.event_outbox").await;
    assert!(transactions < 50, "{transactions} transactions for 100 requests");
    caller.commit().await;
    scene.end(100).await;
}

/// A bad request in the middle of good ones, which are all staged; returns what the bad one was answered.
async fn among_neighbours(scene: &Scene, gate: &Gate<'_>, bad: (i64, Event)) -> Status {
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    gate.close().await;
    let first = (ticket, event("order.placed"));
    let mut requests: Vec<_> = (0..20).map(|_| (ticket, event("order.placed"))).collect();
    requests.insert(10, bad);

    let ahead = at_once(&scene.client, std::slice::from_ref(&first));
    let (ahead, mut answers) = tokio::join!(ahead, async {
        gate.somebody_waits().await;
        // Sent while the first one stands at the gate, so most of them meet in a group; which ones is not asserted.
        let (answers, ()) = tokio::join!(at_once(&scene.client, &requests), gate.open());
        answers
    });

    let bad = answers.remove(10).unwrap_err();
    let good = ahead.into_iter().chain(answers);
    assert!(good.map(|answer| answer.unwrap()[0].outcome()).all(|outcome| outcome == Outcome::Staged));
    caller.commit().await;
    let mut good = requests;
    good.remove(10);
    for (_, event) in good {
        scene.client.wait_for_state(&event.id, EventState::Published).await;
    }
    bad
}

#[tokio::test]
async fn an_unbound_ticket_does_not_fail_its_neighbours() {
    let scene = Scene::start().await;
    let gate = Gate::before_inserts(&scene.database).await;

    let bad = among_neighbours(&scene, &gate, (4711, event("order.placed"))).await;

    assert_eq!(refusal::<()>(Err(bad)), (Code::FailedPrecondition, "TICKET_NOT_OPEN".to_owned()));
    scene.end(21).await;
}

#[tokio::test]
async fn an_event_that_the_database_refuses_does_not_fail_its_neighbours() {
    let scene = Scene::start().await;
    scene
        .database
        .run(
            "CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN RAISE EXCEPTION 'the secret %', NEW.envelope USING ERRCODE = '22P05'; END $$;
             CREATE TRIGGER refuse BEFORE INSERT ON holdfast.event_outbox FOR EACH ROW
                 WHEN (NEW.event_type = 'order.refused') EXECUTE FUNCTION public.refuse()",
        )
        .await;
    let gate = Gate::before_inserts(&scene.database).await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;

    let bad = among_neighbours(&scene, &gate, (ticket, event("order.refused"))).await;

    assert!(!bad.message().contains("secret"), "{bad}");
    assert_eq!(refusal::<()>(Err(bad)), (Code::InvalidArgument, "INVALID_REQUEST".to_owned()));
    caller.commit().await;
    scene.end(21).await;
}

#[tokio::test]
async fn a_hand_written_insert_of_the_same_id_does_not_block_its_neighbours() {
    let scene = Scene::start().await;
    let gate = Gate::before_inserts(&scene.database).await;
    let taken = event("order.placed");
    let mut by_hand = scene.database.connect().await;
    by_hand
        .execute(sqlx::AssertSqlSafe(format!(
            "BEGIN; INSERT INTO holdfast.event_outbox (id, event_type, envelope) VALUES ('{}', 'order.placed', '{{}}')",
            taken.id
        )))
        .await
        .unwrap();
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;

    let bad = among_neighbours(&scene, &gate, (ticket, taken.clone())).await;

    assert!(bad.get_details_retry_info().is_some());
    assert_eq!(refusal::<()>(Err(bad)), (Code::Aborted, "EVENT_CONTENDED".to_owned()));
    end(by_hand, "ROLLBACK").await;
    // Nothing of it was left behind, so it can be staged now.
    scene.client.stage(ticket, std::slice::from_ref(&taken)).await;
    caller.commit().await;
    scene.client.wait_for_state(&taken.id, EventState::Published).await;
    scene.end(22).await;
}

#[tokio::test]
async fn an_open_hand_written_insert_of_one_id_aborts_the_whole_request_and_leaves_nothing() {
    let scene = Scene::start().await;
    let events = [event("order.placed"), event("order.placed"), event("order.placed")];
    let mut by_hand = scene.database.connect().await;
    by_hand
        .execute(sqlx::AssertSqlSafe(format!(
            "BEGIN; INSERT INTO holdfast.event_outbox (id, event_type, envelope) VALUES ('{}', 'order.placed', '{{}}')",
            events[1].id
        )))
        .await
        .unwrap();
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;

    let refused = refusal(scene.client.try_stage(ticket, &events).await);

    assert_eq!(refused, (Code::Aborted, "EVENT_CONTENDED".to_owned()));
    reconcile(&scene.database, 0).await;
    end(by_hand, "COMMIT").await;
    let refused = refusal(scene.client.try_stage(ticket, &events).await);
    assert_eq!(
        refused,
        (Code::AlreadyExists, "EVENT_CONFLICT".to_owned()),
        "it has no record of its content"
    );
    caller.commit().await;
    scene.end(1).await;
}

#[tokio::test]
async fn of_the_same_request_twice_in_flight_one_is_staged_and_one_is_a_duplicate() {
    let scene = Scene::start().await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    for _ in 0..20 {
        let event = event("order.placed");
        let twice = [(ticket, event.clone()), (ticket, event)];

        let answers = at_once(&scene.client, &twice).await;

        let mut outcomes: Vec<i32> = answers.into_iter().map(|answer| answer.unwrap()[0].outcome).collect();
        outcomes.sort_unstable();
        assert_eq!(outcomes, [i32::from(Outcome::Staged), i32::from(Outcome::Duplicate)]);
    }
    caller.commit().await;
    assert_eq!(scene.end(20).await.published, 20);
}

#[tokio::test]
async fn two_replicas_that_insert_the_same_ids_in_opposite_order_do_not_deadlock() {
    let scene = Scene::start().await;
    let second = ServerInProcess::start(&scene.config).await;
    let other = Client::new(second.address(), holdfast_tests::scene::SERVICE);
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    for _ in 0..20 {
        let events: Vec<Event> = (0..20).map(|_| event("order.placed")).collect();
        let reversed: Vec<Event> = events.iter().rev().cloned().collect();

        let (one, two) =
            tokio::join!(scene.client.try_stage(ticket, &events), other.try_stage(ticket, &reversed));

        let outcomes = |staged: Vec<StagedEvent>| staged.iter().map(StagedEvent::outcome).collect::<Vec<_>>();
        let (one, two) = (outcomes(one.unwrap()), outcomes(two.unwrap()));
        assert!(one.iter().all(|outcome| *outcome == one[0]) && two.iter().all(|outcome| *outcome == two[0]));
        assert_ne!(one[0], two[0], "one has staged all of them, the other none");
    }
    caller.commit().await;
    wait::until_equal("published", LONG, 400, || async { reconcile(&scene.database, 400).await.published })
        .await;
    second.stop().await;
    scene.end(400).await;
}

#[tokio::test]
async fn a_request_that_has_some_ids_of_another_replicas_request_gets_no_deadlock() {
    // Overlapping, not equal: each of the two transactions holds ids that the other one wants.
    let scene = Scene::start().await;
    let second = ServerInProcess::start(&scene.config).await;
    let other = Client::new(second.address(), holdfast_tests::scene::SERVICE);
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    for _ in 0..15 {
        let events: Vec<Event> = (0..30).map(|_| event("order.placed")).collect();
        let (mut low, mut high) = (events[..20].to_vec(), events[10..].to_vec());
        low.reverse();
        high.rotate_left(7);

        let (one, two) = tokio::join!(scene.client.try_stage(ticket, &low), other.try_stage(ticket, &high));

        for answer in [one, two] {
            answer.unwrap();
        }
    }
    caller.commit().await;
    wait::until_equal("published", Duration::from_secs(30), 450, || async {
        reconcile(&scene.database, 450).await.published
    })
    .await;
    second.stop().await;
    scene.end(450).await;
}
