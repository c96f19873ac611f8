//! What of this server can do its work, component by component: derived from what others see anyway, so that a look costs
//! nothing and waits for nobody. Pure but for the clock; who tells whom is the front's business. Design, section 13.
//!
//! | component | serving while |
//! | --- | --- |
//! | `""` | the process runs and is not stopping |
//! | `liveness` | the process runs, to its last moment: a restart mends nothing that a stop does not |
//! | `readiness` | calls can be answered: the configuration is valid (else there is no server), the listener open, no stop under way |
//! | `control` | the control database has given a sign of life within [`SILENT`], and its schema is one that we work with |
//! | `service/NAME` | the same of the service's database |
//! | `broker` | connected, not blocked, and answering |
//!
//! Readiness depends on no database and not on the broker: staging for one service goes on while another's database is away,
//! and all staging goes on without the broker; taking the replica out of rotation would help nobody.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::broker::Weather;
use crate::db::{Gate, Pulse};

/// A database that is looked at each second and was silent for so long does not serve. Changes are seen within ten seconds.
pub const SILENT: Duration = Duration::from_secs(5);

/// The component of a service.
pub fn service(name: &str) -> String {
    format!("service/{name}")
}

/// One component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Component {
    /// As a probe asks for it.
    pub name: String,
    /// Whether it can do its work.
    pub serving: bool,
    /// If not, why; for people, without secrets.
    pub why: String,
}

impl Component {
    fn of(name: impl Into<String>, trouble: Option<String>) -> Self {
        Self { name: name.into(), serving: trouble.is_none(), why: trouble.unwrap_or_default() }
    }
}

/// Where the facts come from. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Facts {
    /// Whether the server's own listener takes connections.
    pub listener: Arc<AtomicBool>,
    /// Whether it ever was.
    pub started: Arc<AtomicBool>,
    /// The server stops.
    pub stopping: CancellationToken,
    /// The control database.
    pub control: (Pulse, Gate),
    /// The services' databases, by name.
    pub services: Vec<(String, Pulse, Gate)>,
    /// The publishing connection.
    pub weather: watch::Receiver<Weather>,
    /// Whether the broker answers on it.
    pub responsive: watch::Receiver<bool>,
}

impl Facts {
    /// All components as they are now.
    pub fn look(&self) -> Vec<Component> {
        let stopping = self.stopping.is_cancelled();
        let process = |else_why: Option<&str>| {
            if stopping { Some("the server is stopping") } else { else_why }.map(str::to_owned)
        };
        let listening = self.listener.load(Ordering::Relaxed);
        // The process is well although its listener is out of reach for a moment: a restart mends nothing then.
        let started = self.started.fetch_or(listening, Ordering::Relaxed) || listening;
        let listener = (!listening).then_some("the server's own listener does not answer");
        let mut all = vec![
            Component::of("", process((!started).then_some("the server has not started yet"))),
            Component::of("liveness", None),
            Component::of("readiness", process(listener)),
            Component::of("control", process(None).or_else(|| database_of(&self.control.0, &self.control.1))),
            Component::of("broker", process(None).or_else(|| self.broker())),
        ];
        all.extend(self.services.iter().map(|(name, pulse, gate)| {
            Component::of(service(name), process(None).or_else(|| database_of(pulse, gate)))
        }));
        all
    }

    fn broker(&self) -> Option<String> {
        let why = match (*self.weather.borrow(), *self.responsive.borrow()) {
            (Weather::Away, _) => "no connection to the broker; events wait in their outboxes",
            (Weather::Blocked, _) => {
                "the broker blocks publishing (memory or disk alarm); events wait in their outboxes"
            }
            (Weather::Fair, false) => "the broker does not answer; events wait in their outboxes",
            (Weather::Fair, true) => return None,
        };
        Some(why.to_owned())
    }
}

fn database_of(pulse: &Pulse, gate: &Gate) -> Option<String> {
    // First: what else it does not answer then comes of this.
    let drifted = gate
        .refusal()
        .map(|difference| format!("its schema is not one that this release works with: {difference}"));
    drifted.or_else(|| database(pulse.silence(), pulse.trouble()))
}

