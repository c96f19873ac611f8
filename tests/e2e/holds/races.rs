//! Stage, release and drop of one pair at the same time: two *open* transactions, in both orders, and many at once.
#![expect(clippy::panic, reason = "a test that meets something unexpected fails, and says what")]

use std::time::Duration;

use holdfast_proto::v1::{EventState, Hold};
use holdfast_tests::{
    client::{event, ids},
    database::Database,
    holds::{Holds, commit, pair, try_stage},
    reconcile::reconcile,
    scene::Scene,
    wait::{self, LONG},
};
use sqlx::{AssertSqlSafe, Executor as _, PgConnection};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::PAIR_LOCKS;
use crate::staging::{gate::Gate, refusal};

/// Waits until somebody waits for a pair's lock.
async fn somebody_waits_for_a_pair(database: &Database) {
    let sql = format!(
        "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND classid = {PAIR_LOCKS} AND objsubid = 2
             AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))"
    );
    wait::until_equal("somebody to wait for a pair's lock", LONG, true, || database.one::<bool>(&sql)).await;
}

/// The key of the only pair's lock that is held now.
async fn key_of_the_held_pair(database: &Database) -> i32 {
    let sql = format!(
        "SELECT (objid::bigint - CASE WHEN objid::bigint > 2147483647 THEN 4294967296 ELSE 0 END)::integer
         FROM pg_locks WHERE locktype = 'advisory' AND classid = {PAIR_LOCKS} AND objsubid = 2 AND granted
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    );
    database.one(&sql).await
}

/// A transaction of the test's own that has a pair's lock, as another replica's stage (shared) or decision would.
async fn hold_lock(database: &Database, key: i32, function: &str) -> PgConnection {
    let mut holder = database.connect().await;
    holder.execute("BEGIN").await.unwrap();
    holder.execute(AssertSqlSafe(format!("SELECT {function}({PAIR_LOCKS}, {key})"))).await.unwrap();
    holder
}

/// The key of a pair's lock: seen while a decision of it is under way, which then ends. Some other pair is decided by it.
async fn key_of(scene: &Scene, gate: &Gate<'_>, op: &Hold) -> i32 {
    let holds = Holds::of(scene);
    gate.close().await;
    let (key, decided) = tokio::join!(
        async {
            gate.somebody_waits().await;
            let key = key_of_the_held_pair(&scene.database).await;
            gate.open().await;
            key
        },
        holds.release(op)
    );
    assert_eq!(decided, (0, false));
    scene.database.run("DELETE FROM holdfast.hold_outcome").await;
    key
}

/// A decision stands with its lock in an open transaction; a stage comes; then the decision commits.
async fn stage_meets_an_open_decision(drop: bool) -> Result<Scene, Status> {
    let scene = Scene::start().await;
    let (holds, op) = (Holds::of(&scene), pair("op", 1));
    let gate = Gate::before_decisions(&scene.database).await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    let late = event("order.placed");
    gate.close().await;
    let decide = async { if drop { holds.drop_held(&op).await } else { holds.release(&op).await } };
    let stage = async {
        gate.somebody_waits().await;
        let mut stage = Box::pin(try_stage(&scene.client, ticket, &op, std::slice::from_ref(&late)));
        let early = tokio::time::timeout(Duration::from_millis(500), &mut stage).await;
        assert!(early.is_err(), "it does not read a tombstone that is just being written: {early:?}");
        gate.open().await;
        stage.await
    };

    let (decided, staged) = tokio::join!(decide, stage);

    assert_eq!(decided, (0, false), "the decision saw no row");
    caller.commit().await;
    scene.client.confirm(ticket).await;
    let staged = staged.map(|_| ());
    match staged {
        Ok(()) => {
            scene.client.wait_for_state(&late.id, EventState::Published).await;
            Ok(scene)
        }
        Err(status) => {
            assert_eq!(scene.end(0).await.rows, 0, "nothing was written");
            Err(status)
        }
    }
}

#[tokio::test]
async fn a_stage_that_meets_an_open_release_waits_for_it_and_is_not_held() {
    stage_meets_an_open_decision(false).await.unwrap().end(1).await;
}

