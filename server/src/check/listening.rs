//! `wake = "notify"`: is what the service's database announces heard where `serve` listens?
//!
//! Asked by doing it, on a channel of its own: a `LISTEN` as `serve`'s, and a `NOTIFY` from a connection of its pool. Only so
//! shows a pooler that takes the LISTEN and lends its connection to the next one, or a `listen_url` of another database.

use std::time::Duration;

use super::NOTIFY;
use super::database::{PATIENCE, advice};
use super::report::Report;
use crate::config::Service;
use crate::db::{self, Error, Listener, Pool};

const TOPIC: &str = "listening";

/// How long a notification may take: a round trip, and some.
const HEARD_WITHIN: Duration = Duration::from_secs(3);

/// How it ended.
enum Ended {
    Heard,
    Silence,
    /// The database of the service could not be asked to notify, which others report.
    NotSent,
}

/// Reports on the listener of one service, if it has one.
pub(super) async fn check(name: &str, service: &Service) -> Report {
    let mut report = Report::default();
    let Some(url) = service.listens_at() else { return report };
    let subject = match service.listen_url {
        Some(_) => format!("services.{name}.listen_url"),
        None => format!("services.{name}"),
    };
    match ask(url.expose(), service).await {
        Ok(Ended::Heard) => report.ok(&subject, TOPIC, "what the service's database announces is heard"),
        Ok(Ended::Silence) => report.fail(
            &subject,
            TOPIC,
            "it listens, and does not hear what the service's database announces",
            "let listen_url name the service's own database, and no pooler that lends connections by the transaction",
        ),
        Ok(Ended::NotSent) => {}
        Err(error) => report.fail(&subject, TOPIC, error.to_string(), advice(&error)),
    }
    report
}

/// An error is the listener's.
async fn ask(url: &str, service: &Service) -> Result<Ended, Error> {
    // Its own: two who check at the same time must not hear each other.
    let channel = format!("holdfast_check_{}", uuid::Uuid::now_v7().simple());
    let mut listener = Listener::connect(url, &channel, PATIENCE, PATIENCE).await?;
    if notify(&channel, service).await.is_err() {
        return Ok(Ended::NotSent);
    }
    match tokio::time::timeout(HEARD_WITHIN, listener.heard()).await {
        Ok(heard) => heard.map(|()| Ended::Heard),
        Err(_) => Ok(Ended::Silence),
    }
}

async fn notify(channel: &str, service: &Service) -> Result<(), Error> {
    let pool = Pool::new(&db::Options {
        url: service.database_url.expose().to_owned(),
        max_connections: 1,
        prepared_statements: service.prepared_statements,
        acquire_timeout: PATIENCE,
    })?;
    // It is sent when its transaction commits.
    db::within(PATIENCE, async {
        let mut tx = pool.begin(db::Begin::Forgettable).await?;
        sqlx::query(NOTIFY).bind(channel).execute(tx.conn()).await?;
        tx.commit().await
    })
    .await
}
