//! Nothing that committed is lost and nothing that rolled back is delivered, whatever PostgreSQL forgets in an immediate
//! shutdown (design, section 3, [E]; invariant 1).

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
};

use holdfast_proto::v1::EventState;
use holdfast_server::dev::{Postgres, postgres};
use holdfast_tests::{
    client::{Client, event},
    folder,
    reconcile::Census,
    scene::Scene,
    services::PostgresAt,
    wait::{self, LONG},
};
use rand::Rng as _;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};

use super::expect_database_outage;

/// What is not forced out stays in memory for ten seconds, so a shutdown in between forgets it.
async fn forgetful(dir: &std::path::Path) -> Postgres {
    let options = postgres::Options::new(dir).setting("wal_writer_delay = '10s'").setting("fsync = off");
    Postgres::start(options).await.unwrap()
}

#[tokio::test]
async fn a_transaction_with_nothing_but_a_ticket_is_flushed_by_its_commit() {
    let dir = folder::scratch();
    let mut server = forgetful(dir.path()).await;
    let scene = Scene::builder().on_postgres(PostgresAt { port: server.port() }).start().await;
    expect_database_outage(&scene.logs);
    let mut caller = scene.caller().await;
    let ticket = caller.begin_with_ticket().await;
    let event = event("order.placed");
    // The stage's own commit is asynchronous: it is on disk only because a later commit was forced.
    scene.client.stage(ticket, std::slice::from_ref(&event)).await;
    caller.commit().await;

    server.kill_immediate().await.unwrap();
    server.start_again().await.unwrap();

    scene.client.wait_for_state(&event.id, EventState::Published).await;
    assert_eq!(scene.end(1).await.published, 1);
}

#[tokio::test]
async fn a_published_event_of_an_asynchronous_caller_has_committed_for_good() {
    let dir = folder::scratch();
    let mut server = forgetful(dir.path()).await;
    let scene = Scene::builder().on_postgres(PostgresAt { port: server.port() }).start().await;
    expect_database_outage(&scene.logs);
    let mut caller = scene.caller().await;
    caller.sql("SET synchronous_commit = off").await;
    let ticket = caller.begin_with_ticket().await;
    let row = caller.row("asynchronous").await;
    let event = event("order.placed");
    scene.client.stage(ticket, std::slice::from_ref(&event)).await;
    caller.commit().await;
    scene.consumer.wait_for_ids(&[&event.id], LONG).await;

    server.kill_immediate().await.unwrap();
    server.start_again().await.unwrap();

    let found = format!("SELECT count(*) FROM app_rows WHERE id = '{row}'");
    assert_eq!(scene.database.one::<i64>(&found).await, 1, "what was published is true");
    scene.end(1).await;
}

/// How a transaction of a writer goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    TicketOnly,
    RolledBack,
    SavepointReleased,
    SavepointRolledBack,
}

const KINDS: [Kind; 5] =
    [Kind::Plain, Kind::TicketOnly, Kind::RolledBack, Kind::SavepointReleased, Kind::SavepointRolledBack];

/// What a writer knows.
#[derive(Debug, Default)]
struct Known {
    /// Its COMMIT was acknowledged.
    committed: BTreeSet<String>,
    /// It rolled back itself, or asked for it.
    rolled_back: BTreeSet<String>,
    /// The answer was lost, but there is a row of the service's own: it tells.
    unknown: BTreeSet<String>,
}

struct Writer {
    url: String,
    client: Client,
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    kinds: &'static [Kind],
}

impl Writer {
    async fn run(self) -> Known {
        let mut known = Known::default();
        while !self.stop.load(SeqCst) {
            let Ok(mut connection) = PgConnection::connect(&self.url).await else {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                continue;
            };
            while !self.stop.load(SeqCst) {
                let kind = self.kinds[rand::rng().random_range(0..self.kinds.len())];
                if self.transaction(&mut connection, kind, &mut known).await.is_err() {
                    break;
                }
            }
        }
        known
    }

    async fn transaction(&self, c: &mut PgConnection, kind: Kind, known: &mut Known) -> sqlx::Result<()> {
        let event = event("order.placed");
        let id = event.id.clone();
        let in_savepoint = matches!(kind, Kind::SavepointReleased | Kind::SavepointRolledBack);
        c.execute(if in_savepoint { "BEGIN; SAVEPOINT s" } else { "BEGIN" }).await?;
        let ticket = sqlx::query_scalar("SELECT holdfast.stage_ticket()").fetch_one(&mut *c).await?;
        if kind != Kind::TicketOnly {
            c.execute(AssertSqlSafe(format!("INSERT INTO app_rows VALUES ('{id}', '')"))).await?;
        }
        if self.client.try_stage(ticket, &[event]).await.is_err() {
            c.execute("ROLLBACK").await?;
            return Ok(());
        }
        match kind {
            Kind::RolledBack => {
                known.rolled_back.insert(id);
                return c.execute("ROLLBACK").await.map(drop);
            }
            Kind::SavepointRolledBack => {
                known.rolled_back.insert(id.clone());
                c.execute("ROLLBACK TO SAVEPOINT s").await?;
            }
            Kind::SavepointReleased => {
                c.execute("RELEASE SAVEPOINT s").await?;
            }
            Kind::Plain | Kind::TicketOnly => {}
        }
        let committed = c.execute("COMMIT").await;
        if kind != Kind::SavepointRolledBack {
            match &committed {
                Ok(_) => {
                    known.committed.insert(id);
                    self.acknowledged.fetch_add(1, SeqCst);
                }
                Err(_) if kind != Kind::TicketOnly => drop(known.unknown.insert(id)),
                Err(_) => {}
            }
        }
        committed.map(drop)
    }
}

