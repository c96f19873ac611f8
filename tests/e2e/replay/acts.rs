//! Pause, resume, cancel, watch, list; the ramp and its end.

use holdfast_proto::v1::{ListReplaysRequest, ReplayRequest, ReplayState, WatchReplayRequest};
use holdfast_tests::{
    replay::{Replays, everything},
    scene::{SERVICE, Scene},
    wait::{self, LONG},
};
use tonic::Code;

use super::{books, lane, once, put_published, replayed};
use crate::{
    drain::{NOBODY, unbind},
    staging::refusal,
};

#[tokio::test]
async fn what_is_paused_goes_no_further_until_it_is_resumed() {
    let scene = Scene::start().await;
    let replays = Replays::of(&scene);
    let events = put_published(&scene.database, 20, "order.placed").await;
    let begun = replays.replay(ReplayRequest { max_rate: Some(1), ..everything() }).await;

    let paused = replays.try_pause(&begun.replay_id).await.unwrap();

    assert_eq!((paused.state(), paused.reason.as_str()), (ReplayState::Paused, "paused by olga"));
    assert_eq!(replays.try_pause(&begun.replay_id).await.unwrap().state(), ReplayState::Paused);
    let idle = "SELECT count(*) FROM holdfast.job WHERE leased_until IS NOT NULL";
    wait::until_equal("slices under way", LONG, 0_i64, || scene.database.one(idle)).await;
    let before = replays.get(&begun.replay_id).await.done;
    scene.database.run("UPDATE holdfast.job SET next_at = now() - interval '1 hour', max_rate = 1000").await;
    // What there is to be done goes on meanwhile, by the same engine.
    let other = replays.replay(ReplayRequest { event_type: "order.none".into(), ..everything() }).await;
    replays.wait_for(&other.replay_id, ReplayState::Done).await;
    assert_eq!(replays.get(&begun.replay_id).await.done, before);

    replays.try_resume(&begun.replay_id).await.unwrap();

    let done = replays.wait_for(&begun.replay_id, ReplayState::Done).await;
    assert_eq!(books(&done), [20, 20, 0, 0, 0, 0]);
    let deliveries = scene.consumer.wait_for(20, LONG).await;
    assert_eq!(replayed(&deliveries, &done.replay_id), once(&events));
    scene.end(20).await;
}

#[tokio::test]
async fn what_is_cancelled_leaves_the_rest_alone_and_clears_its_lane() {
    let scene = Scene::start().await;
    let replays = Replays::of(&scene);
    put_published(&scene.database, 50, "order.placed").await;
    let begun = replays.replay(ReplayRequest { max_rate: Some(1), ..everything() }).await;

    let cancelled = replays.try_cancel(&begun.replay_id).await.unwrap();

    assert_eq!((cancelled.state(), cancelled.reason.as_str()), (ReplayState::Cancelled, "cancelled by olga"));
    assert!(cancelled.ended_at.is_some());
    wait::until_equal("rows of the lane", LONG, 0, || lane(&scene.database)).await;
    let end = replays.get(&begun.replay_id).await;
    assert!(end.done < 50 && end.state() == ReplayState::Cancelled, "{end:?}");
    assert_eq!(replays.try_cancel(&begun.replay_id).await.unwrap().state(), ReplayState::Cancelled);
    for refused in [
        refusal(replays.try_pause(&begun.replay_id).await),
        refusal(replays.try_resume(&begun.replay_id).await),
    ] {
        assert_eq!(refused, (Code::FailedPrecondition, "REPLAY_STATE".into()));
    }
    let published = "SELECT count(*) FROM holdfast.event_outbox WHERE published_at IS NOT NULL";
    assert_eq!(scene.database.one::<i64>(published).await, 50, "as published as before");
    scene.end(50).await;
}

