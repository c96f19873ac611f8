//! A database per test, cloned from a migrated template.
//!
//! The template is made once per server, by whichever test comes first, under an advisory lock. A clone takes
//! some hundredths of a second; migrating each time would take ten times that. A [`Database`] drops itself,
//! connections or not, also when its test panics.

use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, PgConnection,
    postgres::PgConnectOptions,
};

use crate::{services::PostgresAt, template};

/// One for all who make templates on one server; any number will do, the server is ours.
const TEMPLATE_LOCK: i64 = 0x0068_6f6c_6466_6173;

/// What a database is migrated as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A service's database: schema `holdfast`, and a table `app_rows` of the service's own.
    Service,
    /// The control database.
    Control,
    /// Nothing in it.
    Empty,
}

impl Kind {
    fn template(self) -> Option<&'static str> {
        match self {
            Self::Service => Some("holdfast_template_service"),
            Self::Control => Some("holdfast_template_control"),
            Self::Empty => None,
        }
    }
}

/// A test's own database.
#[derive(Debug)]
pub struct Database {
    server: PostgresAt,
    name: String,
}

impl Database {
    /// A migrated service database on the shared server.
    pub async fn service() -> Self {
        Self::fresh(PostgresAt::shared(), Kind::Service).await
    }

    /// A migrated control database on the shared server.
    pub async fn control() -> Self {
        Self::fresh(PostgresAt::shared(), Kind::Control).await
    }

    /// A new database on any server.
    ///
    /// # Panics
    /// When the server refuses.
    pub async fn fresh(server: PostgresAt, kind: Kind) -> Self {
        let name = format!("t_{}", uuid::Uuid::now_v7().simple());
        let mut admin = connect(&server.url("postgres")).await;
        let from = match kind.template() {
            Some(template) => {
                ensure_template(server, &mut admin, kind, template).await;
                template
            }
            None => "template0",
        };
        execute(&mut admin, &format!("CREATE DATABASE {name} TEMPLATE {from}")).await;
        admin.close().await.expect("close the admin connection");
        Self { server, name }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its server.
    pub fn server(&self) -> PostgresAt {
        self.server
    }

    /// Its URL.
    pub fn url(&self) -> String {
        self.server.url(&self.name)
    }

    /// Its URL by another way, a proxy say.
    pub fn url_through(&self, port: u16) -> String {
        PostgresAt { port }.url(&self.name)
    }

    /// A connection of the test's own.
    pub async fn connect(&self) -> PgConnection {
        connect(&self.url()).await
    }

    /// One value from one row.
    ///
    /// # Panics
    /// When the statement fails.
    pub async fn one<T>(&self, sql: &str) -> T
    where
        T: Send + Unpin + for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
    {
        let mut connection = self.connect().await;
        let value = sqlx::query_scalar(AssertSqlSafe(sql.to_owned()))
            .fetch_one(&mut connection)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error}"));
        let _ = connection.close().await;
        value
    }

    /// Runs statements.
    ///
    /// # Panics
    /// When one fails.
    pub async fn run(&self, sql: &str) {
        let mut connection = self.connect().await;
        execute(&mut connection, sql).await;
        let _ = connection.close().await;
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let (url, sql) =
            (self.server.url("postgres"), format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name));
        crate::afterwards(async move {
            // A private server may be gone already, and its databases with it.
            if let Ok(mut admin) = options(&url).connect().await {
                let _ = admin.execute(AssertSqlSafe(sql)).await;
            }
        });
    }
}

/// Connects, silently: the harness's own statements are not the test's log.
///
/// # Panics
/// When the server refuses.
pub async fn connect(url: &str) -> PgConnection {
    options(url).connect().await.unwrap_or_else(|error| panic!("connect to {url}: {error}"))
}

fn options(url: &str) -> PgConnectOptions {
    let options: PgConnectOptions = url.parse().expect("a database URL");
    options.disable_statement_logging().options([("client_min_messages", "error")])
}

async fn execute(connection: &mut PgConnection, sql: &str) {
    connection.execute(AssertSqlSafe(sql.to_owned())).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// Makes the template if no other test has. `datistemplate` is the mark that it is complete.
async fn ensure_template(server: PostgresAt, admin: &mut PgConnection, kind: Kind, name: &str) {
    sqlx::query("SELECT pg_advisory_lock($1)").bind(TEMPLATE_LOCK).execute(&mut *admin).await.expect("lock");
    let complete: Option<bool> =
        sqlx::query_scalar("SELECT datistemplate FROM pg_database WHERE datname = $1")
            .bind(name)
            .fetch_optional(&mut *admin)
            .await
            .expect("look for the template");
    if complete != Some(true) {
        execute(admin, &format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await;
        execute(admin, &format!("CREATE DATABASE {name} TEMPLATE template0")).await;
        template::fill(kind, &server.url(name)).await;
        execute(admin, &format!("ALTER DATABASE {name} WITH IS_TEMPLATE true ALLOW_CONNECTIONS false")).await;
    }
    sqlx::query("SELECT pg_advisory_unlock($1)").bind(TEMPLATE_LOCK).execute(admin).await.expect("unlock");
}
