//! What is sent again, what is not, what is known afterwards. That the answers are the server's own is the end-to-end
//! tests' claim.

use std::time::{Duration, Instant};

use holdfast_client::outbox::{Ticket, event};
use holdfast_client::{Code, Holdfast, envelope, v1};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tonic::Status;

use crate::Outcome;
use crate::peer::{Line, locked, outbox, refused, refusing, start};

#[tokio::test]
async fn a_stage_is_sent_again_as_the_very_same_request() -> Outcome {
    let wait = Duration::from_millis(120);
    let (peer, outbox) = start([
        Line::Fail(Status::unavailable("a balancer")),
        refused(Code::Aborted, "EVENT_CONTENDED", "no", Some(wait)),
    ])
    .await?;
    let begun = Instant::now();
    let without_id = v1::Event { r#type: "a".into(), ..v1::Event::default() };
    let staged = outbox.stage(Ticket::from(-7), [event("b").build(), without_id]).await?;
    assert!(begun.elapsed() >= wait);

    let sent = peer.staged();
    assert_eq!(sent.len(), 3);
    assert!(sent.iter().all(|request| *request == sent[0]));
    assert_eq!((sent[0].ticket, sent[0].service.as_str()), (-7, "orders"));
    let ids: Vec<_> = sent[0].events.iter().map(|event| event.id.clone()).collect();
    assert!(ids.iter().all(|id| envelope::parse_id(id).is_some()));
    assert_eq!(staged.events.into_iter().map(|event| event.id).collect::<Vec<_>>(), ids);
    Ok(())
}

#[tokio::test]
async fn a_stage_without_a_transaction_is_sent_again_with_the_same_ids() -> Outcome {
    let (peer, outbox) = start([Line::Fail(Status::unavailable("a balancer"))]).await?;
    let staged = outbox.stage_now([v1::Event { r#type: "a".into(), ..v1::Event::default() }]).await?;

    let sent = locked(&peer.staged_now).clone();
    assert_eq!((sent.len(), sent[0].service.as_str()), (2, "orders"));
    assert_eq!(sent[0], sent[1]);
    assert_eq!(staged[0].id, sent[0].events[0].id);
    assert!(envelope::parse_id(&staged[0].id).is_some());
    Ok(())
}

#[tokio::test]
async fn what_cannot_pass_is_sent_once() -> Outcome {
    for (code, reason) in [
        (Code::FailedPrecondition, "TICKET_NOT_OPEN"),
        (Code::AlreadyExists, "EVENT_CONFLICT"),
        (Code::Internal, "INTERNAL"),
        (Code::Aborted, "EVENT_CONTENDED"),
    ] {
        let (peer, outbox) = start([refused(code, reason, "no", None)]).await?;
        let Err(error) = outbox.stage(Ticket::from(1), [event("a")]).await else {
            return Err("staged".into());
        };
        assert_eq!((error.code(), error.is_certainly_not_applied()), (code, true));
        assert_eq!(peer.staged().len(), 1);
    }
    Ok(())
}

#[tokio::test]
async fn attempts_end_and_the_last_error_is_given() -> Outcome {
    let again = || refused(Code::Unavailable, "SHUTTING_DOWN", "no", Some(Duration::from_millis(1)));
    let (peer, outbox) = start((0..20).map(|_| again())).await?;
    let Err(error) = outbox.stage(Ticket::from(1), [event("a")]).await else { return Err("staged".into()) };
    assert_eq!(error.reason(), Some(v1::ErrorReason::ShuttingDown));
    assert!(error.is_certainly_not_applied());
    assert_eq!(peer.staged().len(), 5);
    Ok(())
}

#[tokio::test]
async fn a_sure_no_after_an_unclear_attempt_is_not_sure() -> Outcome {
    let (_, outbox) = start([
        Line::Fail(Status::unavailable("a balancer")),
        refused(Code::FailedPrecondition, "TICKET_NOT_OPEN", "no", None),
    ])
    .await?;
    let Err(error) = outbox.stage(Ticket::from(1), [event("a")]).await else { return Err("staged".into()) };
    assert_eq!(error.reason(), Some(v1::ErrorReason::TicketNotOpen));
    assert!(!error.is_certainly_not_applied());
    Ok(())
}

#[tokio::test]
async fn one_deadline_covers_all_attempts() -> Outcome {
    let limit = Duration::from_millis(400);
    let (peer, outbox) = start([Line::Fail(Status::unavailable("a balancer")), Line::Silence]).await?;
    let begun = Instant::now();
    let Err(error) = outbox.with_deadline(limit).stage(Ticket::from(1), [event("a")]).await else {
        return Err("staged".into());
    };
    assert_eq!(error.code(), Code::DeadlineExceeded);
    assert!(!error.is_certainly_not_applied());
    assert!(begun.elapsed() >= limit && begun.elapsed() < limit * 5);
    assert_eq!(peer.staged().len(), 2);
    Ok(())
}

/// The peer takes each connection and drops it in the middle of a call.
#[tokio::test]
async fn a_lost_connection_is_tried_again_and_never_certain() -> Outcome {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let outbox = outbox(listener.local_addr()?)?;
    let (count, mut counted) = tokio::sync::watch::channel(0_u32);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 64]).await;
            count.send_modify(|n| *n += 1);
        }
    });
    let Err(error) = outbox.stage(Ticket::from(1), [event("a")]).await else { return Err("staged".into()) };
    assert!(!error.is_certainly_not_applied());
    assert_eq!(error.reason(), None);
    assert!(*counted.borrow_and_update() >= 5, "{error:?}");
    Ok(())
}

