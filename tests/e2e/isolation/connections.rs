//! Too few connections: a service whose database has none left, and a PostgreSQL that all share with barely enough.

use std::time::Duration;

use holdfast_server::dev::{Postgres, postgres};
use holdfast_tests::{
    caller::Caller,
    client::{Client, event},
    database::{Database, Kind},
    folder,
    scene::{SERVICE, Scene},
    server::ServerInProcess,
    services::PostgresAt,
    wait::{self, LONG},
};

use super::{BILLING, Neighbour, assert_said_once, assert_unavailable, delivered, others_flow, refusal};

/// The server logs in as a role without privileges: only those are counted against a limit.
async fn with_a_limited_login(ill: &Neighbour) -> (String, String) {
    let login = format!("{}_server", ill.database.name());
    ill.database
        .run(&format!(
            "CREATE ROLE {login} LOGIN;
             GRANT USAGE ON SCHEMA holdfast TO {login};
             GRANT ALL ON ALL TABLES IN SCHEMA holdfast TO {login};
             GRANT ALL ON ALL SEQUENCES IN SCHEMA holdfast TO {login};
             GRANT ALL ON ALL FUNCTIONS IN SCHEMA holdfast TO {login}"
        ))
        .await;
    let url = ill.database.url_through(ill.proxy.port()).replace("postgres@", &format!("{login}@"));
    (login, url)
}

async fn limit(ill: &Neighbour, login: &str, connections: i32) {
    ill.database.run(&format!("ALTER ROLE {login} CONNECTION LIMIT {connections}")).await;
}

#[tokio::test]
async fn a_database_without_a_free_connection_at_start_leaves_the_others_flowing_and_comes_back() {
    let mut stage = Scene::builder().stage().await;
    let ill = Neighbour::join(&mut stage).await;
    let (login, url) = with_a_limited_login(&ill).await;
    stage.config.service(BILLING, &url);
    limit(&ill, &login, 0).await;
    let scene = stage.start().await;
    let waiting = ill.put().await;

    let staged = others_flow(&scene).await;

    let status = refusal(&scene).await;
    assert_unavailable(&status, "DATABASE_UNAVAILABLE");
    assert!(status.message().contains("53300"), "the reason is named: {}", status.message());
    assert!(!delivered(&scene, &waiting));
    assert_said_once(&scene);
    limit(&ill, &login, -1).await;
    scene.consumer.wait_for_ids(&[waiting], LONG).await;
    ill.works(&scene).await;
    scene.end(staged).await;
}

#[tokio::test]
async fn a_database_that_runs_out_of_connections_leaves_the_others_flowing_and_comes_back() {
    let mut stage = Scene::builder().stage().await;
    let ill = Neighbour::join(&mut stage).await;
    let (login, url) = with_a_limited_login(&ill).await;
    stage.config.service(BILLING, &url);
    let scene = stage.start().await;
    ill.works(&scene).await;
    limit(&ill, &login, 0).await;
    ill.database
        .run(&format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{login}'"))
        .await;
    let waiting = ill.put().await;

    let staged = others_flow(&scene).await;

    assert_unavailable(&refusal(&scene).await, "DATABASE_UNAVAILABLE");
    assert!(!delivered(&scene, &waiting));
    limit(&ill, &login, -1).await;
    scene.consumer.wait_for_ids(&[waiting], LONG).await;
    ill.works(&scene).await;
    scene.end(staged).await;
}

#[tokio::test]
async fn a_pool_of_two_connections_never_waits_for_itself() {
    let mut stage = Scene::builder().stage().await;
    stage.config.set(&format!("services.{SERVICE}"), "max_connections", "2");
    let scene = stage.start().await;
    // Groups, requests done again alone, passes, settles, verdicts and look-ups, all at once.
    let events: Vec<_> =
        (0..60).map(|n| if n % 2 == 0 { event("order.placed") } else { event("order.paid") }).collect();
    let calls = events.iter().map(|one| async {
        let mut caller = scene.caller().await;
        let ticket = caller.begin_with_ticket().await;
        scene.client.stage(ticket, std::slice::from_ref(one)).await;
        // The same again: it goes alone, and is told that it is there.
        scene.client.try_stage(ticket, std::slice::from_ref(one)).await.unwrap();
        caller.commit().await;
        scene.client.get(&one.id).await.unwrap();
        caller.close().await;
    });

    futures::future::join_all(calls).await;

    scene.consumer.wait_for_ids(&holdfast_tests::client::ids(&events), LONG).await;
    scene.end(60).await;
}

#[tokio::test]
async fn six_services_and_two_servers_share_a_postgresql_of_thirty_connections() {
    let folder = folder::scratch();
    let options =
        postgres::Options::new(folder.path()).setting("max_connections = 30").setting("fsync = off");
    let server = Postgres::start(options).await.unwrap();
    let shared = PostgresAt { port: server.port() };
    let mut stage = Scene::builder().on_postgres(shared).stage().await;
    // 2 servers x (6 services x 2 + 1 for control) = 26; the rest is for the callers.
    let mut services = vec![(SERVICE.to_owned(), None)];
    for n in 1..6 {
        let database = Database::fresh(shared, Kind::Service).await;
        let name = format!("service-{n}");
        stage.config.service(&name, &database.url());
        services.push((name, Some(database)));
    }
    for (name, _) in &services {
        stage.config.set(&format!("services.{name}"), "max_connections", "2");
    }
    stage.config.set("control", "max_connections", "1");
    let scene = stage.start().await;
    let second = ServerInProcess::start(&scene.config).await;

    let mut ids = Vec::new();
    for round in 0..4 {
        for (name, database) in &services {
            let address = if round % 2 == 0 { scene.server.address() } else { second.address() };
            let database = database.as_ref().unwrap_or(&scene.database);
            let (client, one) = (Client::new(address, name), event("order.placed"));
            let mut caller = Caller::connect(&database.url()).await;
            let ticket = caller.begin_with_ticket().await;
            client.stage(ticket, std::slice::from_ref(&one)).await;
            caller.commit().await;
            client.confirm(ticket).await;
            caller.close().await;
            ids.push(one.id);
        }
    }

    scene.consumer.wait_for_ids(&ids, LONG).await;
    // Both servers, and nobody was turned away.
    let used: i64 = wait::until("both servers' connections", Duration::from_secs(30), || async {
        let used = scene
            .database
            .one("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'holdfast'")
            .await;
        if used >= 14 { Ok(used) } else { Err(used) }
    })
    .await;
    assert!(used <= 26, "{used}");
    second.stop().await;
    scene.end(4).await;
    drop(services);
}
