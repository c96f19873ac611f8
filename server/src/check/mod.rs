//! Is everything there that `serve` needs? Looks, changes nothing, and says all of it at once.
//!
//! Every database and the broker are asked at the same time, each within a limit, so that one which is away delays no answer
//! about another. What was found is a list of [`Finding`]s: what holds, what is a risk, what is wrong and what to do about it.
//! The arithmetic of connections is also done by a server after its start ([`connections::watch`]). Design, sections 11 and 13.
//!
//! A new question about a database is a function `(&mut Report, …)` called in `database.rs`; about the broker, in `broker.rs`.

mod broker;
pub mod connections;
mod database;
mod listening;
mod report;

use futures::future::join_all;
use futures::join;

use crate::config::Config;
use database::Place;

pub use report::{Finding, Report, Verdict};

const SERVER: &str = include_str!("queries/server.sql");
const LIMITS: &str = include_str!("queries/limits.sql");
const NOTIFY: &str = include_str!("queries/notify.sql");
const MISSING_RIGHTS: &str = include_str!("queries/missing_rights.sql");

/// Every statement of this module, by file name: a test PREPAREs them all.
pub const QUERIES: &[(&str, &str)] =
    &[("server", SERVER), ("limits", LIMITS), ("notify", NOTIFY), ("missing_rights", MISSING_RIGHTS)];

/// Asks everybody everything.
pub async fn all(config: &Config) -> Report {
    let places = Place::all(config);
    let (databases, listeners, broker) = join!(
        join_all(places.iter().map(database::check)),
        join_all(config.services.iter().map(|(name, service)| listening::check(name, service))),
        broker::check(&config.broker, &config.topology)
    );
    let mut report = Report::default();
    let (mut limits, mut asked) = (Vec::new(), Vec::new());
    for (place, (found, allowed)) in places.iter().zip(databases) {
        report.extend(found);
        asked.extend(place.asked(allowed.as_ref().map(|allowed| allowed.ceilings)));
        limits.extend(allowed.map(|allowed| (place.owner.clone(), allowed.limit)));
    }
    for found in listeners {
        report.extend(found);
    }
    report.extend(broker);
    connections::check(&config.demands(), config.replicas, &limits, &mut report);
    connections::ceilings(&asked, &mut report);
    report
}
