//! The schema and every statement over it (design, sections 3 and 11; pitfalls: two ledgers, `uuidv7()`).

use std::{collections::BTreeSet, path::Path};

use holdfast_server::{
    audit, check,
    db::migrate,
    dev::{Postgres, postgres},
    inbox, jobs, lookup, outbox, retention, roster, schema, tickets,
};
use holdfast_tests::{
    database::{Database, Kind},
    folder, server,
    services::PostgresAt,
};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};
use uuid::Uuid;

const LISTS: [(&str, &[(&str, &str)]); 14] = [
    ("check", check::QUERIES),
    ("inbox", inbox::QUERIES),
    ("jobs", jobs::QUERIES),
    ("outbox", outbox::QUERIES),
    ("outbox/holds", outbox::holds::QUERIES),
    ("outbox/parked", outbox::parked::QUERIES),
    ("outbox/pause", outbox::pause::QUERIES),
    ("outbox/pending", outbox::pending::QUERIES),
    ("outbox/replay", outbox::replay::QUERIES),
    ("outbox/unresolved", outbox::unresolved::QUERIES),
    ("retention", retention::QUERIES),
    ("tickets", tickets::QUERIES),
    ("lookup", lookup::QUERIES),
    ("schema", schema::QUERIES),
];

/// What only the control database has.
const CONTROL_LISTS: [(&str, &[(&str, &str)]); 3] =
    [("audit", audit::QUERIES), ("roster", roster::QUERIES), ("schema", schema::CONTROL_QUERIES)];

/// Names the folder with the servers that `./x test --postgres N` has fetched so far.
const OTHER_POSTGRES: &str = "HOLDFAST_TEST_POSTGRES_FOLDER";

#[tokio::test]
async fn every_statement_of_the_server_prepares_against_the_migrated_schema() {
    prepare_all(&Database::service().await, &LISTS).await;
    prepare_all(&Database::control().await, &CONTROL_LISTS).await;
}

#[tokio::test]
async fn every_statement_prepares_on_the_other_postgresqls_that_are_here() {
    // `./x test --postgres N` fetches them, a test never does; CI's machine has none and this says nothing there.
    let Some(folder) = std::env::var_os(OTHER_POSTGRES) else { return };
    let Ok(servers) = std::fs::read_dir(folder) else { return };
    for bin in servers.map(|server| server.unwrap().path().join("bin")).filter(|bin| bin.is_dir()) {
        let dir = folder::scratch();
        let mut options = postgres::Options::new(dir.path()).setting("fsync = off");
        options.bin = Some(bin);
        let server = Postgres::start(options).await.unwrap();
        let at = PostgresAt { port: server.port() };
        prepare_all(&Database::fresh(at, Kind::Service).await, &LISTS).await;
        prepare_all(&Database::fresh(at, Kind::Control).await, &CONTROL_LISTS).await;
    }
}

async fn prepare_all(database: &Database, lists: &[(&str, &[(&str, &str)])]) {
    let mut connection = database.connect().await;
    for (module, queries) in lists {
        for (name, sql) in *queries {
            let prepared =
                connection.execute(AssertSqlSafe(format!("PREPARE \"{module}/{name}\" AS {sql}"))).await;
            assert!(prepared.is_ok(), "{module}/{name}.sql: {prepared:?}");
        }
    }
    connection.close().await.unwrap();
}

#[test]
fn every_sql_file_of_the_server_is_in_a_list() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/src");
    let mut files = BTreeSet::new();
    collect(&source, &source, &mut files);

    let listed: BTreeSet<String> = LISTS
        .iter()
        .chain(&CONTROL_LISTS)
        .flat_map(|(module, queries)| queries.iter().map(move |(name, _)| format!("{module}/{name}.sql")))
        .collect();

    assert_eq!(files, listed);
}

/// Every `FEATURE/queries/NAME.sql` below `folder`, as `FEATURE/NAME.sql`.
fn collect(source: &Path, folder: &Path, files: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(source, &path, files);
        } else if path.extension().is_some_and(|extension| extension == "sql") {
            let name = path.strip_prefix(source).unwrap().to_str().unwrap().replace("queries/", "");
            files.insert(name);
        }
    }
}

#[tokio::test]
async fn our_ledger_and_a_services_own_do_not_meet() {
    let database = Database::fresh(PostgresAt::shared(), Kind::Empty).await;
    // As a service's own migrator leaves it, with other versions than ours.
    database
        .run(
            "CREATE TABLE public._sqlx_migrations (version bigint PRIMARY KEY, description text NOT NULL,
                 installed_on timestamptz NOT NULL DEFAULT now(), success boolean NOT NULL, checksum bytea NOT NULL,
                 execution_time bigint NOT NULL);
             INSERT INTO public._sqlx_migrations VALUES (1, 'the service''s own', now(), true, '\\x00', 1)",
        )
        .await;

    migrate::service(&database.url()).await.unwrap();
    migrate::service(&database.url()).await.unwrap();

    let own: String = database.one("SELECT string_agg(description, ',') FROM public._sqlx_migrations").await;
    assert_eq!(own, "the service's own");
    let ours: i64 = database.one("SELECT max(version) FROM holdfast.schema_migrations WHERE success").await;
    assert_eq!(ours, migrate::service_version());
    let strangers: i64 = database
        .one("SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'")
        .await;
    assert_eq!(strangers, 1, "nothing of ours is in public");
}

