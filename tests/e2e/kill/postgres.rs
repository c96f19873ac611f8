//! PostgreSQL, immediate shutdown and recovery, at every step (design, section 15, invariants 1 and 2; section 3, "a
//! stage commits with `synchronous_commit = off` and loses nothing").
//!
//! Both replicas live on: what they had published and could not write down they write down afterwards, so no event
//! comes twice. The leases outlive the tests: nothing but the recovery moves a row.

use std::path::Path;

use holdfast_proto::v1::Event;
use holdfast_server::dev::{Postgres, postgres};
use holdfast_tests::{
    caller::Caller,
    client::{Client, keyed},
    folder,
    services::PostgresAt,
    wait::{self, LONG},
};
use tonic::Code;

use super::{
    stand::{Place, Setup, Stand},
    steps::{Play, Step, TYPE},
};

/// What the servers say about a database that went and came back.
pub(super) const AWAY: [&str; 5] = [
    "service database cannot be drained",
    "resolver cannot reach its database",
    "outcomes cannot be written; they are kept and tried again",
    // The pool's own words about connections that it throws away.
    "sqlx_core::pool::connection",
    // Told to the test's own callers.
    "terminating connection due to immediate shutdown command",
];

/// A private one. What it had not written is lost with it, and it writes nothing by itself: a commit that should have
/// been flushed and was not shows. (No fsync: what is killed is a process, never the machine.)
pub(super) async fn start(folder: &Path) -> Postgres {
    let options = postgres::Options::new(folder).setting("fsync = off").setting("wal_writer_delay = 10s");
    Postgres::start(options).await.unwrap()
}

/// One shutdown at each of `steps`; `acknowledged`: the caller's COMMIT was answered before.
async fn shut_down(steps: &[Step], acknowledged: bool) {
    let folder = folder::scratch();
    let mut postgres = start(folder.path()).await;
    let setup = Setup { postgres: PostgresAt { port: postgres.port() }, ..Setup::shared(false) };
    let mut stand = Stand::start(setup).await;
    AWAY.iter().for_each(|line| stand.logs.expect(line));
    for step in steps {
        let key = format!("{step:?}");
        let mut play = Play::freeze(&mut stand, 0, *step, &key).await;

        postgres.kill_immediate().await.unwrap();
        postgres.start_again().await.unwrap();
        stand.thaw().await;

        let place = stand.place();
        let client = stand.front_client(place);
        if matches!(step, Step::StageRuns | Step::StageCommits | Step::CallerCommits) {
            play.caller.answer().await.unwrap_err();
        }
        assert_eq!(play.has_row(place).await, acknowledged, "{step:?}");
        if !acknowledged {
            play.caller.try_step(&serde_json::json!({"sql": "COMMIT"})).await.unwrap_err();
        }
        let [one, two] = play.events.map(|id| id.to_string());
        if !acknowledged {
            let marker = whole_transaction(place, &client, &[keyed(TYPE, &key)]).await;
            stand.consumer.wait_for_ids(&marker, LONG).await;
            for id in [&one, &two] {
                place.is(id, "none").await;
                assert_eq!(stand.deliveries(id), 0, "{step:?}");
            }
            // The service runs its whole transaction again, with the same ids.
            let again = [&one, &two].map(|id| Event { id: id.clone(), ..keyed(TYPE, &key) });
            whole_transaction(place, &client, &again).await;
        }
        let marker = whole_transaction(place, &client, &[keyed(TYPE, &key)]).await.remove(0);
        stand.consumer.wait_for_ids(&[&one, &two, &marker], LONG).await;
        stand.first_came_in_order(&[play.before, one.clone(), two.clone(), marker.clone()]);
        for id in [&one, &two, &marker] {
            place.is(id, "published").await;
            assert_eq!(stand.deliveries(id), 1, "{step:?}");
        }
    }
    stand.standby.sigcont();
    let census = stand.place().settled().await;
    let each = if acknowledged { 4 } else { 5 };
    let published = i64::try_from(steps.len() * each).unwrap();
    assert_eq!((census.published, census.rows), (published, published), "{census:?}");
    stand.end().await;
}

/// One transaction that stages and commits, begun anew until its stage is answered: the server needs a moment to find its
/// database again. Returns the ids.
async fn whole_transaction(place: &Place, client: &Client, events: &[Event]) -> Vec<String> {
    wait::until("a stage after the shutdown", LONG, || async {
        let mut caller = Caller::connect(&place.database.url()).await;
        let ticket = caller.begin_with_ticket().await;
        let staged = client.try_stage(ticket, events).await;
        if staged.is_ok() {
            caller.commit().await;
            client.confirm(ticket).await;
        }
        caller.close().await;
        staged.map(drop).map_err(|status| {
            assert!(matches!(status.code(), Code::Unavailable | Code::Aborted), "{status}");
            status
        })
    })
    .await;
    events.iter().map(|event| event.id.clone()).collect()
}

#[tokio::test]
async fn an_immediate_shutdown_before_the_callers_commit_leaves_nothing_and_the_transaction_can_be_repeated()
{
    use Step::{CallerCommits, StageCommits, StageRuns, Staged};
    shut_down(&[StageRuns, StageCommits, Staged, CallerCommits], false).await;
}

#[tokio::test]
async fn an_immediate_shutdown_after_an_acknowledged_commit_loses_and_repeats_nothing_before_the_publish() {
    use Step::{ClaimCommits, ClaimRuns, Claimed, Committed};
    shut_down(&[Committed, ClaimRuns, ClaimCommits, Claimed], true).await;
}

#[tokio::test]
async fn an_immediate_shutdown_after_the_publish_loses_and_repeats_nothing() {
    use Step::{Published, StampCommits, StampRuns};
    shut_down(&[Published, StampRuns, StampCommits], true).await;
}

#[tokio::test]
async fn what_was_published_is_durable_even_if_its_caller_commits_asynchronously() {
    let folder = folder::scratch();
    let mut postgres = start(folder.path()).await;
    let setup = Setup { postgres: PostgresAt { port: postgres.port() }, ..Setup::shared(false) };
    let stand = Stand::start(setup).await;
    AWAY.iter().for_each(|line| stand.logs.expect(line));
    let place = stand.place();
    let client = stand.front_client(place);
    let mut caller = Caller::connect(&place.database.url()).await;
    caller.sql("SET synchronous_commit = off").await;
    let ticket = caller.begin_with_ticket().await;
    caller.row("its own").await;
    let sent = keyed(TYPE, "k");
    client.stage(ticket, std::slice::from_ref(&sent)).await;
    caller.commit().await;
    client.confirm(ticket).await;
    stand.consumer.wait_for_ids(&[&sent.id], LONG).await;

    postgres.kill_immediate().await.unwrap();
    postgres.start_again().await.unwrap();

    assert_eq!(place.database.one::<i64>("SELECT count(*) FROM app_rows").await, 1);
    place.is(&sent.id, "published").await;
    stand.standby.sigcont();
    assert_eq!(place.settled().await.published, 1);
    assert_eq!(stand.deliveries(&sent.id), 1);
    stand.end().await;
}
