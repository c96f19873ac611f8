//! ListHeld: who waits, for what, since when; page by page.

use holdfast_proto::v1::{HeldOperation, HoldOutcome};
use holdfast_tests::{
    client::event,
    holds::{Holds, commit, pair, try_stage},
    scene::Scene,
};

use super::put_held;

fn shown(listed: &[HeldOperation]) -> Vec<(String, i64, i64, i64)> {
    let row = |one: &HeldOperation| {
        let hold = one.hold.clone().unwrap();
        (hold.operation_id, hold.generation, one.held, one.unresolved)
    };
    listed.iter().map(row).collect()
}

#[tokio::test]
async fn pairs_are_listed_with_their_counts_page_by_page_and_by_operation() {
    let scene = Scene::start().await;
    let holds = Holds::of(&scene);
    let mut wanted = Vec::new();
    for operation in ["a", "a:b", "b"] {
        for generation in 0..4 {
            put_held(&scene.database, operation, generation, generation + 1, None).await;
            wanted.push((operation.to_owned(), generation, generation + 1, 0));
        }
    }

    for size in [1, 3, 12, 0, 1_000] {
        assert_eq!(shown(&holds.list("", size).await), wanted, "{size} a page");
        assert_eq!(shown(&holds.list("a:b", size).await), wanted[4..8], "{size} a page");
    }
    assert!(holds.list("nobody", 10).await.is_empty());
    let first = holds.list("a", 1).await.remove(0);
    let age: f64 = scene
        .database
        .one(&format!(
            "SELECT abs(extract(epoch FROM min(created_at))::float8 - {}) FROM holdfast.event_outbox WHERE hold_operation_id = 'a'",
            first.oldest_created_at.unwrap().seconds
        ))
        .await;
    assert!(age < 60.0, "{age}");
    assert_eq!(scene.end(30).await.held, 30);
}

#[tokio::test]
async fn rows_of_open_transactions_are_counted_apart_and_a_decided_pair_with_rows_left_says_so() {
    let scene = Scene::start().await;
    let (holds, op) = (Holds::of(&scene), pair("op", 1));
    commit(&scene, &op, &[event("order.placed"), event("order.placed")]).await;
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    try_stage(&scene.client, ticket, &op, &[event("order.placed")]).await.unwrap();
    holdfast_tests::wait::until_equal("rows of the pair", holdfast_tests::wait::LONG, (2, 1), || async {
        let listed = holds.list("", 0).await.remove(0);
        (listed.held, listed.unresolved)
    })
    .await;

    assert_eq!(holds.list("", 0).await[0].outcome(), HoldOutcome::Unspecified);
    // As a decision leaves it that was killed after its first transaction.
    scene
        .database
        .run("INSERT INTO holdfast.hold_outcome (operation_id, generation, outcome) VALUES ('op', 1, 'dropped')")
        .await;
    assert_eq!(holds.list("op", 0).await[0].outcome(), HoldOutcome::Dropped);

    assert_eq!(holds.drop_held(&op).await, (3, true));
    assert!(holds.list("", 0).await.is_empty());
    caller.commit().await;
    assert_eq!(scene.end(3).await.gone["dropped"], 3);
}
