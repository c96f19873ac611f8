//! One service: its pool and every task of its own.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use holdfast_proto::envelope;
use tokio::sync::Notify;

use super::tasks::{Stop, Tasks};
use crate::broker::{AmqpPublisher, DeadLetters, Link};
use crate::config::{Config, Service};
use crate::db::{self, Pool};
use crate::grpc::{ServiceHandle, Settings};
use crate::jobs;
use crate::metrics::{Metrics, ServiceMetrics};
use crate::outbox::operator::Operator;
use crate::outbox::{OutboxRows, announced, depth, drain, holds, pause, replay, stage};
use crate::retention::{self, Retention};
use crate::{inbox, schema, tickets};

/// A service's database, and the ways to it.
pub(super) struct Place<'a> {
    pub(super) url: &'a str,
    pub(super) max_connections: u32,
    pub(super) prepared_statements: bool,
    /// Where to listen for announcements, if at all.
    pub(super) listen: Option<&'a str>,
    /// What is consumed from.
    pub(super) queues: Vec<String>,
    pub(super) settings: Settings,
}

pub(super) fn settings(service: &Service) -> Settings {
    Settings {
        unroutable: service.unroutable.as_str(),
        unroutable_blocks: service.unroutable_blocks,
        parked_blocks: service.parked_blocks,
        wake: service.wake.as_str(),
        max_connections: service.max_connections,
        prepared_statements: service.prepared_statements,
    }
}

/// What all services are wired with.
pub(super) struct Wiring<'a> {
    pub(super) config: &'a Config,
    pub(super) metrics: &'a Metrics,
    pub(super) link: &'a Link,
    pub(super) letters: Arc<DeadLetters>,
    pub(super) instance: &'a str,
}

