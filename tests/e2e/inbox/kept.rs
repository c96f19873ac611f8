//! What retention takes away, and what it never does.

use holdfast_proto::v1::{FailKind, begin_consume_request::Binding::Ticket};
use holdfast_server::inbox as feature;
use holdfast_tests::{
    inbox::{Inbox, lease},
    scene::Scene,
};

use super::id;
use crate::tickets::{end, like_the_server, query};

#[tokio::test]
async fn what_is_at_rest_and_old_goes_and_what_is_begun_or_young_stays() {
    let scene = Scene::start().await;
    let inbox = Inbox::of(&scene);
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    let [processed, failed, open, leased, lapsed, young] = [id(), id(), id(), id(), id(), id()];
    let begun = inbox.process(&processed, lease(60)).await;
    inbox.try_complete(&processed, begun.generation).await.unwrap();
    let begun = inbox.process(&failed, lease(60)).await;
    inbox.try_fail(&failed, begun.generation, FailKind::Error).await.unwrap();
    inbox.process(&open, Ticket(ticket)).await;
    inbox.process(&leased, lease(600)).await;
    inbox.process(&lapsed, lease(60)).await;
    inbox.condemned(&young).await;
    let old = format!(
        "UPDATE holdfast.event_inbox SET received_at = received_at - interval '40 days', begun_at = begun_at - interval '40 days',
             processed_at = processed_at - interval '40 days',
             lease_until = CASE WHEN envelope_id = '{lapsed}' THEN lease_until - interval '40 days' ELSE lease_until END
         WHERE envelope_id <> '{young}'"
    );
    scene.database.run(&old).await;
    // Long in coming, and processed a moment ago.
    scene.database.run(&format!(
        "UPDATE holdfast.event_inbox SET received_at = now() - interval '90 days' WHERE envelope_id = '{young}'"
    ))
    .await;

    let mut server = like_the_server(&scene.database).await;
    let prune =
        sqlx::query_scalar::<_, i64>(query(feature::QUERIES, "prune")).bind(31.0 * 86_400.0).bind(1_000_i64);
    let gone = prune.fetch_one(&mut server).await.unwrap();
    end(server, "COMMIT").await;

    assert_eq!(gone, 3);
    for id in [&open, &leased, &young] {
        inbox.get(id).await;
    }
    caller.rollback().await;
    scene.end(0).await;
}
