//! A service of the demo: a table of its own, transactions of its own, and the two lines that Holdfast asks of it.

use std::time::{Duration, Instant};

use anyhow::bail;
use holdfast_proto::v1;
use holdfast_proto::v1::outbox_service_client::OutboxServiceClient;
use sqlx::{Connection, Executor, PgConnection};
use tonic::transport::Channel;
use uuid::Uuid;

use super::Service;

pub(super) struct Caller {
    conn: PgConnection,
    client: OutboxServiceClient<Channel>,
    service: String,
}

impl Caller {
    pub(super) const COMMIT: &'static str = "COMMIT";
    pub(super) const ROLLBACK: &'static str = "ROLLBACK";

    pub(super) async fn open(grpc: &str, service: &Service) -> anyhow::Result<Self> {
        let mut conn = PgConnection::connect(&service.database_url).await?;
        conn.execute("CREATE TABLE IF NOT EXISTS demo_rows (id uuid PRIMARY KEY, note text NOT NULL)")
            .await?;
        let client = OutboxServiceClient::connect(grpc.to_owned()).await?;
        Ok(Self { conn, client, service: service.name.clone() })
    }

    /// One unit of work: a row and its event in one transaction, ended by `end`. Answers the ids of both.
    pub(super) async fn write(&mut self, key: &str, end: &'static str) -> anyhow::Result<(Uuid, Uuid)> {
        let (row, event, ticket) = self.stage(key).await?;
        self.conn.execute(end).await?;
        self.client
            .confirm_staged(v1::ConfirmStagedRequest { service: self.service.clone(), ticket })
            .await?;
        Ok((row, event))
    }

    async fn stage(&mut self, key: &str) -> anyhow::Result<(Uuid, Uuid, i64)> {
        let (row, event) = (Uuid::now_v7(), Uuid::now_v7());
        self.conn.execute("BEGIN").await?;
        sqlx::query("INSERT INTO demo_rows (id, note) VALUES ($1, $2)")
            .bind(row)
            .bind(key)
            .execute(&mut self.conn)
            .await?;
        let ticket: i64 =
            sqlx::query_scalar("SELECT holdfast.stage_ticket()").fetch_one(&mut self.conn).await?;
        let event_sent = v1::Event {
            id: event.to_string(),
            r#type: "demo.row.written".into(),
            subject: key.into(),
            data: Some(v1::event::Data::Json(format!("{{\"row\":\"{row}\"}}"))),
            ..v1::Event::default()
        };
        let request = v1::StageInTxRequest {
            service: self.service.clone(),
            ticket,
            events: vec![event_sent],
            hold: None,
        };
        self.client.stage_in_tx(request).await?;
        Ok((row, event, ticket))
    }

    pub(super) async fn has_row(&mut self, row: Uuid) -> anyhow::Result<bool> {
        Ok(sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM demo_rows WHERE id = $1)")
            .bind(row)
            .fetch_one(&mut self.conn)
            .await?)
    }

    /// Where the server says the event is; `None` if nowhere.
    pub(super) async fn state(&mut self, event: Uuid) -> anyhow::Result<Option<v1::EventState>> {
        let request = v1::GetEventRequest { service: self.service.clone(), id: event.to_string() };
        match self.client.get_event(request).await {
            Ok(found) => Ok(Some(found.into_inner().state())),
            Err(status) if status.code() == tonic::Code::NotFound => Ok(None),
            Err(status) => Err(status.into()),
        }
    }

    pub(super) async fn wait_until_gone(&mut self, event: Uuid, patience: Duration) -> anyhow::Result<()> {
        let until = Instant::now() + patience;
        while let Some(state) = self.state(event).await? {
            if Instant::now() > until {
                bail!("event {event} is still {}", state.as_str_name());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

/// Stages an event that is bound to no transaction; answers its id.
pub(super) async fn stage_now(grpc: &str, service: &Service) -> anyhow::Result<Uuid> {
    let event = Uuid::now_v7();
    let sent = v1::Event {
        id: event.to_string(),
        r#type: "demo.said".into(),
        data: Some(v1::event::Data::Json("{\"said\":\"hello\"}".into())),
        ..v1::Event::default()
    };
    let request = v1::StageNowRequest { service: service.name.clone(), events: vec![sent] };
    OutboxServiceClient::connect(grpc.to_owned()).await?.stage_now(request).await?;
    Ok(event)
}

/// The process that is killed: stages inside its open transaction, prints the event's id, and never commits. It ends with whoever
/// holds the other end of its stdin.
///
/// # Errors
/// A part is not there.
pub async fn stage_and_wait(grpc: &str, service: &Service, key: &str) -> anyhow::Result<()> {
    let mut caller = Caller::open(grpc, service).await?;
    let (_, event, _) = caller.stage(key).await?;
    println!("{event}");
    tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink())).await??;
    Ok(())
}
