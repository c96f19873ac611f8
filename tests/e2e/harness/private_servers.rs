//! Private servers come back after every way to die, and never outlive their owner.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

use holdfast_server::dev::{DataFolder, Error, Postgres, RabbitMq, postgres, rabbitmq};
use holdfast_tests::{
    consumer::Consumer,
    database::{Database, Kind, connect},
    folder, process,
    services::{BrokerAt, PostgresAt, RUN_FOLDER},
    vhost::Vhost,
    wait::{self, LONG},
};
use lapin::{
    BasicProperties, Connection, ConnectionProperties,
    options::{BasicPublishOptions, ConfirmSelectOptions},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use sqlx::{Connection as _, Executor as _};

#[tokio::test]
async fn a_private_postgres_keeps_what_was_committed_over_every_way_to_die() {
    let dir = folder::scratch();
    let mut server = Postgres::start(postgres::Options::new(dir.path())).await.unwrap();
    let port = server.port();
    let database = Database::fresh(PostgresAt { port }, Kind::Empty).await;
    database.run("CREATE TABLE n (n int)").await;

    for round in 0..4 {
        database.run(&format!("INSERT INTO n VALUES ({round})")).await;
        let mut open = database.connect().await;
        open.execute("BEGIN; INSERT INTO n VALUES (-1)").await.unwrap();
        match round {
            0 => server.stop().await.unwrap(),
            1 => server.kill_immediate().await.unwrap(),
            _ => server.kill9().await,
        }
        assert!(!server.is_running());
        assert!(open.ping().await.is_err(), "the session died with the server");
        server.start_again().await.unwrap();
        assert_eq!(server.port(), port);
    }

    assert_eq!(database.one::<i64>("SELECT count(*) FROM n WHERE n >= 0").await, 4);
    assert_eq!(database.one::<i64>("SELECT count(*) FROM n").await, 4, "nothing uncommitted came back");
}

#[tokio::test]
async fn a_stale_pid_file_that_names_another_servers_process_does_not_block_a_restart() {
    let (one, two) = (folder::scratch(), folder::scratch());
    let mut killed = Postgres::start(postgres::Options::new(one.path())).await.unwrap();
    let mut other = Postgres::start(postgres::Options::new(two.path())).await.unwrap();
    let (old, new) = (killed.pid().unwrap().to_string(), other.pid().unwrap().to_string());
    killed.kill9().await;
    let path = one.path().join("data/postmaster.pid");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen(&old, &new, 1)).unwrap();

    killed.start_again().await.unwrap();

    assert!(killed.is_running() && other.is_running());
}

#[tokio::test]
async fn a_second_server_in_the_same_folder_is_refused() {
    let dir = folder::scratch();
    let mut first = Postgres::start(postgres::Options::new(dir.path())).await.unwrap();

    let second = Postgres::start(postgres::Options::new(dir.path())).await;

    assert!(matches!(second, Err(Error::AlreadyRunning { .. })), "{second:?}");
    assert!(first.is_running());
}

#[tokio::test]
async fn a_server_that_does_not_start_says_why() {
    let dir = folder::scratch();
    let options = postgres::Options::new(dir.path()).setting("max_connections = 'many'");

    let error = Postgres::start(options).await.unwrap_err().to_string();

    assert!(error.contains("max_connections"), "{error}");
}

