//! How many connections all replicas may come to open to each PostgreSQL.

use std::collections::BTreeMap;

use super::services::{parse, server};
use super::{Config, Secret};

/// What is asked of one PostgreSQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    /// `host:port`, as the URLs say it: two names of one server are two to us.
    pub server: String,
    /// Most connections of one replica.
    pub of_a_replica: u64,
    /// Most connections of all of them.
    pub connections: u64,
    /// Who has a database there: `control` or `services.NAME`. Any of them can be asked.
    pub of: Vec<String>,
}

impl Config {
    /// What is asked of each PostgreSQL. A pool behind a pooler is not counted: what the pooler opens is the pooler's to say. A
    /// listener's own connection is.
    pub fn demands(&self) -> Vec<Demand> {
        let mut demands: BTreeMap<String, Demand> = BTreeMap::new();
        let mut ask = |url: &Secret, of_a_replica: u32, of: &str| {
            // A valid configuration has only URLs that can be parsed.
            let Some(server) = parse(url.expose()).map(|options| server(&options)) else { return };
            let demand = demands.entry(server.clone()).or_insert_with(|| Demand {
                server,
                of_a_replica: 0,
                connections: 0,
                of: Vec::new(),
            });
            demand.of_a_replica += u64::from(of_a_replica);
            demand.connections = demand.of_a_replica * u64::from(self.replicas);
            if !demand.of.iter().any(|name| name == of) {
                demand.of.push(of.to_owned());
            }
        };
        ask(&self.control.database_url, self.control.max_connections, "control");
        for (name, service) in &self.services {
            let owner = format!("services.{name}");
            if service.prepared_statements {
                ask(&service.database_url, service.max_connections, &owner);
            }
            if let Some(url) = service.listens_at() {
                ask(url, 1, &owner);
            }
        }
        demands.into_values().collect()
    }
}
