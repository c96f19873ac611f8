//! Health as a probe sees it.

use std::{net::SocketAddr, time::Duration};

use tonic::{
    Code,
    transport::{Channel, Endpoint},
};
pub use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

use crate::wait;

/// Within so long a change must be seen, either way.
pub const SEEN: Duration = Duration::from_secs(10);

/// A prober of one server.
#[derive(Debug, Clone)]
pub struct Health {
    /// The generated client.
    pub raw: HealthClient<Channel>,
}

impl Health {
    /// Of the server at this address.
    ///
    /// # Panics
    /// When the address is none.
    pub fn of(address: SocketAddr) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
        Self { raw: HealthClient::new(endpoint.connect_lazy()) }
    }

    /// A component's status now; `None` if the server does not know it.
    ///
    /// # Panics
    /// When nobody answers.
    pub async fn status(&self, component: &str) -> Option<ServingStatus> {
        let request = HealthCheckRequest { service: component.to_owned() };
        match self.raw.clone().check(request).await {
            Ok(answer) => Some(answer.into_inner().status()),
            Err(status) if status.code() == Code::NotFound => None,
            Err(status) => panic!("no health of {component:?}: {status}"),
        }
    }

    /// Waits until it serves, at most as long as a change may take to be seen.
    pub async fn serves(&self, component: &str) {
        self.becomes(component, ServingStatus::Serving).await;
    }

    /// Waits until it does not serve, likewise.
    pub async fn does_not_serve(&self, component: &str) {
        self.becomes(component, ServingStatus::NotServing).await;
    }

    async fn becomes(&self, component: &str, wanted: ServingStatus) {
        wait::until_equal(component, SEEN, Some(wanted), || self.status(component)).await;
    }

    /// What a watcher of a component is told, first what it is now.
    ///
    /// # Panics
    /// When nobody answers.
    pub async fn watch(&self, component: &str) -> Watched {
        let request = HealthCheckRequest { service: component.to_owned() };
        Watched(self.raw.clone().watch(request).await.expect("watch health").into_inner())
    }
}

/// A watch on a component.
#[derive(Debug)]
pub struct Watched(tonic::Streaming<tonic_health::pb::HealthCheckResponse>);

impl Watched {
    /// The next status.
    ///
    /// # Panics
    /// When none comes in time, or the stream ends.
    pub async fn next(&mut self) -> ServingStatus {
        let next = tokio::time::timeout(wait::LONG, self.0.message()).await.expect("a change of health");
        next.expect("a health stream").expect("a status").status()
    }
}
