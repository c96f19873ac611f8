//! `holdfast config`, and how a wrong configuration is refused.

use holdfast_tests::{
    scene::{SERVICE, Scene},
    server::ServerProcess,
    wait::LONG,
};

use super::{ConfigFile, holdfast, run};

#[tokio::test]
async fn what_config_default_prints_is_a_configuration() {
    let printed = run(holdfast(&["config", "default"])).await;
    assert_eq!((printed.code, printed.err.as_str()), (Some(0), ""));

    let file = ConfigFile::of(printed.out);
    let shown = run(file.command(&["config", "show"])).await;

    assert_eq!((shown.code, shown.err.as_str()), (Some(0), ""));
    assert!(shown.out.contains("postgres://holdfast:***@db.internal:5432/orders"), "{}", shown.out);
    assert!(!shown.out.contains("PASSWORD"), "{}", shown.out);
}

#[tokio::test]
async fn the_environment_wins_and_a_variable_that_is_no_setting_is_refused() {
    let file = ConfigFile::of(run(holdfast(&["config", "default"])).await.out);
    let mut command = file.command(&["config", "show"]);
    command
        .env("HOLDFAST_SERVICES__ORDERS__MAX_CONNECTIONS", "3")
        .env("HOLDFAST_PORT", "tcp://10.0.0.1:50551");
    let shown = run(command).await;
    let line = "max_connections = 3  # HOLDFAST_SERVICES__ORDERS__MAX_CONNECTIONS";
    assert!(shown.out.contains(line), "{}{}", shown.out, shown.err);

    for verb in ["serve", "migrate", "check"] {
        let mut command = file.command(&[verb]);
        command.env("HOLDFAST_SERVICES__ORDERS__MAX_CONECTIONS", "hunter2").env("HOLDFAST_REPLICAS", "0");
        let refused = run(command).await;

        assert_eq!(refused.code, Some(1), "{}", refused.err);
        // A server needs a key besides.
        let problems = if verb == "serve" { 3 } else { 2 };
        assert!(refused.err.contains(&format!("has {problems} problem(s)")), "{}", refused.err);
        assert!(
            refused.err.contains("(HOLDFAST_SERVICES__ORDERS__MAX_CONECTIONS): is no setting"),
            "{}",
            refused.err
        );
        assert!(!refused.err.contains("hunter2"), "{}", refused.err);
    }
}

#[tokio::test]
async fn a_server_says_its_configuration_at_its_start_without_passwords() {
    let mut stage = Scene::builder().stage().await;
    let url = stage.database.url().replace("postgres@", "postgres:hunter2@");
    stage.config.service(SERVICE, &url);

    let mut server = ServerProcess::start(&stage.config).await;

    let lines = server.lines().join("\n");
    server.sigterm();
    server.exit_status(LONG).await;
    assert!(lines.contains("services.orders.database_url=") && lines.contains("postgres:***@"), "{lines}");
    assert!(!lines.contains("hunter2"), "{lines}");
    stage.logs.check();
}
