//! A URL that may hold a password.

use std::fmt;

/// A URL that may hold a password; printed without it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub(super) String);

/// Parameters of a URL that say how to connect and give nothing away.
const HARMLESS: [&str; 8] = [
    "sslmode",
    "sslrootcert",
    "application_name",
    "heartbeat",
    "connection_timeout",
    "channel_max",
    "frame_max",
    "statement-cache-capacity",
];

impl Secret {
    /// The value, for whoever connects with it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The same URL with `***` for its password and for each parameter that is not known to be harmless; all of it for what
    /// is no URL.
    pub fn redacted(&self) -> String {
        let Some((scheme, rest)) = self.0.split_once("://") else { return "***".to_owned() };
        let (place, query) = rest.split_once('?').map_or((rest, None), |(place, query)| (place, Some(query)));
        // A password with a question mark, perhaps.
        if query.is_some_and(|query| query.contains('@')) {
            return format!("{scheme}://***");
        }
        // The last one: a password may hold another, whether that is allowed or not.
        let (who, place) = match place.rsplit_once('@') {
            None => (String::new(), place),
            Some((who, place)) => match who.split_once(':') {
                None => (format!("{who}@"), place),
                Some((user, _)) => (format!("{user}:***@"), place),
            },
        };
        let query = query.map(|query| {
            let shown = query.split('&').map(|pair| match pair.split_once('=') {
                Some((name, _)) if !HARMLESS.contains(&name) => format!("{name}=***"),
                Some(_) => pair.to_owned(),
                None => "***".to_owned(),
            });
            format!("?{}", shown.collect::<Vec<_>>().join("&"))
        });
        format!("{scheme}://{who}{place}{}", query.unwrap_or_default())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_host_and_database_are_shown_and_the_password_is_not() {
        for (url, shown) in [
            ("postgres://holdfast:hunter2@db:5433/orders", "postgres://holdfast:***@db:5433/orders"),
            ("postgres://holdfast@db/orders", "postgres://holdfast@db/orders"),
            ("amqp://h:a@hunter2@mq:5672/%2f", "amqp://h:***@mq:5672/%2f"),
            ("postgres://h:@db/orders", "postgres://h:***@db/orders"),
            (
                "postgres://h@db/o?password=hunter2&sslmode=require&hunter2",
                "postgres://h@db/o?password=***&sslmode=require&***",
            ),
            ("amqp://h:hunter?2@mq", "amqp://***"),
            ("hunter2", "***"),
        ] {
            assert_eq!(Secret(url.to_owned()).redacted(), shown);
        }
    }
}
