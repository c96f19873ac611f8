//! `deploy/postgres/roles.sql`: each group has what it needs and nothing else (design, section 12; the contract's
//! "SECURITY DEFINER" of section 3).

use std::path::Path;

use holdfast_client::inbox::{Delivery, Handled, HandlerError, handle_in_tx};
use holdfast_proto::v1::{EventState, ListUnresolvedRequest, PendingFilter, ReplayState, TicketHolder};
use holdfast_tests::{
    caller::Caller,
    client::{event, keyed},
    database::{Database, connect},
    holds::{Holds, pair, try_stage},
    operator::{Operator, of_type},
    replay::{Replays, everything},
    scene::{SERVICE, Scene},
    wait::{self, LONG},
};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use uuid::Uuid;

use crate::drain::put;

/// Runs the script; groups and logins of the test's own, because roles are the whole cluster's.
async fn grant(database: &Database) {
    let name = database.name();
    for login in ["server", "caller", "publisher", "consumer"] {
        database
            .run(&format!(
                "DO $$ BEGIN IF to_regrole('{name}_{login}_login') IS NULL THEN CREATE ROLE {name}_{login}_login LOGIN; END IF; END $$"
            ))
            .await;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/postgres/roles.sql");
    let mut psql = tokio::process::Command::new("psql");
    psql.arg("-X").arg("-d").arg(database.url());
    for role in ["server", "caller", "publisher", "consumer"] {
        psql.arg("-v").arg(format!("{role}_role={name}_{role}"));
        psql.arg("-v").arg(format!("{role}_login={name}_{role}_login"));
    }
    let done = psql.arg("-f").arg(script).output().await.unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

fn url_of(database: &Database, role: &str) -> String {
    database.url().replace("postgres@", &format!("{}_{role}_login@", database.name()))
}

async fn denied(connection: &mut PgConnection, sql: &str) {
    let done = connection.execute(AssertSqlSafe(sql.to_owned())).await;
    let error = done.as_ref().err().and_then(|error| error.as_database_error());
    assert_eq!(error.and_then(|error| error.code()).as_deref(), Some("42501"), "{sql}: {done:?}");
}

#[tokio::test]
async fn with_the_granted_roles_alone_a_caller_stages_and_a_server_serves() {
    let mut stage = Scene::builder().stage().await;
    for database in [&stage.database, &stage.control] {
        grant(database).await;
        // Again, as after each migration.
        grant(database).await;
    }
    let (service, control) = (url_of(&stage.database, "server"), url_of(&stage.control, "server"));
    stage.config.service(SERVICE, &service).text("control", "database_url", &control);
    stage.config.set("drain", "held_watch", "\"100ms\"").set("retention", "interval", "\"1s\"");
    stage
        .database
        .run(
            "INSERT INTO holdfast.event_outbox (event_type, envelope, created_at, published_at)
                 VALUES ('order.old', '{}', '-infinity', now());
             INSERT INTO holdfast.hold_outcome VALUES ('old', 1, 'released', '-infinity')",
        )
        .await;
    let scene = stage.start().await;
    let mut caller = Caller::connect(&url_of(&scene.database, "caller")).await;
    let (kept, lost) = (keyed("order.placed", "k"), keyed("order.placed", "k"));

    for (event, how) in [(&lost, "ROLLBACK"), (&kept, "COMMIT")] {
        let ticket = caller.begin_with_ticket().await;
        scene.client.stage(ticket, std::slice::from_ref(event)).await;
        caller.sql(how).await;
        scene.client.confirm(ticket).await;
    }

    scene.client.wait_for_state(&kept.id, EventState::Published).await;
    super::gone(&scene.client, &lost.id).await;
    let holds = Holds::of(&scene);
    for operation in ["released", "dropped"] {
        let ticket = caller.begin_with_ticket().await;
        try_stage(&scene.client, ticket, &pair(operation, 1), &[event("order.placed")]).await.unwrap();
        caller.sql("COMMIT").await;
    }
    assert_eq!(holds.list("", 0).await.len(), 2);
    assert_eq!(holds.release(&pair("released", 1)).await, (1, false));
    assert_eq!(holds.drop_held(&pair("dropped", 1)).await, (1, false));
    scene.logs.wait_for("looked at what is held").await;
    // The schemas could be looked at, and the roster written.
    for service in [SERVICE, "holdfast-control"] {
        let looked = scene
            .server
            .metric("holdfast_schema_looked_timestamp_seconds", &format!("service=\"{service}\""));
        assert!(looked > 0.0, "{service}");
    }
    assert_eq!(scene.control.one::<i64>("SELECT count(*) FROM holdfast.known_service").await, 1);
    scene.logs.wait_for("event_outbox=1 hold_outcome=1").await;
    let census = scene.end(5).await;
    assert_eq!((census.published, census.gone["pruned"]), (2, 1));
}

#[tokio::test]
async fn a_caller_takes_tickets_and_touches_no_table() {
    let database = Database::service().await;
    grant(&database).await;
    let mut caller = connect(&url_of(&database, "caller")).await;

    caller.execute("SELECT holdfast.stage_ticket()").await.unwrap();

    for table in ["event_outbox", "ticket", "outbox_tally", "schema_migrations"] {
        denied(&mut caller, &format!("SELECT FROM holdfast.{table}")).await;
        denied(&mut caller, &format!("DELETE FROM holdfast.{table}")).await;
    }
    denied(&mut caller, "INSERT INTO holdfast.ticket (nonce) VALUES (7)").await;
    denied(&mut caller, "INSERT INTO holdfast.event_outbox (event_type, envelope) VALUES ('a', '{}')").await;
    denied(&mut caller, "CREATE TABLE holdfast.mine ()").await;
    caller.close().await.unwrap();
}

#[tokio::test]
async fn without_a_grant_nobody_takes_tickets() {
    let database = Database::service().await;
    database.run(&format!("CREATE ROLE {}_nobody_login LOGIN", database.name())).await;
    let mut nobody = connect(&url_of(&database, "nobody")).await;

    denied(&mut nobody, "SELECT holdfast.stage_ticket()").await;

    nobody.close().await.unwrap();
}

#[tokio::test]
async fn a_publisher_inserts_events_and_reads_none() {
    let database = Database::service().await;
    grant(&database).await;
    let mut publisher = connect(&url_of(&database, "publisher")).await;

    let mut tx = publisher.begin().await.unwrap();
    holdfast_client::outbox::publish_in_tx(&mut tx, SERVICE, &event("order.placed")).await.unwrap();
    tx.commit().await.unwrap();
    publisher
        .execute("INSERT INTO holdfast.event_outbox (event_type, envelope) VALUES ('order.placed', '{}')")
        .await
        .unwrap();
    // An announced event needs no right more.
    database.run("SELECT holdfast.outbox_notify(true)").await;
    publisher
        .execute("INSERT INTO holdfast.event_outbox (event_type, envelope) VALUES ('order.placed', '{}')")
        .await
        .unwrap();

    denied(&mut publisher, "SELECT FROM holdfast.event_outbox").await;
    denied(&mut publisher, "UPDATE holdfast.event_outbox SET attempts = 0").await;
    denied(&mut publisher, "DELETE FROM holdfast.event_outbox").await;
    denied(&mut publisher, "SELECT holdfast.stage_ticket()").await;
    publisher.close().await.unwrap();
    assert_eq!(database.one::<i64>("SELECT count(*) FROM holdfast.event_outbox").await, 3);
}

#[tokio::test]
async fn a_consumer_in_process_has_the_inbox_and_nothing_else() {
    let database = Database::service().await;
    grant(&database).await;
    // The handler's own table is its service's.
    database.run(&format!("GRANT INSERT ON app_rows TO {}_consumer_login", database.name())).await;
    let pool = sqlx::PgPool::connect(&url_of(&database, "consumer")).await.unwrap();
    let delivery = Delivery::new("orders.payments", Uuid::now_v7());
    let failed = handle_in_tx(&pool, &delivery, async |_| Err::<(), _>(HandlerError::retry("no"))).await;
    assert!(matches!(failed, Ok(Handled::Retry(_))), "{failed:?}");
    let done = handle_in_tx(&pool, &delivery, async |tx| {
        let row = sqlx::query("INSERT INTO app_rows (id, note) VALUES ($1, 'x')");
        row.bind(Uuid::now_v7()).execute(tx).await?;
        Ok::<(), HandlerError>(())
    });
    assert!(matches!(done.await, Ok(Handled::Done(()))));
    let again = handle_in_tx(&pool, &delivery, async |_| Ok::<(), HandlerError>(())).await;
    assert!(matches!(again, Ok(Handled::Duplicate)), "{again:?}");

    let mut consumer = pool.acquire().await.unwrap();
    denied(&mut consumer, "DELETE FROM holdfast.event_inbox").await;
    denied(&mut consumer, "TRUNCATE holdfast.event_inbox").await;
    denied(&mut consumer, "UPDATE holdfast.event_inbox SET ticket = 7").await;
    denied(&mut consumer, "UPDATE holdfast.event_inbox SET envelope_id = envelope_id").await;
    for table in ["event_outbox", "ticket", "outbox_tally", "schema_migrations"] {
        denied(&mut consumer, &format!("SELECT FROM holdfast.{table}")).await;
    }
    denied(&mut consumer, "SELECT holdfast.stage_ticket()").await;
}

#[tokio::test]
async fn a_server_changes_rows_and_neither_tables_nor_ledgers_nor_what_is_append_only() {
    let database = Database::control().await;
    grant(&database).await;
    let mut server = connect(&url_of(&database, "server")).await;

    for sql in [
        "TRUNCATE holdfast.event_outbox",
        "DROP TABLE holdfast.event_outbox",
        "ALTER TABLE holdfast.event_outbox ADD COLUMN x int",
        "CREATE TABLE holdfast.mine ()",
        "UPDATE holdfast.schema_migrations SET success = false",
        "DELETE FROM holdfast.schema_migrations",
        "UPDATE holdfast.control_migrations SET success = false",
        "DELETE FROM holdfast.control_migrations",
        "UPDATE holdfast.admin_audit SET sub = ''",
        "DELETE FROM holdfast.admin_audit",
        "TRUNCATE holdfast.admin_audit",
        "UPDATE holdfast.hold_outcome SET outcome = 'released'",
        "TRUNCATE holdfast.admin_audit CASCADE",
        "UPDATE holdfast.admin_audit_outcome SET counts = NULL",
        "DELETE FROM holdfast.admin_audit_outcome",
        "TRUNCATE holdfast.admin_audit_outcome",
        // What would take the triggers out of the way.
        "ALTER TABLE holdfast.admin_audit DISABLE TRIGGER ALL",
        "DROP TRIGGER admin_audit_append_only ON holdfast.admin_audit",
        "SET session_replication_role = replica",
        "ALTER FUNCTION holdfast.refuse_change() OWNER TO CURRENT_USER",
        "CREATE OR REPLACE FUNCTION holdfast.refuse_change() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN OLD; END'",
        // Switching announcements on or off alters the table.
        "SELECT holdfast.outbox_notify(true)",
    ] {
        denied(&mut server, sql).await;
    }
    server
        .execute(
            "INSERT INTO holdfast.admin_audit (request_id, sub, verb, allowed, arguments)
             VALUES ('r', 's', 'v', true, '{}')",
        )
        .await
        .unwrap();
    server.close().await.unwrap();
}

#[tokio::test]
async fn with_the_granted_role_alone_an_operator_sees_acts_and_pauses() {
    let mut stage = Scene::builder().stage().await;
    for database in [&stage.database, &stage.control] {
        grant(database).await;
    }
    let (service, control) = (url_of(&stage.database, "server"), url_of(&stage.control, "server"));
    stage.config.service(SERVICE, &service).text("control", "database_url", &control);
    let scene = stage.start().await;
    let operator = Operator::of(&scene);
    let mut caller = Caller::connect(&url_of(&scene.database, "caller")).await;
    let ticket = caller.begin_with_ticket().await;
    scene.client.stage(ticket, &[event("order.open")]).await;
    for n in 0..2 {
        let parked = [("parked_at", "now()"), ("parked_reason", "'crashed'"), ("admitted_at", "now()")];
        put(&scene.database, &format!("order.parked{n}"), None, &parked).await;
    }
    let off = [("admitted_at", "now()"), ("next_attempt_at", "now() + interval '1 hour'")];
    let off = put(&scene.database, "order.off", None, &off).await;

    assert_eq!(operator.pending(PendingFilter::default(), 0).await.len(), 4);
    let request = ListUnresolvedRequest { service: SERVICE.to_owned(), ..Default::default() };
    let open = operator.raw.clone().list_unresolved(request).await.unwrap().into_inner().tickets;
    assert_eq!((open[0].ticket, open[0].holder()), (ticket, TicketHolder::Backend));
    assert!(open[0].pid > 0 && open[0].login.ends_with("_caller_login"), "{open:?}");
    assert_eq!(
        (open[0].state.as_str(), open[0].transaction_started_at, open[0].client_address.as_str()),
        ("", None, ""),
        "another role's: no more is told to a role without pg_read_all_stats"
    );
    assert_eq!(operator.unpark_all(of_type("order.parked0"), "").await.unwrap().acted, 1);
    assert_eq!(operator.discard_all(of_type("order.parked1"), "gone").await.unwrap().acted, 1);
    assert_eq!(operator.retry(&[&off]).await.unwrap().acted, 1);
    assert!(!operator.pause("a look").await.unwrap().paused_before);
    assert!(operator.resume().await.unwrap().is_some());
    caller.sql("COMMIT").await;
    wait::until_equal("published events", LONG, 3_i64, || async {
        scene.database.one("SELECT count(*) FROM holdfast.event_outbox WHERE published_at IS NOT NULL").await
    })
    .await;
    let done = Replays::of(&scene).replay(everything()).await;
    assert_eq!((done.state(), done.done), (ReplayState::Done, 3));
    assert_eq!(scene.end(4).await.published, 3);
}
