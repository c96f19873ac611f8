//! What is accepted, what is refused, and how it is said.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
use super::*;

const GOOD: &str = r#"
    [control]
    database_url = "postgres://holdfast:hunter2@db/control"
    [broker]
    url = "amqp://holdfast:hunter2@mq:5672/%2f"
    [services.orders]
    database_url = "postgres://holdfast:hunter2@db/orders"
"#;

#[test]
fn the_smallest_file_is_valid_and_its_secrets_are_not_printed() {
    let config = Config::parse(GOOD).unwrap();
    assert_eq!(config.listen, "127.0.0.1:50551".parse().unwrap());
    assert!(!format!("{config:?}").contains("hunter2"));
}

#[test]
fn the_file_in_the_readme_says_what_must_be_said_and_no_more() {
    let readme = include_str!("../../../README.md");
    let shown = readme.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let said = Effective::of(shown, []).unwrap().settings;
    let said: Vec<String> =
        said.into_iter().filter(|s| s.origin != Origin::Default).map(|s| s.path).collect();
    assert_eq!(said, ["auth.keys", "control.database_url", "broker.url", "services.orders.database_url"]);
}

#[test]
fn the_connections_of_a_replica_are_summed_up() {
    let config = Config::parse(&format!(
        "{GOOD}\nwake = \"notify\"\n[services.billing]\ndatabase_url = \"postgres://h@db/billing\"\nmax_connections = 2"
    ));
    assert_eq!(config.unwrap().most_connections(), 4 + (8 + 1) + 2);
    let text =
        Config::parse(&format!("{GOOD}\nmax_connections = 1\nlisten_url = \"db\"")).unwrap_err().to_string();
    for field in ["max_connections", "listen_url"] {
        assert!(text.contains(&format!("services.orders.{field}")), "{text}");
    }
}

#[test]
fn the_admin_port_is_on_at_loopback_can_be_elsewhere_and_off_but_not_where_grpc_is() {
    let of = |text: &str| Config::parse(&format!("{text}\n{GOOD}")).map(|config| config.admin_listen);
    assert_eq!(of("").unwrap(), Some("127.0.0.1:50552".parse().unwrap()));
    assert_eq!(of("admin_listen = \"0.0.0.0:9100\"").unwrap(), Some("0.0.0.0:9100".parse().unwrap()));
    assert_eq!(of("admin_listen = \"\"").unwrap(), None);
    for bad in ["\"127.0.0.1:50551\"", "\"nowhere\"", "50552"] {
        let text = of(&format!("admin_listen = {bad}")).unwrap_err().to_string();
        assert!(text.contains("admin_listen (line 1): must be "), "{text}");
    }
}

#[test]
fn listening_through_a_pooler_is_refused() {
    let pooled = format!("{GOOD}\nprepared_statements = false\nwake = \"notify\"");
    let text = Config::parse(&pooled).unwrap_err().to_string();
    assert!(text.contains("services.orders.listen_url") && text.contains("pooler"), "{text}");
    assert!(Config::parse(&format!("{pooled}\nlisten_url = \"postgres://h@db/orders\"")).is_ok());
}

#[test]
fn every_problem_is_listed_at_once() {
    let bad = GOOD
        .replace("[control]", "listen = \"0.0.0.0:1\"\n[drain]\nbatch = 0\n[control]")
        .replace("services.orders", "services.Holdfast")
        .replace("amqp://", "http://");
    let text = Config::parse(&bad).unwrap_err().to_string();
    for field in ["listen (", "drain.batch (", "services.Holdfast (", "broker.url ("] {
        assert!(text.contains(field), "{field} in {text}");
    }
    assert!(!text.contains("hunter2"));
}

#[test]
fn a_sweep_that_could_lose_a_ticket_is_refused_outside_of_tests() {
    let short = format!("{GOOD}\n[drain]\nticket_sweep_after = \"5s\"");
    let text = Config::parse(&short).unwrap_err().to_string();
    assert!(text.contains("drain.ticket_sweep_after"), "{text}");
    assert!(Config::parse(&format!("testing = true\n{short}")).is_ok());
}