/// Six writers through `shutdowns` immediate shutdowns, each after some progress; then all that they know.
async fn storm(scene: &Scene, server: &mut Postgres, shutdowns: usize, kinds: &'static [Kind]) -> Known {
    let (stop, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let writers: Vec<_> = (0..6)
        .map(|_| {
            let writer = Writer {
                url: scene.database.url(),
                client: scene.client.clone(),
                stop: stop.clone(),
                acknowledged: acknowledged.clone(),
                kinds,
            };
            tokio::spawn(writer.run())
        })
        .collect();
    for _ in 0..shutdowns {
        let before = acknowledged.load(SeqCst);
        wait::until("sixty acknowledged commits", LONG, || async {
            let n = acknowledged.load(SeqCst) - before;
            if n >= 60 { Ok(()) } else { Err(n) }
        })
        .await;
        server.kill_immediate().await.unwrap();
        server.start_again().await.unwrap();
    }
    stop.store(true, SeqCst);
    let mut all = Known::default();
    for writer in writers {
        let known = writer.await.unwrap();
        all.committed.extend(known.committed);
        all.rolled_back.extend(known.rolled_back);
        all.unknown.extend(known.unknown);
    }
    all
}

/// Those of `ids` that the service's own rows say have committed.
async fn true_by_their_rows(scene: &Scene, ids: &BTreeSet<String>) -> BTreeSet<String> {
    let mut connection = scene.database.connect().await;
    let rows: Vec<String> =
        sqlx::query_scalar("SELECT id::text FROM app_rows").fetch_all(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    rows.into_iter().filter(|id| ids.contains(id)).collect()
}

#[tokio::test]
async fn heavy_through_immediate_shutdowns_what_committed_is_delivered_and_what_rolled_back_is_not() {
    let dir = folder::scratch();
    let mut server = forgetful(dir.path()).await;
    let scene = Scene::builder().on_postgres(PostgresAt { port: server.port() }).start().await;
    expect_database_outage(&scene.logs);

    let known = storm(&scene, &mut server, 5, &KINDS).await;

    let also_true = true_by_their_rows(&scene, &known.unknown).await;
    let wanted: Vec<&String> = known.committed.union(&also_true).collect();
    scene.consumer.wait_for_ids(&wanted, LONG).await;
    wait::until("the outbox to settle", LONG, || async {
        let census = Census::take(&scene.database).await;
        if census.moving() == 0 { Ok(()) } else { Err(census) }
    })
    .await;
    let seen: BTreeSet<String> = scene.consumer.ids().into_iter().collect();
    let wrong: Vec<_> = known
        .rolled_back
        .iter()
        .chain(known.unknown.difference(&also_true))
        .filter(|id| seen.contains(*id))
        .collect();
    assert!(wrong.is_empty(), "delivered, but rolled back: {wrong:?}");
    assert!(known.committed.len() >= 300 && known.rolled_back.len() >= 50, "{}", known.committed.len());
    scene.end_as_it_is().await;
}

#[tokio::test]
async fn heavy_an_asynchronous_stage_is_on_disk_before_its_callers_commit() {
    let dir = folder::scratch();
    let mut server = forgetful(dir.path()).await;
    let scene = Scene::builder().on_postgres(PostgresAt { port: server.port() }).start().await;
    expect_database_outage(&scene.logs);

    let known = storm(&scene, &mut server, 4, &[Kind::Plain]).await;

    let mut connection = scene.database.connect().await;
    let staged: Vec<String> = sqlx::query_scalar("SELECT id::text FROM holdfast.event_outbox")
        .fetch_all(&mut connection)
        .await
        .unwrap();
    connection.close().await.unwrap();
    let staged: BTreeSet<String> = staged.into_iter().collect();
    let also_true = true_by_their_rows(&scene, &known.unknown).await;
    let lost: Vec<_> = known.committed.union(&also_true).filter(|id| !staged.contains(*id)).collect();
    assert!(lost.is_empty(), "committed, but not staged any more: {lost:?}");
    scene.end_as_it_is().await;
}
