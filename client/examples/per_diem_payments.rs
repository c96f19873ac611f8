//! A payment for each placement and period, from `placement.activated` events that may come twice, late, and in any order.
//!
//! The inbox makes a *delivery* take effect once. It cannot know that two different messages mean the same payment, that a replay comes after
//! its memory was pruned, or that somebody pays by hand. So money has an arbiter of its own (ADR-022, #1179), in the database that
//! it is booked in:
//!
//! 1. *Probe*: what the event itself says is enough to see whether the payment is there. A replay then ends well before anything
//!    is asked that may be away (here the rates).
//! 2. *The insert arbitrates first*, `ON CONFLICT DO NOTHING` over a natural key that is made of what never changes.
//! 3. *Everything else only after a real insert*, the event that is staged in the same transaction, too.
//! 4. *Reload and compare*: who lost looks at what won. The same is a replay; another one is a derivation that drifted, and is told,
//!    and not repaired.
//!
//! Run it beside `./x up`, with the addresses that it prints: `HOLDFAST=http://… DATABASE_URL=postgres://… AMQP=amqp://… cargo run -p
//! holdfast-client --features lapin --example per_diem_payments`.

use holdfast_client::inbox::HandlerError;
use holdfast_client::outbox::{Outbox, event};
use holdfast_client::{Consumer, Holdfast, Message};
use serde::Deserialize;
use sqlx::{PgConnection, PgPool};

/// The tables. A voided payment keeps its key: it was decided about, once.
pub(crate) const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS per_diem_rates (county text PRIMARY KEY, cents_per_day bigint NOT NULL);
    CREATE TABLE IF NOT EXISTS payments (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        placement text NOT NULL,
        period_start text NOT NULL,
        period_end text NOT NULL,
        cents bigint NOT NULL,
        state text NOT NULL DEFAULT 'due',
        CONSTRAINT payments_one_per_diem_per_placement_period UNIQUE (placement, period_start, period_end)
    );";

/// What `placement.activated` says, and will always say.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Activated {
    placement: String,
    county: String,
    period_start: String,
    period_end: String,
    days: i64,
}

/// What became of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Paid {
    /// This event made the payment.
    Now,
    /// It was there, and is what this event would have made.
    Before,
    /// It was there, and is another one: for people to look at.
    Drifted,
}

/// In the transaction that the inbox gives: books the payment, once.
///
/// # Errors
/// The database's and the server's, which are tried again; what is no such event, which is not.
pub(crate) async fn pay(
    tx: &mut PgConnection,
    outbox: &Outbox,
    message: &Message,
) -> Result<Paid, HandlerError> {
    let activated: Activated = message.data().map_err(HandlerError::dead_letter_now)?;

    if let Some(cents) = booked(tx, &activated).await? {
        // Not compared: what it would be today needs the rates, which may be away, or have changed since.
        tracing::info!(placement = activated.placement, cents, "a replay: the payment is there");
        return Ok(Paid::Before);
    }

    let rate: Option<i64> = sqlx::query_scalar("SELECT cents_per_day FROM per_diem_rates WHERE county = $1")
        .bind(&activated.county)
        .fetch_optional(&mut *tx)
        .await?;
    // It may come later: an attempt, and not a dead letter yet.
    let rate = rate.ok_or_else(|| HandlerError::retry(format!("no rate for {}", activated.county)))?;
    let cents = rate.saturating_mul(activated.days);

    let inserted: Option<i64> = sqlx::query_scalar(
        "INSERT INTO payments (placement, period_start, period_end, cents) VALUES ($1, $2, $3, $4)
         ON CONFLICT ON CONSTRAINT payments_one_per_diem_per_placement_period DO NOTHING RETURNING id",
    )
    .bind(&activated.placement)
    .bind(&activated.period_start)
    .bind(&activated.period_end)
    .bind(cents)
    .fetch_optional(&mut *tx)
    .await?;

    let Some(payment) = inserted else {
        // Somebody was faster between the probe and the insert, which waited for his commit.
        return Ok(match booked(tx, &activated).await? {
            Some(before) if before == cents => Paid::Before,
            before => {
                tracing::error!(
                    placement = activated.placement,
                    cents,
                    ?before,
                    "the payment that is there is another one"
                );
                Paid::Drifted
            }
        });
    };

    let due = event("payment.due")
        .subject(activated.placement.as_str())
        .causation_id(message.id())
        .json(&serde_json::json!({ "payment": payment, "cents": cents }))?;
    outbox.stage_in_tx(tx, [due]).await?;
    Ok(Paid::Now)
}

async fn booked(tx: &mut PgConnection, activated: &Activated) -> Result<Option<i64>, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT cents FROM payments WHERE placement = $1 AND period_start = $2 AND period_end = $3",
    )
    .bind(&activated.placement)
    .bind(&activated.period_start)
    .bind(&activated.period_end)
    .fetch_optional(tx)
    .await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let holdfast = Holdfast::builder().endpoint(std::env::var("HOLDFAST")?).build()?;
    let pool = PgPool::connect(&std::env::var("DATABASE_URL")?).await?;
    sqlx::raw_sql(SCHEMA).execute(&pool).await?;
    let outbox = holdfast.outbox("orders")?;
    let consumer = Consumer::builder(holdfast.inbox("orders")?, std::env::var("AMQP")?, "orders.payments")
        .bind("holdfast.events", "placement.activated")
        .in_tx(pool, move |tx, message| {
            let outbox = outbox.clone();
            Box::pin(async move { pay(tx, &outbox, message).await.map(|_| ()) })
        })?;
    consumer.run(async { _ = tokio::signal::ctrl_c().await }).await?;
    Ok(())
}