#[test]
fn a_duration_beyond_any_sense_is_refused_and_does_not_panic() {
    for field in ["lease", "poll", "sweep"] {
        let text =
            Config::parse(&format!("{GOOD}\n[drain]\n{field} = \"500000years\"")).unwrap_err().to_string();
        assert!(text.contains(&format!("drain.{field}")), "{text}");
    }
}

#[test]
fn an_unknown_field_is_an_error_that_names_its_line_and_shows_no_secret() {
    let text =
        Config::parse(&GOOD.replace("[broker]", "[broker]\nlikn = \"hunter2\"")).unwrap_err().to_string();
    assert!(text.contains("broker.likn (line 5): is no setting") && text.contains("heartbeat"), "{text}");
    assert!(!text.contains("hunter2"));
}

#[test]
fn a_database_url_needs_its_scheme_user_host_and_database_whatever_the_process_has_in_its_environment() {
    for bad in [
        "mysql://h@db/orders",
        "postgres:/h@db/orders",
        "postgres://h@db",
        "postgres://h@db/",
        "postgres://h@db/?sslmode=require",
        "postgres:///orders",
        "postgres://db/orders",
        "postgres://:hunter2@db/orders",
        "postgres://h@/orders",
        "postgres://h@:5432/orders",
        "db/orders",
    ] {
        let text = Config::parse(&GOOD.replace("postgres://holdfast:hunter2@db/orders", bad))
            .unwrap_err()
            .to_string();
        assert!(text.contains("services.orders.database_url"), "{bad}: {text}");
    }
}

#[test]
fn two_services_in_one_database_are_refused() {
    let twice =
        format!("{GOOD}\n[services.billing]\ndatabase_url = \"postgres://holdfast:hunter2@db/orders\"");
    let text = Config::parse(&twice).unwrap_err().to_string();
    assert!(text.contains("services.orders") && text.contains("services.billing"), "{text}");
}

fn environment(variables: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
    variables.iter().map(|(name, value)| (name.into(), value.into())).collect()
}

fn with(text: &str, variables: &[(&str, &str)]) -> Result<Effective, Errors> {
    Effective::of(text, environment(variables))
}

fn origin(effective: &Effective, path: &str) -> Origin {
    effective.settings.iter().find(|setting| setting.path == path).unwrap().origin.clone()
}

#[test]
fn the_default_file_is_valid_and_shows_the_defaults() {
    let defaults: Vec<(String, String)> = Effective::of(GOOD, [])
        .unwrap()
        .settings
        .into_iter()
        .filter(|setting| setting.origin == Origin::Default)
        .map(|setting| (setting.path, setting.value))
        .collect();
    assert!(defaults.len() > 15, "{defaults:?}");

    let shown = Effective::of(DEFAULT, []).unwrap().settings;

    let said = shown.into_iter().filter(|setting| !setting.path.ends_with("url"));
    assert_eq!(said.map(|setting| (setting.path, setting.value)).collect::<Vec<_>>(), defaults);
}

#[test]
fn the_default_file_has_every_setting() {
    let mut notes = Notes::default();
    let tree = tree::of_toml(GOOD, &mut notes.errors);
    Config::read(Section::root(tree, &mut notes));
    notes.known.remove("testing");

    // What has no default stands in a comment.
    let setting =
        |line: &&str| line.contains(" = ") && line.split(' ').next().is_some_and(|word| word != "#");
    let lines = DEFAULT.lines().map(|line| {
        let bare = line.strip_prefix("# ").unwrap_or(line);
        let is_key = bare.split(" = ").next().unwrap().chars().all(|c| c.is_ascii_lowercase() || c == '_');
        if setting(&bare) && is_key { bare } else { line }
    });
    let mut shown = std::collections::BTreeSet::new();
    collect("", &tree::of_toml(&lines.collect::<Vec<_>>().join("\n"), &mut notes.errors), &mut shown);

    assert!(notes.errors.is_empty(), "{}", notes.errors);
    assert_eq!(shown, notes.known);
}

fn collect(above: &str, table: &tree::Table, paths: &mut std::collections::BTreeSet<String>) {
    for (key, node) in table {
        match &node.value {
            tree::Value::Table(below) => collect(&format!("{above}{key}."), below, paths),
            _ => {
                paths.insert(format!("{above}{key}"));
            }
        }
    }
}

