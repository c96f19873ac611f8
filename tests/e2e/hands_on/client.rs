//! The client library as a service uses it, on the real server and in real transactions: what its own tests, with a
//! scripted peer and no database, cannot play.

use std::sync::{Arc, Mutex};

use holdfast_client::Holdfast;
use holdfast_client::outbox::{Outbox, Staged, event};
use holdfast_client::token::Token;
use holdfast_proto::v1::{
    ConfirmStagedRequest, ConfirmStagedResponse, ErrorReason, GetEventRequest, GetEventResponse,
    StageInTxRequest, StageInTxResponse, StageNowRequest, StageNowResponse,
    outbox_service_client::OutboxServiceClient,
    outbox_service_server::{OutboxService, OutboxServiceServer},
};
use holdfast_tests::{
    auth::{self, Authenticated},
    client::{Client, outbox},
    scene::{SERVICE, Scene},
    wait,
};
use sqlx::{Connection as _, PgConnection};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};
use uuid::Uuid;

/// Stands between client and server, hands everything on but the hints, and writes those down: the events' way must not
/// depend on them.
#[derive(Clone)]
struct Between {
    server: OutboxServiceClient<Authenticated>,
    hints: Arc<Mutex<Vec<i64>>>,
}

#[tonic::async_trait]
impl OutboxService for Between {
    async fn stage_in_tx(
        &self,
        request: Request<StageInTxRequest>,
    ) -> Result<Response<StageInTxResponse>, Status> {
        self.server.clone().stage_in_tx(request.into_inner()).await
    }

    async fn stage_now(
        &self,
        request: Request<StageNowRequest>,
    ) -> Result<Response<StageNowResponse>, Status> {
        self.server.clone().stage_now(request.into_inner()).await
    }

    async fn confirm_staged(
        &self,
        request: Request<ConfirmStagedRequest>,
    ) -> Result<Response<ConfirmStagedResponse>, Status> {
        self.hints.lock().unwrap().push(request.into_inner().ticket);
        Err(Status::permission_denied("no hints here"))
    }

    async fn get_event(
        &self,
        request: Request<GetEventRequest>,
    ) -> Result<Response<GetEventResponse>, Status> {
        self.server.clone().get_event(request.into_inner()).await
    }
}

/// An outbox that reaches the server through [`Between`], and the hints that came by.
async fn through_between(client: &Client) -> (Outbox, Arc<Mutex<Vec<i64>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let between = Between { server: client.raw.clone(), hints: Arc::default() };
    let hints = between.hints.clone();
    let server = tonic::transport::Server::builder().add_service(OutboxServiceServer::new(between));
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    (outbox(address, SERVICE), hints)
}

/// Stages one event in the transaction that is open; its id, and what was staged.
async fn stage(outbox: &Outbox, conn: &mut PgConnection) -> (String, Staged) {
    let placed = event("order.placed").subject("o-1").build();
    let id = placed.id.clone();
    (id, outbox.stage_in_tx(conn, [placed]).await.unwrap())
}

#[tokio::test]
async fn one_commit_confirms_all_that_its_transaction_staged_and_needs_no_hint_to_be_heard() {
    let scene = Scene::start().await;
    let (outbox, hints) = through_between(&scene.client).await;
    let mut connection = scene.database.connect().await;

    let mut tx = connection.begin().await.unwrap();
    let (first, one) = stage(&outbox, &mut tx).await;
    let (second, two) = stage(&outbox, &mut tx).await;
    // More under the first one's ticket: no round trip to the database.
    let third = event("order.placed").subject("o-1").build();
    let more = outbox.stage(one.ticket, [third.clone()]).await.unwrap();
    outbox.commit_and_confirm(tx, [&one, &two, &more]).await.unwrap();

    let mut wanted = vec![one.ticket.get(), two.ticket.get()];
    wanted.sort_unstable();
    wait::until_equal("the hints, one a ticket", wait::LONG, wanted, || async {
        let mut seen = hints.lock().unwrap().clone();
        seen.sort_unstable();
        seen
    })
    .await;
    let ids = [first, second, third.id];
    scene.consumer.wait_for_ids(&ids, wait::LONG).await;
    let marker = scene.marker(Some("o-1")).await;
    scene.consumer.assert_only(&ids, marker).await;
    scene.end(4).await;
}

#[tokio::test]
async fn a_savepoint_of_the_driver_takes_its_events_along_when_it_is_rolled_back() {
    let scene = Scene::start().await;
    let outbox = outbox(scene.server.address(), SERVICE);
    let mut connection = scene.database.connect().await;

    let mut tx = connection.begin().await.unwrap();
    let (kept, outer) = stage(&outbox, &mut tx).await;
    let mut savepoint = tx.begin().await.unwrap();
    let (undone, _) = stage(&outbox, &mut savepoint).await;
    savepoint.rollback().await.unwrap();
    outbox.commit_and_confirm(tx, [&outer]).await.unwrap();

    scene.consumer.wait_for_ids(&[&kept], wait::LONG).await;
    wait::until("the undone event not to be found", wait::LONG, || async {
        match outbox.get_event(undone.parse::<Uuid>().unwrap()).await {
            Ok(event) => Err(event.why),
            Err(error) if error.code() == tonic::Code::NotFound => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    })
    .await;
    let marker = scene.marker(Some("o-1")).await;
    scene.consumer.assert_only(&[kept], marker).await;
    scene.end(3).await;
}

#[tokio::test]
async fn the_control_service_is_asked_for_health_and_refuses_unknown_names() {
    let scene = Scene::start().await;
    let token = Token::new(auth::token("orders.read nobody.read")).unwrap();
    let endpoint = format!("http://{}", scene.server.address());
    let holdfast = Holdfast::builder().endpoint(endpoint).token(token).build().unwrap();
    let control = holdfast.control();

    wait::until("the service to live", wait::LONG, || async {
        match control.get_service(SERVICE).await {
            Ok(service) if service.health.as_ref().is_some_and(|health| health.serving) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    let listed = control.list_services().await.unwrap();
    assert_eq!(listed.services.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), [SERVICE]);
    let unknown = control.get_service("nobody").await.unwrap_err();
    assert_eq!(unknown.reason(), Some(ErrorReason::UnknownService));
    scene.end(0).await;
}
