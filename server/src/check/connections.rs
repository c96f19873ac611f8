//! Do the connections that all replicas may open fit into each PostgreSQL?
//!
//! Pools open connections as they need them: a sum that does not fit works for months and fails on the busiest day.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::LIMITS;
use super::report::Report;
use crate::config::Demand;
use crate::db::{self, Error, Pool};

/// What a PostgreSQL allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, sqlx::FromRow)]
pub struct Limit {
    /// `max_connections`.
    #[sqlx(rename = "max_connections")]
    pub connections: i64,
    /// Those that an ordinary login does not get.
    #[sqlx(rename = "reserved_connections")]
    pub reserved: i64,
}

impl Limit {
    /// What is left for ordinary logins.
    fn usable(self) -> u64 {
        u64::try_from(self.connections - self.reserved).unwrap_or_default()
    }
}

const ADVICE: &str = "lower max_connections in the configuration, raise it in PostgreSQL (a restart), or let services move; count the services' own connections, too";

/// What does not fit, in words.
fn sum(demand: &Demand, replicas: u32, limit: Limit) -> String {
    format!(
        "{replicas} replicas may open {replicas} × {} = {} connections ({}); it has {} for logins ({} − {} reserved)",
        demand.of_a_replica,
        demand.connections,
        demand.of.join(", "),
        limit.usable(),
        limit.connections,
        limit.reserved,
    )
}

/// Reports on each server of which somebody knows the limit.
pub(super) fn check(demands: &[Demand], replicas: u32, limits: &[(String, Limit)], report: &mut Report) {
    for demand in demands {
        let known = limits.iter().find(|(owner, _)| demand.of.contains(owner));
        // Who could not be reached has been reported on.
        let Some((_, limit)) = known else { continue };
        let subject = format!("postgres {}", demand.server);
        let seen = sum(demand, replicas, *limit);
        if demand.connections > limit.usable() {
            report.fail(&subject, "connections", seen, ADVICE);
        } else {
            report.ok(&subject, "connections", seen);
        }
    }
}

/// What one place asks for, on whose account.
pub(super) struct Asked {
    /// Whose connections they are.
    pub(super) of: String,
    /// `host:port`.
    pub(super) server: String,
    pub(super) login: String,
    pub(super) database: String,
    /// Of all replicas.
    pub(super) connections: u64,
    /// Unknown of a place that could not be asked; it wants its connections all the same.
    pub(super) ceilings: Option<Ceilings>,
}

/// The CONNECTION LIMITs that apply to a place; below 0: none.
#[derive(Clone, Copy)]
pub(super) struct Ceilings {
    pub(super) login: i64,
    pub(super) database: i64,
    /// No such limit holds a superuser back.
    pub(super) superuser: bool,
}

