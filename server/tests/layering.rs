//! Holds the house: modules import downwards only. A new top-level module must be given its level here.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Levels of `ARCHITECTURE.md`, tenfold so that there is room between them. Modules of one level do not import each other,
/// but for the wiring at the top.
const LEVELS: &[(&str, u32)] = &[
    ("main", 60),
    ("commands", 50),
    ("app", 49),
    ("check", 47),
    ("demo", 46),
    ("dev", 45),
    ("config", 41),
    ("logging", 40),
    ("grpc", 30),
    ("admin_http", 30),
    ("health", 25),
    ("lookup", 25),
    ("retention", 22),
    ("roster", 25),
    ("outbox", 21),
    ("inbox", 21),
    ("jobs", 20),
    ("tickets", 20),
    ("schema", 20),
    ("audit", 20),
    ("auth", 10),
    ("db", 10),
    ("broker", 10),
    ("metrics", 0),
    ("backoff", 0),
];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
    found
}

/// The top-level module a file belongs to.
fn module(root: &Path, file: &Path) -> String {
    let first = file.strip_prefix(root).unwrap().components().next().unwrap();
    first.as_os_str().to_string_lossy().trim_end_matches(".rs").to_owned()
}

/// Every `crate::name` and, in the binary, `holdfast_server::name` of a text.
fn imports(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for prefix in ["crate::", "holdfast_server::"] {
        for (at, _) in text.match_indices(prefix) {
            let rest = &text[at + prefix.len()..];
            let names = match rest.strip_prefix('{') {
                Some(group) => group.split('}').next().unwrap_or_default(),
                None => rest.split([';', ' ', ',', '(', ')', '\n']).next().unwrap_or_default(),
            };
            for name in names.split(',') {
                let name: String =
                    name.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                found.push(name);
            }
        }
    }
    found.retain(|name| !name.is_empty() && name.chars().all(|c| c.is_lowercase() || c == '_'));
    found
}

#[test]
fn modules_import_downwards_only() {
    let levels: BTreeMap<&str, u32> = LEVELS.iter().copied().collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut wrong = Vec::new();
    for file in sources(&root) {
        let from = module(&root, &file);
        if from == "lib" {
            continue;
        }
        let level = levels.get(from.as_str()).unwrap_or_else(|| panic!("module {from} has no level yet"));
        for to in imports(&fs::read_to_string(&file).unwrap()) {
            if to == from {
                continue;
            }
            let Some(below) = levels.get(to.as_str()) else { panic!("module {to} has no level yet") };
            if below >= level {
                wrong.push(format!("{} imports {to}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "imports that point up or sideways:\n{}", wrong.join("\n"));
}

#[test]
fn only_the_front_knows_tonic_and_only_the_broker_knows_lapin() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for file in sources(&root) {
        let from = module(&root, &file);
        let text = fs::read_to_string(&file).unwrap();
        let wiring = ["app", "config", "logging", "main", "commands", "demo", "dev"].contains(&from.as_str());
        assert!(from == "grpc" || wiring || !text.contains("tonic::"), "{} names tonic", file.display());
        assert!(from == "broker" || wiring || !text.contains("lapin::"), "{} names lapin", file.display());
    }
}

#[test]
fn a_table_is_named_only_by_its_owners_queries() {
    let owners = [
        ("holdfast.ticket", "tickets"),
        ("holdfast.outbox_tally", "outbox"),
        ("holdfast.hold_outcome", "outbox"),
        ("holdfast.hold_watch", "outbox"),
        ("holdfast.drain_pause", "outbox"),
        ("holdfast.event_inbox", "inbox"),
        ("holdfast.job", "jobs"),
        ("holdfast.replay", "outbox"),
        ("holdfast.retention_cycle", "retention"),
        ("holdfast.admin_audit", "audit"),
        ("holdfast.known_service", "roster"),
    ];
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut queries = Vec::new();
    collect_sql(&root, &mut queries);
    assert!(queries.len() > 20, "found the queries");
    for file in queries {
        let text = fs::read_to_string(&file).unwrap();
        for (table, owner) in owners {
            assert!(
                module(&root, &file) == owner || !text.contains(table),
                "{} names {table}, which is {owner}'s",
                file.display()
            );
        }
    }
}

fn collect_sql(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect_sql(&path, found);
        } else if path.extension().is_some_and(|e| e == "sql") {
            found.push(path);
        }
    }
}

/// The commands that are a server's clients; all else in here is the server, which never meets the client.
const CLIENTS: &[&str] = &["commands/server.rs", "commands/admin", "commands/probe.rs"];

#[test]
fn only_the_commands_that_call_a_server_know_the_client() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let knows = |file: &PathBuf| fs::read_to_string(file).unwrap().contains("holdfast_client");
    let (clients, others): (Vec<_>, Vec<_>) = sources(&root)
        .into_iter()
        .filter(knows)
        .partition(|file| CLIENTS.iter().any(|client| file.starts_with(root.join(client))));
    assert!(!clients.is_empty(), "nobody does; is the name still right?");
    assert_eq!(others, Vec::<PathBuf>::new());
}
