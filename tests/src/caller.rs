//! A service that calls Holdfast: its own connection to its own database, and a transaction of its own.
//!
//! [`Caller`] lives in the test; [`CallerProcess`] is another process, which can be killed between any two steps.

use std::process::Stdio;

use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};
use uuid::Uuid;

use crate::database::connect;

/// A service in this process.
#[derive(Debug)]
pub struct Caller {
    connection: PgConnection,
}

impl Caller {
    /// Connects to the service's database.
    pub async fn connect(url: &str) -> Self {
        Self { connection: connect(url).await }
    }

    /// Connects as a pooler wants it: without options of its own.
    ///
    /// # Panics
    /// When the pooler refuses.
    pub async fn connect_plainly(url: &str) -> Self {
        Self { connection: PgConnection::connect(url).await.expect("connect through the pooler") }
    }

    /// Opens a transaction.
    pub async fn begin(&mut self) {
        self.sql("BEGIN").await;
    }

    /// Writes a row of the service's own.
    ///
    /// # Panics
    /// When the database refuses.
    pub async fn row(&mut self, note: &str) -> Uuid {
        let id = Uuid::now_v7();
        sqlx::query("INSERT INTO app_rows (id, note) VALUES ($1, $2)")
            .bind(id)
            .bind(note)
            .execute(&mut self.connection)
            .await
            .expect("insert a row");
        id
    }

    /// Takes a ticket for the open transaction (or savepoint).
    ///
    /// # Panics
    /// When the database refuses.
    pub async fn ticket(&mut self) -> i64 {
        sqlx::query_scalar("SELECT holdfast.stage_ticket()")
            .fetch_one(&mut self.connection)
            .await
            .expect("take a ticket")
    }

    /// BEGIN and a ticket.
    pub async fn begin_with_ticket(&mut self) -> i64 {
        self.begin().await;
        self.ticket().await
    }

    /// COMMIT.
    pub async fn commit(&mut self) {
        self.sql("COMMIT").await;
    }

    /// ROLLBACK.
    pub async fn rollback(&mut self) {
        self.sql("ROLLBACK").await;
    }

    /// Any statement, on the caller's connection.
    ///
    /// # Panics
    /// When it fails.
    pub async fn sql(&mut self, sql: &str) {
        self.try_sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    /// Any statement that may fail.
    ///
    /// # Errors
    /// The database's.
    pub async fn try_sql(&mut self, sql: &str) -> sqlx::Result<()> {
        self.connection.execute(AssertSqlSafe(sql.to_owned())).await.map(drop)
    }

    /// Its connection, for everything else.
    pub fn connection(&mut self) -> &mut PgConnection {
        &mut self.connection
    }

    /// Leaves in order.
    pub async fn close(self) {
        let _ = self.connection.close().await;
    }
}

/// A service in a process of its own: `caller`, which does one step per line on its stdin and answers each with one
/// line of JSON. It ends with its stdin, hence with the test.
#[derive(Debug)]
pub struct CallerProcess {
    child: Child,
    steps: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl CallerProcess {
    /// Starts it; `server` is the Holdfast it stages with, for `service`.
    ///
    /// # Panics
    /// When the program is not there (`target/PROFILE/caller`, beside the test).
    pub fn spawn(database_url: &str, server: &str, service: &str) -> Self {
        Self::spawn_program("caller", &[database_url, server, service])
    }

    /// Starts another program of the tests that is told and tells by lines; it says what they are.
    ///
    /// # Panics
    /// When the program is not there (`target/PROFILE/`, beside the test).
    pub fn spawn_program(name: &str, arguments: &[&str]) -> Self {
        let test = std::env::current_exe().expect("the test's own path");
        let program = test.ancestors().skip(1).take(2).map(|dir| dir.join(name)).find(|path| path.is_file());
        let mut child = Command::new(program.expect("the program, built"))
            .args(arguments)
            .env(crate::auth::KEYS, crate::auth::folder())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("start the caller");
        let (steps, answers) = (child.stdin.take().expect("stdin"), child.stdout.take().expect("stdout"));
        Self { child, steps, answers: BufReader::new(answers).lines() }
    }

    /// One step, done.
    ///
    /// # Panics
    /// When it fails, or the caller is dead.
    pub async fn step(&mut self, step: &Value) -> Value {
        match self.try_step(step).await {
            Ok(answer) => answer,
            Err(error) => panic!("the caller's step {step}: {error}"),
        }
    }

    /// One step that may fail.
    ///
    /// # Errors
    /// What the caller answers, or that it is dead.
    pub async fn try_step(&mut self, step: &Value) -> Result<Value, String> {
        self.send(step).await?;
        self.answer().await
    }

    /// Starts a step without waiting for its answer, so that the caller can be killed in the middle of it.
    ///
    /// # Errors
    /// When it is dead.
    pub async fn send(&mut self, step: &Value) -> Result<(), String> {
        self.steps.write_all(format!("{step}\n").as_bytes()).await.map_err(|error| error.to_string())
    }

    /// The answer to a step that was sent.
    ///
    /// # Errors
    /// What the caller answers, or that it is dead.
    pub async fn answer(&mut self) -> Result<Value, String> {
        let line = self.answers.next_line().await.map_err(|error| error.to_string())?;
        let line = line.ok_or("the caller is dead")?;
        let mut answer: Value = serde_json::from_str(&line).map_err(|error| format!("{line}: {error}"))?;
        if answer.is_string() {
            return Ok(answer);
        }
        match answer["error"].as_str() {
            Some(error) => Err(error.to_owned()),
            None => Ok(answer["ok"].take()),
        }
    }

    /// BEGIN.
    pub async fn begin(&mut self) {
        self.sql("BEGIN").await;
    }

    /// COMMIT.
    pub async fn commit(&mut self) {
        self.sql("COMMIT").await;
    }

    /// ROLLBACK.
    pub async fn rollback(&mut self) {
        self.sql("ROLLBACK").await;
    }

    /// Any statement.
    pub async fn sql(&mut self, sql: &str) {
        self.step(&json!({ "sql": sql })).await;
    }

    /// A ticket for the open transaction.
    ///
    /// # Panics
    /// When the database refuses.
    pub async fn ticket(&mut self) -> i64 {
        self.step(&json!("ticket")).await.as_i64().expect("a ticket")
    }

    /// Stages one event of this id, type and key under the latest ticket; returns the outcome's name.
    pub async fn stage(&mut self, id: Uuid, event_type: &str, key: &str) -> Value {
        self.step(&json!({ "stage": { "id": id.to_string(), "type": event_type, "key": key } })).await
    }

    /// SIGKILL, and waits for the end.
    pub async fn kill9(&mut self) {
        let _ = self.child.kill().await;
    }
}
