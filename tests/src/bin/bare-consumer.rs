//! `bare-consumer DATABASE_URL HOLDFAST_ADDRESS BROKER_URL QUEUE [STEP]`: consumes in ticket mode, and kills itself with SIGKILL when the
//! first message is at STEP: `received`, `begun`, `ticket`, `asking`, `told`, `effect`, `committing`, `committed`, `completed`,
//! `acked`.
//!
//! The effect is a row of `app_rows` with the message's id as its note: nothing but the inbox keeps it from being there twice. With
//! the environment `ASYNCHRONOUS` it commits asynchronously, and asks CompleteConsume before it acknowledges.

use std::time::Duration;

use anyhow::{Context, bail};
use futures::StreamExt as _;
use holdfast_proto::v1::begin_consume_request::Binding;
use holdfast_proto::v1::begin_consume_response::Outcome;
use holdfast_tests::inbox::{Inbox, delivery};
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions};
use lapin::types::FieldTable;
use lapin::{Connection, ConnectionProperties};
use sqlx::{Connection as _, Executor as _, PgConnection};

/// Between two questions about a message that somebody else has in hand, and before a refused one is handed back.
const PAUSE: Duration = Duration::from_millis(100);

struct Consumer {
    database_url: String,
    inbox: Inbox,
    asynchronous: bool,
    dies_at: Option<String>,
}

/// What to do with a delivery.
enum Verdict {
    Ack,
    Return,
}

impl Consumer {
    /// SIGKILL, if this is the step.
    fn at(&self, step: &str) {
        if self.dies_at.as_deref() == Some(step) {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::this(), nix::sys::signal::Signal::SIGKILL);
            std::thread::sleep(Duration::from_secs(60));
        }
    }

    async fn handle(&self, id: &str, redelivered: bool) -> anyhow::Result<Verdict> {
        self.at("received");
        let mut connection = PgConnection::connect(&self.database_url).await?;
        if self.asynchronous {
            connection.execute("SET synchronous_commit = off").await?;
        }
        connection.execute("BEGIN").await?;
        self.at("begun");
        let ticket = sqlx::query_scalar("SELECT holdfast.stage_ticket()").fetch_one(&mut connection).await?;
        self.at("ticket");
        let mut asked = delivery(id, Binding::Ticket(ticket));
        asked.redelivered = redelivered;
        if self.dies_at.as_deref() == Some("asking") {
            // The request is on its way, and its answer finds nobody.
            let inbox = self.inbox.clone();
            let asking = tokio::spawn(async move { inbox.try_begin(asked).await });
            tokio::time::sleep(Duration::from_millis(5)).await;
            self.at("asking");
            asking.await??;
            return Ok(Verdict::Return);
        }
        let generation = match self.inbox.try_begin(asked).await? {
            Outcome::Process(process) => process.generation,
            Outcome::Duplicate(_) => return Ok(Verdict::Ack),
            Outcome::InProgress(_) => return Ok(Verdict::Return),
            Outcome::DeadLetter(letter) => bail!("a dead letter: {letter:?}"),
        };
        self.at("told");
        sqlx::query("INSERT INTO app_rows (id, note) VALUES (gen_random_uuid(), $1)")
            .bind(id)
            .execute(&mut connection)
            .await?;
        self.at("effect");
        if self.dies_at.as_deref() == Some("committing") {
            let committing = tokio::spawn(async move { connection.execute("COMMIT").await.map(drop) });
            tokio::time::sleep(Duration::from_millis(1)).await;
            self.at("committing");
            committing.await??;
            return Ok(Verdict::Return);
        }
        connection.execute("COMMIT").await?;
        self.at("committed");
        if self.asynchronous {
            self.inbox.try_complete(id, generation).await?;
        }
        self.at("completed");
        Ok(Verdict::Ack)
    }

    async fn consume(&self, url: &str, queue: &str) -> anyhow::Result<()> {
        let connection = Connection::connect(url, ConnectionProperties::default()).await?;
        let channel = connection.create_channel().await?;
        channel.basic_qos(1, BasicQosOptions::default()).await?;
        let (options, arguments) = (BasicConsumeOptions::default(), FieldTable::default());
        let mut deliveries = channel.basic_consume(queue.into(), "".into(), options, arguments).await?;
        while let Some(delivery) = deliveries.next().await {
            let delivery = delivery?;
            let id = delivery.properties.message_id().clone().context("a message without an id")?;
            let verdict = self.handle(id.as_str(), delivery.redelivered).await;
            match verdict {
                Ok(Verdict::Ack) => delivery.ack(BasicAckOptions::default()).await.map(drop)?,
                Ok(Verdict::Return) | Err(_) => {
                    if let Err(error) = verdict {
                        eprintln!("{id}: {error:#}");
                    }
                    tokio::time::sleep(PAUSE).await;
                    delivery
                        .nack(BasicNackOptions { requeue: true, ..Default::default() })
                        .await
                        .map(drop)?;
                }
            }
            self.at("acked");
        }
        bail!("the queue's consumer was cancelled")
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [database_url, address, broker_url, queue, step @ ..] = arguments.as_slice() else {
        bail!("usage: bare-consumer DATABASE_URL HOLDFAST_ADDRESS BROKER_URL QUEUE [STEP]");
    };
    let consumer = Consumer {
        database_url: database_url.clone(),
        inbox: Inbox::at(address.parse()?),
        asynchronous: std::env::var_os("ASYNCHRONOUS").is_some(),
        dies_at: step.first().cloned(),
    };
    consumer.consume(broker_url, queue).await
}
