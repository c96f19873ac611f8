//! `holdfast probe`: the health check of a container that has no grpcurl. Asks `grpc.health.v1` once, prints one line.
//!
//! Exit code 0: the component serves. 1: it does not, or nobody answers in time. 2: the question was wrong (clap's own code
//! for arguments, and a component that the server does not know).

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tonic::Code;
use tonic::transport::{Endpoint, Uri};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

/// What to ask, and whom.
#[derive(Debug, Args)]
pub struct Probe {
    /// Where the server listens: HOST:PORT or http://HOST:PORT.
    #[arg(long, default_value = "127.0.0.1:50551", value_parser = address)]
    address: Uri,
    /// `liveness`, `readiness`, `control`, `broker` or `service/NAME`; the empty name is the server as a whole.
    #[arg(long, default_value = "readiness")]
    component: String,
    /// How long to wait for the answer, connecting included.
    #[arg(long, default_value = "3s", value_parser = patience)]
    timeout: Duration,
}

fn address(text: &str) -> Result<Uri, String> {
    let url = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let uri: Uri = url.parse().map_err(|_| "is no address".to_owned())?;
    match uri.scheme_str() {
        Some("http") if uri.port().is_some() => Ok(uri),
        _ => Err("must be HOST:PORT or http://HOST:PORT".to_owned()),
    }
}

fn patience(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(value) if !value.is_zero() => Ok(value),
        Ok(_) => Err("must be more than 0".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

const NOT_SERVING: u8 = 1;
const WRONG_QUESTION: u8 = 2;

/// Asks, prints the answer, and tells it as an exit code.
pub(super) async fn run(probe: Probe) -> ExitCode {
    let Probe { address, component, timeout } = probe;
    let named = if component.is_empty() { "\"\"" } else { &component };
    let asked = tokio::time::timeout(timeout, async {
        let channel =
            Endpoint::from(address).connect().await.map_err(|_| "nobody listens there".to_owned())?;
        let request = HealthCheckRequest { service: component.clone() };
        Ok(HealthClient::new(channel).check(request).await)
    });
    let (line, code) = match asked.await {
        Err(_) => (format!("no answer within {timeout:?}"), NOT_SERVING),
        Ok(Err(trouble)) => (trouble, NOT_SERVING),
        Ok(Ok(Err(status))) if status.code() == Code::NotFound => {
            ("the server knows no such component".to_owned(), WRONG_QUESTION)
        }
        Ok(Ok(Err(status))) => {
            (format!("no answer ({:?}): {}", status.code(), status.message()), NOT_SERVING)
        }
        Ok(Ok(Ok(answer))) => match answer.into_inner().status() {
            ServingStatus::Serving => ("SERVING".to_owned(), 0),
            other => (other.as_str_name().to_owned(), NOT_SERVING),
        },
    };
    // The exit code is the answer, also when nobody reads the line: a server that serves is not ill for that.
    let _ = super::say(format_args!("{named}: {line}"));
    ExitCode::from(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_needs_a_port_and_may_have_a_scheme() {
        assert!(address("127.0.0.1:50551").is_ok());
        assert!(address("http://[::1]:50551").is_ok());
        for bad in ["", "127.0.0.1", "ftp://127.0.0.1:1", "http://", "a b:1"] {
            assert!(address(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn no_time_at_all_is_refused() {
        assert_eq!(patience("1500ms"), Ok(Duration::from_millis(1_500)));
        assert!(patience("0s").is_err() && patience("soon").is_err());
    }
}
