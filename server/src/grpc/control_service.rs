//! `holdfast.v1.ControlService`: what this replica is, serves and sees. Everything from memory: it answers while databases and
//! the broker do not. Hosts, logins and URLs are not told, to nobody: whoever may know them has the configuration.

use std::sync::Arc;
use std::time::SystemTime;

use holdfast_proto::v1;
use holdfast_proto::v1::control_service_server::ControlService;
use serde_json::json;
use time::OffsetDateTime;
use tonic::{Request, Response, Status};

use super::admin::{Acted, Admin, Asked};
use super::outbox_admin_list::described_pause;
use super::{Failure, ServiceHandle, Services, answer, audit_list, call_id, calling, timestamp};
use crate::auth::Caller;
use crate::health::{self, Component, Facts};
use crate::outbox::depth;

/// The settings of a service that may be known.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `retry` or `accept`.
    pub unroutable: &'static str,
    /// Whether an unroutable event holds its key back.
    pub unroutable_blocks: bool,
    /// Whether a parked one does.
    pub parked_blocks: bool,
    /// `poll` or `notify`.
    pub wake: &'static str,
    /// Most connections, without the listener's.
    pub max_connections: u32,
    /// Whether statements are prepared by name.
    pub prepared_statements: bool,
}

/// This process.
#[derive(Debug, Clone)]
pub struct ThisReplica {
    /// Who claims.
    pub instance: String,
    /// When it started.
    pub started_at: OffsetDateTime,
}

/// The control front.
#[derive(Clone)]
pub struct ControlFront {
    replica: Arc<ThisReplica>,
    services: Services,
    facts: Facts,
    admin: Admin,
}

impl ControlFront {
    /// Answers from these.
    pub fn new(replica: ThisReplica, services: Services, facts: Facts, admin: Admin) -> Self {
        Self { replica: Arc::new(replica), services, facts, admin }
    }

    fn list(&self, caller: &Caller) -> v1::ListServicesResponse {
        let components = self.facts.look();
        let services = self.services.all();
        // Whoever may neither read nor operate a service does not learn that it is there.
        let shown = |name: &str| {
            caller.read(name).is_ok() || caller.admin(name).is_ok() || caller.fleet_admin().is_ok()
        };
        let services =
            services.into_iter().filter(|(name, _)| shown(name)).map(|(name, handle)| v1::ServiceSummary {
                name: name.to_owned(),
                health: health_of(&components, name),
                drain_paused: handle.operator.pause_seen().is_some(),
            });
        let services = services.collect();
        let own = |one: &&Component| !one.name.starts_with("service/");
        v1::ListServicesResponse {
            replica: Some(v1::Replica {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                instance: self.replica.instance.clone(),
                started_at: Some(timestamp(self.replica.started_at)),
                components: components.iter().filter(own).map(described).collect(),
            }),
            services,
        }
    }

    async fn audit(
        &self,
        caller: &Caller,
        request_id: String,
        request: v1::ListAdminAuditRequest,
    ) -> Result<v1::ListAdminAuditResponse, Failure> {
        let wanted = audit_list::wanted(&request)?;
        let asked = Asked {
            request_id,
            caller: caller.clone(),
            service: wanted.filter.service.clone(),
            verb: "ListAdminAudit",
            arguments: wanted.arguments(),
        };
        let proof = audit_list::Auditor::of(caller, wanted.filter.service.as_deref());
        let audit = self.admin.audit().clone();
        self.admin
            .act(asked, proof, move |auditor| async move {
                let filter = auditor.narrow(wanted.filter);
                let page = audit.list(&filter, wanted.before, wanted.limit).await.map_err(Failure::Audit)?;
                Ok(Acted { counts: json!({"calls": page.calls.len()}), answer: audit_list::described(page) })
            })
            .await
    }

    fn get(&self, caller: &Caller, name: &str) -> Result<v1::GetServiceResponse, Failure> {
        Services::check_name(name)?;
        let ServiceHandle { settings, metrics, depth, operator, .. } =
            self.services.to_read(&caller.read(name)?)?;
        Ok(v1::GetServiceResponse {
            name: name.to_owned(),
            health: health_of(&self.facts.look(), name),
            settings: Some(v1::ServiceSettings {
                unroutable: settings.unroutable.to_owned(),
                unroutable_blocks: settings.unroutable_blocks,
                parked_blocks: settings.parked_blocks,
                wake: settings.wake.to_owned(),
                max_connections: settings.max_connections,
                prepared_statements: settings.prepared_statements,
            }),
            in_hand: Some(v1::InHand {
                in_flight: metrics.drain.in_flight.get(),
                unresolved_tickets: metrics.tickets.unresolved.get(),
                unresolved_oldest_seconds: metrics.tickets.oldest_age.get(),
            }),
            outbox: depth.borrow().as_ref().map(|(report, at)| measured(report, *at)),
            drain_pause: operator.pause_seen().map(described_pause),
        })
    }
}

#[tonic::async_trait]
impl ControlService for ControlFront {
    async fn list_services(
        &self,
        request: Request<v1::ListServicesRequest>,
    ) -> Result<Response<v1::ListServicesResponse>, Status> {
        let (caller, _) = calling(request)?;
        Ok(Response::new(self.list(&caller)))
    }

    async fn get_service(
        &self,
        request: Request<v1::GetServiceRequest>,
    ) -> Result<Response<v1::GetServiceResponse>, Status> {
        let (caller, request) = calling(request)?;
        let name = request.service;
        self.get(&caller, &name).map(Response::new).map_err(|failure| answer(failure, &name))
    }

    async fn list_admin_audit(
        &self,
        request: Request<v1::ListAdminAuditRequest>,
    ) -> Result<Response<v1::ListAdminAuditResponse>, Status> {
        let id = call_id(&request);
        let (caller, request) = calling(request)?;
        let service = request.service.clone();
        self.audit(&caller, id, request).await.map(Response::new).map_err(|failure| answer(failure, &service))
    }
}

/// Most bytes of a sentence for people.
const WHY_BYTES: usize = 1_024;

fn described(component: &Component) -> v1::ComponentHealth {
    let end = component.why.floor_char_boundary(WHY_BYTES);
    v1::ComponentHealth {
        name: component.name.clone(),
        serving: component.serving,
        why: component.why.get(..end).unwrap_or_default().to_owned(),
    }
}

fn health_of(components: &[Component], service: &str) -> Option<v1::ComponentHealth> {
    let name = health::service(service);
    components.iter().find(|one| one.name == name).map(described)
}

fn measured(report: &depth::Report, at: SystemTime) -> v1::OutboxDepth {
    let states = report.states.iter().map(|(state, of)| v1::StateDepth {
        state: (*state).to_owned(),
        rows: of.rows,
        oldest_seconds: of.oldest_seconds,
    });
    v1::OutboxDepth {
        measured_at: Some(timestamp(at.into())),
        states: states.collect(),
        estimated: report.estimated,
        beyond_grace: report.beyond_grace,
        keys_blocked: report.keys_blocked,
    }
}
