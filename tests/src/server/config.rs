//! The configuration of a server under test, as the TOML file that it is.

use std::{collections::BTreeMap, fmt::Write as _};

/// The exchange of all tests; each has its own vhost.
pub const EXCHANGE: &str = "holdfast.events";

/// A configuration that listens on a free port and logs JSON; everything else is put in by [`ServerConfig::set`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfig {
    /// Settings by section (the empty one is the top), each a name with a TOML value.
    sections: BTreeMap<String, BTreeMap<String, String>>,
}

impl ServerConfig {
    /// For one control database and one broker; services are added.
    pub fn new(control_url: &str, broker_url: &str) -> Self {
        let mut config = Self { sections: BTreeMap::new() };
        config.text("", "listen", "127.0.0.1:0").text("", "admin_listen", "127.0.0.1:0");
        config.text("", "log_format", "json").set("", "testing", "true");
        config.text("auth", "keys", &crate::auth::public_keys());
        config.text("control", "database_url", control_url);
        config.text("broker", "url", broker_url).text("broker", "exchange", EXCHANGE);
        config
    }

    /// Adds (or moves) a service.
    pub fn service(&mut self, name: &str, database_url: &str) -> &mut Self {
        // Few: many servers of many tests share one PostgreSQL.
        self.set(&format!("services.{name}"), "max_connections", "4");
        self.text(&format!("services.{name}"), "database_url", database_url)
    }

    /// Sets a text.
    pub fn text(&mut self, section: &str, name: &str, value: &str) -> &mut Self {
        // A JSON string is a TOML basic string.
        self.set(section, name, &serde_json::Value::from(value).to_string())
    }

    /// Sets a value that is TOML already: `config.set("drain", "batch", "10")`.
    pub fn set(&mut self, section: &str, name: &str, toml: &str) -> &mut Self {
        self.sections.entry(section.to_owned()).or_default().insert(name.to_owned(), toml.to_owned());
        self
    }

    /// The file.
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        // The empty section sorts first, as TOML wants it.
        for (section, settings) in &self.sections {
            if !section.is_empty() {
                let _ = writeln!(text, "\n[{section}]");
            }
            for (name, value) in settings {
                let _ = writeln!(text, "{name} = {value}");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_the_top_first_and_a_later_setting_wins() {
        let mut config = ServerConfig::new("c", "b");
        config.service("orders", "d").set("drain", "batch", "10").text("", "log_format", "text");
        let text = config.to_toml();
        assert!(
            text.starts_with("admin_listen = \"127.0.0.1:0\"\nlisten = \"127.0.0.1:0\"\nlog_format = \"text\"\ntesting = true\n\n[auth]"),
            "{text}"
        );
        assert!(text.contains("[services.orders]\ndatabase_url = \"d\"\nmax_connections = 4\n"), "{text}");
        assert!(text.contains("[drain]\nbatch = 10\n"), "{text}");
    }
}