impl Wiring<'_> {
    /// One service: its pool, its stager, its resolver, its drainer. They share nothing with another service's.
    pub(super) fn service(
        &self,
        name: &str,
        place: Place<'_>,
        mut drain: drain::Options,
        stop: &Stop,
        tasks: &Tasks,
    ) -> anyhow::Result<ServiceHandle> {
        let metrics = self.metrics.service(name);
        let pool = Pool::new(&db::Options {
            url: place.url.to_owned(),
            max_connections: place.max_connections,
            prepared_statements: place.prepared_statements,
            acquire_timeout: Duration::from_secs(5),
        })
        .with_context(|| format!("services.{name}.database_url"))?
        .measured(metrics.pool.clone());
        metrics.pool.configured.set(i64::from(place.max_connections) + i64::from(place.listen.is_some()));

        let of = if name == envelope::BUILT_IN_SERVICE { schema::Of::Control } else { schema::Of::Service };
        let options =
            schema::Options { interval: self.config.drain.schema_check, ..schema::Options::default() };
        let watch = schema::Watch::new(name.to_owned(), pool.clone(), of, options, metrics.schema.clone());
        tasks.spawn(&tasks.staging, "schema", watch.run(stop.staging.clone()));

        let stage_options = stage::Options::new(envelope::source(name));
        let (stager, stage_worker) = stage::Stager::new(pool.clone(), stage_options, metrics.clone());
        tasks.spawn(&tasks.staging, "staging", stage_worker.run(stop.staging.clone()));

        let resolved = Arc::new(Notify::new());
        let resolver_options = tickets::Options {
            sweep_after: self.config.drain.ticket_sweep_after,
            sweep_interval: self.config.drain.ticket_sweep_interval,
            ..tickets::Options::default()
        };
        let paused = pause::Seen::new(metrics.drain.clone());
        let (rows, looks) = OutboxRows::new(self.config.drain.lease, paused.clone());
        let (inbox, inbox_rows) =
            inbox::Desk::new(pool.clone(), metrics.clone(), place.queues, self.letters.clone());
        let depth = inbox::Depth::new(pool.clone(), metrics.inbox.clone());
        tasks.spawn(&tasks.staging, "inbox depth", depth.run(stop.staging.clone()));
        let tables: Vec<Arc<dyn tickets::Resolvable>> = vec![Arc::new(rows), Arc::new(inbox_rows)];
        let (resolver, resolver_hints) =
            tickets::Resolver::new(pool.clone(), tables, resolver_options, metrics.clone(), resolved.clone());
        tasks.spawn(&tasks.staging, "resolver", resolver.run(stop.staging.clone()));

        let (depth, latest) =
            depth::Depth::new(pool.clone(), depth::Options::default(), metrics.depth.clone());
        tasks.spawn(&tasks.staging, "depth", depth.run(stop.staging.clone()));

        if let Some(url) = place.listen {
            let options = announced::Options::new(name.to_owned(), url.to_owned());
            let announced = announced::Announced::new(pool.clone(), options, resolved.clone());
            tasks.spawn(&tasks.drains, "listener", announced.run(stop.front.clone()));
        }

        drain.instance = self.instance.to_owned();
        drain.lease = self.config.drain.lease;
        drain.poll = self.config.drain.poll;
        drain.batch = self.config.drain.batch;
        drain.sweep = self.config.drain.sweep;
        let options = drain.clone();
        let publisher = Arc::new(AmqpPublisher::new(self.link.clone(), self.config.broker.confirm_timeout));
        let (drainer, drain_hints) = drain::Drainer::new(
            pool.clone(),
            publisher,
            drain,
            metrics.clone(),
            resolver_hints,
            resolved,
            looks,
        );
        tasks.spawn(&tasks.drains, "drainer", drainer.run(stop.front.clone()));

        let replays = self.replays(name, &pool, &metrics, &options, paused.clone(), stop, tasks);
        let operator = Operator::new(pool.clone(), metrics.clone(), &options, paused, drain_hints.clone());
        let holds = holds::Desk::new(pool.clone(), metrics.clone(), drain_hints.clone());
        let watch_options = holds::watch::Options {
            interval: self.config.drain.held_watch,
            age_warn: self.config.drain.held_age_warn,
            ..holds::watch::Options::default()
        };
        let watch = holds::watch::Watch::new(holds.clone(), watch_options);
        tasks.spawn(&tasks.staging, "held watch", watch.run(stop.staging.clone()));

        let kept = &self.config.retention;
        let windows = retention::Windows { outbox: kept.outbox, inbox: kept.inbox };
        let retention_options = retention::Options::new(windows, kept.interval, kept.most);
        let retention = Retention::new(pool.clone(), retention_options, metrics.clone());
        tasks.spawn(&tasks.drains, "retention", retention.run(stop.front.clone()));
        Ok(ServiceHandle {
            pool,
            stager,
            drain: drain_hints,
            holds,
            inbox,
            replays,
            operator,
            metrics,
            depth: latest,
            settings: place.settings,
        })
    }
    /// Its replays: a lane and a channel of their own, beside the drain's.
    #[expect(clippy::too_many_arguments, reason = "it is a part of the wiring, called once")]
    fn replays(
        &self,
        name: &str,
        pool: &Pool,
        metrics: &ServiceMetrics,
        drain: &drain::Options,
        paused: pause::Seen,
        stop: &Stop,
        tasks: &Tasks,
    ) -> replay::Desk {
        let kept = &self.config.retention;
        let horizon = horizon(kept.outbox, kept.inbox);
        let confirm = self.config.broker.confirm_timeout;
        let publisher = Arc::new(AmqpPublisher::new(self.link.clone(), confirm));
        let options =
            replay::Options { service: name.to_owned(), horizon, accept_unroutable: drain.unroutable_accept };
        let lane = replay::Lane::new(pool.clone(), publisher, paused, options);
        let options = jobs::Options::new(self.instance.to_owned(), confirm);
        let (engine, hints) = jobs::Engine::new(pool.clone(), lane, options, metrics.jobs.clone());
        tasks.spawn(&tasks.drains, "jobs", engine.run(stop.front.clone()));
        replay::Desk::new(pool.clone(), horizon, hints)
    }
}

/// How old an event may be to be sent again: kept by the outbox, and remembered by inboxes for a day more than that. Zero is for ever.
fn horizon(outbox: Duration, inbox: Duration) -> Option<Duration> {
    let inbox = (!inbox.is_zero()).then(|| inbox.saturating_sub(Duration::from_secs(24 * 3600)));
    let outbox = (!outbox.is_zero()).then_some(outbox);
    [outbox, inbox].into_iter().flatten().min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_horizon_is_the_shorter_memory_and_the_inbox_has_a_day_to_spare() {
        let days = |days: u64| Duration::from_secs(days * 24 * 3600);
        assert_eq!(horizon(days(30), days(31)), Some(days(30)));
        assert_eq!(horizon(days(30), days(20)), Some(days(19)));
        assert_eq!(horizon(days(30), Duration::ZERO), Some(days(30)));
        assert_eq!(horizon(Duration::ZERO, days(31)), Some(days(30)));
        assert_eq!(horizon(Duration::ZERO, Duration::ZERO), None);
        assert_eq!(horizon(days(30), Duration::from_secs(3600)), Some(Duration::ZERO));
    }
}
