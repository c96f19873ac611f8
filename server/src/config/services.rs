//! The part of the configuration that is said for each service.

use std::collections::BTreeMap;
use std::str::FromStr;

use holdfast_proto::envelope;
use serde::Deserialize;
use sqlx::postgres::PgConnectOptions;

use super::{Errors, Secret};

/// One service.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// `postgres://user:password@host:port/database`, the service's own.
    pub database_url: Secret,
    /// Most connections of one replica to it.
    #[serde(default = "default_max_connections")]
    pub max_connections: u32,
    /// What to do about an event that no queue takes.
    #[serde(default)]
    pub unroutable: Unroutable,
    /// Whether such an event holds later ones of its key back.
    #[serde(default = "yes")]
    pub unroutable_blocks: bool,
    /// Whether a parked event holds later ones of its key back.
    #[serde(default = "yes")]
    pub parked_blocks: bool,
}

/// What to do about an event that no queue takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unroutable {
    /// It stays pending and is tried again.
    #[default]
    Retry,
    /// It counts as published.
    Accept,
}

/// Staging and two repairs of it, a pass, a settle, the resolver, look-ups.
fn default_max_connections() -> u32 {
    8
}

fn yes() -> bool {
    true
}

/// The library takes any scheme, and a missing host for this machine's.
fn parse(url: &str) -> Option<PgConnectOptions> {
    let rest = url.strip_prefix("postgres://").or_else(|| url.strip_prefix("postgresql://"))?;
    let options = PgConnectOptions::from_str(url).ok()?;
    (!rest.starts_with('/') && options.get_database().is_some()).then_some(options)
}

pub(super) fn check(services: &BTreeMap<String, Service>, control: &Secret, errors: &mut Errors) {
    let mut databases: BTreeMap<String, String> = BTreeMap::new();
    let mut database = |field: String, url: &Secret, errors: &mut Errors| match parse(url.expose()) {
        None => errors.push(&field, "must be postgres://user:password@host:port/database"),
        Some(options) => {
            let place = format!(
                "{}:{}/{}",
                options.get_host(),
                options.get_port(),
                options.get_database().unwrap_or_default()
            );
            if let Some(other) = databases.insert(place, field.clone()) {
                errors.push(&field, format!("is the same database as {other}; each service has its own"));
            }
        }
    };
    database("control.database_url".into(), control, errors);
    for (name, service) in services {
        let field = format!("services.{name}");
        if let Some(problem) = envelope::service_name_problem(name) {
            errors.push(&field, problem);
        }
        if service.max_connections < 4 {
            errors.push(
                &format!("{field}.max_connections"),
                "must be at least 4: staging, drain, stamps and the resolver never wait for each other",
            );
        }
        database(format!("{field}.database_url"), &service.database_url, errors);
    }
}
