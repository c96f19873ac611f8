//! `docs/metrics.md` is made of the declarations: this test compares it, and writes it when `HOLDFAST_WRITE_DOCS` is set.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use holdfast_server::metrics::{Entry, Metrics};

const HEAD: &str = "\
# Metrics

What `/metrics` on the admin port (`admin_listen`) shows. This file is made of the declarations in `server/src/metrics`:
`HOLDFAST_WRITE_DOCS=1 cargo test -p holdfast-server --test metrics_doc` writes it, and without the variable compares it.

- `service` is a configured service, or `holdfast-control` for the control database's own outbox. `event_type` has a value of
  its own for the first 200 types of a service since the start; all others are `other`. `method` is a served method; anything
  else is `other`. `verb` is an admin's RPC, `check` one of a closed list, `kid` a key of the operator's files,
  `queue` one of the service's `consumer_queues`.
- Counters and histograms are of the replica that is asked: add them up over replicas. What is read from a database
  (`holdfast_outbox_…`, `holdfast_table_…`, `holdfast_tickets`) every replica measures for itself, about every 15 seconds,
  and all see the same rows: take the maximum, `max by (service, state) (holdfast_outbox_rows)`. While a database is away they
  keep their last values; `holdfast_outbox_measured_timestamp_seconds` tells how old those are.
- Nothing secret is in a label: no payload, key, id, host or login.

| name | type | labels | what it is |
| --- | --- | --- | --- |
";

fn catalogue() -> Vec<Entry> {
    let metrics = Metrics::new(prometheus::Registry::new()).unwrap();
    let mut all = metrics.catalogue().to_vec();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

#[test]
fn the_documentation_of_the_metrics_is_what_is_declared() {
    let mut expected = HEAD.to_owned();
    for Entry { name, kind, labels, help } in catalogue() {
        let labels = labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
        writeln!(expected, "| `{name}` | {kind} | {labels} | {} |", help.replace('|', "\\|")).unwrap();
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/metrics.md");
    if std::env::var_os("HOLDFAST_WRITE_DOCS").is_some() {
        fs::write(&file, &expected).unwrap();
    }
    let found = fs::read_to_string(&file).unwrap_or_default();
    assert!(found == expected, "docs/metrics.md is not up to date; HOLDFAST_WRITE_DOCS=1 writes it");
}

#[test]
fn names_are_unique_and_follow_the_conventions_and_every_metric_is_explained() {
    let all = catalogue();
    let names: BTreeSet<&str> = all.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names.len(), all.len(), "each name once");
    for Entry { name, kind, labels, help } in all.iter().filter(|entry| entry.name.starts_with("holdfast_")) {
        let total = name.ends_with("_total");
        assert_eq!(total, *kind == "counter", "{name}: counters, and only they, end in _total");
        let word = |word: &str| name.split('_').any(|part| part == word);
        for (unit, unwanted) in [
            ("seconds", ["ms", "millis", "micros", "minutes", "latency"]),
            ("bytes", ["kb", "mb", "kib", "mib", "octets"]),
        ] {
            assert!(!unwanted.iter().any(|bad| word(bad)), "{name}: in {unit}");
        }
        if ["age", "duration", "lag", "timestamp"].iter().any(|time| word(time)) || *kind == "histogram" {
            assert!(name.ends_with("_seconds"), "{name}: times are in seconds, and say so");
        }
        if word("size") {
            assert!(name.ends_with("_bytes"), "{name}: sizes are in bytes, and say so");
        }
        assert!(help.len() > 10 && help.ends_with('.'), "{name}: {help:?}");
        let known = [
            "service",
            "event_type",
            "outcome",
            "reason",
            "state",
            "table",
            "method",
            "code",
            "version",
            "check",
            "kid",
            "verb",
            "queue",
            "class",
            "kind",
        ];
        assert!(labels.iter().all(|label| known.contains(&label.as_str())), "{name}: {labels:?}");
    }
    let others: Vec<_> = names.iter().filter(|name| !name.starts_with("holdfast_")).collect();
    assert!(others.iter().all(|name| name.starts_with("process_")), "{others:?}");
}
