//! A server in the test's own process: its log is the test's log, its metrics are at hand.

use std::net::SocketAddr;

use holdfast_server::{app, config::Config};

use super::ServerConfig;

/// A running server. Call [`ServerInProcess::stop`]; a dropped one ends with the test's runtime.
pub struct ServerInProcess {
    running: app::Running,
}

impl ServerInProcess {
    /// Starts it.
    ///
    /// # Panics
    /// When it refuses the configuration or cannot start.
    pub async fn start(config: &ServerConfig) -> Self {
        let config = Config::parse(&config.to_toml()).unwrap_or_else(|errors| panic!("{errors}"));
        Self { running: app::start(config).await.expect("start the server") }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.running.local_addr
    }

    /// Where its admin port is.
    ///
    /// # Panics
    /// When it is switched off.
    pub fn admin_address(&self) -> SocketAddr {
        self.running.admin_addr.expect("an admin port")
    }

    /// The sum of all its samples of a metric whose labels contain `labels` (`""` for all of them): histograms by
    /// their full sample name, `…_count` say.
    pub fn metric(&self, name: &str, labels: &str) -> f64 {
        metric(&self.metrics_text(), name, labels)
    }

    /// All its metrics as text.
    pub fn metrics_text(&self) -> String {
        self.running.metrics_text().expect("metrics as text")
    }

    /// Stops it in order.
    pub async fn stop(self) {
        self.running.stop().await;
    }
}

/// Sums samples in Prometheus' text format.
fn metric(text: &str, name: &str, labels: &str) -> f64 {
    let samples = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let (own_name, own_labels) = series.split_once('{').unwrap_or((series, ""));
        (own_name == name && own_labels.contains(labels)).then(|| value.parse::<f64>().ok())?
    });
    samples.sum()
}

#[cfg(test)]
mod tests {
    #[test]
    fn samples_of_one_name_and_label_are_summed() {
        let text = "# HELP a b\na{s=\"x\",t=\"1\"} 2\na{s=\"x\",t=\"2\"} 3\na{s=\"y\"} 4\nab 5\n";
        assert!((super::metric(text, "a", "s=\"x\"") - 5.0).abs() < f64::EPSILON);
        assert!((super::metric(text, "a", "") - 9.0).abs() < f64::EPSILON);
        assert!((super::metric(text, "ab", "") - 5.0).abs() < f64::EPSILON);
    }
}
