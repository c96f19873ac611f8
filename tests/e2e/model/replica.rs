//! One replica's stager, resolver and drainer, the real ones, on a runtime of their own: dropping it is a kill, at whatever await
//! each task is.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use holdfast_proto::{
    envelope,
    v1::{Event, Hold},
};
use holdfast_server::{
    backoff::Backoff,
    broker::Weather,
    db::{self, Pool},
    metrics::{Metrics, ServiceMetrics},
    outbox::{
        OutboxRows, drain,
        holds::{self, Pair},
        parked, pause, stage,
    },
    tickets,
};
use sqlx::postgres::PgPoolOptions;
use tokio::{
    runtime::Runtime,
    sync::{Notify, watch},
};
use tokio_util::sync::CancellationToken;

use super::wire::{Book, Wire};

pub(super) const SERVICE: &str = "orders";
/// No lease runs out and no back-off ends by itself: the model says when.
pub(super) const LEASE: Duration = Duration::from_secs(3_600);

pub(super) struct Replica {
    pub instance: String,
    pub hints: drain::Hints,
    pub metrics: ServiceMetrics,
    pub holds: holds::Desk,
    stager: stage::Stager,
    runtime: Option<Runtime>,
    _weather: watch::Sender<Weather>,
}

impl Replica {
    pub(super) fn start(url: &str, instance: String, book: Arc<Mutex<Book>>) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let _entered = runtime.enter();
        let registry = Metrics::new(Default::default()).unwrap();
        let metrics = registry.service(SERVICE);
        let pool = pool(url);
        let stop = CancellationToken::new();
        let options = stage::Options::new(envelope::source(SERVICE));
        let (stager, worker) = stage::Stager::new(pool.clone(), options, metrics.clone());
        runtime.spawn(worker.run(stop.clone()));
        let resolved = Arc::new(Notify::new());
        let options = tickets::Options { interval: Duration::from_millis(50), ..tickets::Options::default() };
        let (rows, looks) = OutboxRows::new(LEASE, pause::Seen::new(metrics.drain.clone()));
        let (resolver, asked) = tickets::Resolver::new(
            pool.clone(),
            vec![Arc::new(rows)],
            options,
            metrics.clone(),
            resolved.clone(),
        );
        runtime.spawn(resolver.run(stop.clone()));
        let (sender, weather) = watch::channel(Weather::Fair);
        let reads = PgPoolOptions::new().max_connections(2).connect_lazy(url).unwrap();
        let wire = Wire { instance: instance.clone(), book, reads, weather };
        let options = drain_options(&instance);
        let (drainer, hints) = drain::Drainer::new(
            pool.clone(),
            Arc::new(wire),
            options,
            metrics.clone(),
            asked,
            resolved,
            looks,
        );
        runtime.spawn(drainer.run(stop));
        drop(_entered);
        let holds = holds::Desk::new(pool, metrics.clone(), hints.clone());
        Self { instance, hints, metrics, holds, stager, runtime: Some(runtime), _weather: sender }
    }

    /// Stages, as the front does.
    pub(super) async fn stage(
        &self,
        ticket: i64,
        hold: Option<Pair>,
        event: &Event,
    ) -> Result<stage::Outcome, stage::Refused> {
        let sent =
            hold.clone().map(|pair| Hold { operation_id: pair.operation_id, generation: pair.generation });
        let valid =
            envelope::validate(std::slice::from_ref(event), sent.as_ref(), &envelope::Limits::default())
                .unwrap();
        let staged = self.stager.stage(Some(ticket), hold, valid, 100).await?;
        self.hints.staged(ticket);
        Ok(staged[0])
    }
}

/// The operator's hand on parked rows, apart from any replica.
pub(super) fn operator(url: &str) -> parked::Desk {
    let metrics = Metrics::new(Default::default()).unwrap().service(SERVICE);
    parked::Desk::new(pool(url), metrics, &drain_options("operator"))
}

fn pool(url: &str) -> Pool {
    let options = db::Options {
        url: url.to_owned(),
        max_connections: 4,
        acquire_timeout: Duration::from_secs(5),
        prepared_statements: true,
    };
    Pool::new(&options).unwrap()
}

fn drain_options(instance: &str) -> drain::Options {
    let never = Backoff { base: LEASE, cap: LEASE };
    drain::Options {
        lease: LEASE,
        poll: Duration::from_millis(20),
        batch: 4,
        retry: never,
        unroutable_retry: never,
        ..drain::Options::new(SERVICE.into(), instance.to_owned())
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        // Whatever is under way ends at its next await, and its sessions with it.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