#[tokio::test]
async fn a_server_that_is_away_is_unavailable_and_was_sent_nothing() -> Outcome {
    let (_port, address) = refusing()?;
    let outbox = outbox(address)?;
    let Err(error) = outbox.stage(Ticket::from(1), [event("a")]).await else { return Err("staged".into()) };
    assert_eq!((error.code(), error.is_certainly_not_applied()), (Code::Unavailable, true));
    Ok(())
}

#[tokio::test]
async fn look_ups_and_hints_are_sent_again() -> Outcome {
    let away = || Line::Fail(Status::unavailable("a balancer"));
    let (peer, outbox) = start([away(), away(), away()]).await?;
    let id = uuid::Uuid::now_v7();
    assert_eq!(outbox.get_event(id).await?.id, id.to_string());
    locked(&peer.script).push_back(away());
    outbox.confirm_staged(Ticket::from(1)).await?;
    assert!(locked(&peer.script).is_empty());
    Ok(())
}

#[tokio::test]
async fn a_hint_ends_with_its_own_deadline() -> Outcome {
    let (_, outbox) = start([Line::Silence]).await?;
    let begun = Instant::now();
    let Err(error) = outbox.confirm_staged(Ticket::from(1)).await else { return Err("confirmed".into()) };
    assert_eq!(error.code(), Code::DeadlineExceeded);
    let limit = Duration::from_secs(2);
    assert!(begun.elapsed() >= limit && begun.elapsed() < limit * 4);
    Ok(())
}

#[tokio::test]
async fn a_request_over_the_limit_is_not_sent() -> Outcome {
    let (peer, outbox) = start([]).await?;
    let megabyte = || event("a").binary(vec![0; 1 << 20]);
    let Err(error) = outbox.stage(Ticket::from(1), (0..8).map(|_| megabyte())).await else {
        return Err("staged".into());
    };
    assert_eq!((error.code(), error.reason()), (Code::ResourceExhausted, Some(v1::ErrorReason::TooLarge)));
    assert!(error.is_certainly_not_applied());
    assert!(peer.staged().is_empty());
    // Larger than the library's own default of 4 MiB, and within the contract.
    outbox.stage(Ticket::from(1), (0..7).map(|_| megabyte())).await?;
    Ok(())
}

#[tokio::test]
async fn a_service_s_name_that_cannot_be_right_is_refused_at_once() -> Outcome {
    let holdfast = Holdfast::builder().endpoint("http://localhost:1").build()?;
    for name in ["", "Orders", "holdfast", "a.b"] {
        let Err(error) = holdfast.outbox(name) else { return Err(name.into()) };
        assert_eq!(error.name(), name);
        assert!(error.to_string().starts_with(&format!("service {name:?} ")), "{error}");
    }
    assert_eq!(holdfast.outbox("orders")?.service(), "orders");
    Ok(())
}