#[test]
fn the_environment_wins_over_the_file_and_the_file_over_the_defaults() {
    let text = format!("replicas = 3\n{GOOD}max_connections = 5\n[drain]\nbatch = 7");
    let effective = with(
        &text,
        &[
            ("HOLDFAST_DRAIN__BATCH", "9"),
            ("HOLDFAST_DRAIN__LEASE", "90s"),
            ("HOLDFAST_SERVICES__ORDERS__PARKED_BLOCKS", "false"),
            ("HOLDFAST_SERVICES__ORDER_ITEMS__DATABASE_URL", "postgres://h:hunter3@db/items"),
            ("HOLDFAST_CONFIG", "/etc/holdfast.toml"),
            ("HOLDFAST_TEST_ANYTHING", "1"),
            ("HOLDFAST_LOG", "debug"),
            ("HOME", "/"),
        ],
    )
    .unwrap();

    let config = &effective.config;
    assert_eq!((config.replicas, config.drain.batch), (3, 9));
    assert_eq!(config.drain.lease, Duration::from_secs(90));
    assert!(!config.services["orders"].parked_blocks);
    assert_eq!(config.services["orders"].max_connections, 5);
    assert_eq!(config.services["order-items"].database_url.expose(), "postgres://h:hunter3@db/items");
    assert_eq!(origin(&effective, "drain.batch"), Origin::Variable("HOLDFAST_DRAIN__BATCH".into()));
    assert_eq!(origin(&effective, "replicas"), Origin::Line(1));
    assert_eq!(origin(&effective, "drain.poll"), Origin::Default);
}

#[test]
fn the_environment_alone_is_enough() {
    let effective = with(
        "",
        &[
            ("HOLDFAST_CONTROL__DATABASE_URL", "postgres://h@db/control"),
            ("HOLDFAST_BROKER__URL", "amqp://h:x@mq"),
            ("HOLDFAST_SERVICES__ORDERS__DATABASE_URL", "postgres://h@db/orders"),
        ],
    );
    assert_eq!(effective.unwrap().config.services.len(), 1);
}

#[test]
fn a_variable_that_is_no_setting_is_named_and_so_is_one_with_a_wrong_value() {
    let errors = with(
        GOOD,
        &[
            ("HOLDFAST_DRAIN__LAESE", "1s"),
            ("HOLDFAST_REPLICA", "3"),
            ("HOLDFAST_DRAIN__BATCH", "hunter2"),
            ("HOLDFAST_BROKER", "hunter2"),
            ("HOLDFAST_SERVICES__ORDERS__WAKE", "hunter2"),
        ],
    )
    .unwrap_err()
    .to_string();
    for said in [
        "drain.laese (HOLDFAST_DRAIN__LAESE): is no setting",
        "replica (HOLDFAST_REPLICA): is no setting",
        "drain.batch (HOLDFAST_DRAIN__BATCH): must be a whole number",
        "broker (HOLDFAST_BROKER): must be a table",
        "services.orders.wake (HOLDFAST_SERVICES__ORDERS__WAKE): must be one of \"poll\", \"notify\"",
    ] {
        assert!(errors.contains(said), "{said:?} in {errors}");
    }
    assert!(!errors.contains("hunter2") && errors.contains("has 5 problem(s)"), "{errors}");
}

#[test]
fn a_secret_where_its_files_name_belongs_is_refused_and_not_repeated() {
    let file = "postgres://holdfast:hunter2@db/billing";
    let variable = ("HOLDFAST_SERVICES__BILLING__DATABASE_URL_FILE", file);
    let errors = with(GOOD, &[variable]).unwrap_err().to_string();
    assert!(
        errors.contains("services.billing.database_url_file") && errors.contains("path of a file"),
        "{errors}"
    );
    assert!(!errors.contains("hunter2"), "{errors}");
}

