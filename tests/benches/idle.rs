//! P8: what fifty services cost that have nothing to do, and what memory a full drain takes, by the real binary (`target/release`).
//!
//! Round trips are counted between server and database: what the server sends in one piece is one. Processor time and memory are
//! the kernel's (`/proc`). There is no baseline: the goals are absolute shares of a core and of memory.

use std::{fs, sync::Arc, time::Duration};

use holdfast_tests::{
    chaos::Proxy,
    database::{Database, Kind},
    server::{ServerConfig, ServerProcess},
    services::PostgresAt,
    vhost::Vhost,
};
use lapin::{Connection, ConnectionProperties};

use crate::{
    common::{Figures, data, from_env, rounds},
    drain::declare,
};

/// P8.
pub(super) async fn run() {
    let services = from_env("HOLDFAST_BENCH_SERVICES", 50);
    let seconds = from_env("HOLDFAST_BENCH_SECONDS", 10) as u64;
    let pending = from_env("HOLDFAST_BENCH_PENDING", 100_000);
    let postgres = PostgresAt::shared();
    let vhost = Vhost::fresh().await;
    let connection = Connection::connect(&vhost.url(), ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    declare(&channel, &["drained"], "classic").await;
    let proxy = Proxy::before(postgres.port).await;
    let control = Database::fresh(postgres, Kind::Control).await;
    let mut config = ServerConfig::new(&control.url(), &vhost.url());
    let mut databases = Vec::new();
    for n in 0..services {
        let database = Database::fresh(postgres, Kind::Service).await;
        config.service(&format!("service-{n}"), &database.url_through(proxy.port()));
        databases.push(database);
    }
    let server = ServerProcess::start_with(&config, Arc::new(|_, _| {})).await;
    // Everybody has connected and looked once.
    tokio::time::sleep(Duration::from_secs(5)).await;
    println!("P8: memory of an idle server with {services} services, MiB: {:.0}", memory(&server, "VmRSS:"));
    let (mut share, mut trips) = (Figures::default(), Figures::default());
    for round in 0..=rounds(5) {
        let (before, turns) = (ticks(&server), proxy.turns());
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        share.add(round, (ticks(&server) - before) / 100.0 / seconds as f64 * 100.0);
        trips.add(round, (proxy.turns() - turns) as f64 / seconds as f64 / services as f64);
    }
    share.say(&format!("P8: {services} idle services, % of one core ({seconds} s each)"));
    trips.say("P8: round trips a second and service");

    let insert = format!(
        "INSERT INTO holdfast.event_outbox (event_type, envelope)
         SELECT 'drained', jsonb_build_object('specversion', '1.0', 'data', '{}'::jsonb) FROM generate_series(1, {pending})",
        data()
    );
    databases[0].run(&insert).await;
    let left = "SELECT count(*) FROM holdfast.event_outbox WHERE published_at IS NULL";
    while databases[0].one::<i64>(left).await > 0 {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    println!("P8: most memory while {pending} pending events drain, MiB: {:.0}", memory(&server, "VmHWM:"));
}

/// Clock ticks of a hundredth of a second, in user and kernel mode.
fn ticks(server: &ServerProcess) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", server.pid())).unwrap();
    // The command's name may hold anything but a closing bracket after the last one.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()
}

fn memory(server: &ServerProcess, line: &str) -> f64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let value = status.lines().find_map(|one| one.strip_prefix(line)).unwrap();
    value.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1_024.0
}
