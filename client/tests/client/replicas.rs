//! Several replicas without a proxy between.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use holdfast_client::outbox::{Ticket, event};
use holdfast_client::v1::{GetEventRequest, outbox_service_client::OutboxServiceClient};
use holdfast_client::{Code, Holdfast};

use crate::Outcome;
use crate::peer::{Peer, listener, refused, refusing};

/// Not reached by a test that passes.
const LONG: Duration = Duration::from_secs(30);

fn both(one: SocketAddr, two: SocketAddr) -> Result<Holdfast, Box<dyn std::error::Error>> {
    Ok(Holdfast::builder().endpoints([one, two].map(|at| format!("http://{at}"))).build()?)
}

#[tokio::test]
async fn calls_go_round_the_replicas() -> Outcome {
    let (peers, mut addresses) = ([Peer::default(), Peer::default()], Vec::new());
    for peer in &peers {
        let (listener, address) = listener().await?;
        peer.serve(listener, None)?;
        addresses.push(address);
    }
    let outbox = both(addresses[0], addresses[1])?.outbox("orders")?;
    for _ in 0..10 {
        outbox.stage_now([event("a")]).await?;
    }
    assert_eq!((peers[0].calls(), peers[1].calls()), (5, 5));
    Ok(())
}

#[tokio::test]
async fn a_replica_that_is_stopping_is_left_for_the_other_one() -> Outcome {
    let stopping = || refused(Code::Unavailable, "SHUTTING_DOWN", "no", None);
    let peers = [Peer::new((0..9).map(|_| stopping())), Peer::default()];
    let mut addresses = Vec::new();
    for peer in &peers {
        let (listener, address) = listener().await?;
        peer.serve(listener, None)?;
        addresses.push(address);
    }
    let outbox = both(addresses[0], addresses[1])?.outbox("orders")?;
    for _ in 0..4 {
        outbox.stage(Ticket::from(1), [event("a")]).await?;
    }
    assert_eq!(peers[1].calls(), 4);
    Ok(())
}

/// A generated client repeats nothing: each of its calls shows where it went.
#[tokio::test]
async fn a_replica_that_is_away_is_left_out_until_it_is_back() -> Outcome {
    let (here, address) = listener().await?;
    let stays = Peer::default();
    stays.serve(here, None)?;
    let (port, away) = refusing()?;
    let holdfast = both(address, away)?;

    // Whichever comes first, the call finds the one that is there.
    let outbox = holdfast.outbox("orders")?;
    for _ in 0..2 {
        outbox.stage(Ticket::from(1), [event("a")]).await?;
    }
    assert_eq!(stays.calls(), 2);
    let mut generated = OutboxServiceClient::new(holdfast.transport());
    for _ in 0..20 {
        generated.get_event(GetEventRequest::default()).await?;
    }
    assert_eq!(stays.calls(), 22);

    let returned = Peer::default();
    returned.serve(port.listen(64)?, None)?;
    let begun = Instant::now();
    while returned.calls() == 0 {
        assert!(begun.elapsed() < LONG, "the replica that is back gets no calls");
        generated.get_event(GetEventRequest::default()).await?;
    }
    Ok(())
}

/// Five attempts would seldom find it.
#[tokio::test]
async fn replicas_that_cannot_be_connected_to_cost_a_call_no_attempts() -> Outcome {
    let (here, address) = listener().await?;
    let peer = Peer::default();
    peer.serve(here, None)?;
    let away = (0..60).map(|_| refusing()).collect::<Result<Vec<_>, _>>()?;
    let endpoints = away.iter().map(|(_, away)| *away).chain([address]);
    let holdfast = Holdfast::builder().endpoints(endpoints.map(|at| format!("http://{at}"))).build()?;
    holdfast.outbox("orders")?.stage(Ticket::from(1), [event("a")]).await?;
    assert_eq!(peer.calls(), 1);
    Ok(())
}

#[tokio::test]
async fn when_all_are_away_each_call_tries_and_finds_the_first_that_is_back() -> Outcome {
    let (_one, address) = refusing()?;
    let (two, other) = refusing()?;
    let outbox = both(address, other)?.outbox("orders")?;
    let Err(error) = outbox.stage(Ticket::from(1), [event("a")]).await else { return Err("staged".into()) };
    assert_eq!((error.code(), error.is_certainly_not_applied()), (Code::Unavailable, true));

    let returned = Peer::default();
    returned.serve(two.listen(64)?, None)?;
    let begun = Instant::now();
    while let Err(error) = outbox.stage(Ticket::from(1), [event("a")]).await {
        assert!(begun.elapsed() < LONG, "{error}");
    }
    Ok(())
}
