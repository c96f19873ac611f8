//! Payloads, passwords and tokens never leave by the side doors: the log, even with everything of everybody switched on,
//! metrics, error messages, health. Each is a marker of its own here, and the markers are looked for.

use holdfast_proto::v1::{
    Event, EventState, GetEventRequest, StageInTxRequest, StageNowRequest, event::Data,
};
use holdfast_tests::{
    auth,
    caller::Caller,
    chaos::Proxy,
    client::{Client, event, keyed},
    health::Health,
    http,
    scene::{SERVICE, Scene, Stage},
    server::{EXCHANGE, ServerProcess},
    wait::{self, LONG},
};
use lapin::{
    options::{QueueBindOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable},
};
use serde_json::json;
use tonic::{Request, Status};

use crate::drain::{NOBODY, amqp, expect_broker_trouble, expect_database_trouble, row_is, unbind};

/// What must be seen nowhere, each a word that occurs nowhere else.
const MARKERS: [(&str, &str); 9] = [
    ("a payload", "pAyLoAdMaRkEr"),
    ("payload bytes", "bYtEsMaRkEr"),
    ("bytes as they are stored", "Yll0RXNNYVJrRX"),
    ("an extension's value", "eXtEnSiOnMaRkEr"),
    ("a trace state", "tRaCeStAtEmArKeR"),
    ("a bearer token", "tOkEnMaRkEr"),
    ("a metadata value", "mEtAdAtAmArKeR"),
    ("the database's password", "dBpAsSwOrDmArKeR"),
    ("the broker's password", "mQpAsSwOrDmArKeR"),
];

fn marker(what: &str) -> &'static str {
    MARKERS.iter().find(|(name, _)| *name == what).unwrap().1
}

/// How a marker may be written, in lower case: as it is, as a list of bytes (so libraries show buffers), in hexadecimal.
fn forms(marker: &str) -> [String; 3] {
    let bytes = marker.bytes().map(|byte| byte.to_string()).collect::<Vec<_>>().join(", ");
    let hex = marker.bytes().map(|byte| format!("{byte:02x}")).collect();
    [marker.to_lowercase(), bytes, hex]
}

/// An event full of them.
fn loaded(event_type: &str) -> Event {
    Event {
        data: Some(Data::Json(json!({"card": marker("a payload")}).to_string())),
        tracestate: format!("vendor={}", marker("a trace state")),
        traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned(),
        extensions: [("secretext".to_owned(), marker("an extension's value").to_owned())].into(),
        ..event(event_type)
    }
}

fn loaded_bytes(event_type: &str) -> Event {
    Event { data: Some(Data::Binary(marker("payload bytes").into())), ..event(event_type) }
}

/// As a caller with a header of his own (the harness's client adds its token) would send it.
fn dressed<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    let metadata = request.metadata_mut();
    metadata.insert("x-something", marker("a metadata value").parse().unwrap());
    // Not one that is taken over: it has a blank.
    metadata.insert("x-request-id", format!("id {}", marker("a metadata value")).parse().unwrap());
    request
}

/// A stage whose server logs in with passwords, through proxies.
async fn with_passwords() -> (Stage, Proxy, Proxy) {
    let mut stage = Scene::builder().stage().await;
    let database_proxy = Proxy::before(stage.database.server().port).await;
    let broker_proxy = Proxy::before(stage.vhost.broker().port).await;
    let url = stage.database.url_through(database_proxy.port());
    let (scheme, rest) = url.split_once("://").unwrap();
    let (login, place) = rest.split_once('@').unwrap();
    let login = login.split(':').next().unwrap();
    // (Our private PostgreSQL asks for no password; the server has it in hand all the same.)
    let url = format!("{scheme}://{login}:{}@{place}", marker("the database's password"));
    stage.config.text("services.orders", "database_url", &url);
    let vhost = stage.vhost.name().to_owned();
    let user = json!({"password": marker("the broker's password"), "tags": ""});
    stage.vhost.ask("PUT", &format!("/api/users/{vhost}"), Some(&user)).await;
    let rights = json!({"configure": ".*", "write": ".*", "read": ".*"});
    stage.vhost.ask("PUT", &format!("/api/permissions/{vhost}/{vhost}"), Some(&rights)).await;
    let at = broker_proxy.port();
    let url = format!("amqp://{vhost}:{}@127.0.0.1:{at}/{vhost}", marker("the broker's password"));
    stage.config.text("broker", "url", &url);
    (stage, database_proxy, broker_proxy)
}

