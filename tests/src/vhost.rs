//! A vhost per test, made and removed through the broker's management API; also the broker's view of connections.

use serde_json::{Value, json};

use crate::{http, services::BrokerAt, wait};

/// A test's own vhost; removed on drop, connections or not.
#[derive(Debug)]
pub struct Vhost {
    broker: BrokerAt,
    name: String,
}

/// A connection as the broker sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerConnection {
    /// The broker's name for it.
    pub name: String,
    /// What the client calls itself (`connection_name`), if anything.
    pub client: Option<String>,
}

impl Vhost {
    /// A new vhost on the shared broker.
    pub async fn fresh() -> Self {
        Self::fresh_on(BrokerAt::shared()).await
    }

    /// A new vhost on any broker that has the management plugin.
    ///
    /// # Panics
    /// When the broker refuses.
    pub async fn fresh_on(broker: BrokerAt) -> Self {
        let vhost = Self { broker, name: format!("t-{}", uuid::Uuid::now_v7().simple()) };
        vhost.ask("PUT", &format!("/api/vhosts/{}", vhost.name), None).await;
        let all = json!({"configure": ".*", "write": ".*", "read": ".*"});
        vhost.ask("PUT", &format!("/api/permissions/{}/guest", vhost.name), Some(&all)).await;
        vhost
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its broker.
    pub fn broker(&self) -> BrokerAt {
        self.broker
    }

    /// Its URL.
    pub fn url(&self) -> String {
        self.broker.url(&self.name)
    }

    /// Its URL by another way, a proxy say.
    pub fn url_through(&self, port: u16) -> String {
        BrokerAt { port, ..self.broker }.url(&self.name)
    }

    /// The connections to it. The broker's list follows the facts by some moments: wait for what you expect.
    pub async fn connections(&self) -> Vec<BrokerConnection> {
        let list = self.ask("GET", &format!("/api/vhosts/{}/connections", self.name), None).await;
        let all = list.as_array().cloned().unwrap_or_default();
        all.iter()
            .filter_map(|one| {
                Some(BrokerConnection {
                    name: one["name"].as_str()?.to_owned(),
                    client: one["client_properties"]["connection_name"].as_str().map(str::to_owned),
                })
            })
            .collect()
    }

    /// Waits until there are exactly `count` connections.
    pub async fn connections_are(&self, count: usize) -> Vec<BrokerConnection> {
        wait::until(&format!("{count} connections to the vhost"), wait::LONG, || async {
            let seen = self.connections().await;
            if seen.len() == count { Ok(seen) } else { Err(seen) }
        })
        .await
    }

    /// Has the broker close a connection.
    ///
    /// # Panics
    /// When the broker refuses for another reason than that it is gone.
    pub async fn close(&self, connection: &BrokerConnection) {
        self.ask("DELETE", &format!("/api/connections/{}", escape(&connection.name)), None).await;
    }

    /// How many messages wait in a queue (ready and unacknowledged); `None` if there is no such queue.
    pub async fn queue_depth(&self, queue: &str) -> Option<u64> {
        let answer = self.ask("GET", &format!("/api/queues/{}/{}", self.name, escape(queue)), None).await;
        answer["messages"].as_u64()
    }

    /// Any other call of the management API; `Null` for 404.
    ///
    /// # Panics
    /// When the broker does not answer or refuses.
    pub async fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        match http::request(self.broker.management_port, method, path, body).await {
            Ok((200..=299, answer)) => answer,
            Ok((404, _)) => Value::Null,
            Ok((status, answer)) => panic!("the broker answered {method} {path} with {status}: {answer}"),
            Err(error) => panic!("the broker's management API: {method} {path}: {error}"),
        }
    }
}

impl Drop for Vhost {
    fn drop(&mut self) {
        let (port, path) = (self.broker.management_port, format!("/api/vhosts/{}", self.name));
        crate::afterwards(async move {
            // A private broker may be gone already, and its vhosts with it.
            let _ = http::request(port, "DELETE", &path, None).await;
        });
    }
}

/// Everything but letters, digits, `-`, `.`, `_` and `~` as `%XX`.
fn escape(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
