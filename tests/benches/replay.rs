//! P7: replays. How fast one sends, as a share of the drain of as many fresh events; whether that depends on how much lies in the
//! outbox; and what live events feel of one that sends a million.
//!
//! Two services in one server, on a PostgreSQL that flushes: one with 5,000 published events, one with those and 1,000,000 older ones
//! (`HOLDFAST_BENCH_EVENTS`, `HOLDFAST_BENCH_OLD_ROWS`). The rate is the most there may be, 10,000 a second; beside live events it is the
//! default, 1,000. Live: 100 transactions a second for four seconds (`HOLDFAST_BENCH_SECONDS`), staged and confirmed by hint.

use std::time::{Duration, Instant};

use holdfast_proto::v1::{
    CancelReplayRequest, GetReplayRequest, Replay, ReplayRequest, ReplayState,
    replay_service_client::ReplayServiceClient,
};
use holdfast_tests::{
    auth::{self, Authenticated, Bearer},
    client::channel,
    database::{Database, Kind},
    replay::from_now,
    server::{ServerConfig, ServerInProcess},
    vhost::Vhost,
};

use crate::{
    common::{Figures, Flushing, connected, data, from_env, rounds},
    drain::{drained, published_rows},
    latency::{Times, Writer, listen, pool},
};

/// P7.
pub(super) async fn run() {
    let (events, old) =
        (from_env("HOLDFAST_BENCH_EVENTS", 5_000), from_env("HOLDFAST_BENCH_OLD_ROWS", 1_000_000));
    let seconds = from_env("HOLDFAST_BENCH_SECONDS", 4);
    let postgres = Flushing::start().await;
    let vhost = Vhost::fresh().await;
    let times = Times::default();
    let _listener = listen(&vhost, &times).await;
    let control = Database::fresh(postgres.at, Kind::Control).await;
    let mut config = ServerConfig::new(&control.url(), &vhost.url());
    let names = ["few", "many"];
    let mut databases = Vec::new();
    for name in names {
        let database = Database::fresh(postgres.at, Kind::Service).await;
        config.service(name, &database.url());
        database.run(&recent_rows(events)).await;
        databases.push(database);
    }
    databases[1].run(&published_rows(old)).await;
    for database in &databases {
        database.run("VACUUM (ANALYZE) holdfast.event_outbox").await;
    }
    databases[0].run("CHECKPOINT").await;
    let server = ServerInProcess::start(&config).await;
    connected(&server).await;
    let replays = names.map(|name| Replays::of(&server, name));

    let mut figures = [Figures::default(), Figures::default()];
    for round in 0..=rounds(5) {
        let drain = events as f64 / drained(&server, "few", &databases[0], events).await.as_secs_f64();
        let mut rates = [0.0; 2];
        for at in (0..2).map(|place| (place + round) % 2) {
            rates[at] = events as f64 / replays[at].whole(-1_800, -600, events).await.as_secs_f64();
        }
        println!(
            "  round {round}: drain {drain:.0}/s, replay {:.0}/s, behind old rows {:.0}/s",
            rates[0], rates[1]
        );
        figures[0].add(round, rates[0] / drain);
        figures[1].add(round, rates[0] / rates[1]);
    }
    figures[0].say(&format!("P7: replay / drain, {events} events"));
    figures[1].say(&format!("P7: time of a replay of {events} events behind {old} rows / alone"));

    let outbox = holdfast_tests::client::outbox(server.address(), "many");
    let live = Writer { pool: pool(&databases[1]).await, outbox: Some(outbox), times };
    let mut ratios = [Figures::default(), Figures::default()];
    for round in 0..=rounds(5) {
        let alone = live.write(100, seconds).await;
        let replay = replays[1].start(-100_000, -3_600).await;
        let beside = live.write(100, seconds).await;
        let sent = replays[1].cancel(&replay).await;
        println!(
            "  round {round}: live p50 {:.2} p99 {:.2} ms, beside a replay p50 {:.2} p99 {:.2} ms ({} of {} sent)",
            alone[0], alone[1], beside[0], beside[1], sent.done, sent.matched
        );
        for at in 0..2 {
            ratios[at].add(round, beside[at] / alone[at]);
        }
    }
    ratios[0].say("P7: live p50 beside a replay / without");
    ratios[1].say("P7: live p99 beside a replay / without");
    server.stop().await;
}

/// Events that were published within the last half hour, of 1 KiB.
fn recent_rows(events: usize) -> String {
    format!(
        "INSERT INTO holdfast.event_outbox
             (event_type, envelope, created_at, admitted_at, claim_generation, published_at, first_published_at, last_published_at)
         SELECT 'order.old', jsonb_build_object('specversion', '1.0', 'data', '{}'::jsonb), at, at, 1, at, at, at
         FROM generate_series(1, {events}) AS n,
              LATERAL (SELECT now() - interval '20 minutes' + n * interval '1 ms' AS at) AS t",
        data()
    )
}

struct Replays {
    raw: ReplayServiceClient<Authenticated>,
    service: &'static str,
}

impl Replays {
    fn of(server: &ServerInProcess, service: &'static str) -> Self {
        let token = Bearer::new(&auth::token(&auth::all_of(service)));
        Self { raw: ReplayServiceClient::new(token.over(channel(server.address()))), service }
    }

    /// Begins one of a window, in seconds from now.
    async fn begin(&self, from: i64, to: i64, max_rate: i32) -> Replay {
        let request = ReplayRequest {
            service: self.service.to_owned(),
            from: Some(from_now(from)),
            to: Some(from_now(to)),
            max_rate: Some(max_rate),
            ..ReplayRequest::default()
        };
        self.raw.clone().replay(request).await.unwrap().into_inner().replay.unwrap()
    }

    async fn until(&self, replay: &Replay, state: ReplayState) -> Replay {
        let limit = Instant::now() + Duration::from_secs(300);
        loop {
            let request =
                GetReplayRequest { service: self.service.to_owned(), replay_id: replay.replay_id.clone() };
            let now = self.raw.clone().get_replay(request).await.unwrap().into_inner().replay.unwrap();
            if now.state() == state {
                return now;
            }
            assert!(Instant::now() < limit, "waited too long: {now:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The time of a whole replay, by the database's clock.
    async fn whole(&self, from: i64, to: i64, events: usize) -> Duration {
        let begun = self.begin(from, to, 10_000).await;
        let done = self.until(&begun, ReplayState::Done).await;
        assert_eq!(done.done, i64::try_from(events).unwrap(), "{done:?}");
        let at = |at: Option<prost_types::Timestamp>| {
            let at = at.unwrap();
            at.seconds as f64 + f64::from(at.nanos) / 1e9
        };
        Duration::from_secs_f64(at(done.ended_at) - at(done.started_at))
    }

    /// One that is being sent.
    async fn start(&self, from: i64, to: i64) -> Replay {
        let begun = self.begin(from, to, 1_000).await;
        self.until(&begun, ReplayState::Running).await
    }

    /// Ends it, and waits until nothing is left of it.
    async fn cancel(&self, replay: &Replay) -> Replay {
        let request =
            CancelReplayRequest { service: self.service.to_owned(), replay_id: replay.replay_id.clone() };
        self.raw.clone().cancel_replay(request).await.unwrap();
        self.until(replay, ReplayState::Cancelled).await
    }
}