#[test]
fn problems_of_every_kind_and_section_are_listed_in_one_go() {
    let errors = Config::parse(
        "listen = 1\nlog_format = \"xml\"\nreplicas = 0\n[control]\nmax_connections = \"hunter2\"\n\
         [broker]\nurl = [1]\nheartbeat = \"1h\"\n[drain]\nlease = \"hunter2\"\nconfirm = 1\n\
         [services.orders]\ndatabase_url = \"postgres://h:hunter2@db\"\nparked_blocks = \"no\"\n[services.b_]\n",
    )
    .unwrap_err();

    let said: Vec<String> = errors.problems().iter().map(ToString::to_string).collect();
    let expected = [
        "listen (line 1): must be an address and a port, as \"127.0.0.1:50551\" or \"[::1]:50551\", not a number",
        "log_format (line 2): must be one of \"text\", \"json\"",
        "control.database_url: is missing; say it here, in a file that control.database_url_file names, or in HOLDFAST_CONTROL__DATABASE_URL",
        "control.max_connections (line 5): must be a whole number, not a text",
        "broker.url (line 7): must be a text in quotes, not a list",
        "drain.lease (line 10): must be a duration with its unit, as \"500ms\", \"30s\" or \"2m\"",
        "drain.confirm (line 11): is no setting; in [drain] there are lease, poll, batch, sweep, ticket_sweep_after, ticket_sweep_interval, held_age_warn, held_watch, schema_check",
        "services.b_.database_url: is missing; say it here, in a file that services.b_.database_url_file names, or in HOLDFAST_SERVICES__B___DATABASE_URL",
        "services.orders.parked_blocks (line 14): must be true or false, not a text",
        "replicas (line 3): must be between 1 and 1000",
        "broker.heartbeat (line 8): must be between 1s and 60s",
        "services.b_ (line 15): may contain a-z, 0-9 and - only",
        "services.orders.database_url (line 13): must be postgres://user:password@host:port/database",
    ];
    assert_eq!(said, expected);
}

#[test]
fn lines_that_are_no_toml_are_all_named_and_not_shown() {
    let text = format!("listen = hunter2\n{GOOD}\n[drain]\nlease = hunter2\nbatch = 0\n");
    let said = Config::parse(&text).unwrap_err().to_string();
    for place in ["line 1:", "line 11:", "drain.batch (line 12)"] {
        assert!(said.contains(place), "{place} in {said}");
    }
    assert!(!said.contains("hunter2"), "{said}");
}

#[test]
fn a_secret_may_stand_in_a_file_without_its_line_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("url");
    std::fs::write(&path, "postgres://h:hunter2@db/orders\n").unwrap();
    let here = "database_url = \"postgres://holdfast:hunter2@db/orders\"";
    let named = format!("database_url_file = {:?}", path.display().to_string());

    let effective = Effective::of(&GOOD.replace(here, &named), []).unwrap();

    assert_eq!(effective.config.services["orders"].database_url.expose(), "postgres://h:hunter2@db/orders");
    let shown = effective.to_toml();
    let line = format!("database_url = \"postgres://h:***@db/orders\"  # read from {}\n", path.display());
    assert!(shown.contains(&line) && shown.contains(&named), "{shown}");
    assert!(!shown.contains("hunter2") && !effective.said().contains("hunter2"), "{shown}");

    let both = Effective::of(&GOOD.replace(here, &format!("{here}\n{named}")), []).unwrap_err();
    let said = both.to_string();
    assert!(
        said.contains(
            "services.orders.database_url_file (line 8): services.orders.database_url is set, too (line 7)"
        ),
        "{said}"
    );
    assert!(!said.contains("hunter2") && both.problems().len() == 1, "{said}");

    std::fs::write(&path, "\n").unwrap();
    let said = Effective::of(&GOOD.replace(here, &named), []).unwrap_err().to_string();
    assert!(said.contains("is empty"), "{said}");
    std::fs::remove_file(&path).unwrap();
    let said = Effective::of(&GOOD.replace(here, &named), []).unwrap_err().to_string();
    assert!(said.contains("services.orders.database_url_file (line 7): cannot read"), "{said}");
}

#[test]
fn what_is_shown_is_a_configuration_again() {
    let text = GOOD.replace("hunter2", "x").replace(":x@", "@").replace("amqp://holdfast@", "amqp://h@");
    let effective = Effective::of(&text, []).unwrap();
    let again = Effective::of(&effective.to_toml(), []).unwrap();
    let values = |effective: Effective| {
        effective.settings.into_iter().map(|setting| (setting.path, setting.value)).collect::<Vec<_>>()
    };
    assert_eq!(values(effective), values(again));
}

