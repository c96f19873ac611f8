//! The admin audit in the control database: written before the act, and never changed.

use std::time::Duration;

use holdfast_server::{
    audit::{Audit, Call, Ended, Filter},
    auth::MissingScope,
    db,
};
use holdfast_tests::{chaos::Proxy, database::Database, logs::Logs, services::PostgresAt};
use serde_json::{Value, json};
use sqlx::{Connection as _, Executor as _};

fn pool(url: &str) -> db::Pool {
    let options = db::Options {
        url: url.to_owned(),
        max_connections: 2,
        prepared_statements: true,
        acquire_timeout: Duration::from_secs(2),
    };
    db::Pool::new(&options).unwrap()
}

fn call(service: &str, sub: &str) -> Call {
    Call {
        request_id: "r-1".into(),
        sub: sub.into(),
        service: Some(service.into()),
        verb: "DiscardEvents",
        arguments: json!({"ids": ["a\0", "b"]}),
    }
}

#[tokio::test]
async fn an_allowed_call_is_written_before_it_acts_and_what_came_of_it_after() {
    let database = Database::control().await;
    let audit = Audit::new(pool(&database.url()));

    let entry = audit.begin(call("orders", "alice")).await.unwrap();
    let before = audit.list(&Filter::default(), None, 10).await.unwrap();
    assert_eq!((before.calls.len(), &before.calls[0].ended), (1, &Ended::Unknown));
    entry.done(&json!({"matched": 2, "acted": 1})).await;
    audit.begin(call("orders", "alice")).await.unwrap().failed("DATABASE_UNAVAILABLE").await;

    let after = audit.list(&Filter::default(), None, 10).await.unwrap().calls;
    assert_eq!((after.len(), after[1].sub.as_str(), after[1].verb.as_str()), (2, "alice", "DiscardEvents"));
    let Ended::Done { at: Some(at), counts } = &after[1].ended else { panic!("{after:?}") };
    assert!(*at >= after[1].at);
    assert_eq!(serde_json::from_str::<Value>(counts).unwrap(), json!({"matched": 2, "acted": 1}));
    assert!(matches!(&after[0].ended, Ended::Failed { reason, .. } if reason == "DATABASE_UNAVAILABLE"));
    assert!(after[1].arguments.contains("a\u{fffd}"), "{}", after[1].arguments);
}

#[tokio::test]
async fn a_denied_call_is_written_with_the_scope_that_it_lacked() {
    let database = Database::control().await;
    let audit = Audit::new(pool(&database.url()));

    audit.denied(&call("orders", "mallory"), &MissingScope { scope: "orders.admin".into() }).await;

    let calls = audit.list(&Filter::default(), None, 10).await.unwrap().calls;
    assert_eq!(calls[0].ended, Ended::Denied("orders.admin".into()));
    assert_eq!(calls[0].sub, "mallory");
}

#[tokio::test]
async fn without_the_control_database_no_call_begins_and_an_outcome_is_said_in_the_log() {
    let logs = Logs::capture();
    let database = Database::control().await;
    let proxy = Proxy::before(PostgresAt::shared().port).await;
    let audit = Audit::new(pool(&database.url_through(proxy.port())));
    let entry = audit.begin(call("orders", "alice")).await.unwrap();

    proxy.away().await;

    assert!(audit.begin(call("orders", "alice")).await.is_err());
    logs.expect("could not be written into the audit");
    entry.done(&json!({"acted": 7})).await;
    audit.denied(&call("orders", "mallory"), &MissingScope { scope: "orders.admin".into() }).await;
    let said = logs.with("could not be written into the audit");
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].text.contains("alice") && said[0].text.contains(r#"{"acted":7}"#), "{}", said[0]);
    assert!(said[1].text.contains("mallory") && said[1].text.contains("orders.admin"), "{}", said[1]);

    proxy.pass().await;
    let calls = audit.list(&Filter::default(), None, 10).await.unwrap().calls;
    assert_eq!(calls.iter().map(|call| &call.ended).collect::<Vec<_>>(), [&Ended::Unknown]);
    logs.check();
}

#[tokio::test]
async fn pages_hold_every_call_once_the_newest_first_and_filters_narrow_them() {
    let database = Database::control().await;
    let audit = Audit::new(pool(&database.url()));
    for number in 0..25 {
        let service = if number % 2 == 0 { "orders" } else { "billing" };
        audit
            .begin(call(service, if number % 5 == 0 { "alice" } else { "bob" }))
            .await
            .unwrap()
            .done(&json!({}))
            .await;
    }

    let (mut ids, mut before) = (Vec::new(), None);
    loop {
        let page = audit.list(&Filter::default(), before, 4).await.unwrap();
        assert!(page.calls.len() <= 4);
        ids.extend(page.calls.iter().map(|call| call.id));
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    assert_eq!(ids.len(), 25);
    assert!(ids.windows(2).all(|pair| pair[0] > pair[1]));

    let count = async |filter: Filter| audit.list(&filter, None, 100).await.unwrap().calls.len();
    let all = audit.list(&Filter::default(), None, 100).await.unwrap().calls;
    assert_eq!(count(Filter { service: Some("orders".into()), ..Filter::default() }).await, 13);
    assert_eq!(count(Filter { sub: Some("alice".into()), ..Filter::default() }).await, 5);
    assert_eq!(count(Filter { verb: Some("DiscardEvents".into()), ..Filter::default() }).await, 25);
    assert_eq!(count(Filter { verb: Some("Discard".into()), ..Filter::default() }).await, 0);
    // Half-open: from the tenth (the newest is the first) on, before the newest.
    assert_eq!(count(Filter { from: Some(all[9].at), to: Some(all[0].at), ..Filter::default() }).await, 9);
}

#[tokio::test]
async fn what_is_written_is_not_changed_not_even_by_the_tables_owner() {
    let database = Database::control().await;
    let audit = Audit::new(pool(&database.url()));
    audit.begin(call("orders", "alice")).await.unwrap().done(&json!({})).await;
    let mut owner = database.connect().await;

    for sql in [
        "UPDATE holdfast.admin_audit SET sub = 'bob'",
        "DELETE FROM holdfast.admin_audit",
        "TRUNCATE holdfast.admin_audit CASCADE",
        "UPDATE holdfast.admin_audit_outcome SET counts = NULL",
        "DELETE FROM holdfast.admin_audit_outcome",
        "TRUNCATE holdfast.admin_audit_outcome",
        "INSERT INTO holdfast.admin_audit_outcome (call, outcome) SELECT id, 'failed' FROM holdfast.admin_audit",
    ] {
        assert!(owner.execute(sql).await.is_err(), "{sql}");
    }
    owner.close().await.unwrap();
    let calls = audit.list(&Filter::default(), None, 10).await.unwrap().calls;
    assert!(calls[0].sub == "alice" && matches!(calls[0].ended, Ended::Done { .. }));
}