#[tokio::test]
async fn a_private_rabbitmq_keeps_durable_messages_over_every_way_to_die() {
    let dir = folder::scratch();
    let options = rabbitmq::Options::new(dir.path()).plugin("rabbitmq_management");
    let mut server = RabbitMq::start(options).await.unwrap();
    let broker = BrokerAt { port: server.port(), management_port: server.management_port().unwrap() };
    let vhost = Vhost::fresh_on(broker).await;
    let consumer = Consumer::bound(&vhost.url(), "e", "#").await;

    for (round, id) in ["first", "second", "third"].into_iter().enumerate() {
        publish(&vhost.url(), id).await;
        consumer.wait_for_ids(&[id], LONG).await;
        match round {
            0 => server.stop().await.unwrap(),
            1 => server.kill9().await,
            _ => break,
        }
        assert!(server.pids().is_empty());
        server.start_again().await.unwrap();
        assert_eq!(server.port(), broker.port);
    }

    // An acknowledgement that the kill overtook makes a redelivery, of the same event.
    let ids: BTreeSet<String> = consumer.ids().into_iter().collect();
    assert_eq!(ids.len(), 3);
}

#[tokio::test]
async fn a_dropped_server_leaves_no_process_behind() {
    let (one, two) = (folder::scratch(), folder::scratch());
    let (database, broker) = tokio::join!(
        Postgres::start(postgres::Options::new(one.path())),
        RabbitMq::start(rabbitmq::Options::new(two.path()))
    );
    let (database, mut broker) = (database.unwrap(), broker.unwrap());
    let mut session = connect(&database.url("postgres")).await;
    let mapper = broker.pids()[1];
    assert!(!process::mentioning(one.path()).is_empty());
    assert!(!process::mentioning(two.path()).is_empty());

    drop((database, broker));

    assert_eq!(process::mentioning(one.path()), [""; 0]);
    assert_eq!(process::mentioning(two.path()), [""; 0]);
    assert!(!process::is_alive(mapper), "the port mapper is gone too");
    assert!(session.ping().await.is_err());
}

#[tokio::test]
async fn a_session_ends_the_orphans_of_its_own_folder_and_not_the_servers_of_a_session_below_it() {
    let dir = folder::scratch();
    let outer = DataFolder::take(&dir.path().join("outer")).unwrap();
    let inner = DataFolder::take(&outer.path().join("inner")).unwrap();
    let mut living = Postgres::start(postgres::Options::new(inner.path().join("postgres"))).await.unwrap();

    assert_eq!(outer.stop_orphans().await.unwrap(), 0);
    assert!(living.is_running());
    connect(&living.url("postgres")).await.close().await.unwrap();

    assert!(inner.stop_orphans().await.unwrap() > 0);
    assert!(!living.is_running());
}

#[tokio::test]
async fn servers_end_when_their_owner_is_killed() {
    let mut owner = Command::new(env!("CARGO_BIN_EXE_with-services"))
        .args(["--", "sh", "-c", &format!("echo ${RUN_FOLDER}; exec sleep 600")])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(owner.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let folder = line.trim();
    let servers = process::below(owner.id());
    assert!(servers.iter().any(|one| one.1.contains("beam.smp")), "{servers:?}");
    assert!(servers.iter().any(|one| one.1.contains("epmd")), "{servers:?}");
    assert!(servers.iter().any(|one| one.1.contains(folder)), "{servers:?}");

    owner.kill().unwrap();
    owner.wait().unwrap();

    wait::until("the servers to end", LONG, || async {
        // The command itself is no server and nobody's to end: `sleep`, or the shell that has yet to become it.
        let left: Vec<_> =
            servers.iter().filter(|one| process::is_alive(one.0) && !one.1.contains("sleep 600")).collect();
        if left.is_empty() { Ok(()) } else { Err(left) }
    })
    .await;
    for (pid, _) in servers.iter().filter(|one| one.1.contains("sleep 600")) {
        let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
    }
}

async fn publish(url: &str, id: &str) {
    let connection = Connection::connect(url, ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
    let properties = BasicProperties::default().with_delivery_mode(2).with_message_id(id.into());
    let options = BasicPublishOptions { mandatory: true, ..Default::default() };
    let confirm = channel.basic_publish("e".into(), "k".into(), options, b"{}", properties).await.unwrap();
    assert!(confirm.await.unwrap().is_ack());
    connection.close(200, "done".into()).await.unwrap();
}
