//! How metrics are declared: once, with a name that follows the conventions, a type and a help text, into the registry and
//! into the catalogue, from which `docs/metrics.md` is made. (A registry tells only what has samples already.)

use prometheus::core::{Collector, Desc};
use prometheus::{
    HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

/// One metric as the documentation shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its full name.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Its labels, in their order.
    pub labels: Vec<String>,
    /// What it counts or measures.
    pub help: String,
}

/// What is declared goes here.
pub(super) struct Declare<'a> {
    registry: &'a Registry,
    catalogue: Vec<Entry>,
}

type Declared<T> = Result<T, prometheus::Error>;

impl<'a> Declare<'a> {
    pub(super) fn into(registry: &'a Registry) -> Self {
        Self { registry, catalogue: Vec::new() }
    }

    pub(super) fn catalogue(self) -> Vec<Entry> {
        self.catalogue
    }

    pub(super) fn counter(&mut self, name: &str, help: &str) -> Declared<IntCounter> {
        self.add("counter", IntCounter::with_opts(opts(name, help))?)
    }

    pub(super) fn counters(&mut self, name: &str, help: &str, labels: &[&str]) -> Declared<IntCounterVec> {
        self.add("counter", IntCounterVec::new(opts(name, help), labels)?)
    }

    pub(super) fn gauge(&mut self, name: &str, help: &str) -> Declared<IntGauge> {
        self.add("gauge", IntGauge::with_opts(opts(name, help))?)
    }

    pub(super) fn gauges(&mut self, name: &str, help: &str, labels: &[&str]) -> Declared<IntGaugeVec> {
        self.add("gauge", IntGaugeVec::new(opts(name, help), labels)?)
    }

    pub(super) fn histograms(
        &mut self,
        name: &str,
        help: &str,
        labels: &[&str],
        buckets: &[f64],
    ) -> Declared<HistogramVec> {
        let opts = HistogramOpts::from(opts(name, help)).buckets(buckets.to_vec());
        self.add("histogram", HistogramVec::new(opts, labels)?)
    }

    /// Somebody else's collector, whose names are its own.
    pub(super) fn foreign(&mut self, collector: impl Collector + 'static) -> Declared<()> {
        for desc in collector.desc() {
            let kind = if desc.fq_name.ends_with("_total") { "counter" } else { "gauge" };
            self.catalogue.push(entry(desc, kind));
        }
        self.registry.register(Box::new(collector))
    }

    fn add<C: Collector + Clone + 'static>(&mut self, kind: &'static str, metric: C) -> Declared<C> {
        self.registry.register(Box::new(metric.clone()))?;
        self.catalogue.extend(metric.desc().into_iter().map(|desc| entry(desc, kind)));
        Ok(metric)
    }
}

fn entry(desc: &Desc, kind: &'static str) -> Entry {
    let constant = desc.const_label_pairs.iter().map(|pair| pair.name().to_owned());
    let labels = constant.chain(desc.variable_labels.iter().cloned()).collect();
    Entry { name: desc.fq_name.clone(), kind, labels, help: desc.help.clone() }
}

fn opts(name: &str, help: &str) -> Opts {
    Opts::new(name, help).namespace("holdfast")
}