/// A queue that takes one message and refuses the next.
async fn full_queue(stage: &Stage) {
    let (connection, channel) = amqp(&stage.vhost).await;
    let mut full = FieldTable::default();
    full.insert("x-max-length".into(), AMQPValue::LongInt(0));
    full.insert("x-overflow".into(), AMQPValue::LongString("reject-publish".into()));
    channel.queue_declare("full".into(), QueueDeclareOptions::default(), full).await.unwrap();
    let options = QueueBindOptions::default();
    let none = FieldTable::default();
    channel.queue_bind("full".into(), EXCHANGE.into(), "full.#".into(), options, none).await.unwrap();
    connection.close(200, "done".into()).await.unwrap();
}

/// Requests that are refused, with markers where the fault is.
async fn refused(client: &Client) -> Vec<Status> {
    let secret = marker("a payload");
    let bad = |change: &dyn Fn(&mut Event)| {
        let mut event = loaded("order.placed");
        change(&mut event);
        StageNowRequest { service: SERVICE.to_owned(), events: vec![event] }
    };
    let requests = [
        bad(&|event| event.data = Some(Data::Json(format!("{{\"card\": {secret}")))),
        bad(&|event| event.data = Some(Data::Json(format!("{{\"{secret}\": 1, \"{secret}\": 2}}")))),
        bad(&|event| event.data = Some(Data::Json(format!("\"{secret}\\u0000\"")))),
        bad(&|event| event.data = Some(Data::Json(format!("\"{}\"", secret.repeat(100_000))))),
        bad(&|event| event.id = marker("a payload").to_owned()),
        bad(&|event| {
            drop(event.extensions.insert("Not Valid".into(), marker("an extension's value").into()))
        }),
        StageNowRequest { service: "billing".to_owned(), events: vec![loaded("order.placed")] },
    ];
    let mut statuses = Vec::new();
    for request in requests {
        let what = format!("{request:?}").chars().take(300).collect::<String>();
        let answer = client.raw.clone().stage_now(dressed(request)).await;
        statuses.push(answer.err().unwrap_or_else(|| panic!("not refused: {what}")));
    }
    // Somebody's token that is no good here, and may be good elsewhere.
    let mut foreign = dressed(GetEventRequest::default());
    foreign
        .metadata_mut()
        .insert("authorization", format!("Bearer {}", marker("a bearer token")).parse().unwrap());
    statuses.push(client.raw.clone().get_event(foreign).await.unwrap_err());
    let missing = GetEventRequest { service: SERVICE.to_owned(), id: event("").id };
    statuses.push(client.raw.clone().get_event(dressed(missing)).await.unwrap_err());
    let closed = StageInTxRequest {
        service: SERVICE.to_owned(),
        ticket: 4711,
        events: vec![loaded("order.placed")],
        hold: None,
    };
    statuses.push(client.raw.clone().stage_in_tx(dressed(closed)).await.unwrap_err());
    statuses
}

