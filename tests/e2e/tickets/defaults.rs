//! Whatever a database or a caller defaults to, the verdict is exact and durable (design, section 3; pitfalls: "a
//! database or role may default to REPEATABLE READ, read-only or asynchronous commit").

use holdfast_tests::{client::event, scene::Scene, wait::LONG};
use sqlx::Connection as _;

use crate::staging::gone;

/// Writes down under which settings the server's own transactions commit what they change in the outbox.
const WITNESS: &str = "
    CREATE TABLE public.witness (op text, isolation text, read_only text, synchronous_commit text);
    CREATE FUNCTION public.witness() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO public.witness VALUES (
            CASE WHEN TG_OP = 'INSERT' AND NEW.ticket IS NULL THEN 'INSERT NOW' ELSE TG_OP END, current_setting('transaction_isolation'),
            current_setting('transaction_read_only'), current_setting('synchronous_commit'));
        RETURN NULL;
    END $$;
    CREATE CONSTRAINT TRIGGER witness AFTER INSERT OR UPDATE OR DELETE ON holdfast.event_outbox
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.witness();";

async fn under(setting: &str) {
    // The gate would not serve a database with a stranger's trigger.
    let stage = Scene::builder().set("drain", "schema_check", "\"0s\"").stage().await;
    stage.database.run(WITNESS).await;
    stage.database.run(&format!("ALTER DATABASE {} SET {setting}", stage.database.name())).await;
    let scene = stage.start().await;
    let mut caller = scene.caller().await;
    let now = event("order.placed");
    scene.client.stage_now(std::slice::from_ref(&now)).await;
    let mut wanted = vec![now.id];
    for _ in 0..20 {
        for commits in [true, false] {
            caller.sql("BEGIN READ WRITE").await;
            let ticket = caller.ticket().await;
            let event = event("order.placed");
            scene.client.stage(ticket, std::slice::from_ref(&event)).await;
            if commits {
                // The verdict is asked while the commit happens: the moment at which an old snapshot would be wrong.
                tokio::join!(scene.client.confirm(ticket), caller.commit());
                wanted.push(event.id);
            } else {
                caller.rollback().await;
                scene.client.confirm(ticket).await;
                gone(&scene.client, &event.id).await;
            }
        }
    }

    scene.consumer.wait_for_ids(&wanted, LONG).await;
    let mut database = scene.database.connect().await;
    let seen: Vec<(String, String, String, String)> = sqlx::query_as(
        "SELECT DISTINCT op, isolation, read_only, synchronous_commit FROM witness ORDER BY 1",
    )
    .fetch_all(&mut database)
    .await
    .unwrap();
    database.close().await.unwrap();
    let row = |op: &str, durable: &str| (op.into(), "read committed".into(), "off".into(), durable.into());
    assert_eq!(
        seen,
        [row("DELETE", "on"), row("INSERT", "off"), row("INSERT NOW", "on"), row("UPDATE", "on")]
    );
    let census = scene.end(41).await;
    assert_eq!((census.published, census.gone["rolled_back"]), (21, 20));
}

#[tokio::test]
async fn under_a_repeatable_read_default_commits_are_delivered_and_rollbacks_discarded() {
    under("default_transaction_isolation = 'repeatable read'").await;
}

#[tokio::test]
async fn under_a_serializable_default_commits_are_delivered_and_rollbacks_discarded() {
    under("default_transaction_isolation = 'serializable'").await;
}

#[tokio::test]
async fn under_a_read_only_default_commits_are_delivered_and_rollbacks_discarded() {
    under("default_transaction_read_only = on").await;
}

#[tokio::test]
async fn under_an_asynchronous_default_claims_and_verdicts_are_durable() {
    under("synchronous_commit = off").await;
}

#[tokio::test]
async fn under_a_synchronous_default_a_stage_does_not_wait_for_the_disk() {
    under("synchronous_commit = on").await;
}
