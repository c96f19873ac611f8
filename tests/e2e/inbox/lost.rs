//! Every reply lost: the call has gone through, its answer has not come, and the same call again is answered as the first was.

use holdfast_proto::v1::{
    ConsumptionState, FailKind, begin_consume_request::Binding::Ticket, fail_consume_response::Next,
};
use holdfast_tests::{
    chaos::Proxy,
    inbox::{Inbox, delivery, lease},
    scene::Scene,
    wait::{self, LONG},
};

use super::id;

/// A way to the scene's server that loses replies.
async fn way(scene: &Scene) -> (Proxy, Inbox) {
    let proxy = Proxy::before(scene.server.address().port()).await;
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], proxy.port()));
    (proxy, Inbox::at(address))
}

/// Does `call` so that its reply is lost once `went` tells that it went through.
async fn lost<T: Send + std::fmt::Debug + 'static>(
    proxy: &Proxy,
    call: impl Future<Output = Result<T, tonic::Status>> + Send + 'static,
    scene: &Scene,
    went: &str,
) {
    proxy.swallow_replies();
    let call = tokio::spawn(call);
    wait::until_equal("the call to have gone through", LONG, true, || scene.database.one::<bool>(went)).await;
    proxy.cut().await;
    call.await.unwrap().unwrap_err();
    proxy.pass().await;
}

#[tokio::test]
async fn a_begin_whose_reply_was_lost_is_the_same_start_when_it_is_sent_again() {
    let scene = Scene::start().await;
    let (proxy, inbox) = way(&scene).await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    for binding in [Ticket(ticket), lease(60)] {
        let id = id();
        let begun = format!("SELECT EXISTS (SELECT FROM holdfast.event_inbox WHERE envelope_id = '{id}')");
        let (asking, request) = (inbox.clone(), delivery(&id, binding.clone()));
        lost(&proxy, async move { asking.try_begin(request).await }, &scene, &begun).await;

        let again = Inbox::of(&scene).process(&id, binding).await;

        assert_eq!((again.attempt, again.generation), (1, 1));
    }
    caller.rollback().await;
    scene.end(0).await;
}

#[tokio::test]
async fn a_completion_or_failure_whose_reply_was_lost_is_not_done_twice() {
    let scene = Scene::start().await;
    let (proxy, inbox) = way(&scene).await;
    let direct = Inbox::of(&scene);
    let (done, failed) = (id(), id());
    let begun = direct.process(&done, lease(60)).await.generation;
    let went =
        format!("SELECT processed_at IS NOT NULL FROM holdfast.event_inbox WHERE envelope_id = '{done}'");
    let (asking, the) = (inbox.clone(), done.clone());
    lost(&proxy, async move { asking.try_complete(&the, begun).await }, &scene, &went).await;
    assert!(direct.try_complete(&done, begun).await.unwrap().duplicate);

    let begun = direct.process(&failed, lease(60)).await.generation;
    let went = format!("SELECT failures = 1 FROM holdfast.event_inbox WHERE envelope_id = '{failed}'");
    let (asking, the) = (inbox.clone(), failed.clone());
    lost(&proxy, async move { asking.try_fail(&the, begun, FailKind::Error).await }, &scene, &went).await;
    let next = direct.try_fail(&failed, begun, FailKind::Error).await.unwrap();
    assert!(matches!(next, Next::Retry(retry) if retry.failures == 1), "{next:?}");
    scene.end(0).await;
}

#[tokio::test]
async fn a_surfacing_whose_reply_was_lost_publishes_no_second_letter() {
    let scene = Scene::start().await;
    let (proxy, inbox) = way(&scene).await;
    let (direct, id) = (Inbox::of(&scene), id());
    let token = direct.condemned(&id).await.token;
    let went =
        format!("SELECT dead_lettered_at IS NOT NULL FROM holdfast.event_inbox WHERE envelope_id = '{id}'");
    let (asking, the) = (inbox.clone(), token.clone());
    lost(&proxy, async move { asking.try_surface(&the, b"{}").await }, &scene, &went).await;

    assert!(direct.try_surface(&token, b"{}").await.unwrap().already_surfaced);

    assert_eq!(direct.get(&id).await.state(), ConsumptionState::DeadLettered);
    wait::until("one letter", LONG, || async {
        let left = scene.vhost.queue_depth("holdfast.dlq").await;
        if left == Some(1) { Ok(()) } else { Err(left) }
    })
    .await;
    scene.end(0).await;
}