#[tokio::test]
async fn no_payload_password_or_token_is_seen_in_logs_at_trace_metrics_errors_or_health() {
    let (stage, database_proxy, broker_proxy) = with_passwords().await;
    // (Others complain of lost connections in their own words; the default filter keeps those back.)
    for line in
        ["an event is parked", "no channel to publish on", "service.name=orders", "sqlx_core", "lapin::"]
    {
        stage.logs.expect(line);
    }
    expect_broker_trouble(&stage);
    expect_database_trouble(&stage);
    let mut server = ServerProcess::start_logging(&stage.config, "trace").await;
    stage.logs.wait_for("broker connected").await;
    unbind(&stage).await;
    full_queue(&stage).await;
    // (A short word of it would be found by chance.)
    let token = auth::token(&auth::all_of(SERVICE));
    let signature = token.rsplit('.').next().unwrap();
    let client = Client::with_token(server.address(), SERVICE, &token);
    let health = Health::of(server.address());

    // What goes well, in both ways in, twice (the second is a duplicate), and what rolls back.
    let now = [loaded("order.placed"), loaded_bytes("order.placed")];
    for _ in 0..2 {
        let request = StageNowRequest { service: SERVICE.to_owned(), events: now.to_vec() };
        client.raw.clone().stage_now(dressed(request)).await.unwrap();
    }
    let mut caller = Caller::connect(&stage.database.url()).await;
    let mut staged = vec![now[0].id.clone(), now[1].id.clone()];
    for commits in [true, false] {
        let ticket = caller.begin_with_ticket().await;
        let one = loaded("order.paid");
        client.stage(ticket, std::slice::from_ref(&one)).await;
        if commits {
            caller.commit().await;
            staged.push(one.id);
        } else {
            caller.rollback().await;
        }
    }
    stage.consumer.wait_for_ids(&staged, LONG).await;
    // What no queue takes, what one refuses, and what no broker could carry.
    let unroutable = loaded(NOBODY);
    let nacked = loaded("full.up");
    client.stage_now(&[unroutable.clone(), nacked.clone()]).await;
    for one in [&unroutable, &nacked] {
        row_is(&stage.database, &one.id, "failed", |row| row.attempts > 0).await;
    }
    let odd = event("").id;
    stage
        .database
        .run(&format!(
            "INSERT INTO holdfast.event_outbox (id, event_type, envelope)
             VALUES ('{odd}', repeat('x', 256), jsonb_build_object('data', '{}'))",
            marker("a payload")
        ))
        .await;
    client.wait_for_state(&odd, EventState::Parked).await;
    let statuses = refused(&client).await;
    // Reconnects, with something on the way.
    client.stage_now(&[loaded("order.placed"), keyed("order.placed", "k")]).await;
    database_proxy.away().await;
    broker_proxy.away().await;
    health.does_not_serve("service/orders").await;
    health.does_not_serve("broker").await;
    let away = StageNowRequest { service: SERVICE.to_owned(), events: vec![loaded("order.placed")] };
    let away = client.raw.clone().stage_now(dressed(away)).await.unwrap_err();
    let ready = http::get(server.admin_address(), "/readyz").await.2;
    database_proxy.pass().await;
    broker_proxy.pass().await;
    health.serves("service/orders").await;
    health.serves("broker").await;
    let last = loaded("order.placed");
    wait::until("staging to work again", LONG, || client.try_stage_now(std::slice::from_ref(&last))).await;
    stage.consumer.wait_for_ids(&[&last.id], LONG).await;
    let metrics = http::get(server.admin_address(), "/metrics").await.2;
    server.sigterm();
    assert!(server.exit_status(LONG).await.success());

    let lines = server.lines().join("\n");
    let errors: Vec<_> = statuses.iter().chain([&away]).map(|status| format!("{status:?}")).collect();
    // Everything was on: ours at trace or debug, and others as far as they are let.
    assert!(lines.contains("\"level\":\"DEBUG\""), "the filter was not in force");
    let places =
        [("the log", &lines), ("the metrics", &metrics), ("/readyz", &ready), ("errors", &errors.join("\n"))];
    for (place, text) in places {
        assert!(text.len() > 100, "{place} was looked at: {text}");
        for (what, marker) in MARKERS.into_iter().chain([("the token", signature)]) {
            for form in forms(marker) {
                let found = text.lines().find(|line| line.to_lowercase().contains(&form));
                assert_eq!(found, None, "{what} in {place}, as {form}");
            }
        }
    }
    let details: Vec<_> = statuses.iter().map(|status| String::from_utf8_lossy(status.details())).collect();
    assert!(MARKERS.iter().all(|(_, marker)| !details.concat().contains(marker)), "{details:?}");
    stage.vhost.ask("DELETE", &format!("/api/users/{}", stage.vhost.name()), None).await;
    stage.logs.check();
}
