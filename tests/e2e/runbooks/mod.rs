//! The runbooks of `deploy/runbooks`, each played in the situation it is for, command by command as it stands.

mod access;
mod backlog;
mod drift;
mod held_rows;
mod inbox;
mod open_transactions;
mod parked;
mod replay;
mod restore;
mod retention;

use std::{fs, path::Path};

use holdfast_tests::{
    database::Database,
    runbook::Runbook,
    scene::{SERVICE, Scene, Server},
    terminal::Terminal,
};

use crate::drain::put;

/// A runbook in the hands of somebody with every scope of the scene's service.
fn open<S: Server>(name: &str, scene: &Scene<S>) -> Runbook {
    let mut runbook = Runbook::of(name, Terminal::at(scene.server.address()));
    runbook.set("SERVICE", SERVICE);
    runbook.set("DATABASE_URL", scene.database.url());
    runbook
}

/// A parked event by SQL.
async fn park(database: &Database, event_type: &str, key: &str) -> String {
    let more = [("parked_at", "now()"), ("parked_reason", "'crashed'"), ("admitted_at", "now()")];
    put(database, event_type, Some(key), &more).await
}

fn deploy(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(file)).unwrap()
}

#[test]
fn every_alert_has_its_runbook_which_names_it_and_every_runbook_is_in_the_list() {
    let rules = deploy("prometheus/holdfast.rules.yaml");
    let list = deploy("runbooks/README.md");
    let of = |begin: &str| -> Vec<_> {
        rules.lines().filter_map(|line| line.trim().strip_prefix(begin)).map(str::to_owned).collect()
    };
    let (alerts, runbooks) = (of("- alert: "), of("runbook: deploy/"));
    assert!(alerts.len() > 10 && alerts.len() == runbooks.len(), "{alerts:?} {runbooks:?}");
    for (alert, runbook) in alerts.iter().zip(&runbooks) {
        assert!(deploy(runbook).contains(&format!("`{alert}`")), "{runbook} does not name {alert}");
        let name = runbook.strip_prefix("runbooks/").unwrap();
        let row = list.lines().find(|line| line.contains(&format!("({name})"))).unwrap_or_default();
        assert!(row.contains(&format!("`{alert}`")), "README.md does not lead from {alert} to {name}");
        let tests = deploy("prometheus/holdfast.test.yaml");
        assert!(tests.contains(&format!("alertname: {alert}\n")), "no test has {alert} fire");
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/runbooks");
    for entry in fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(name == "README.md" || list.contains(&format!("({name})")), "README.md does not list {name}");
    }
}

#[test]
fn every_metric_that_an_alert_asks_for_is_exported() {
    let metrics = deploy("../docs/metrics.md");
    let rules = deploy("prometheus/holdfast.rules.yaml");
    let words = rules.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let asked: Vec<_> = words.filter(|word| word.starts_with("holdfast_")).collect();
    assert!(asked.len() > 10, "{asked:?}");
    for metric in asked {
        assert!(metrics.contains(&format!("| `{metric}` |")), "{metric}");
    }
}
