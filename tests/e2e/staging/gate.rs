//! A gate inside the database: inserts into the outbox (or their commits) stand before it while it is closed. So a test
//! acts at a point in the middle of the server's transaction, and knows that it is there.

use holdfast_tests::{
    database::Database,
    wait::{self, LONG},
};

/// The gate; open at first.
pub(crate) struct Gate<'d> {
    database: &'d Database,
}

impl<'d> Gate<'d> {
    /// Before the first row is inserted.
    pub(crate) async fn before_inserts(database: &'d Database) -> Self {
        Self::make(
            database,
            "CREATE TRIGGER gate BEFORE INSERT ON holdfast.event_outbox FOR EACH STATEMENT
                 EXECUTE FUNCTION public.gate()",
        )
        .await
    }

    /// Before a decision about a hold is written, and after its lock was taken.
    pub(crate) async fn before_decisions(database: &'d Database) -> Self {
        Self::make(
            database,
            "CREATE TRIGGER gate BEFORE INSERT ON holdfast.hold_outcome FOR EACH STATEMENT
                 EXECUTE FUNCTION public.gate()",
        )
        .await
    }

    /// Before the hold of an event of this type is taken off.
    pub(crate) async fn before_the_release_of(database: &'d Database, event_type: &str) -> Self {
        let trigger = format!(
            "CREATE TRIGGER gate AFTER UPDATE ON holdfast.event_outbox FOR EACH ROW
                 WHEN (OLD.hold_operation_id IS NOT NULL AND NEW.hold_operation_id IS NULL
                       AND OLD.event_type = '{event_type}')
                 EXECUTE FUNCTION public.gate()"
        );
        Self::make(database, &trigger).await
    }

    /// Inside the COMMIT of a transaction that has inserted a row.
    pub(crate) async fn before_commits(database: &'d Database) -> Self {
        Self::make(
            database,
            "CREATE CONSTRAINT TRIGGER gate AFTER INSERT ON holdfast.event_outbox
                 DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.gate()",
        )
        .await
    }

    pub(crate) async fn make(database: &'d Database, trigger: &str) -> Self {
        database
            .run(&format!(
                "CREATE TABLE public.gate (closed boolean NOT NULL);
                 INSERT INTO public.gate VALUES (false);
                 CREATE FUNCTION public.gate() RETURNS trigger LANGUAGE plpgsql AS $$
                 BEGIN
                     -- Each look has a snapshot of its own.
                     WHILE (SELECT closed FROM public.gate) LOOP PERFORM pg_sleep(0.002); END LOOP;
                     RETURN NULL;
                 END $$;
                 {trigger}"
            ))
            .await;
        Self { database }
    }

    /// Shuts it. Nobody should stand before it for longer than a stage's statement may take (3 s).
    pub(crate) async fn close(&self) {
        self.database.run("UPDATE public.gate SET closed = true").await;
    }

    /// Lets everybody through.
    pub(crate) async fn open(&self) {
        self.database.run("UPDATE public.gate SET closed = false").await;
    }

    /// Waits until a session of a server stands before it.
    pub(crate) async fn somebody_waits(&self) {
        wait::until_equal("a session before the gate", LONG, true, || async {
            self.database
                .one::<bool>(
                    "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()
                         AND application_name = 'holdfast' AND wait_event = 'PgSleep')",
                )
                .await
        })
        .await;
    }
}
