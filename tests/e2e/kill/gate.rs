//! Gates: places inside the database where the server's own statements (or a caller's COMMIT) can be made to wait.
//!
//! A trigger before the write stops a statement while its transaction is open; a deferred one stops the COMMIT itself,
//! after everything was written and before it counts. Who waits at a gate is seen in `pg_locks`. So a step is reached
//! by a fact and kept for as long as the test likes, with the real server and no code of ours in it.
//!
//! A session whose client was killed waits on: PostgreSQL looks at the client only when the statement is over. That is
//! what happens to any statement in flight; the open gate then shows how it ends.

use holdfast_tests::{
    database::Database,
    wait::{self, LONG},
};

/// Where to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gate {
    /// The stage's INSERT.
    Stage = 1,
    /// The stage's COMMIT.
    StageCommit,
    /// The COMMIT of a caller that has written a row of its own.
    CallerCommit,
    /// The claim's UPDATE: the drain lock is held.
    Claim,
    /// The claim's COMMIT.
    ClaimCommit,
    /// The stamp's UPDATE: the broker has confirmed.
    Stamp,
    /// The stamp's COMMIT.
    StampCommit,
}

const BUILD: &str = "
    CREATE SCHEMA gates;
    CREATE TABLE gates.closed (gate integer PRIMARY KEY);
    CREATE FUNCTION gates.pass() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        -- Each look is a statement of its own, hence has a snapshot of its own.
        WHILE EXISTS (SELECT 1 FROM gates.closed WHERE gate = TG_ARGV[0]::integer) LOOP
            PERFORM pg_advisory_xact_lock_shared(77, TG_ARGV[0]::integer);
            PERFORM pg_sleep(0.002);
        END LOOP;
        RETURN NEW;
    END $$;
    CREATE TRIGGER gate_1 BEFORE INSERT ON holdfast.event_outbox
        FOR EACH ROW EXECUTE FUNCTION gates.pass(1);
    CREATE CONSTRAINT TRIGGER gate_2 AFTER INSERT ON holdfast.event_outbox DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION gates.pass(2);
    CREATE CONSTRAINT TRIGGER gate_3 AFTER INSERT ON app_rows DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION gates.pass(3);
    CREATE TRIGGER gate_4 BEFORE UPDATE ON holdfast.event_outbox
        FOR EACH ROW WHEN (OLD.claimed_at IS NULL AND NEW.claimed_at IS NOT NULL) EXECUTE FUNCTION gates.pass(4);
    CREATE CONSTRAINT TRIGGER gate_5 AFTER UPDATE ON holdfast.event_outbox DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW WHEN (OLD.claimed_at IS NULL AND NEW.claimed_at IS NOT NULL) EXECUTE FUNCTION gates.pass(5);
    CREATE TRIGGER gate_6 BEFORE UPDATE ON holdfast.event_outbox
        FOR EACH ROW WHEN (OLD.published_at IS NULL AND NEW.published_at IS NOT NULL)
        EXECUTE FUNCTION gates.pass(6);
    CREATE CONSTRAINT TRIGGER gate_7 AFTER UPDATE ON holdfast.event_outbox DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW WHEN (OLD.published_at IS NULL AND NEW.published_at IS NOT NULL)
        EXECUTE FUNCTION gates.pass(7);";

/// Builds all gates of a service's database, open.
pub(super) async fn build(database: &Database) {
    database.run(BUILD).await;
}

/// From now on whoever comes to it waits.
pub(super) async fn close(database: &Database, gate: Gate) {
    database.run(&format!("INSERT INTO gates.closed VALUES ({})", gate as i32)).await;
}

/// Waits until somebody waits there.
pub(super) async fn somebody_waits(database: &Database, gate: Gate) {
    let sql = format!(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 77 AND objid = {} AND objsubid = 2
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
        gate as i32
    );
    wait::until(&format!("somebody to wait at {gate:?}"), LONG, || async {
        match database.one::<i64>(&sql).await {
            0 => Err("nobody"),
            _ => Ok(()),
        }
    })
    .await;
}

/// Opens all gates and waits until everybody who waited has ended his transaction, one way or the other.
pub(super) async fn open_all(database: &Database) {
    database.run("DELETE FROM gates.closed").await;
    let sql = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 77 AND objsubid = 2
                  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    wait::until_equal("transactions that waited at a gate", LONG, 0, || database.one::<i64>(sql)).await;
}
