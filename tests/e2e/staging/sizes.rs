//! What is too large is RESOURCE_EXHAUSTED and names both sizes (design, section 2; pitfalls: the codec's own answer is
//! OUT_OF_RANGE).

use base64::{Engine as _, engine::general_purpose::STANDARD};
use holdfast_proto::v1::{Event, StageInTxRequest, event::Data};
use holdfast_tests::{client::event, reconcile::reconcile, scene::Scene, wait::LONG};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

const MIB: usize = 1024 * 1024;

fn binary(bytes: usize) -> Event {
    Event { data: Some(Data::Binary(vec![0xA5; bytes])), ..event("order.placed") }
}

fn text(bytes: usize) -> Event {
    Event { data: Some(Data::Json(format!("\"{}\"", "x".repeat(bytes)))), ..event("order.placed") }
}

async fn stage(scene: &Scene, ticket: i64, events: Vec<Event>) -> Result<(), Status> {
    let request = StageInTxRequest { service: "orders".into(), ticket, events, hold: None };
    // As the tests' own client is: with no limit on what it sends.
    scene.client.raw.clone().stage_in_tx(request).await.map(drop)
}

/// Refused as too large, with the limit and a size above it in the message, and the details of every refusal.
fn assert_too_large(answer: Result<(), Status>, limit: usize) {
    let status = answer.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    let numbers: Vec<usize> =
        status.message().split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect();
    assert!(numbers.contains(&limit) && numbers.iter().any(|n| *n > limit), "{status}");
    let info = status.get_details_error_info().unwrap();
    assert_eq!((info.domain.as_str(), info.reason.as_str()), ("holdfast.v1", "TOO_LARGE"));
    assert_eq!(info.metadata["applied"], "no");
}

#[tokio::test]
async fn an_envelope_over_one_mebibyte_is_refused_and_one_just_below_is_delivered() {
    let scene = Scene::start().await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;

    assert_too_large(stage(&scene, ticket, vec![event("order.placed"), text(MIB)]).await, MIB);
    assert_too_large(stage(&scene, ticket, vec![binary(MIB * 3 / 4)]).await, MIB);
    reconcile(&scene.database, 0).await;

    let (large, other) = (text(MIB - 600), binary(MIB * 3 / 4 - 600));
    stage(&scene, ticket, vec![large.clone(), other.clone()]).await.unwrap();
    caller.commit().await;
    scene.consumer.wait_for_ids(&[&large.id, &other.id], LONG).await;
    scene.end(2).await;
}

#[tokio::test]
async fn a_request_over_eight_mebibytes_is_refused_at_every_size() {
    let scene = Scene::start().await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    // 20 MiB and 64 MiB never reach our code: the codec looks at the announced length.
    for mebibytes in [9, 15, 20, 64] {
        let events = (0..mebibytes).map(|_| text(MIB - 600)).collect();
        assert_too_large(stage(&scene, ticket, events).await, 8 * MIB);
    }
    reconcile(&scene.database, 0).await;

    // The connection is still good, and what is just below the limit passes.
    let events: Vec<Event> = (0..8).map(|_| text(MIB - 1024)).collect();
    stage(&scene, ticket, events).await.unwrap();
    caller.commit().await;
    assert_eq!(scene.end(8).await.published, 8);
}

#[tokio::test]
async fn binary_data_survives_byte_for_byte() {
    let scene = Scene::start().await;
    let every_byte: Vec<u8> = (0..=255).chain((0..=255).rev()).collect();
    let payloads = [every_byte, Vec::new(), vec![0], vec![0xFF; 4097], b"{\"b\":1, \"a\":2}".to_vec()];
    for payload in &payloads {
        let event = Event { data: Some(Data::Binary(payload.clone())), ..event("order.placed") };
        let id = scene.commit(&event).await;

        let seen = scene.consumer.wait_for_ids(&[&id], LONG).await;
        let json = &seen.iter().find(|one| one.id == id).unwrap().json;
        assert_eq!(STANDARD.decode(json["data_base64"].as_str().unwrap()).unwrap(), *payload);
        assert_eq!(json["datacontenttype"], "application/octet-stream");
    }
    scene.end(payloads.len()).await;
}