#[tokio::test]
async fn a_control_database_has_both_lines_each_with_its_ledger() {
    let database = Database::fresh(PostgresAt::shared(), Kind::Empty).await;

    migrate::control(&database.url()).await.unwrap();
    migrate::control(&database.url()).await.unwrap();

    for ledger in ["schema_migrations", "control_migrations"] {
        let failed: i64 =
            database.one(&format!("SELECT count(*) FROM holdfast.{ledger} WHERE NOT success")).await;
        assert_eq!(failed, 0);
    }
    let audit: bool = database.one("SELECT to_regclass('holdfast.admin_audit') IS NOT NULL").await;
    assert!(audit);
}

#[tokio::test]
async fn migrating_from_two_processes_at_once_is_harmless() {
    let (service, control) = tokio::join!(
        Database::fresh(PostgresAt::shared(), Kind::Empty),
        Database::fresh(PostgresAt::shared(), Kind::Empty)
    );
    let folder = folder::scratch();
    let path = folder.path().join("holdfast.toml");
    let mut config = server::ServerConfig::new(&control.url(), "amqp://127.0.0.1/x");
    config.service("orders", &service.url());
    std::fs::write(&path, config.to_toml()).unwrap();
    let migrate = || {
        let mut command = tokio::process::Command::new(server::binary());
        command.args(["migrate", "--config"]).arg(&path).kill_on_drop(true);
        async move { command.output().await.unwrap() }
    };

    for ended in futures::future::join_all((0..4).map(|_| migrate())).await {
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    }

    let ours: i64 = service.one("SELECT count(*) FROM holdfast.schema_migrations WHERE success").await;
    assert!(ours >= 1);
}

#[tokio::test]
async fn ids_that_the_database_makes_are_version_7_and_ordered_by_time() {
    let database = Database::service().await;
    let mut connection = database.connect().await;
    let ids: Vec<Uuid> = sqlx::query_scalar(
        "INSERT INTO holdfast.event_outbox (event_type, envelope)
         SELECT 'order.placed', '{}' FROM generate_series(1, 200) RETURNING id",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap();
    let now: f64 = sqlx::query_scalar("SELECT extract(epoch FROM clock_timestamp())::float8 * 1000")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    connection.close().await.unwrap();

    let millis = |id: &Uuid| i64::try_from(id.as_u128() >> 80).unwrap();
    assert!(ids.iter().all(|id| id.get_version_num() == 7 && id.get_variant() == uuid::Variant::RFC4122));
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 200);
    assert!(ids.windows(2).all(|pair| millis(&pair[0]) <= millis(&pair[1])));
    assert!((millis(&ids[199]) as f64 - now).abs() < 60_000.0, "its time is now");
}

#[tokio::test]
async fn the_ordering_key_is_the_aggregate_unless_one_is_given() {
    let database = Database::service().await;
    let aggregate = Uuid::now_v7();
    let given = |key: &str| {
        format!(
            "WITH r AS (INSERT INTO holdfast.event_outbox (event_type, envelope, aggregate_id, ordering_key)
                 VALUES ('a', '{{}}', {key}) RETURNING ordering_key) SELECT coalesce(ordering_key, 'none') FROM r"
        )
    };

    assert_eq!(database.one::<String>(&given(&format!("'{aggregate}', NULL"))).await, aggregate.to_string());
    assert_eq!(database.one::<String>(&given(&format!("'{aggregate}', 'k'"))).await, "k");
    assert_eq!(
        database.one::<String>(&given(&format!("'{aggregate}', ''"))).await,
        "",
        "unordered on purpose"
    );
    assert_eq!(database.one::<String>(&given("NULL, NULL")).await, "none");
}

#[tokio::test]
async fn the_admin_audit_refuses_every_change_even_to_a_superuser() {
    let database = Database::control().await;
    database
        .run(
            "INSERT INTO holdfast.admin_audit (request_id, sub, verb, allowed, arguments)
             VALUES ('r', 's', 'v', true, '{}')",
        )
        .await;
    let mut connection = database.connect().await;
    for change in [
        "UPDATE holdfast.admin_audit SET sub = 'x'",
        "DELETE FROM holdfast.admin_audit",
        "TRUNCATE holdfast.admin_audit CASCADE",
    ] {
        let error = connection.execute(change).await.unwrap_err();
        assert!(error.to_string().contains("append-only"), "{change}: {error}");
    }
    connection.close().await.unwrap();
    assert_eq!(database.one::<i64>("SELECT count(*) FROM holdfast.admin_audit WHERE sub = 's'").await, 1);
}