#[tokio::test]
async fn a_stage_that_meets_an_open_drop_waits_for_it_and_is_refused() {
    let Err(status) = stage_meets_an_open_decision(true).await else { panic!("it was staged") };
    assert_eq!(refusal::<()>(Err(status)), (Code::FailedPrecondition, "HOLD_DROPPED".to_owned()));
}

/// A stage stands with its lock in an open transaction; a decision comes; then the stage commits.
async fn decision_meets_an_open_stage(drop: bool) {
    let scene = Scene::start().await;
    let (holds, op) = (Holds::of(&scene), pair("op", 1));
    let gate = Gate::before_inserts(&scene.database).await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    let staged = event("order.placed");
    gate.close().await;

    let decide = async {
        gate.somebody_waits().await;
        let decided = async { if drop { holds.drop_held(&op).await } else { holds.release(&op).await } };
        let (decided, ()) = tokio::join!(decided, async {
            somebody_waits_for_a_pair(&scene.database).await;
            gate.open().await;
        });
        decided
    };
    let stage = try_stage(&scene.client, ticket, &op, std::slice::from_ref(&staged));
    let (decided, answer) = tokio::join!(decide, stage);

    answer.unwrap();
    assert_eq!(decided, (1, false), "the decision saw the row that was under way");
    caller.commit().await;
    scene.client.confirm(ticket).await;
    if drop {
        assert_eq!(scene.end(1).await.gone["dropped"], 1);
    } else {
        scene.client.wait_for_state(&staged.id, EventState::Published).await;
        assert_eq!(scene.end(1).await.published, 1);
    }
}

#[tokio::test]
async fn a_release_that_meets_an_open_stage_waits_for_it_and_releases_its_row() {
    decision_meets_an_open_stage(false).await;
}

#[tokio::test]
async fn a_drop_that_meets_an_open_stage_waits_for_it_and_deletes_its_row() {
    decision_meets_an_open_stage(true).await;
}

/// Two decisions: the first stands in an open transaction, the second comes, then the first commits.
async fn decisions_meet(drop_first: bool) {
    let scene = Scene::start().await;
    let (holds, op) = (Holds::of(&scene), pair("op", 1));
    let held = event("order.placed");
    commit(&scene, &op, std::slice::from_ref(&held)).await;
    scene.client.wait_for_state(&held.id, EventState::Held).await;
    let gate = Gate::before_decisions(&scene.database).await;
    gate.close().await;
    let release = async { holds.try_release(&op).await.map(|answer| answer.released) };
    let drop = async { holds.try_drop(&op).await.map(|answer| answer.dropped) };
    let meet = async {
        gate.somebody_waits().await;
        somebody_waits_for_a_pair(&scene.database).await;
        gate.open().await;
    };

    let (released, dropped) = if drop_first {
        let second = async {
            gate.somebody_waits().await;
            release.await
        };
        let (dropped, released, ()) = tokio::join!(drop, second, meet);
        (released, dropped)
    } else {
        let second = async {
            gate.somebody_waits().await;
            drop.await
        };
        let (released, dropped, ()) = tokio::join!(release, second, meet);
        (released, dropped)
    };

    let late = (Code::FailedPrecondition, "HOLD_ALREADY_DECIDED".to_owned());
    if drop_first {
        assert_eq!((dropped.unwrap(), refusal(released)), (1, late));
        assert_eq!(scene.end(1).await.gone["dropped"], 1);
    } else {
        assert_eq!((released.unwrap(), refusal(dropped)), (1, late));
        scene.client.wait_for_state(&held.id, EventState::Published).await;
        scene.end(1).await;
    }
}

#[tokio::test]
async fn of_an_open_release_and_a_drop_the_release_wins() {
    Box::pin(decisions_meet(false)).await;
}

#[tokio::test]
async fn of_an_open_drop_and_a_release_the_drop_wins() {
    Box::pin(decisions_meet(true)).await;
}

