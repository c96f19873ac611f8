//! RabbitMQ: is it there, and is the exchange as it should be.

use std::time::Duration;

use super::report::Report;
use crate::broker::{Exchange, inspect};
use crate::config::Broker;

const PATIENCE: Duration = Duration::from_secs(5);
const SUBJECT: &str = "broker";

pub(super) async fn check(broker: &Broker) -> Report {
    let mut report = Report::default();
    let uri = match broker.uri() {
        Ok(uri) => uri,
        Err(problem) => {
            report.fail(SUBJECT, "reachable", problem, "mend broker.url");
            return report;
        }
    };
    let name = &broker.exchange;
    match inspect(uri, name.as_str().into(), PATIENCE).await {
        Err(error) => report.fail(
            SUBJECT,
            "reachable",
            error.to_string(),
            "check host, port, user, password and vhost in broker.url, and that the broker runs",
        ),
        Ok(exchange) => {
            report.ok(SUBJECT, "reachable", "connected");
            match exchange {
                Exchange::There => report.ok(SUBJECT, "exchange", format!("{name:?} is a durable topic exchange")),
                Exchange::ThereUnseen => report.ok(
                    SUBJECT,
                    "exchange",
                    format!("{name:?} is there; of what kind, this account may not ask"),
                ),
                Exchange::Missing => report.warn(
                    SUBJECT,
                    "exchange",
                    format!("{name:?} is not there"),
                    "the server declares it if its account may; else declare it: topic, durable",
                ),
                Exchange::OfAnotherKind => report.fail(
                    SUBJECT,
                    "exchange",
                    format!("{name:?} is there, and is no durable topic exchange"),
                    "name another exchange in broker.exchange, or delete this one and let it be declared anew",
                ),
            }
        }
    }
    report
}
