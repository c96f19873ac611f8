//! What is refused, and that all of it is written down.

use holdfast_proto::v1::{GetReplayRequest, ReplayRequest};
use holdfast_tests::{
    auth,
    replay::{Replays, everything, from_now},
    scene::{SERVICE, Scene},
};
use prost_types::Timestamp;
use tonic::Code;
use tonic_types::StatusExt as _;
use uuid::Uuid;

use super::put_published;
use crate::staging::refusal;

async fn fields(replays: &Replays, request: ReplayRequest) -> Vec<String> {
    let status = replays.try_replay(request).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    let details = status.get_details_bad_request().unwrap();
    details.field_violations.into_iter().map(|violation| violation.field).collect()
}

#[tokio::test]
async fn all_that_is_wrong_is_told_at_once_by_field() {
    let scene = Scene::start().await;
    let replays = Replays::of(&scene);
    let of = |request: ReplayRequest| ReplayRequest { service: SERVICE.to_owned(), ..request };

    let none = fields(&replays, of(ReplayRequest { max_rate: Some(0), ..ReplayRequest::default() })).await;
    assert_eq!(none, ["max_rate", "from", "to"]);
    let reversed = ReplayRequest { from: Some(from_now(0)), to: Some(from_now(-1)), ..everything() };
    assert_eq!(fields(&replays, reversed).await, ["to"]);
    let empty = ReplayRequest { from: Some(from_now(-1)), to: Some(from_now(-1)), ..everything() };
    assert_eq!(fields(&replays, empty).await, ["to"]);
    for odd in [
        Timestamp { seconds: i64::MAX, nanos: 0 },
        Timestamp { seconds: i64::MIN, nanos: 0 },
        Timestamp { seconds: 0, nanos: -1 },
        Timestamp { seconds: 0, nanos: 1_000_000_000 },
        Timestamp { seconds: -1, nanos: 0 },
    ] {
        assert_eq!(
            fields(&replays, ReplayRequest { to: Some(odd), ..everything() }).await,
            ["to"],
            "{odd:?}"
        );
    }
    for rate in [-1, 10_001] {
        assert_eq!(
            fields(&replays, ReplayRequest { max_rate: Some(rate), ..everything() }).await,
            ["max_rate"]
        );
    }
    for ratio in [0.0, -0.1, 1.1, f64::NAN] {
        let request = ReplayRequest { max_failure_ratio: Some(ratio), ..everything() };
        assert_eq!(fields(&replays, request).await, ["max_failure_ratio"]);
    }
    let long =
        ReplayRequest { event_type: "x".repeat(1_025), ordering_key: Some("a\0".into()), ..everything() };
    assert_eq!(fields(&replays, long).await, ["event_type", "ordering_key"]);
    let both = ReplayRequest {
        plan_id: Uuid::now_v7().to_string(),
        dry_run: true,
        event_type: "t".into(),
        ..everything()
    };
    assert_eq!(fields(&replays, both).await, ["from", "to", "event_type", "dry_run"]);
    let no_uuid = of(ReplayRequest { plan_id: "7".into(), ..ReplayRequest::default() });
    assert_eq!(fields(&replays, no_uuid).await, ["plan_id"]);
    scene.end(0).await;
}

#[tokio::test]
async fn a_window_beyond_the_horizon_is_refused_and_the_horizon_named() {
    let scene = Scene::start().await;
    let replays = Replays::of(&scene);
    let day = 24 * 3_600;

    let status = replays
        .try_replay(ReplayRequest { from: Some(from_now(-31 * day)), ..everything() })
        .await
        .unwrap_err();

    assert_eq!(
        refusal::<()>(Err(status.clone())),
        (Code::FailedPrecondition, "REPLAY_BEYOND_HORIZON".into())
    );
    let info = status.get_details_error_info().unwrap();
    let named = time::OffsetDateTime::parse(
        &info.metadata["horizon"],
        &time::format_description::well_known::Rfc3339,
    )
    .unwrap();
    let expected = from_now(-30 * day).seconds;
    assert!((named.unix_timestamp() - expected).abs() < 60, "{named} {expected}");
    assert!(status.message().starts_with("from: "), "{status:?}");
    let within = ReplayRequest { from: Some(from_now(-29 * day)), dry_run: true, ..everything() };
    replays.try_replay(within).await.unwrap();
    scene.end(0).await;
}