/// What is wrong with a database, if anything is.
fn database(silence: Option<Duration>, trouble: Option<String>) -> Option<String> {
    if silence.is_some_and(|silence| silence <= SILENT) {
        return None;
    }
    let since = match silence {
        Some(silence) => format!("no sign of life for {} s", silence.as_secs()),
        None => "no sign of life yet".to_owned(),
    };
    Some(match trouble {
        Some(trouble) => format!("{since}: {trouble}"),
        None => since,
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    struct World {
        facts: Facts,
        weather: watch::Sender<Weather>,
        responsive: watch::Sender<bool>,
    }

    fn world() -> World {
        let (weather, seen_weather) = watch::channel(Weather::Fair);
        let (responsive, seen_responsive) = watch::channel(true);
        let facts = Facts {
            listener: Arc::new(AtomicBool::new(true)),
            started: Arc::default(),
            stopping: CancellationToken::new(),
            control: Default::default(),
            services: vec![("orders".into(), Pulse::default(), Gate::default())],
            weather: seen_weather,
            responsive: seen_responsive,
        };
        facts.control.0.beat();
        facts.services[0].1.beat();
        World { facts, weather, responsive }
    }

    fn down(facts: &Facts) -> Vec<String> {
        facts.look().into_iter().filter(|one| !one.serving).map(|one| one.name).collect()
    }

    #[test]
    fn a_listener_out_of_reach_takes_readiness_and_leaves_the_process() {
        let world = world();
        world.facts.listener.store(false, Ordering::Relaxed);
        assert_eq!(down(&world.facts), ["", "readiness"], "it has not started yet");
        world.facts.listener.store(true, Ordering::Relaxed);
        assert!(down(&world.facts).is_empty());
        world.facts.listener.store(false, Ordering::Relaxed);
        assert_eq!(down(&world.facts), ["readiness"]);
    }

    #[test]
    fn a_database_serves_as_long_as_its_last_sign_of_life_is_recent() {
        let trouble = || Some("connection refused".to_owned());
        assert_eq!(database(Some(Duration::ZERO), None), None);
        assert_eq!(database(Some(SILENT), trouble()), None, "one failure is no outage");
        let silent = SILENT + Duration::from_secs(2);
        assert_eq!(database(Some(silent), None).unwrap(), "no sign of life for 7 s");
        assert_eq!(database(Some(silent), trouble()).unwrap(), "no sign of life for 7 s: connection refused");
        assert_eq!(database(None, None).unwrap(), "no sign of life yet");
    }

    #[test]
    fn a_database_that_was_never_seen_is_its_services_trouble_and_nobody_elses() {
        let mut world = world();
        assert!(down(&world.facts).is_empty());
        world.facts.services.push(("billing".into(), Pulse::default(), Gate::default()));
        assert_eq!(down(&world.facts), ["service/billing"]);
        world.facts.services[1].1.missed(&crate::db::Error::standby());
        let last = world.facts.look().pop().unwrap();
        assert_eq!(last.why, "no sign of life yet: the database is a standby");
        world.facts.services[1].1.beat();
        assert!(down(&world.facts).is_empty());
    }

    #[test]
    fn a_schema_that_is_not_ours_is_its_services_trouble_however_well_the_database_lives() {
        let world = world();
        world.facts.services[0].2.shut("index x is missing");
        assert_eq!(down(&world.facts), ["service/orders"]);
        assert!(world.facts.look().pop().unwrap().why.ends_with("works with: index x is missing"));
        world.facts.services[0].2.open();
        world.facts.control.1.shut("y");
        assert_eq!(down(&world.facts), ["control"]);
    }

    #[test]
    fn the_broker_is_its_own_trouble_only() {
        let world = world();
        for weather in [Weather::Away, Weather::Blocked] {
            world.weather.send_replace(weather);
            assert_eq!(down(&world.facts), ["broker"]);
        }
        world.weather.send_replace(Weather::Fair);
        assert!(down(&world.facts).is_empty());
        world.responsive.send_replace(false);
        assert_eq!(down(&world.facts), ["broker"]);
    }

    #[test]
    fn a_stop_leaves_liveness_alone() {
        let world = world();
        world.facts.stopping.cancel();
        assert_eq!(down(&world.facts), ["", "readiness", "control", "broker", "service/orders"]);
    }
}
