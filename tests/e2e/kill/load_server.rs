//! Replicas killed, and stopped, under a steady load (design, section 15, invariants 1, 2 and 4, "with any number of
//! replicas"). The accounts of [`super::load`] are closed at the end.

use holdfast_tests::{
    server::ServerProcess,
    wait::{self, LONG},
};

use super::{
    load::Load,
    stand::{Setup, Stand},
};

#[tokio::test]
async fn two_replicas_killed_by_turns_under_load_lose_nothing_and_keep_order() {
    let mut stand = Stand::start_both(Setup::shared(true)).await;
    let load = Load::start(&stand);
    for kill in 0..6 {
        load.commits(60).await;
        if kill % 2 == 0 {
            stand.front.kill9().await;
            stand.front = ServerProcess::start(&stand.front_config).await;
        } else {
            stand.standby.kill9().await;
            stand.standby = ServerProcess::start(&stand.standby_config).await;
        }
        load.replicas_are(&stand);
    }
    load.commits(60).await;
    load.end(stand.place()).await.hold(&stand, true).await;
    stand.end().await;
}

#[tokio::test]
async fn a_replica_stopped_past_its_lease_with_claims_in_hand_loses_nothing_and_breaks_no_order() {
    let stand = Stand::start_both(Setup::shared(true)).await;
    let load = Load::start(&stand);
    load.commits(40).await;
    for _ in 0..2 {
        // What the front claims now stays with it; and there it stands still.
        stand.proxy.stall();
        let claimed = "SELECT array_agg(id::text) FROM holdfast.event_outbox
                        WHERE claimed_at < now() - interval '100 ms' AND published_at IS NULL";
        let held: Vec<String> = wait::until("claims that stay", LONG, || async {
            stand.place().database.one::<Option<Vec<String>>>(claimed).await.ok_or("none")
        })
        .await;
        stop_front(&stand).await;

        // The lease runs out, and the standby publishes what the front has in hand.
        stand.consumer.wait_for_ids(&held, LONG).await;
        load.commits(20).await;

        // The front wakes up, sends what it had on its tongue, and stamps what is not its own any more.
        stand.proxy.pass().await;
        stand.front.sigcont();
        load.commits(40).await;
    }
    load.end(stand.place()).await.hold(&stand, true).await;
    // A connection that slept may have been given up by the broker; and the calls that were given up meanwhile are more
    // than the server's side of HTTP/2 likes to see reset at once.
    stand.logs.expect("broker connection lost");
    stand.logs.expect("remotely-reset pending-accept streams");
    // Whoever waited for a connection when the replica was stopped has waited for too long when it wakes up.
    for late in [
        "service database cannot be drained",
        "outcomes cannot be written",
        "resolver cannot reach its database",
    ] {
        stand.logs.expect(late);
    }
    stand.end().await;
}

/// Stops the front where it holds no locks. (A replica that is stopped with the drain lock in hand keeps the others
/// waiting until PostgreSQL ends its idle transaction: twenty seconds.)
async fn stop_front(stand: &Stand) {
    wait::until("the front to stop outside of a transaction", LONG, || async {
        stand.front.sigstop().await;
        // The standby's transactions move; one that does not is the front's.
        let stuck = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                        AND application_name = 'holdfast' AND state = 'idle in transaction'
                        AND state_change < clock_timestamp() - interval '300 ms'";
        let moving = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                         AND application_name = 'holdfast' AND state <> 'idle'
                         AND state_change < clock_timestamp() - interval '10 ms'";
        loop {
            let database = &stand.place().database;
            if database.one::<i64>(stuck).await > 0 {
                stand.front.sigcont();
                return Err("stopped in a transaction");
            }
            if database.one::<i64>(moving).await == 0 {
                return Ok(());
            }
        }
    })
    .await;
}
