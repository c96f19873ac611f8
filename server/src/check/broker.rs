//! RabbitMQ: is it there, and are the exchanges as they should be.

use std::time::Duration;

use super::report::Report;
use crate::broker::{Exchange, inspect};
use crate::config::{Broker, Topology};

const PATIENCE: Duration = Duration::from_secs(5);
const SUBJECT: &str = "broker";

pub(super) async fn check(broker: &Broker, topology: &Topology) -> Report {
    let mut report = Report::default();
    let uri = match broker.uri() {
        Ok(uri) => uri,
        Err(problem) => {
            report.fail(SUBJECT, "reachable", problem, "mend broker.url");
            return report;
        }
    };
    let names = [broker.exchange.as_str(), topology.dlx.as_str()];
    match inspect(uri, &names.map(Into::into), PATIENCE).await {
        Err(error) => report.fail(
            SUBJECT,
            "reachable",
            error.to_string(),
            "check host, port, user, password and vhost in broker.url, and that the broker runs",
        ),
        Ok(seen) => {
            report.ok(SUBJECT, "reachable", "connected");
            let checks = [("exchange", "broker.exchange"), ("dead letters", "topology.dlx")];
            for (((check, setting), name), seen) in checks.into_iter().zip(names).zip(seen) {
                judge(&mut report, check, setting, name, seen);
            }
        }
    }
    report
}

fn judge(report: &mut Report, check: &'static str, setting: &str, name: &str, seen: Exchange) {
    match seen {
        Exchange::There => report.ok(SUBJECT, check, format!("{name:?} is a durable topic exchange")),
        Exchange::ThereUnseen => {
            report.ok(SUBJECT, check, format!("{name:?} is there; of what kind, this account may not ask"));
        }
        Exchange::Missing => report.warn(
            SUBJECT,
            check,
            format!("{name:?} is not there"),
            "the server declares it if its account may; else declare it: topic, durable",
        ),
        Exchange::OfAnotherKind => report.fail(
            SUBJECT,
            check,
            format!("{name:?} is there, and is no durable topic exchange"),
            format!("name another exchange in {setting}, or delete this one and let it be declared anew"),
        ),
    }
}