#[test]
fn what_is_asked_of_each_postgresql_is_summed_up_over_all_replicas() {
    let text = format!(
        "replicas = 3\n{GOOD}wake = \"notify\"\n\
         [services.billing]\ndatabase_url = \"postgres://h@other:5433/b\"\nmax_connections = 2\n\
         [services.pooled]\ndatabase_url = \"postgres://h@pooler:6432/p\"\nprepared_statements = false\n\
         wake = \"notify\"\nlisten_url = \"postgres://h@db/p\""
    );
    let demands = Config::parse(&text).unwrap().demands();
    let demand = |server: &str, of_a_replica: u64, of: &[&str]| Demand {
        server: server.into(),
        of_a_replica,
        connections: 3 * of_a_replica,
        of: of.iter().map(ToString::to_string).collect(),
    };
    assert_eq!(
        demands,
        [
            demand("db:5432", 4 + (8 + 1) + 1, &["control", "services.orders", "services.pooled"]),
            demand("other:5433", 2, &["services.billing"])
        ]
    );
}

#[test]
fn a_server_without_keys_is_refused_together_with_everything_else_that_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        std::fs::write(folder.path().join(name), content).unwrap();
        format!("{:?}", folder.path().join(name).display().to_string())
    };
    let pair = crate::auth::generate(crate::auth::Algorithm::EdDSA).unwrap();
    let (public, private) = (file("a.pem", &pair.public_pem), file("b.pem", &pair.private_pem));
    let certificate = file("tls.crt", &pair.public_pem.replace("PUBLIC KEY", "CERTIFICATE"));

    let serving = |text: &str| {
        Effective::for_serving(&format!("{text}\n{GOOD}"), []).map_err(|errors| errors.to_string())
    };
    assert!(Config::parse(GOOD).is_ok(), "who migrates needs no keys");
    assert!(serving("").unwrap_err().contains("auth.keys: is missing"));
    assert!(serving(&format!("[auth]\nkeys = {public}")).is_ok());
    assert!(
        serving(&format!(
            "[auth]\nkeys = {public}\n[tls]\ncertificate_file = {certificate}\nkey_file = {private}"
        ))
        .is_ok()
    );

    let said = serving(&format!(
        "replicas = 0\n[auth]\nkeys = [{public}, {private}, \"/nowhere.pem\"]\n[tls]\n\
         certificate_file = {public}\nkey_file = {public}\nclient_ca_file = \"/nowhere.crt\"",
    ))
    .unwrap_err();
    for what in [
        "replicas (line 1)",
        "b.pem: is a private key",
        "/nowhere.pem: is not there",
        "tls.certificate_file (line 5)",
        "has no CERTIFICATE",
        "tls.key_file (line 6)",
        "has no PRIVATE KEY",
        "tls.client_ca_file (line 7)",
    ] {
        assert!(said.contains(what), "{what} in {said}");
    }
    assert!(!said.contains(pair.private_pem.lines().nth(1).unwrap()));
}

#[test]
fn tokens_do_not_cross_a_network_in_the_clear_unless_somebody_says_so() {
    let parse = |top: &str, tls: &str| {
        Config::parse(&format!("{top}\n{GOOD}\n[tls]\n{tls}")).map_err(|errors| errors.to_string())
    };
    let others = "listen = \"0.0.0.0:1\"";
    assert!(parse(others, "").unwrap_err().contains("listen (line 1): is no loopback address"));
    assert!(parse(others, "allow_plaintext = true").is_ok());
    assert!(parse(others, "certificate_file = \"a\"\nkey_file = \"b\"").is_ok());
    assert!(parse("listen = \"[::1]:1\"", "").is_ok());
    for (tls, said) in [
        ("certificate_file = \"a\"", "tls.key_file: is missing"),
        ("key_file = \"a\"", "tls.certificate_file: is missing"),
        ("client_ca_file = \"a\"", "tls.client_ca_file"),
        ("certificate_file = \"a\"\nkey_file = \"b\"\nallow_plaintext = true", "tls.allow_plaintext"),
    ] {
        let errors = parse("", tls).unwrap_err();
        assert!(errors.contains(said) && errors.contains("1 problem"), "{said} in {errors}");
    }
}