#[tokio::test]
async fn a_ramp_grows_tenfold_while_all_goes_well() {
    let scene = Scene::start().await;
    let replays = Replays::of(&scene);
    put_published(&scene.database, 400, "order.placed").await;
    let begun = replays.replay(ReplayRequest { ramp: true, max_rate: Some(10_000), ..everything() }).await;

    let done = replays.wait_for(&begun.replay_id, ReplayState::Done).await;

    assert_eq!((done.done, done.ramp), (400, true));
    // 1 + 10 + 100 + 289, and the copying.
    let slices = scene.server.metric("holdfast_jobs_slices_total", "outcome=\"written\"");
    assert_eq!(slices, 5.0);
    scene.end(400).await;
}

#[tokio::test]
async fn a_ramp_stops_at_its_first_failure_and_any_replay_once_too_much_of_it_has_failed() {
    let scene = Scene::start().await;
    let replays = Replays::of(&scene);
    scene.logs.expect("a job of which too much failed has paused itself");
    unbind(&scene).await;
    put_published(&scene.database, 30, NOBODY).await;

    let ramp = replays.replay(ReplayRequest { ramp: true, ..everything() }).await;
    let steady = replays.replay(ReplayRequest { max_rate: Some(25), ..everything() }).await;

    let ramp = replays.wait_for(&ramp.replay_id, ReplayState::Paused).await;
    assert_eq!((ramp.failed, ramp.done), (1, 0));
    assert!(ramp.reason.contains("it paused itself: 1 of 1 failed"), "{}", ramp.reason);
    let steady = replays.wait_for(&steady.replay_id, ReplayState::Paused).await;
    assert_eq!((steady.failed, steady.done), (20, 0), "the twentieth was one too many");
    for replay in [ramp, steady] {
        replays.try_cancel(&replay.replay_id).await.unwrap();
    }
    let kept = "SELECT count(*) FROM holdfast.replay_row WHERE error IS NOT NULL";
    wait::until_equal("rows of the lane", LONG, 0, || lane(&scene.database)).await;
    assert_eq!(scene.database.one::<i64>(kept).await, 21, "what failed is remembered with the job");
    scene.end(30).await;
}

#[tokio::test]
async fn who_watches_is_told_until_the_end() {
    let scene = Scene::start().await;
    let replays = Replays::of(&scene);
    put_published(&scene.database, 6, "order.placed").await;
    let begun = replays.replay(ReplayRequest { max_rate: Some(1), ..everything() }).await;
    let request = WatchReplayRequest { service: SERVICE.to_owned(), replay_id: begun.replay_id.clone() };

    let mut watched = replays.raw.clone().watch_replay(request).await.unwrap().into_inner();

    let mut told = Vec::new();
    while let Some(message) = tokio::time::timeout(LONG, watched.message()).await.unwrap().unwrap() {
        told.push((message.replay.unwrap(), message.rate));
    }
    assert_eq!(told[0].1, 0.0);
    assert!(told.windows(2).all(|pair| pair[0].0.done <= pair[1].0.done), "{told:?}");
    let (last, _) = told.last().unwrap();
    assert_eq!((last.state(), last.done), (ReplayState::Done, 6));
    assert!(told.len() > 1 && told.iter().any(|(_, rate)| *rate > 0.0), "{told:?}");
    scene.end(6).await;
}

#[tokio::test]
async fn replays_are_listed_the_newest_first_page_by_page() {
    let scene = Scene::start().await;
    let replays = Replays::of(&scene);
    put_published(&scene.database, 1, "order.placed").await;
    let mut made = Vec::new();
    for _ in 0..3 {
        made.push(replays.plan(everything()).await.replay_id);
    }
    let page = async |page_size, page_token: &str| {
        let request =
            ListReplaysRequest { service: SERVICE.to_owned(), page_size, page_token: page_token.to_owned() };
        replays.raw.clone().list_replays(request).await.unwrap().into_inner()
    };

    let first = page(2, "").await;
    let second = page(2, &first.next_page_token).await;

    let listed: Vec<_> =
        first.replays.into_iter().chain(second.replays).map(|replay| replay.replay_id).collect();
    made.reverse();
    assert_eq!(listed, made);
    assert_eq!(second.next_page_token, "");
    scene.end(1).await;
}