#[tokio::test]
async fn a_stage_or_decision_that_waits_too_long_is_aborted_and_nobody_else_waits_with_it() {
    let scene = Scene::start().await;
    let (holds, op) = (Holds::of(&scene), pair("op", 1));
    let gate = Gate::before_decisions(&scene.database).await;
    let key = key_of(&scene, &gate, &op).await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    let aborted = |status: Status| {
        assert!(status.get_details_retry_info().is_some_and(|info| info.retry_delay.is_some()), "{status}");
        assert_eq!(refusal::<()>(Err(status)), (Code::Aborted, "HOLD_CONTENDED".to_owned()));
    };

    // Another replica's decision is under way.
    let holder = hold_lock(&scene.database, key, "pg_advisory_xact_lock").await;
    let (refused, free) = (event("order.placed"), event("order.placed"));
    let mut stage = Box::pin(try_stage(&scene.client, ticket, &op, std::slice::from_ref(&refused)));
    let neighbour = async {
        scene.client.stage(ticket, std::slice::from_ref(&free)).await;
        let other = try_stage(&scene.client, ticket, &pair("op", 2), &[event("order.placed")]).await;
        other.unwrap();
    };
    tokio::select! {
        biased;
        () = neighbour => {}
        early = &mut stage => panic!("before its neighbours: {early:?}"),
    }
    aborted(stage.await.unwrap_err());
    drop(holder);

    // Another replica's stage is under way.
    let holder = hold_lock(&scene.database, key, "pg_advisory_xact_lock_shared").await;
    aborted(holds.try_release(&op).await.unwrap_err());
    aborted(holds.try_drop(&op).await.unwrap_err());
    drop(holder);
    let decided: i64 = scene.database.one("SELECT count(*) FROM holdfast.hold_outcome").await;
    assert_eq!(decided, 0, "nothing was written");

    assert_eq!(reconcile(&scene.database, 2).await.unresolved, 2);
    caller.commit().await;
    assert_eq!(holds.release(&pair("op", 2)).await, (1, false));
    scene.end(2).await;
}

#[tokio::test]
async fn a_stage_that_waited_for_a_decision_that_came_to_nothing_is_held() {
    let scene = Scene::start().await;
    let (holds, op) = (Holds::of(&scene), pair("op", 1));
    let gate = Gate::before_decisions(&scene.database).await;
    let key = key_of(&scene, &gate, &op).await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    let held = event("order.placed");
    let holder = hold_lock(&scene.database, key, "pg_advisory_xact_lock").await;
    let mut stage = Box::pin(try_stage(&scene.client, ticket, &op, std::slice::from_ref(&held)));
    let early = tokio::time::timeout(Duration::from_millis(300), &mut stage).await;
    assert!(early.is_err(), "a decision is under way: {early:?}");

    crate::tickets::end(holder, "ROLLBACK").await;

    stage.await.unwrap();
    caller.commit().await;
    scene.client.wait_for_state(&held.id, EventState::Held).await;
    assert_eq!(holds.release(&op).await, (1, false));
    scene.client.wait_for_state(&held.id, EventState::Published).await;
    scene.end(1).await;
}

#[tokio::test]
async fn whatever_meets_whatever_nothing_of_a_decided_pair_stays_held() {
    let scene = Scene::start().await;
    let holds = Holds::of(&scene);
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    let pairs: Vec<Hold> = (0..40).map(|n| pair(&format!("op-{n}"), 1)).collect();
    let events: Vec<_> = (0..200).map(|_| event("order.placed")).collect();

    // Five stages a pair, and in the middle of them its release.
    let stages = events.iter().enumerate().map(|(n, event)| {
        let op = &pairs[n / 5];
        let (client, holds) = (&scene.client, &holds);
        async move {
            let stage = try_stage(client, ticket, op, std::slice::from_ref(event));
            let released = async { if n % 5 == 2 { holds.release(op).await.0 } else { 0 } };
            let (staged, released) = tokio::join!(stage, released);
            staged.unwrap();
            released
        }
    });
    let released: i64 = futures::future::join_all(stages).await.into_iter().sum();

    eprintln!("{released} of 200 rows were there when their pair was released");
    assert_eq!(super::held(&scene.database).await, 0);
    caller.commit().await;
    scene.client.confirm(ticket).await;
    scene.consumer.wait_for_ids(&ids(&events), LONG).await;
    scene.end(200).await;
}
