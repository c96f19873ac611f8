//! The main job, played on real parts: what `holdfast dev` shows a newcomer, one line a scene with what was seen.
//!
//! 1. an event of a committed transaction arrives;
//! 2. so does one of another service, staged without a transaction;
//! 3. one of a rolled-back transaction does not;
//! 4. nor does one whose caller was killed between stage and commit;
//! 5. ten events staged while the broker is stopped all arrive once it is back.
//!
//! That something did *not* arrive is told from a later event of the same ordering key that did, and from the outbox
//! itself; never from waiting a while.

mod caller;
mod consumer;

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use holdfast_proto::v1;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use uuid::Uuid;

use crate::dev::RabbitMq;
use caller::Caller;
use consumer::Consumer;

pub use caller::stage_and_wait;

/// Where the parts are.
#[derive(Debug, Clone)]
pub struct Places {
    /// `http://127.0.0.1:port` of the server.
    pub grpc: String,
    /// The service whose transactions are played.
    pub transactional: Service,
    /// The service that stages without one.
    pub immediate: Service,
    /// The broker.
    pub amqp_url: String,
    /// The events exchange.
    pub exchange: String,
}

/// A service of the demo.
#[derive(Debug, Clone)]
pub struct Service {
    /// Its name.
    pub name: String,
    /// Its own database.
    pub database_url: String,
}

const PATIENCE: Duration = Duration::from_secs(60);

/// Plays all scenes; each line goes to `say` as soon as it is true.
///
/// # Errors
/// The first scene that did not hold.
pub async fn play(places: &Places, broker: &mut RabbitMq, say: impl Fn(&str)) -> anyhow::Result<()> {
    let mut consumer = Consumer::open(places).await.context("the demo's consumer")?;
    let mut caller = Caller::open(&places.grpc, &places.transactional).await.context("the demo's caller")?;

    let took = committed(&mut caller, &mut consumer).await.context("a committed event")?;
    say(&format!(
        "ok  committed         {}: the row is there and its event arrived {} ms after COMMIT",
        places.transactional.name,
        took.as_millis()
    ));

    let took = staged_now(places, &mut consumer).await.context("an event without a transaction")?;
    say(&format!(
        "ok  staged now        {}: an event without a transaction arrived {} ms after the answer",
        places.immediate.name,
        took.as_millis()
    ));

    rolled_back(&mut caller, &mut consumer).await.context("a rolled-back event")?;
    say(
        "ok  rolled back       neither the row nor the event is there; a later event of the same key arrived",
    );

    let pid = killed(places, &mut caller, &mut consumer).await.context("a killed caller")?;
    say(&format!(
        "ok  caller killed     process {pid} staged, was killed -9 before COMMIT, and its event is gone"
    ));

    let waited =
        broker_stopped(places, &mut caller, &mut consumer, broker).await.context("a stopped broker")?;
    say(&format!(
        "ok  broker stopped    10 events committed meanwhile, all waiting; all 10 arrived {:.1} s after its return",
        waited.as_secs_f64()
    ));
    Ok(())
}

async fn committed(caller: &mut Caller, consumer: &mut Consumer) -> anyhow::Result<Duration> {
    let (row, event) = caller.write("committed", Caller::COMMIT).await?;
    let committed_at = std::time::Instant::now();
    consumer.wait_for(&[event], PATIENCE).await?;
    let took = committed_at.elapsed();
    ensure!(caller.has_row(row).await?, "the row is missing");
    Ok(took)
}

async fn staged_now(places: &Places, consumer: &mut Consumer) -> anyhow::Result<Duration> {
    let event = caller::stage_now(&places.grpc, &places.immediate).await?;
    let answered_at = std::time::Instant::now();
    consumer.wait_for(&[event], PATIENCE).await?;
    Ok(answered_at.elapsed())
}

async fn rolled_back(caller: &mut Caller, consumer: &mut Consumer) -> anyhow::Result<()> {
    let (row, event) = caller.write("rolled-back", Caller::ROLLBACK).await?;
    ensure!(!caller.has_row(row).await?, "the row is there");
    vanished(caller, consumer, "rolled-back", event).await
}

/// A later event of the same key arrives, and then: the earlier one neither arrived nor is it anywhere.
async fn vanished(
    caller: &mut Caller,
    consumer: &mut Consumer,
    key: &str,
    event: Uuid,
) -> anyhow::Result<()> {
    caller.wait_until_gone(event, PATIENCE).await?;
    let (_, marker) = caller.write(key, Caller::COMMIT).await?;
    consumer.wait_for(&[marker], PATIENCE).await?;
    ensure!(!consumer.saw(event), "event {event} was delivered");
    Ok(())
}

async fn killed(places: &Places, caller: &mut Caller, consumer: &mut Consumer) -> anyhow::Result<u32> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["dev-caller", "--grpc", &places.grpc, "--service", &places.transactional.name])
        .args(["--database-url", &places.transactional.database_url, "--key", "killed"])
        // Its end is our end's, whatever ends us; and Ctrl-C is for us alone.
        .stdin(std::process::Stdio::piped())
        .process_group(0)
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let pid = child.id().context("the caller ended at once")?;
    let stdout = child.stdout.take().context("the caller has no output")?;
    let line = tokio::time::timeout(PATIENCE, BufReader::new(stdout).lines().next_line()).await??;
    let event: Uuid = line.context("the caller ended before it had staged")?.parse()?;
    ensure!(
        caller.state(event).await? == Some(v1::EventState::Unresolved),
        "the staged event is not in the outbox"
    );
    child.kill().await?;
    vanished(caller, consumer, "killed", event).await?;
    Ok(pid)
}

async fn broker_stopped(
    places: &Places,
    caller: &mut Caller,
    consumer: &mut Consumer,
    broker: &mut RabbitMq,
) -> anyhow::Result<Duration> {
    broker.stop().await?;
    let mut events = Vec::new();
    for _ in 0..10 {
        events.push(caller.write("stopped", Caller::COMMIT).await?.1);
    }
    for event in &events {
        match caller.state(*event).await? {
            Some(v1::EventState::Published) => bail!("event {event} is published without a broker"),
            Some(_) => {}
            None => bail!("event {event} is lost"),
        }
    }
    broker.start_again().await?;
    let back = std::time::Instant::now();
    *consumer = Consumer::open(places).await?;
    consumer.wait_for(&events, PATIENCE).await?;
    Ok(back.elapsed())
}
