//! `caller DATABASE_URL HOLDFAST_ADDRESS SERVICE`: a service of its own, to be killed between two steps.
//!
//! One step a line on stdin, as JSON; one line of JSON as answer, `{"ok": …}` or `{"error": "…"}`:
//! - `{"sql": "BEGIN"}`: any statement, on the caller's one connection;
//! - `"ticket"`: `SELECT holdfast.stage_ticket()`, the answer is the ticket;
//! - `{"stage": {"id": …, "type": …, "key": …}}`: stages one event under the latest ticket, the answer is the outcome;
//! - `"confirm"`: the hint for the latest ticket.

use anyhow::{Context, bail};
use holdfast_tests::client::{Client, keyed};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};

struct Caller {
    connection: PgConnection,
    client: Client,
    ticket: i64,
}

impl Caller {
    async fn step(&mut self, step: &Value) -> anyhow::Result<Value> {
        if let Some(sql) = step["sql"].as_str() {
            self.connection.execute(AssertSqlSafe(sql.to_owned())).await?;
            return Ok(Value::Null);
        }
        if step == "ticket" {
            let ticket = sqlx::query_scalar("SELECT holdfast.stage_ticket()");
            self.ticket = ticket.fetch_one(&mut self.connection).await?;
            return Ok(json!(self.ticket));
        }
        if step == "confirm" {
            self.client.confirm(self.ticket).await;
            return Ok(Value::Null);
        }
        let text = |name: &str| step["stage"][name].as_str().with_context(|| format!("no {name} in {step}"));
        let mut event = keyed(text("type")?, text("key")?);
        event.id = text("id")?.to_owned();
        match self.client.try_stage(self.ticket, &[event]).await {
            Ok(staged) => Ok(json!(staged.first().context("no outcome")?.outcome().as_str_name())),
            Err(status) => bail!("{:?}: {}", status.code(), status.message()),
        }
    }
}

// Several threads: this one blocks on stdin, the connections live on the others.
#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, address, service] = arguments.as_slice() else {
        bail!("usage: caller DATABASE_URL HOLDFAST_ADDRESS SERVICE");
    };
    let mut caller = Caller {
        connection: PgConnection::connect(url).await?,
        client: Client::new(address.parse()?, service),
        ticket: 0,
    };
    for line in std::io::stdin().lines() {
        let answer = match caller.step(&serde_json::from_str(&line?)?).await {
            Ok(answer) => json!({ "ok": answer }),
            Err(error) => json!({ "error": format!("{error:#}") }),
        };
        println!("{answer}");
    }
    Ok(())
}
