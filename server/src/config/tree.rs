//! The sources of a configuration as one tree: the file, and over it the environment. Each value knows where it is from.
//!
//! Says nothing about what a setting may be called or hold; that is for who reads the tree ([`super::section`]).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;

use toml::de::{DeTable, DeValue};

use super::errors::Errors;

/// Where a value is from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nobody said it.
    Default,
    /// A line of the configuration file, counted from 1.
    Line(usize),
    /// A variable of the environment.
    Variable(String),
    /// A file that holds a secret and nothing else.
    SecretFile(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Line(line) => write!(f, "line {line}"),
            Self::Variable(name) => f.write_str(name),
            Self::SecretFile(path) => write!(f, "read from {path}"),
        }
    }
}

/// A value as it was written.
#[derive(Clone)]
pub(super) enum Value {
    Text(String),
    /// Digits, with a sign perhaps.
    Integer(String),
    Bool(bool),
    Table(Table),
    List(Vec<Self>),
    /// What no setting is; the word for it.
    Other(&'static str),
    /// From the environment, which has no types: whoever reads it knows what it should be.
    Raw(String),
}

#[derive(Clone)]
pub(super) struct Node {
    pub(super) origin: Origin,
    pub(super) value: Value,
}

pub(super) type Table = BTreeMap<String, Node>;

/// Reads a TOML text, as far as it is one.
pub(super) fn of_toml(text: &str, errors: &mut Errors) -> Table {
    let line = |at: usize| text[..at.min(text.len())].matches('\n').count() + 1;
    let (table, wrong) = DeTable::parse_recoverable(text);
    for error in wrong {
        // The parser's own picture of the line would show a URL with its password.
        let at = error.span().map_or(1, |span| line(span.start));
        errors.add("", Some(Origin::Line(at)), error.message());
    }
    convert(table.get_ref(), &line)
}

fn convert(table: &DeTable<'_>, line: &impl Fn(usize) -> usize) -> Table {
    let nodes = table.iter().map(|(key, value)| {
        let value = convert_value(value.get_ref(), line);
        (key.get_ref().clone().into_owned(), Node { origin: Origin::Line(line(key.span().start)), value })
    });
    nodes.collect()
}

fn convert_value(value: &DeValue<'_>, line: &impl Fn(usize) -> usize) -> Value {
    match value {
        DeValue::String(text) => Value::Text(text.clone().into_owned()),
        DeValue::Integer(number) if number.radix() == 10 => Value::Integer(number.as_str().to_owned()),
        DeValue::Boolean(value) => Value::Bool(*value),
        DeValue::Table(table) => Value::Table(convert(table, line)),
        DeValue::Array(list) => {
            Value::List(list.iter().map(|value| convert_value(value.get_ref(), line)).collect())
        }
        DeValue::Integer(_) => Value::Other("a number that is not decimal"),
        DeValue::Float(_) => Value::Other("a fraction"),
        DeValue::Datetime(_) => Value::Other("a time"),
    }
}

const PREFIX: &str = "HOLDFAST_";

/// What of ours is in the environment and is no configuration: where the file is, what is logged, what the clients and the
/// private servers of `holdfast dev` ask for.
const OTHERS: [&str; 6] = [
    "HOLDFAST_CONFIG",
    "HOLDFAST_LOG",
    "HOLDFAST_TOKEN",
    "HOLDFAST_ADDRESS",
    "HOLDFAST_PG_BIN",
    "HOLDFAST_RABBITMQ_BIN",
];

/// Puts the environment's settings over the file's: `HOLDFAST_DRAIN__LEASE` over `lease` of `[drain]`.
pub(super) fn overlay(
    tree: &mut Table,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    errors: &mut Errors,
) {
    for (name, value) in environment {
        let Some(name) = name.to_str().filter(|name| is_setting(name)).map(str::to_owned) else { continue };
        let origin = Origin::Variable(name.clone());
        let path = path(&name);
        let Ok(value) = value.into_string() else {
            errors.add(&path.join("."), Some(origin), "must be UTF-8");
            continue;
        };
        put(tree, &path, Node { origin, value: Value::Raw(value) }, errors);
    }
}

fn is_setting(name: &str) -> bool {
    name.starts_with(PREFIX)
        && !name.starts_with("HOLDFAST_TEST_")
        && !OTHERS.contains(&name)
        && (name.contains("__") || !is_service_link(name))
}

/// Kubernetes tells every pod of a namespace about every service of it, one that is called `holdfast` or `holdfast-admin`
/// included: `HOLDFAST_SERVICE_HOST`, `HOLDFAST_PORT_50551_TCP_ADDR`.
fn is_service_link(name: &str) -> bool {
    let words: Vec<&str> = name.split('_').skip(1).collect();
    let ends_with = |tail: &[&str]| words.ends_with(tail);
    let port = words.iter().position(|word| *word == "PORT");
    let after_port = port.map(|at| &words[at + 1..]);
    ends_with(&["SERVICE", "HOST"])
        || words.windows(2).any(|pair| pair == ["SERVICE", "PORT"])
        || matches!(after_port, Some([]))
        || matches!(after_port, Some([number, "TCP" | "UDP" | "SCTP", ..]) if number.parse::<u16>().is_ok())
}

/// `HOLDFAST_SERVICES__ORDER_ITEMS__DATABASE_URL` is `services.order-items.database_url`: a service's name has dashes, which
/// a shell does not take in a variable's name, and no underscores.
fn path(name: &str) -> Vec<String> {
    let mut path: Vec<String> = name[PREFIX.len()..].split("__").map(str::to_ascii_lowercase).collect();
    if let [first, service, _, ..] = path.as_mut_slice()
        && first == "services"
    {
        *service = service.replace('_', "-");
    }
    path
}

fn put(table: &mut Table, path: &[String], node: Node, errors: &mut Errors) {
    let [first, rest @ ..] = path else { return };
    if rest.is_empty() {
        if let Some(Node { origin: Origin::Variable(other), .. }) = table.get(first)
            && let Origin::Variable(name) = &node.origin
        {
            errors.add(first, Some(node.origin.clone()), format!("{other} and {name} set the same"));
        }
        table.insert(first.clone(), node);
        return;
    }
    let empty = || Node { origin: node.origin.clone(), value: Value::Table(Table::new()) };
    let below = table.entry(first.clone()).or_insert_with(empty);
    // What is no table is reported when it is read.
    if let Value::Table(below) = &mut below.value {
        put(below, rest, node, errors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_that_kubernetes_makes_for_a_service_called_holdfast_are_no_settings() {
        for name in [
            "HOLDFAST_SERVICE_HOST",
            "HOLDFAST_SERVICE_PORT",
            "HOLDFAST_SERVICE_PORT_GRPC",
            "HOLDFAST_PORT",
            "HOLDFAST_PORT_50551_TCP",
            "HOLDFAST_PORT_50551_TCP_PROTO",
            "HOLDFAST_ADMIN_SERVICE_HOST",
            "HOLDFAST_ADMIN_PORT_9090_TCP_ADDR",
        ] {
            assert!(!is_setting(name), "{name}");
        }
        for name in ["HOLDFAST_LISTEN", "HOLDFAST_REPLICAS", "HOLDFAST_SERVICES__PORT__DATABASE_URL"] {
            assert!(is_setting(name), "{name}");
        }
    }

    #[test]
    fn an_underscore_in_a_services_name_is_a_dash() {
        assert_eq!(
            path("HOLDFAST_SERVICES__ORDER_ITEMS__DATABASE_URL"),
            ["services", "order-items", "database_url"]
        );
        assert_eq!(path("HOLDFAST_CONTROL__DATABASE_URL"), ["control", "database_url"]);
        assert_eq!(path("HOLDFAST_LOG_FORMAT"), ["log_format"]);
    }
}