#[tokio::test]
async fn what_is_not_there_is_not_found() {
    let scene = Scene::start().await;
    let replays = Replays::of(&scene);
    let nobody = Uuid::now_v7().to_string();
    let not_found = (Code::NotFound, "REPLAY_NOT_FOUND".to_owned());
    let of = |id: &str| GetReplayRequest { service: SERVICE.to_owned(), replay_id: id.to_owned() };

    assert_eq!(refusal(replays.raw.clone().get_replay(of(&nobody)).await), not_found);
    assert_eq!(refusal(replays.try_pause(&nobody).await), not_found);
    assert_eq!(refusal(replays.try_resume(&nobody).await), not_found);
    assert_eq!(refusal(replays.try_cancel(&nobody).await), not_found);
    let run = ReplayRequest { service: SERVICE.to_owned(), plan_id: nobody, ..ReplayRequest::default() };
    assert_eq!(refusal(replays.try_replay(run).await), not_found);
    assert_eq!(refusal(replays.raw.clone().get_replay(of("7")).await).0, Code::InvalidArgument);
    let unknown = ReplayRequest { service: "nobodys".into(), ..everything() };
    let everywhere = Replays::with_token(&scene, &auth::token("nobodys.admin"));
    assert_eq!(refusal(everywhere.try_replay(unknown).await), (Code::NotFound, "UNKNOWN_SERVICE".into()));
    scene.end(0).await;
}

#[tokio::test]
async fn four_are_under_way_and_the_fifth_is_refused_even_if_all_are_asked_for_at_once() {
    let scene = Scene::start().await;
    let replays = Replays::of(&scene);
    put_published(&scene.database, 100, "order.placed").await;
    let slow = || replays.try_replay(ReplayRequest { max_rate: Some(1), ..everything() });

    let answers = futures::future::join_all((0..6).map(|_| slow())).await;

    let begun: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().ok()?.replay.clone()).collect();
    assert_eq!(begun.len(), 4);
    for answer in answers.into_iter().filter(Result::is_err) {
        assert_eq!(refusal(answer), (Code::ResourceExhausted, "TOO_MANY_REPLAYS".into()));
    }
    // A plan is none that is under way.
    let plan = replays.plan(everything()).await;
    assert_eq!(refusal(replays.try_run(&plan).await), (Code::ResourceExhausted, "TOO_MANY_REPLAYS".into()));
    for replay in &begun {
        replays.try_cancel(&replay.replay_id).await.unwrap();
    }
    replays.run(&plan).await;
    scene.end(100).await;
}

#[tokio::test]
async fn every_call_that_acts_is_in_the_audit_dry_denied_or_refused() {
    let scene = Scene::start().await;
    let replays = Replays::of(&scene);
    put_published(&scene.database, 2, "order.placed").await;
    let reader = Replays::with_token(&scene, &auth::token_of("rita", &format!("{SERVICE}.read")));

    let plan = replays.plan(everything()).await;
    replays.run(&plan).await;
    let denied = refusal(reader.try_replay(everything()).await);
    assert_eq!(denied, (Code::PermissionDenied, "SCOPE_MISSING".into()));
    assert_eq!(refusal(reader.try_cancel(&plan.replay_id).await), denied);
    assert_eq!(reader.get(&plan.replay_id).await.done, 2, "who may read may look");
    fields(&replays, ReplayRequest { max_rate: Some(0), ..everything() }).await;
    refusal(replays.try_pause(&plan.replay_id).await);

    let sql = "SELECT string_agg(sub || ' ' || verb, ', ' ORDER BY id) FROM holdfast.admin_audit";
    let audit = scene.control.one::<String>(sql).await;
    for entry in ["olga Replay", "rita Replay", "rita CancelReplay", "olga PauseReplay"] {
        assert!(audit.contains(entry), "{entry}: {audit}");
    }
    let asked = "SELECT string_agg(arguments::text, ' ') FROM holdfast.admin_audit WHERE verb = 'Replay'";
    let asked = scene.control.one::<String>(asked).await;
    assert!(asked.contains("\"dry_run\": true") && asked.contains(&plan.replay_id), "{asked}");
    scene.end(2).await;
}
