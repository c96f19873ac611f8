//! What the server says of itself and its services: for dashboards, and for a service that wants to know whether its outbox
//! lives.
//!
//! Guarantees: reads only, from the answering replica's memory; works while databases and broker do not.

use holdfast_proto::v1;
use holdfast_proto::v1::control_service_client::ControlServiceClient;

use crate::call::call;
use crate::connection::{Deadlines, Transport};
use crate::{Error, rpc};

/// A server's account of itself; [`crate::Holdfast::control`] makes one. Cheap to clone. With several replicas each call
/// may be answered by another one, which tells what it has seen itself.
#[derive(Debug, Clone)]
pub struct Control {
    transport: Transport,
    client: ControlServiceClient<Transport>,
    deadlines: Deadlines,
}

impl Control {
    pub(crate) fn new(transport: Transport, deadlines: Deadlines) -> Self {
        Self { client: ControlServiceClient::new(transport.clone()), transport, deadlines }
    }

    /// The replica that answers, its health, and all configured services with theirs, in the order of their names.
    ///
    /// # Errors
    /// [`Error`]; none of the RPC's own.
    ///
    /// ```no_run
    /// # async fn example(holdfast: holdfast_client::Holdfast) -> Result<(), holdfast_client::Error> {
    /// for service in holdfast.control().list_services().await?.services {
    ///     let serving = service.health.is_some_and(|health| health.serving);
    ///     println!("{}: {}", service.name, if serving { "lives" } else { "is in trouble" });
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn list_services(&self) -> Result<v1::ListServicesResponse, Error> {
        let send = |request| {
            let mut client = self.client.clone();
            async move { client.list_services(request).await }
        };
        let request = v1::ListServicesRequest {};
        call(&self.transport, rpc::LIST_SERVICES, self.deadlines.call, &request, send).await
    }

    /// One service, by its name: health, settings, and what lies in its outbox.
    ///
    /// # Errors
    /// [`Error`]; `NotFound` with `UnknownService` for one that is not configured, `InvalidArgument` for a name that can be
    /// nobody's.
    ///
    /// ```no_run
    /// # async fn example(holdfast: holdfast_client::Holdfast) -> Result<(), holdfast_client::Error> {
    /// let orders = holdfast.control().get_service("orders").await?;
    /// println!("{:?}", orders.outbox);
    /// # Ok(()) }
    /// ```
    pub async fn get_service(&self, service: impl Into<String>) -> Result<v1::GetServiceResponse, Error> {
        let send = |request| {
            let mut client = self.client.clone();
            async move { client.get_service(request).await }
        };
        let request = v1::GetServiceRequest { service: service.into() };
        call(&self.transport, rpc::GET_SERVICE, self.deadlines.call, &request, send).await
    }
}
