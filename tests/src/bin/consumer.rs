//! `consumer DATABASE_URL HOLDFAST_ADDRESS SERVICE AMQP_URL QUEUE ticket|in_process`: a consuming service of its own, to be killed between
//! two steps.
//!
//! Each delivery prints `entered`, waits for a line on stdin, puts its row into `app_rows`, prints `written`, and waits for another
//! line before it returns, to be committed.

use std::{io::Write as _, sync::Arc};

use anyhow::bail;
use futures::future::BoxFuture;
use holdfast_client::{Consumer, Message, inbox::HandlerError};
use sqlx::{PgConnection, PgPool};
use tokio::sync::Semaphore;
use uuid::Uuid;

fn say(word: &str) {
    let mut out = std::io::stdout().lock();
    // Nobody listens any more: then nobody will say go, either.
    let _ = writeln!(out, "\"{word}\"").and_then(|()| out.flush());
}

async fn told(lines: &Semaphore) {
    if let Ok(line) = lines.acquire().await {
        line.forget();
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, address, service, amqp, queue, mode] = arguments.as_slice() else {
        bail!("usage: consumer DATABASE_URL HOLDFAST_ADDRESS SERVICE AMQP_URL QUEUE ticket|in_process");
    };
    let pool = PgPool::connect(url).await?;
    let lines = Arc::new(Semaphore::new(0));
    let builder = Consumer::builder(holdfast_tests::client::inbox(address.parse()?, service), amqp, queue);
    let work = Handler(lines.clone());
    let consumer = match mode.as_str() {
        "ticket" => builder.in_tx(pool, move |tx, message| work.clone().run(tx, message))?,
        _ => builder.in_process(pool, move |tx, message| work.clone().run(tx, message))?,
    };
    std::thread::spawn(move || {
        for _ in std::io::stdin().lines() {
            lines.add_permits(1);
        }
        // The test is gone.
        std::process::exit(0);
    });
    consumer.run(std::future::pending()).await?;
    Ok(())
}

#[derive(Clone)]
struct Handler(Arc<Semaphore>);

impl Handler {
    fn run<'a>(
        self,
        tx: &'a mut PgConnection,
        message: &'a Message,
    ) -> BoxFuture<'a, Result<(), HandlerError>> {
        Box::pin(async move {
            say("entered");
            told(&self.0).await;
            let row = sqlx::query("INSERT INTO app_rows (id, note) VALUES ($1, $2)");
            row.bind(Uuid::now_v7()).bind(message.id().to_string()).execute(tx).await?;
            say("written");
            told(&self.0).await;
            Ok(())
        })
    }
}