#[test]
fn a_list_is_a_list_in_the_file_and_has_commas_in_the_environment() {
    let auth = |keys: &str| Config::parse(&format!("{GOOD}\n[auth]\n{keys}")).map(|config| config.auth);
    assert_eq!(auth("keys = [\"a\", \"b\"]").unwrap().keys, ["a", "b"]);
    assert_eq!(auth("keys = \"a\"").unwrap().keys, ["a"]);
    let effective =
        with(GOOD, &[("HOLDFAST_AUTH__KEYS", "a, b"), ("HOLDFAST_AUTH__ALGORITHMS", "ES256")]).unwrap();
    assert_eq!(effective.config.auth.keys, ["a", "b"]);
    assert_eq!(effective.config.auth.algorithms, [crate::auth::Algorithm::ES256]);
    for (wrong, said) in [
        ("keys = [1]", "auth.keys (line 10): is a list whose members must be a text in quotes, not a number"),
        (
            "algorithms = [\"HS256\"]",
            "auth.algorithms (line 10): is a list whose members must be one of \"EdDSA\"",
        ),
        ("algorithms = []", "auth.algorithms (line 10): must name at least one"),
        ("audience = []", "auth.audience (line 10): must name at least one"),
        ("audience = [\"a\", \"\"]", "auth.audience (line 10): must name"),
        ("issuer = \"\"", "auth.issuer (line 10): must not be empty"),
        ("reflection = \"no\"", "auth.reflection (line 10): must be one of"),
    ] {
        let errors = auth(wrong).unwrap_err().to_string();
        assert!(errors.contains(said) && errors.contains("1 problem"), "{said} in {errors}");
    }
}

fn retention(text: &str) -> Result<Retention, String> {
    let parsed = Config::parse(&format!("{GOOD}\n[retention]\n{text}"));
    parsed.map(|config| config.retention).map_err(|errors| errors.to_string())
}

#[test]
fn an_inbox_that_forgets_before_the_outbox_is_refused_and_zero_is_for_ever() {
    for good in [
        "",
        "outbox = \"29d\"\ninbox = \"30d\"",
        "outbox = \"0s\"\ninbox = \"0s\"",
        "outbox = \"400d\"\ninbox = \"0s\"",
        "outbox = \"1h\"\ninbox = \"25h\"",
    ] {
        assert!(retention(good).is_ok(), "{good}: {:?}", retention(good));
    }
    for bad in [
        "outbox = \"31d\"",
        "inbox = \"30d\"",
        "outbox = \"30d\"\ninbox = \"743h 59m 59s\"",
        // For ever is longer than any other time.
        "outbox = \"0s\"",
        "outbox = \"0s\"\ninbox = \"36500d\"",
    ] {
        let text = retention(bad).unwrap_err();
        assert!(text.contains("1 problem") && text.contains("retention.inbox"), "{bad}: {text}");
        assert!(text.contains("at least a day longer than retention.outbox"), "{bad}: {text}");
    }
}

#[test]
fn a_retention_of_no_sense_is_refused_field_by_field() {
    for (field, values) in [
        ("outbox", ["30", "\"59m\"", "\"36501d\"", "\"500000years\""]),
        ("inbox", ["31", "\"59m\"", "\"36501d\"", "\"500000years\""]),
        ("interval", ["\"0s\"", "\"13h\"", "1", "\"500000years\""]),
        ("most", ["0", "999", "1000000001", "-1"]),
    ] {
        for value in values {
            let text = retention(&format!("{field} = {value}")).unwrap_err();
            assert!(text.contains("1 problem") && text.contains(&format!("retention.{field} (")), "{text}");
        }
    }
    let text = retention("outbox = \"1s\"\ninbox = \"1s\"\ninterval = \"0s\"\nmost = 0").unwrap_err();
    assert!(text.contains("4 problem"), "{text}");
}

#[test]
fn retention_is_the_fleets_and_no_services() {
    let text = Config::parse(&format!("{GOOD}\nretention = \"1d\"")).unwrap_err().to_string();
    assert!(text.contains("services.orders.retention"), "{text}");
}

#[test]
fn whole_days_are_shown_as_days() {
    let shown = |variable: &str| {
        let effective = with(GOOD, &[("HOLDFAST_RETENTION__INBOX", variable)]).unwrap();
        effective.settings.into_iter().find(|one| one.path == "retention.inbox").unwrap().value
    };
    assert_eq!((shown("744h").as_str(), shown("745h").as_str()), ("\"31d\"", "\"1month 14h 26m 24s\""));
}
