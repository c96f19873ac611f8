//! The report, in Markdown: facts that do not depend on the machine. It is a whole document, kept in `docs/soak.md`.

use std::{collections::BTreeMap, fmt::Write as _};

use super::{
    faults::Injected,
    ledger::{Account, Ledger},
};
use crate::reconcile::Census;

const HEAD: &str = "\
# The last soak

`./x soak --report docs/soak.md` writes this file. Six writers stage, insert, commit, roll back and die on two services' databases
while replicas, PostgreSQL, RabbitMQ and every link between them are killed, frozen, cut and slowed down at random; then all is
healed, and the books are closed (`tests/src/soak`). An event is expected exactly if its COMMIT was answered or, where that answer
was lost, if its writer's own row is there.
";

/// A line of a table: its name, and its number for each service.
type Line<'a> = (&'a str, &'a dyn Fn(&Service) -> i128);

/// One service's part.
#[derive(Debug)]
pub struct Service {
    /// Its books.
    pub ledger: Ledger,
    /// Closed.
    pub account: Account,
    /// Its rows.
    pub census: Census,
}

/// All of it.
#[derive(Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// How long faults were injected.
    pub minutes: f64,
    /// PostgreSQL's and RabbitMQ's.
    pub versions: [String; 2],
    /// What was broken.
    pub injected: Injected,
    /// By service.
    pub services: Vec<Service>,
    /// All deliveries.
    pub deliveries: u64,
    /// Messages that nobody here sent.
    pub foreign: u64,
    /// What the replicas said at WARN and ERROR.
    pub complaints: BTreeMap<String, u64>,
    /// Fewest events that had to commit.
    pub least: u64,
}

impl Report {
    /// Everything that is not as it must be; empty: the soak has passed.
    pub fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        for service in &self.services {
            let name = &service.ledger.service;
            if !service.account.holds() {
                failures.push(format!("{name}: events lost, wrong or out of order"));
            }
            failures.extend(
                service.account.reconcile(&service.census).iter().map(|what| format!("{name}: {what}")),
            );
        }
        if self.foreign > 0 {
            failures.push(format!("{} messages of nobody's came", self.foreign));
        }
        let committed: u64 = self.services.iter().map(|service| service.account.expected()).sum();
        if committed < self.least {
            failures.push(format!("{committed} events committed, at least {} wanted", self.least));
        }
        if let Some((what, _)) = self.complaints.iter().find(|(what, _)| what.contains("panicked")) {
            failures.push(format!("a replica panicked: {what}"));
        }
        failures
    }

    /// The text.
    pub fn markdown(&self) -> String {
        let mut text = format!("{HEAD}\n");
        let failures = self.failures();
        let verdict = if failures.is_empty() { "passed" } else { "FAILED" };
        let _ = writeln!(
            text,
            "Seed {}, {} minutes of faults, {} writers, two replicas, {} services; Holdfast {}, PostgreSQL {}, RabbitMQ {}: \
             **{verdict}**.",
            self.seed,
            self.minutes,
            self.services.iter().map(|service| service.ledger.writers.len()).sum::<usize>(),
            self.services.len(),
            env!("CARGO_PKG_VERSION"),
            self.versions[0],
            self.versions[1],
        );
        if !failures.is_empty() {
            let _ = writeln!(text, "\n- {}", failures.join("\n- "));
        }
        self.events(&mut text);
        self.rows(&mut text);
        let _ = writeln!(text, "\n| fault | times |\n| --- | ---: |");
        for (fault, times) in &self.injected.counts {
            let _ = writeln!(text, "| {} | {times} |", fault.words());
        }
        let _ = writeln!(text, "\nSessions ended one by one: {}.", self.injected.sessions);
        let _ = writeln!(text, "\n| what the replicas said | times |\n| --- | ---: |");
        for (what, times) in &self.complaints {
            let _ = writeln!(text, "| {} | {times} |", what.replace('|', "\\|"));
        }
        text
    }

    fn table(&self, text: &mut String, rows: &[Line<'_>]) {
        let names: Vec<&str> = self.services.iter().map(|service| service.ledger.service.as_str()).collect();
        let _ = writeln!(text, "\n| | {} | all |", names.join(" | "));
        let _ = writeln!(text, "| --- |{} ---: |", " ---: |".repeat(names.len()));
        for (name, value) in rows {
            let values: Vec<i128> = self.services.iter().map(value).collect();
            let cells: Vec<String> = values.iter().map(ToString::to_string).collect();
            let _ = writeln!(text, "| {name} | {} | {} |", cells.join(" | "), values.iter().sum::<i128>());
        }
    }

    fn events(&self, text: &mut String) {
        self.table(
            text,
            &[
                ("transactions", &|s| s.ledger.writers.iter().map(|deeds| deeds.len() as i128).sum()),
                ("events staged (answered)", &|s| s.account.staged.into()),
                ("committed (COMMIT answered)", &|s| s.account.committed.into()),
                ("rolled back or left", &|s| s.account.rolled_back.into()),
                ("answer lost, the writer's row is there", &|s| s.account.unknown_there.into()),
                ("answer lost, the writer's row is not", &|s| s.account.unknown_gone.into()),
                ("delivered", &|s| s.account.delivered.into()),
                ("duplicates", &|s| s.account.duplicates.into()),
                ("**lost**", &|s| s.account.lost.into()),
                ("**wrong** (rolled back, and delivered)", &|s| s.account.wrong.into()),
                ("**order violations**", &|s| s.account.order_violations.into()),
            ],
        );
        let _ = writeln!(text, "\nDeliveries in all: {}.", self.deliveries);
    }

    /// Invariant 2.
    fn rows(&self, text: &mut String) {
        let gone = |service: &Service| service.census.gone.values().map(|n| i128::from(*n)).sum::<i128>();
        self.table(
            text,
            &[
                ("rows: unresolved", &|s| s.census.unresolved.into()),
                ("held", &|s| s.census.held.into()),
                ("parked", &|s| s.census.parked.into()),
                ("in flight", &|s| s.census.in_flight.into()),
                ("pending", &|s| s.census.pending.into()),
                ("published", &|s| s.census.published.into()),
                ("discarded (counted)", &gone),
                ("discards there must be, at least", &|s| s.account.discards.0.into()),
                ("discards there may be, at most", &|s| s.account.discards.1.into()),
            ],
        );
        let _ = writeln!(
            text,
            "\nThe reconciliation holds if nothing moves, published = committed + found by row, and the discards lie within their \
             bounds: a killed PostgreSQL may forget rows that were to be rolled back, and a stage without an answer may have been \
             carried out."
        );
    }
}
