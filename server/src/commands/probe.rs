//! `holdfast probe`: the health check of a container that has no grpcurl. Asks `grpc.health.v1` once, prints one line.
//!
//! Exit code 0: the component serves. 1: it does not, or nobody answers in time. 2: the question was wrong (clap's own code
//! for arguments, and a component that the server does not know).

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::server::{Server, no_connection, patience};

/// What to ask, and whom.
#[derive(Debug, Args)]
pub struct Probe {
    #[command(flatten)]
    server: Server,
    /// `liveness`, `readiness`, `control`, `broker` or `service/NAME`; the empty name is the server as a whole.
    #[arg(long, default_value = "readiness")]
    component: String,
    /// How long to wait for the answer, connecting included.
    #[arg(long, default_value = "3s", value_parser = patience)]
    timeout: Duration,
}

const NOT_SERVING: u8 = 1;
const WRONG_QUESTION: u8 = 2;

/// Asks, prints the answer, and tells it as an exit code.
pub(super) async fn run(probe: Probe) -> ExitCode {
    let Probe { server, component, timeout } = probe;
    let named = if component.is_empty() { "\"\"" } else { &component };
    let connection = match server.anonymously(timeout) {
        Ok(connection) => connection,
        Err(trouble) => {
            eprintln!("holdfast: {trouble:#}");
            return ExitCode::from(WRONG_QUESTION);
        }
    };
    let request = HealthCheckRequest { service: component.clone() };
    let mut client = HealthClient::new(connection.transport());
    let (line, code) = match tokio::time::timeout(timeout, client.check(request)).await {
        Err(_) => (format!("no answer within {timeout:?}"), NOT_SERVING),
        Ok(Err(status)) if status.code() == Code::NotFound => {
            ("the server knows no such component".to_owned(), WRONG_QUESTION)
        }
        Ok(Err(status)) => {
            let line = no_connection(&status).map_or_else(
                || format!("no answer ({:?}): {}", status.code(), status.message()),
                |cause| format!("no connection: {cause}"),
            );
            (line, NOT_SERVING)
        }
        Ok(Ok(answer)) => match answer.into_inner().status() {
            ServingStatus::Serving => ("SERVING".to_owned(), 0),
            other => (other.as_str_name().to_owned(), NOT_SERVING),
        },
    };
    // The exit code is the answer, also when nobody reads the line: a server that serves is not ill for that.
    let _ = super::say(format_args!("{named}: {line}"));
    ExitCode::from(code)
}