/// Reports on logins and databases with a CONNECTION LIMIT. A login's holds for all databases of its server together.
pub(super) fn ceilings(asked: &[Asked], report: &mut Report) {
    type Pick = (&'static str, fn(&Asked) -> &str, fn(Ceilings) -> i64);
    let kinds: [Pick; 2] = [
        ("login", |asked| &asked.login, |ceilings| ceilings.login),
        ("database", |asked| &asked.database, |ceilings| ceilings.database),
    ];
    for (kind, name, limit) in kinds {
        let mut groups: BTreeMap<(&str, &str), Vec<&Asked>> = BTreeMap::new();
        for asked in asked.iter().filter(|asked| !asked.ceilings.is_some_and(|known| known.superuser)) {
            groups.entry((&asked.server, name(asked))).or_default().push(asked);
        }
        for ((server, name), asked) in groups {
            let known = asked.iter().find_map(|asked| asked.ceilings);
            let Some(limit) = known.and_then(|known| u64::try_from(limit(known)).ok()) else { continue };
            let wanted: u64 = asked.iter().map(|asked| asked.connections).sum();
            let of: Vec<&str> = asked.iter().map(|asked| asked.of.as_str()).collect();
            let subject = format!("postgres {server}");
            let seen = format!(
                "all replicas may open {wanted} connections ({}), and the {kind} {name:?} has a limit of {limit}",
                of.join(", ")
            );
            if wanted > limit {
                report.fail(
                    &subject,
                    kind,
                    seen,
                    "lower max_connections or replicas, or raise the CONNECTION LIMIT",
                );
            } else {
                report.ok(&subject, kind, seen);
            }
        }
    }
}

/// How long to wait before a server that could not be asked is asked again.
const AGAIN: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks each PostgreSQL once, as soon as it can be asked, and warns if what all replicas may open does not fit. Uses the pools
/// of those who have a database there (by owner, as [`Demand::of`] names them), and ends when all are asked or with `stop`.
pub async fn watch(
    demands: Vec<Demand>,
    replicas: u32,
    pools: HashMap<String, Pool>,
    stop: CancellationToken,
) {
    let each = demands.iter().map(|demand| async {
        let limit = limit(demand, &pools).await;
        debug!(
            server.address = demand.server,
            connections = demand.connections,
            ?limit,
            "connections counted"
        );
        if demand.connections > limit.usable() {
            warn!(
                server.address = demand.server,
                connections = demand.connections,
                allowed = limit.usable(),
                "more connections than this PostgreSQL has: {}; {ADVICE}",
                sum(demand, replicas, limit)
            );
        }
    });
    tokio::select! {
        () = stop.cancelled() => {}
        _ = futures::future::join_all(each) => {}
    }
}

async fn limit(demand: &Demand, pools: &HashMap<String, Pool>) -> Limit {
    loop {
        for pool in demand.of.iter().filter_map(|owner| pools.get(owner)) {
            match db::within(PATIENCE, ask(pool)).await {
                Ok(limit) => return limit,
                // Its own loops say so.
                Err(error) => {
                    debug!(server.address = demand.server, %error, "cannot ask for its connections yet")
                }
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn ask(pool: &Pool) -> Result<Limit, Error> {
    let mut read = pool.read().await?;
    let limit = sqlx::query_as(LIMITS).fetch_one(read.conn()).await.map_err(Error::from);
    read.finish(limit).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Verdict;

    #[test]
    fn a_login_s_limit_is_for_all_its_databases_and_a_superuser_has_none() {
        let asked = |of: &str, login: &str, database: &str, ceilings| Asked {
            of: of.into(),
            server: "db:5432".into(),
            login: login.into(),
            database: database.into(),
            connections: 8,
            ceilings,
        };
        let known = |login, database, superuser| Some(Ceilings { login, database, superuser });
        let verdicts = |asked: &[Asked]| {
            let mut report = Report::default();
            ceilings(asked, &mut report);
            report.checks.into_iter().map(|one| (one.topic, one.verdict, one.seen)).collect::<Vec<_>>()
        };
        let two = |limit| [asked("a", "h", "x", known(limit, -1, false)), asked("b", "h", "y", None)];
        let found = verdicts(&two(15));
        assert_eq!(found.len(), 1, "{found:?}");
        let (topic, verdict, seen) = &found[0];
        assert_eq!((*topic, *verdict), ("login", Verdict::Fail));
        assert!(seen.contains("16 connections (a, b)") && seen.contains("\"h\" has a limit of 15"), "{seen}");
        assert_eq!(verdicts(&two(16))[0].1, Verdict::Ok);

        let one_database = [
            asked("a", "h", "x", known(-1, 15, false)),
            asked("a.listen_url", "l", "x", known(-1, 15, false)),
        ];
        assert_eq!(verdicts(&one_database)[0].1, Verdict::Fail);
        assert!(verdicts(&[asked("a", "h", "x", known(1, 1, true))]).is_empty());
    }

    #[test]
    fn what_fits_to_the_last_connection_is_good_and_one_more_is_not() {
        let demand = |connections| Demand {
            server: "db:5432".into(),
            of_a_replica: connections / 2,
            connections,
            of: vec!["control".into(), "services.orders".into()],
        };
        let limits = [("services.orders".to_owned(), Limit { connections: 100, reserved: 3 })];
        for (connections, verdict) in [(96, Verdict::Ok), (98, Verdict::Fail)] {
            let mut report = Report::default();
            check(&[demand(connections)], 2, &limits, &mut report);
            assert_eq!(report.worst(), verdict, "{}", report.to_text());
            assert!(report.to_text().contains("97 for logins (100 − 3 reserved)"), "{}", report.to_text());
        }
    }
}
