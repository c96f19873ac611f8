//! `ControlService`: what a replica says of itself and its services, from memory.

use holdfast_proto::v1::{
    GetServiceRequest, GetServiceResponse, ListServicesRequest, control_service_client::ControlServiceClient,
};
use holdfast_tests::{
    auth::{self, Authenticated, Bearer},
    client::{channel, event, keyed},
    database::{Database, Kind},
    health::Health,
    scene::{SERVICE, Scene},
    wait::{self, LONG},
};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::drain::{expect_broker_trouble, expect_database_trouble};

fn control(scene: &Scene) -> ControlServiceClient<Authenticated> {
    let token = auth::token(&["orders", "billing", "nobody"].map(auth::all_of).join(" "));
    ControlServiceClient::new(Bearer::new(&token).over(channel(scene.server.address())))
}

async fn get(scene: &Scene, service: &str) -> Result<GetServiceResponse, Status> {
    let request = GetServiceRequest { service: service.to_owned() };
    Ok(control(scene).get_service(request).await?.into_inner())
}

#[tokio::test]
async fn the_services_are_listed_by_name_with_their_health_and_the_replica_with_its_own() {
    let mut stage = Scene::builder().stage().await;
    let other = Database::fresh(stage.database.server(), Kind::Service).await;
    stage.config.service("billing", &other.url());
    let scene = stage.start().await;
    let health = Health::of(scene.server.address());
    for component in ["service/orders", "service/billing", "control", "broker", "readiness"] {
        health.serves(component).await;
    }

    let answer = control(&scene).list_services(ListServicesRequest {}).await.unwrap().into_inner();

    let names: Vec<_> = answer.services.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["billing", "orders"]);
    for one in answer.services.iter().map(|one| one.health.as_ref().unwrap()) {
        assert!(one.serving && one.why.is_empty(), "{one:?}");
    }
    let replica = answer.replica.unwrap();
    assert_eq!(replica.version, env!("CARGO_PKG_VERSION"));
    assert!(replica.started_at.unwrap().seconds > 1_700_000_000);
    let components: Vec<_> = replica.components.iter().map(|one| (one.name.as_str(), one.serving)).collect();
    let expected = ["", "liveness", "readiness", "control", "broker"].map(|name| (name, true));
    assert_eq!(components, expected);
    scene.end(0).await;
}

#[tokio::test]
async fn a_service_is_told_with_its_settings_and_what_lies_in_its_outbox() {
    let scene = Scene::builder()
        .with_broker_proxy()
        .set("services.orders", "unroutable", "\"accept\"")
        .set("services.orders", "parked_blocks", "false")
        .start()
        .await;
    expect_broker_trouble(&scene);
    scene.broker_proxy().away().await;
    Health::of(scene.server.address()).does_not_serve("broker").await;
    scene.commit_all(&[keyed("order.placed", "k"), event("order.paid")]).await;
    let mut open = scene.caller().await;
    let ticket = open.begin_with_ticket().await;
    scene.client.stage(ticket, &[event("order.open")]).await;

    let seen = wait::until("both states to be measured", LONG, || async {
        let answer = get(&scene, SERVICE).await.unwrap();
        let rows = |state: &str| {
            let states = answer.outbox.as_ref()?.states.iter();
            states.clone().find(|one| one.state == state).map(|one| one.rows)
        };
        match (rows("pending"), rows("unresolved")) {
            (Some(2), Some(1)) => Ok(answer),
            _ => Err(answer),
        }
    })
    .await;

    let settings = seen.settings.unwrap();
    assert_eq!((settings.unroutable.as_str(), settings.wake.as_str()), ("accept", "poll"));
    assert_eq!((settings.unroutable_blocks, settings.parked_blocks), (true, false));
    assert_eq!((settings.max_connections, settings.prepared_statements), (4, true));
    let outbox = seen.outbox.unwrap();
    assert!(!outbox.estimated && outbox.beyond_grace == 0 && outbox.measured_at.is_some(), "{outbox:?}");
    assert_eq!(outbox.states.len(), 8, "{outbox:?}");
    // Seen by the resolver, which looks at other moments.
    wait::until_equal("open tickets", LONG, 1, || async {
        get(&scene, SERVICE).await.unwrap().in_hand.unwrap().unresolved_tickets
    })
    .await;
    open.commit().await;
    scene.broker_proxy().pass().await;
    scene.end(3).await;
}

#[tokio::test]
async fn it_answers_while_the_database_is_away_and_says_why_without_telling_where() {
    let scene = Scene::builder().with_database_proxy().start().await;
    expect_database_trouble(&scene);
    let health = Health::of(scene.server.address());
    health.serves("service/orders").await;
    scene.database_proxy().away().await;
    health.does_not_serve("service/orders").await;

    let answer = get(&scene, SERVICE).await.unwrap();

    let of_service = answer.health.clone().unwrap();
    assert!(!of_service.serving && of_service.why.starts_with("no sign of life for "), "{of_service:?}");
    let all = format!("{answer:?}");
    for secret in ["postgres://", scene.database.name(), &scene.database_proxy().port().to_string()] {
        assert!(!all.contains(secret), "{secret} in {all}");
    }
    scene.database_proxy().pass().await;
    health.serves("service/orders").await;
    scene.end(0).await;
}

#[tokio::test]
async fn who_is_not_configured_is_not_found() {
    let scene = Scene::start().await;
    for (name, code, reason) in [
        ("billing", Code::NotFound, "UNKNOWN_SERVICE"),
        ("holdfast-control", Code::InvalidArgument, "RESERVED_SERVICE"),
        ("Orders", Code::InvalidArgument, "INVALID_REQUEST"),
        ("", Code::InvalidArgument, "INVALID_REQUEST"),
    ] {
        let status = get(&scene, name).await.unwrap_err();
        assert_eq!(status.code(), code, "{name:?}: {status}");
        assert_eq!(status.get_details_error_info().unwrap().reason, reason, "{name:?}");
    }
    scene.end(0).await;
}
