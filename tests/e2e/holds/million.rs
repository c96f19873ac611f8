//! A million held rows cost those that may go nothing.

use std::time::{Duration, Instant};

use holdfast_tests::{
    client::{event, ids},
    holds::Holds,
    scene::Scene,
    wait::{self, LONG},
};

#[tokio::test]
async fn heavy_ten_live_events_go_out_promptly_beside_a_million_held_ones() {
    let scene = Scene::builder().set("drain", "held_watch", "\"1s\"").start().await;
    super::put_held(&scene.database, "op", 1, 1_000_000, None).await;
    // The last of the load is on its way to disk; what is measured is not that.
    scene.database.run("ANALYZE holdfast.event_outbox").await;
    let warm = event("order.placed");
    scene.commit(&warm).await;
    scene.consumer.wait_for_ids(&[&warm.id], LONG).await;

    let live: Vec<_> = (0..10).map(|_| event("order.placed")).collect();
    let begun = Instant::now();
    scene.commit_all(&live).await;
    scene.consumer.wait_for_ids(&ids(&live), LONG).await;
    let took = begun.elapsed();

    eprintln!("ten live events in {took:?}");
    assert!(took < Duration::from_secs(2), "{took:?}");
    // What each pass and each idle second asks; the time above is the machine's as well.
    let mut connection = scene.database.connect().await;
    for (name, arguments) in [("see", "(ARRAY[]::bigint[], 500, 256)"), ("work_waits", "(60, 256)")] {
        let (plan, touched) = crate::drain::plans::explain(&mut connection, name, arguments).await;
        assert!(touched < 500, "{name} touches {touched} buffers: {plan:#}");
    }
    wait::until_equal("the gauge", LONG, 1_000_000.0, || async {
        scene.server.metric("holdfast_outbox_held_rows", "")
    })
    .await;
    let begun = Instant::now();
    let listed = Holds::of(&scene).list("", 0).await;
    eprintln!("listed in {:?}", begun.elapsed());
    assert_eq!((listed.len(), listed[0].held), (1, 1_000_000));
    scene.end_as_it_is().await;
}
