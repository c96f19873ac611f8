//! What a template database holds. The one place that knows how a database is migrated.

use holdfast_server::db::migrate;
use sqlx::{Connection as _, Executor as _};

use crate::database::{Kind, connect};

/// Fills an empty database.
pub(crate) async fn fill(kind: Kind, url: &str) {
    match kind {
        Kind::Service => {
            migrate::service(url).await.expect("migrate a service database");
            let mut connection = connect(url).await;
            connection
                .execute("CREATE TABLE app_rows (id uuid PRIMARY KEY, note text NOT NULL)")
                .await
                .expect("make the service's own table");
            connection.close().await.expect("close");
        }
        Kind::Control => migrate::control(url).await.expect("migrate a control database"),
        Kind::Empty => {}
    }
    // The database library asks whether its own lines are wanted and then writes none; the subscriber applies that answer to the
    // next line of this thread, whosever that is. Let it be this one.
    tracing::info!(?kind, "a template was filled");
}
