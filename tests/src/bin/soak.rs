//! `soak [--minutes N] [--seed N] [--rate N] [--report FILE]`: see [`holdfast_tests::soak`]. Exit code 0 only if nothing was
//! lost, wrong or out of order, and every row is accounted for. `HOLDFAST_SOAK_LOG=1` shows what the replicas complain of.

use std::{
    path::PathBuf,
    process::ExitCode,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use holdfast_tests::{
    client::Client,
    reconcile::Census,
    soak::{
        faults,
        ledger::{Deed, Ledger},
        report::{Report, Service},
        stand::{SERVICES, Stand},
        writer::{Pace, Place, work},
    },
};
use rand::{SeedableRng as _, rngs::StdRng};
use tokio::task::JoinHandle;

/// Writers of each service.
const WRITERS: [usize; 2] = [4, 2];
/// How long the healed system may take to come to rest: back-offs of a minute run out in it.
const QUIET: Duration = Duration::from_secs(180);
/// The goal of ten minutes, for any length.
const EVENTS_A_MINUTE: f64 = 10_000.0;

struct Options {
    minutes: f64,
    seed: u64,
    /// Events a second, of all writers together.
    rate: f64,
    report: Option<PathBuf>,
}

impl Options {
    fn parse() -> anyhow::Result<Self> {
        let mut options =
            Self { minutes: 10.0, seed: rand::random_range(0..1_000_000), rate: 400.0, report: None };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let value = words.next().with_context(|| format!("{word} wants a value"))?;
            match word.as_str() {
                "--minutes" => options.minutes = value.parse()?,
                "--seed" => options.seed = value.parse()?,
                "--rate" => options.rate = value.parse()?,
                "--report" => options.report = Some(value.into()),
                _ => bail!("usage: soak [--minutes N] [--seed N] [--rate N] [--report FILE]"),
            }
        }
        ensure!(options.minutes > 0.0 && options.rate > 0.0, "--minutes and --rate must be above 0");
        Ok(options)
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse()?;
    eprintln!("soak: seed {}, {} minutes", options.seed, options.minutes);
    let mut stand = Stand::start().await;
    let versions = stand.versions().await;
    let mut dice = StdRng::seed_from_u64(options.seed);

    let pace = Arc::new(Pace {
        stop: AtomicBool::new(false),
        committed: AtomicU64::new(0),
        fence: Mutex::new(None),
        begun: Instant::now(),
        rate: options.rate / WRITERS.iter().sum::<usize>() as f64,
    });
    let writers = start_writers(&stand, &pace, options.seed);
    let until = Instant::now() + Duration::from_secs_f64(options.minutes * 60.0);
    let injected = faults::inject(&mut stand, &mut dice, &pace.fence, until).await;

    pace.stop.store(true, SeqCst);
    let mut ledgers = Vec::new();
    for (service, writers) in SERVICES.iter().zip(writers) {
        let mut deeds = Vec::new();
        for writer in writers {
            deeds.push(writer.await?);
        }
        ledgers.push(Ledger { service: (*service).to_owned(), writers: deeds });
    }
    eprintln!("soak: all is healed, {} events committed; waiting for quiet", pace.committed.load(SeqCst));
    let services = close(&stand, ledgers, &injected).await;
    stand.stop_replicas().await;

    let deliveries = stand.recorder.deliveries();
    let complaints = stand.complaints.lock().map(|book| book.clone()).unwrap_or_default();
    let report = Report {
        seed: options.seed,
        minutes: options.minutes,
        versions,
        injected,
        services,
        deliveries: deliveries.total,
        foreign: deliveries.foreign,
        complaints,
        least: (EVENTS_A_MINUTE * options.minutes) as u64,
    };
    let text = report.markdown();
    println!("{text}");
    if let Some(path) = options.report {
        std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(if report.failures().is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn start_writers(stand: &Stand, pace: &Arc<Pace>, seed: u64) -> Vec<Vec<JoinHandle<Vec<Deed>>>> {
    let mut number = 0;
    let mut all = Vec::new();
    for ((service, database), writers) in SERVICES.iter().zip(&stand.databases).zip(WRITERS) {
        let client = |replica: usize| {
            let address = ([127, 0, 0, 1], stand.replicas[replica].front_link.port());
            Client::new(address.into(), service)
        };
        let place = Arc::new(Place {
            service: (*service).to_owned(),
            url: database.url_through(stand.writers_link.port()),
            straight: database.url(),
            clients: [client(0), client(1)],
        });
        let mut tasks = Vec::new();
        for _ in 0..writers {
            number += 1;
            let seed = seed.wrapping_mul(1_000).wrapping_add(number as u64);
            tasks.push(tokio::spawn(work(place.clone(), pace.clone(), number, seed)));
        }
        all.push(tasks);
    }
    all
}

/// Waits until everything expected has come and nothing moves, or too long; then closes the books as they are.
async fn close(stand: &Stand, ledgers: Vec<Ledger>, injected: &faults::Injected) -> Vec<Service> {
    let limit = Instant::now() + QUIET;
    loop {
        let deliveries = stand.recorder.deliveries();
        let mut services = Vec::new();
        for (ledger, database) in ledgers.iter().zip(&stand.databases) {
            services.push((ledger.close(&deliveries, &injected.kills), Census::take(database).await));
        }
        let quiet = services.iter().all(|(account, census)| account.lost == 0 && census.moving() == 0);
        if quiet || Instant::now() > limit {
            let both = ledgers.into_iter().zip(services);
            return both.map(|(ledger, (account, census))| Service { ledger, account, census }).collect();
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
