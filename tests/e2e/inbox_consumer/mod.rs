//! `holdfast_client::Consumer` and `inbox::handle_in_tx`: what a service consumes with (design, section 6; section 15, invariant 11).
//!
//! The measure is the table `app_rows`, into which the handler puts a row a run, with the message's id as the note: so many
//! effects as rows, whatever was delivered how often.

mod failures;
mod in_process;
mod killed;
mod modes;
mod per_diem;
mod sessions;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::BoxFuture;
use holdfast_client::{
    Consumer, ConsumerBuilder, ConsumerError, Message,
    inbox::{Handled, HandlerError},
};
use holdfast_tests::{
    client::inbox,
    consumer::{self, Delivery},
    database::Database,
    scene::{QUEUES, SERVICE, Scene, Server, Stage},
    server::EXCHANGE,
    wait::{self, LONG},
};
use lapin::{BasicProperties, Connection, ConnectionProperties, options::BasicPublishOptions};
use sqlx::{
    ConnectOptions as _, PgConnection, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::{sync::Semaphore, task::JoinHandle};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

const QUEUE: &str = QUEUES[0];
pub(crate) const DLX: &str = "holdfast.dlx";

/// What a handler does at a run of a message, 1 being the first.
#[derive(Debug, Clone)]
enum Do {
    Fine,
    Retry,
    DeadLetterNow,
    GiveBack,
    Panic,
    Hang,
    /// Has a statement fail and says that all is well.
    Swallow,
    /// Waits for a permit, then is fine.
    Wait(Arc<Semaphore>),
}

type Script = Arc<dyn Fn(u32) -> Do + Send + Sync>;

/// Which runs there were.
#[derive(Debug, Clone, Default)]
struct Book(Arc<Mutex<HashMap<Uuid, u32>>>);

impl Book {
    fn enter(&self, id: Uuid) -> u32 {
        let mut runs = self.0.lock().unwrap();
        let run = runs.entry(id).or_default();
        *run += 1;
        *run
    }

    fn runs(&self, id: &str) -> u32 {
        self.0.lock().unwrap().get(&id.parse().unwrap()).copied().unwrap_or(0)
    }

    async fn wait_for_runs(&self, id: &str, runs: u32) {
        wait::until(&format!("{runs} runs of {id}"), LONG, || async {
            let seen = self.runs(id);
            if seen >= runs { Ok(()) } else { Err(seen) }
        })
        .await;
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Ticket,
    InProcess,
    Lease,
}

const ALL: [How; 3] = [How::Ticket, How::InProcess, How::Lease];

async fn effect(conn: &mut PgConnection, id: Uuid) -> Result<(), HandlerError> {
    let row = sqlx::query("INSERT INTO app_rows (id, note) VALUES ($1, $2)");
    row.bind(Uuid::now_v7()).bind(id.to_string()).execute(conn).await?;
    Ok(())
}

async fn play(todo: Do, conn: &mut PgConnection) -> Result<(), HandlerError> {
    match todo {
        Do::Fine => Ok(()),
        Do::Retry => Err(HandlerError::retry("not today")),
        Do::DeadLetterNow => Err(HandlerError::dead_letter_now("never")),
        Do::GiveBack => Err(HandlerError::give_back("closed")),
        Do::Panic => unreachable!("as the script says"),
        Do::Hang => std::future::pending().await,
        Do::Swallow => {
            sqlx::query("SELECT 1/0").execute(conn).await.unwrap_err();
            Ok(())
        }
        Do::Wait(gate) => {
            gate.acquire().await.unwrap().forget();
            Ok(())
        }
    }
}

/// A consumer at work.
struct Running {
    book: Book,
    stop: CancellationToken,
    task: JoinHandle<Result<(), ConsumerError>>,
}

impl Running {
    /// Starts one and waits until it consumes.
    async fn start(
        scene: &Scene<impl Server>,
        how: How,
        change: impl FnOnce(ConsumerBuilder) -> ConsumerBuilder,
        script: impl Fn(u32) -> Do + Send + Sync + 'static,
    ) -> Self {
        let before = scene.logs.with("consuming").len();
        let running = Self::begin(scene, &scene.vhost.url(), how, change, script).await;
        let begun = scene.logs.clone();
        wait::until("the consumer", LONG, || async {
            if begun.with("consuming").len() > before { Ok(()) } else { Err(running.task.is_finished()) }
        })
        .await;
        running
    }

    async fn begin(
        scene: &Scene<impl Server>,
        amqp: &str,
        how: How,
        change: impl FnOnce(ConsumerBuilder) -> ConsumerBuilder,
        script: impl Fn(u32) -> Do + Send + Sync + 'static,
    ) -> Self {
        let pool = pool(&scene.database, 4).await;
        let book = Book::default();
        let builder = Consumer::builder(inbox(scene.server.address(), SERVICE), amqp, QUEUE)
            .bind(EXCHANGE, "order.*")
            .backoff(Duration::from_millis(20), Duration::from_millis(200));
        let script: Script = Arc::new(script);
        let consumer = match how {
            How::Ticket => change(builder).in_tx(pool, handler(book.clone(), script)),
            How::InProcess => change(builder).in_process(pool, handler(book.clone(), script)),
            How::Lease => {
                let book = book.clone();
                change(builder).with_lease(move |message: &Message| {
                    let (book, script, pool) = (book.clone(), script.clone(), pool.clone());
                    Box::pin(async move {
                        let todo = script(book.enter(message.id()));
                        let mut tx = pool.begin().await?;
                        effect(&mut tx, message.id()).await?;
                        play(todo, &mut tx).await?;
                        tx.commit().await?;
                        Ok(())
                    })
                })
            }
        };
        let stop = CancellationToken::new();
        let task = tokio::spawn(consumer.unwrap().run(stop.clone().cancelled_owned()));
        Self { book, stop, task }
    }

    async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(LONG, self.task).await.unwrap().unwrap().unwrap();
    }
}

fn handler(
    book: Book,
    script: Script,
) -> impl for<'a> Fn(&'a mut PgConnection, &'a Message) -> BoxFuture<'a, Result<(), HandlerError>> + Send + Sync
{
    move |tx, message| {
        let (book, script) = (book.clone(), script.clone());
        Box::pin(async move {
            let todo = script(book.enter(message.id()));
            effect(tx, message.id()).await?;
            play(todo, tx).await
        })
    }
}

async fn pool(database: &Database, connections: u32) -> PgPool {
    // A slow statement is no warning here.
    let options: PgConnectOptions = database.url().parse().unwrap();
    let options = options.disable_statement_logging();
    PgPoolOptions::new().max_connections(connections).connect_with(options).await.unwrap()
}

/// How often the message had an effect.
pub(crate) async fn effects(database: &Database, id: &str) -> i64 {
    database.one(&format!("SELECT count(*) FROM app_rows WHERE note = '{id}'")).await
}

async fn wait_for_effect(database: &Database, id: &str) {
    wait::until_equal(&format!("effects of {id}"), LONG, 1, || effects(database, id)).await;
}

/// Waits until nothing is in the queue, at work or not.
pub(crate) async fn wait_for_empty(stage: &Stage) {
    let depth = || stage.vhost.queue_depth(QUEUE);
    wait::until_equal("messages in the queue", LONG, Some(0), depth).await;
}

pub(crate) async fn consumption(database: &Database, id: &str, what: &str) -> String {
    let row = format!("SELECT ({what})::text FROM holdfast.event_inbox WHERE envelope_id = '{id}'");
    let sql = format!("SELECT coalesce(({row}), 'NULL')");
    database.one(&sql).await
}

async fn is_processed(database: &Database, id: &str) {
    wait::until_equal("the mark", LONG, "true".to_owned(), || {
        consumption(database, id, "processed_at IS NOT NULL")
    })
    .await;
}

/// Gets all dead letters.
pub(crate) async fn letters(stage: &Stage) -> consumer::Consumer {
    consumer::Consumer::bound(&stage.vhost.url(), DLX, "dlq.#").await
}

/// Puts a message right into the queue.
pub(crate) async fn put(stage: &Stage, properties: BasicProperties, body: &[u8]) {
    let connection = Connection::connect(&stage.vhost.url(), ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    channel
        .basic_publish("".into(), QUEUE.into(), BasicPublishOptions::default(), body, properties)
        .await
        .unwrap();
    // In order: the close comes after the message.
    connection.close(200, "bye".into()).await.unwrap();
}

/// Delivers again what came before.
async fn put_again(stage: &Stage, delivery: &Delivery) {
    put(stage, delivery.properties.clone(), &delivery.body).await;
}

fn properties(id: &str) -> BasicProperties {
    BasicProperties::default()
        .with_message_id(id.into())
        .with_type("order.placed".into())
        .with_app_id("shop".into())
}

/// The word for what became of it.
fn word<T>(handled: &Handled<T>) -> &'static str {
    match handled {
        Handled::Done(_) => "done",
        Handled::Duplicate => "duplicate",
        Handled::InProgress(_) => "in_progress",
        Handled::Retry(_) => "retry",
        Handled::DeadLetter(..) => "dead_letter",
    }
}
