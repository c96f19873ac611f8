//! Is a database's schema `holdfast` what this release works with? The expected shape is in the binary
//! (`migrations/golden`, made by `./x golden` from the migrations); the database's is read from its catalogue.
//!
//! Guarantees: a difference that breaks us is found at start, every few minutes and soon after a statement that smells of it; it
//! shuts this service's [`Gate`](crate::db::Gate) and no other's; once it is mended the gate opens without a restart. A database
//! that cannot be asked has not drifted. Does not: mend anything, look at rows, rights or owners. Design, section 11.
//!
//! ```text
//!           look: breaking, and again half a second later
//!    open ─────────────────────────────────────────────────► shut     calls: SCHEMA_DRIFT; nothing claimed; what is in
//!      ▲                                                       │       flight ends; verdicts are still written
//!      └───────────────────────────────────────────────────────┘
//!           look (every 12 s): nothing breaking
//! ```

mod compare;
pub(crate) mod ledger;
mod shape;
pub(crate) mod sql;
mod watch;

use std::time::Duration;

use crate::db::{self, Begin, Pool, migrate};
use ledger::Standing;

pub use compare::{Drift, compare};
pub use shape::{Name, Shape};
pub use sql::{CONTROL_QUERIES, QUERIES};
pub use watch::{Options, Watch};

const SERVICE: &str = include_str!("../../../migrations/golden/service.txt");
const CONTROL: &str = include_str!("../../../migrations/golden/control.txt");

/// Whose database it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// A service's.
    Service,
    /// The control database: the service line and the control line.
    Control,
}

impl Of {
    /// What its schema should look like, as text: a line a thing, of each line of migrations.
    pub fn texts(self) -> &'static [&'static str] {
        match self {
            Self::Service => &[SERVICE],
            Self::Control => &[SERVICE, CONTROL],
        }
    }

    /// What its schema should look like.
    pub fn expected(self) -> Shape {
        match self {
            Self::Service => Shape::parse(SERVICE),
            Self::Control => Shape::parse(SERVICE).with(Shape::parse(CONTROL)),
        }
    }
}

/// What was seen of a schema.
#[derive(Debug)]
struct Seen {
    shape: Shape,
    lines: Vec<Standing>,
}

/// Looks once, for at most `limit`. In a transaction of its own, which waits for no lock for long: under a migration that
/// holds one, nothing can be said.
///
/// # Errors
/// The database's.
pub async fn look(pool: &Pool, of: Of, limit: Duration) -> Result<Drift, db::Error> {
    Ok(judge(of, seen(pool, of, limit).await?))
}

/// What a schema looks like now.
///
/// # Errors
/// The database's.
pub async fn shape(pool: &Pool, limit: Duration) -> Result<Shape, db::Error> {
    Ok(seen(pool, Of::Service, limit).await?.shape)
}

async fn seen(pool: &Pool, of: Of, limit: Duration) -> Result<Seen, db::Error> {
    db::within(limit, async {
        let mut tx = pool.begin(Begin::Durable).await?;
        let mut shape = None;
        let work = async {
            let conn = tx.conn();
            shape = Some(sql::shape(conn).await?);
            let mut lines = Vec::new();
            let (service, control) = sql::ledgers(conn).await?;
            let most = ledger::most(ledger::RELEASE);
            if service {
                let applied = sql::service_line(conn).await?;
                lines.push(ledger::compare(&applied, &migrate::service_migrations(), most));
            }
            if control && of == Of::Control {
                let applied = sql::control_line(conn).await?;
                lines.push(ledger::compare(&applied, &migrate::control_migrations(), most));
            }
            Ok(lines)
        }
        .await;
        match (tx.finish(work).await, shape) {
            (Ok(lines), Some(shape)) => Ok(Seen { shape, lines }),
            // The ledger may not be read: `check` says so. The shape is what counts.
            (Err(error), Some(shape)) if error.sqlstate.as_deref() == Some("42501") => {
                Ok(Seen { shape, lines: Vec::new() })
            }
            (Err(error), _) => Err(error),
            (Ok(_), None) => Ok(Seen { shape: Shape::default(), lines: Vec::new() }),
        }
    })
    .await
}

fn judge(of: Of, seen: Seen) -> Drift {
    // What a control database has may be in a service's, too.
    let mut drift = compare(&of.expected(), &seen.shape, &Of::Control.expected());
    for standing in seen.lines {
        match standing {
            Standing::Ahead { schema, most } => drift.breaking.push(format!(
                "its migrations are at {schema}; this release runs on at most {most}: use a newer one"
            )),
            // Why something is missing.
            Standing::Behind { missing } if !drift.breaking.is_empty() => {
                let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
                let missing = missing.join(", ");
                drift
                    .breaking
                    .insert(0, format!("migrations not applied yet: {missing}: run `holdfast migrate`"));
            }
            _ => {}
        }
    }
    drift
}
