//! Caller, `kill -9`, at every step (design, section 3: "no time-out decides; a caller that dies has its transaction
//! rolled back by PostgreSQL"; section 15, invariants 1 and 2).
//!
//! The measure is a row that the caller writes in the same transaction: the row and the events are one fact.

use holdfast_tests::{
    caller::Caller,
    chaos::Proxy,
    client::{event, keyed},
    scene::Scene,
    wait::{self, LONG},
};

use super::{
    stand::{Setup, Stand},
    steps::{Play, Step, TYPE},
};

/// Kills the caller when its two events are at one of `steps`, one after the other; `delivered`: its transaction
/// committed all the same.
async fn killed(steps: &[Step], delivered: bool) {
    let mut stand = Stand::start(Setup::shared(false)).await;
    for step in steps {
        let key = format!("{step:?}");
        let mut play = Play::freeze(&mut stand, 0, *step, &key).await;
        play.caller.kill9().await;
        stand.thaw().await;

        let place = stand.place();
        let marker = stand.commit(place, &stand.front_client(place), &keyed(TYPE, &key)).await;
        stand.consumer.wait_for_ids(&[&marker], LONG).await;

        let [one, two] = play.events.map(|id| id.to_string());
        let (state, times) = if delivered { ("published", 1) } else { ("none", 0) };
        for id in [&one, &two] {
            place.is(id, state).await;
            assert_eq!(stand.deliveries(id), times, "{step:?}");
        }
        assert_eq!(play.has_row(place).await, delivered, "{step:?}");
        if delivered {
            stand.first_came_in_order(&[play.before, one, two, marker]);
        }
    }
    stand.standby.sigcont();
    let census = stand.place().settled().await;
    let plays = i64::try_from(steps.len()).unwrap();
    let published = if delivered { 4 * plays } else { 2 * plays };
    assert_eq!((census.published, census.rows), (published, published), "{census:?}");
    assert_eq!(census.gone.values().sum::<i64>(), 4 * plays - published, "{census:?}");
    stand.end().await;
}

#[tokio::test]
async fn a_caller_killed_while_its_events_are_staged_leaves_nothing() {
    killed(&[Step::StageRuns], false).await;
}

#[tokio::test]
async fn a_caller_killed_while_its_stage_commits_leaves_nothing() {
    killed(&[Step::StageCommits], false).await;
}

#[tokio::test]
async fn a_caller_killed_after_the_stage_and_before_its_commit_leaves_nothing() {
    killed(&[Step::Staged], false).await;
}

#[tokio::test]
async fn a_caller_killed_while_its_commit_is_under_way_leaves_row_and_events_together() {
    killed(&[Step::CallerCommits], true).await;
}

#[tokio::test]
async fn a_caller_killed_at_any_step_after_its_commit_is_not_missed() {
    use Step::{ClaimCommits, ClaimRuns, Claimed, Committed, Published, StampCommits, StampRuns};
    killed(&[Committed, ClaimRuns, ClaimCommits, Claimed, Published, StampRuns, StampCommits], true).await;
}

#[tokio::test]
async fn a_commit_whose_answer_was_lost_is_delivered() {
    let scene = Scene::start().await;
    let proxy = Proxy::before(scene.database.server().port).await;
    let mut caller = Caller::connect(&scene.database.url_through(proxy.port())).await;
    let ticket = caller.begin_with_ticket().await;
    caller.row("its own").await;
    let sent = event(TYPE);
    scene.client.stage(ticket, std::slice::from_ref(&sent)).await;
    proxy.swallow_replies();
    let commit = tokio::spawn(async move { caller.try_sql("COMMIT").await });
    wait::until_equal("rows of the caller's own", LONG, 1, || {
        scene.database.one::<i64>("SELECT count(*) FROM app_rows")
    })
    .await;

    proxy.cut().await;

    commit.await.unwrap().unwrap_err();
    let marker = scene.marker(None).await;
    scene.consumer.wait_for_ids(&[&sent.id, &marker], LONG).await;
    assert_eq!(scene.end(2).await.published, 2);
}

#[tokio::test]
async fn a_commit_that_never_arrived_is_not_delivered() {
    let scene = Scene::start().await;
    let proxy = Proxy::before(scene.database.server().port).await;
    let mut caller = Caller::connect(&scene.database.url_through(proxy.port())).await;
    let ticket = caller.begin_with_ticket().await;
    caller.row("its own").await;
    let sent = keyed(TYPE, "k");
    scene.client.stage(ticket, std::slice::from_ref(&sent)).await;
    proxy.stall();
    let commit = tokio::spawn(async move { caller.try_sql("COMMIT").await });

    proxy.cut().await;

    commit.await.unwrap().unwrap_err();
    let marker = scene.marker(Some("k")).await;
    scene.consumer.assert_only::<&str>(&[], marker).await;
    assert_eq!(scene.database.one::<i64>("SELECT count(*) FROM app_rows").await, 0);
    let census = scene.end(2).await;
    assert_eq!((census.published, census.gone["rolled_back"]), (1, 1), "{census:?}");
}
