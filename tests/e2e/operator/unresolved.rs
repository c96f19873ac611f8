//! `ListUnresolved`: the transactions that events wait for, and who has them.

use holdfast_proto::v1::{ListUnresolvedRequest, TicketHolder, UnresolvedTicket};
use holdfast_tests::{
    client::event,
    operator::Operator,
    scene::{SERVICE, Scene},
};

async fn list(operator: &Operator, page_size: i32) -> Vec<UnresolvedTicket> {
    let (mut all, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = ListUnresolvedRequest { service: SERVICE.to_owned(), page_size, page_token };
        let page = operator.raw.clone().list_unresolved(request).await.unwrap().into_inner();
        all.extend(page.tickets);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return all;
        }
    }
}

#[tokio::test]
async fn an_open_and_a_prepared_transaction_are_told_with_who_has_them_and_their_oldest_event() {
    let scene = Scene::start().await;
    let operator = Operator::of(&scene);
    let mut open = scene.caller().await;
    let first = open.begin_with_ticket().await;
    open.sql("SET application_name = 'slow-importer'").await;
    scene.client.stage(first, &[event("order.placed"), event("order.paid")]).await;
    let mut prepared = scene.caller().await;
    let second = prepared.begin_with_ticket().await;
    scene.client.stage(second, &[event("order.placed")]).await;
    let gid = format!("admin_{}", scene.database.name());
    prepared.sql(&format!("PREPARE TRANSACTION '{gid}'")).await;

    let seen = list(&operator, 0).await;

    assert_eq!(seen.iter().map(|one| one.ticket).collect::<Vec<_>>(), [first, second], "the oldest first");
    let (one, two) = (&seen[0], &seen[1]);
    assert_eq!((one.holder(), one.events), (TicketHolder::Backend, 2));
    let pid: i32 = scene
        .database
        .one("SELECT pid FROM pg_stat_activity WHERE application_name = 'slow-importer' AND datname = current_database()")
        .await;
    assert_eq!((one.pid, one.application_name.as_str()), (pid, "slow-importer"));
    assert_eq!((one.state.as_str(), one.login.as_str()), ("idle in transaction", "postgres"));
    assert!(one.transaction_started_at.is_some() && one.query_started_at.is_some());
    assert!(one.oldest_created_at.is_some() && !one.client_address.is_empty());
    assert_eq!((two.holder(), two.events, two.pid), (TicketHolder::Prepared, 1, 0));
    assert_eq!((two.prepared_gid.as_str(), two.prepared_at.is_some()), (gid.as_str(), true));
    let mut paged: Vec<_> = list(&operator, 1).await.iter().map(|one| one.ticket).collect();
    paged.sort_unstable();
    let mut both = vec![first, second];
    both.sort_unstable();
    assert_eq!(paged, both);
    prepared.sql(&format!("ROLLBACK PREPARED '{gid}'")).await;
    open.rollback().await;
    scene.end(3).await;
}

#[tokio::test]
async fn rows_of_a_ticket_that_nobody_has_are_told_as_nobodys() {
    let scene = Scene::start().await;
    let (mut caller, mut stranger) = (scene.caller().await, scene.caller().await);
    let ticket = caller.begin_with_ticket().await;
    scene.client.stage(ticket, &[event("order.placed")]).await;
    // The resolver is kept from deciding it: somebody has the row locked.
    stranger.sql("BEGIN").await;
    stranger.sql("SELECT FROM holdfast.event_outbox FOR UPDATE").await;
    caller.commit().await;

    let seen = list(&Operator::of(&scene), 0).await;

    assert_eq!(seen.len(), 1, "{seen:?}");
    let one = &seen[0];
    assert_eq!((one.ticket, one.holder(), one.pid, one.events), (ticket, TicketHolder::Nobody, 0, 1));
    stranger.sql("COMMIT").await;
    scene.end(1).await;
}
