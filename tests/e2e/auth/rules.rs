//! Every RPC that is described is walked: without a token, with the wrong scopes, with the right one. An RPC that nobody has
//! written a rule for fails here, and is refused by the server.

use holdfast_proto::FILE_DESCRIPTOR_SET;
use holdfast_server::grpc::{RULES, Rule};
use holdfast_tests::{
    auth::{self, Bearer},
    client::channel,
    scene::{SERVICE, Scene},
};
use prost::{
    Message as _,
    bytes::{Buf as _, BufMut as _},
};
use prost_types::{FileDescriptorSet, field_descriptor_proto::Type};
use tonic::{
    Code, Request, Status,
    client::Grpc,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    codegen::http::uri::PathAndQuery,
};

use super::reason;

/// Messages as they are on the wire: this test knows RPCs by their descriptors alone.
#[derive(Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let mut item = vec![0; from.remaining()];
        from.copy_to_slice(&mut item);
        Ok(Some(item))
    }
}

/// Calls any RPC, with a token if there is one; a stream's first message will do.
async fn call(scene: &Scene, path: &str, token: Option<&str>, message: Vec<u8>) -> Result<(), Status> {
    let channel = channel(scene.server.address());
    let path: PathAndQuery = path.parse().unwrap();
    let request = Request::new(message);
    let answer = match token {
        None => {
            let mut grpc = Grpc::new(channel);
            grpc.ready().await.unwrap();
            grpc.server_streaming(request, path, Raw).await
        }
        Some(token) => {
            let mut grpc = Grpc::new(Bearer::new(token).over(channel));
            grpc.ready().await.unwrap();
            grpc.server_streaming(request, path, Raw).await
        }
    };
    answer?.into_inner().message().await.map(drop)
}

/// An RPC and a message for it: about [`SERVICE`], if it can be about any.
struct Rpc {
    path: String,
    message: Vec<u8>,
}

fn described(set: &[u8]) -> Vec<Rpc> {
    let set = FileDescriptorSet::decode(set).unwrap();
    let message_of = |name: &str| {
        let all =
            set.file.iter().flat_map(|file| file.message_type.iter().map(move |one| (file.package(), one)));
        let found = all.into_iter().find(|(package, one)| name == format!(".{package}.{}", one.name()));
        let (_, message) = found.unwrap_or_else(|| panic!("no message {name}"));
        let service =
            message.field.iter().find(|field| field.name() == "service" && field.r#type() == Type::String);
        let mut bytes = Vec::new();
        if let Some(field) = service {
            prost::encoding::string::encode(
                u32::try_from(field.number()).unwrap(),
                &SERVICE.to_owned(),
                &mut bytes,
            );
        }
        bytes
    };
    let services = set.file.iter().flat_map(|file| file.service.iter().map(move |one| (file.package(), one)));
    services
        .flat_map(|(package, service)| {
            service.method.iter().map(move |method| {
                let path = format!("/{package}.{}/{}", service.name(), method.name());
                (path, method.input_type().to_owned())
            })
        })
        .map(|(path, input)| Rpc { path, message: message_of(&input) })
        .collect()
}

fn rule(path: &str) -> Rule {
    let found = RULES.iter().find(|(known, _)| *known == path);
    found.unwrap_or_else(|| panic!("{path} has no rule in server/src/grpc/rules.rs: what does it take?")).1
}

/// What a caller needs for a call about [`SERVICE`]; `None`: any token.
fn scope(rule: Rule) -> Option<&'static str> {
    match rule {
        Rule::Open => panic!("takes no token"),
        Rule::Token => None,
        Rule::Write => Some("orders.write"),
        Rule::Read => Some("orders.read"),
        Rule::Admin | Rule::FleetOrAdmin => Some("orders.admin"),
    }
}

#[tokio::test]
async fn every_rpc_is_refused_without_a_token_and_without_its_scope_and_reached_with_it() {
    let scene = Scene::start().await;
    scene.logs.expect(holdfast_tests::replay::SAID);
    let rpcs = described(FILE_DESCRIPTOR_SET);
    assert!(rpcs.len() >= 7, "the descriptors were walked");
    // Everything but what is needed: the other rights of this service, all rights of another one.
    let all = "orders.write orders.read orders.admin payload.read billing.write billing.read billing.admin";

    for Rpc { path, message } in rpcs {
        let rule = rule(&path);
        assert_ne!(rule, Rule::Open, "{path}: only health is open");
        let status = call(&scene, &path, None, message.clone()).await.unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated, "{path}: {status:?}");
        assert_eq!(reason(&status), ("UNAUTHENTICATED".into(), None), "{path}");

        let right = match scope(rule) {
            None => auth::token(""),
            Some(scope) => {
                let others: Vec<_> = all.split(' ').filter(|word| *word != scope).collect();
                let token = auth::token(&others.join(" "));
                let status = call(&scene, &path, Some(&token), message.clone()).await.unwrap_err();
                assert_eq!(status.code(), Code::PermissionDenied, "{path}: {status:?}");
                assert_eq!(reason(&status), ("SCOPE_MISSING".into(), Some(scope.into())), "{path}");
                assert!(status.message().contains(scope), "{path}: {}", status.message());
                auth::token(scope)
            }
        };
        if let Err(status) = call(&scene, &path, Some(&right), message).await {
            let refused =
                [Code::Unauthenticated, Code::PermissionDenied, Code::Unimplemented, Code::Internal];
            assert!(!refused.contains(&status.code()), "{path} with its scope: {status:?}");
        }
    }
    scene.end(0).await;
}

#[tokio::test]
async fn every_rpc_of_health_is_open_and_every_rule_is_an_rpcs() {
    let mut paths = Vec::new();
    for Rpc { path, .. } in described(tonic_health::pb::FILE_DESCRIPTOR_SET) {
        assert_eq!(rule(&path), Rule::Open, "{path}");
        paths.push(path);
    }
    paths.extend(described(FILE_DESCRIPTOR_SET).into_iter().map(|rpc| rpc.path));
    for (path, _) in RULES {
        assert!(paths.iter().any(|known| known == path), "{path} has a rule and is not described");
    }
    let scene = Scene::start().await;
    call(&scene, "/grpc.health.v1.Health/Check", None, Vec::new()).await.unwrap();
    scene.end(0).await;
}

#[tokio::test]
async fn a_path_without_a_rule_is_refused_whoever_asks() {
    let scene = Scene::start().await;
    for path in ["/holdfast.v1.OutboxService/Nonsense", "/grpc.health.v1.Health/Nonsense", "/x/y"] {
        let stranger = call(&scene, path, None, Vec::new()).await.unwrap_err();
        assert_eq!(stranger.code(), Code::Unauthenticated, "{path}");
        let token = auth::token(&auth::all_of(SERVICE));
        let known = call(&scene, path, Some(&token), Vec::new()).await.unwrap_err();
        assert_eq!(known.code(), Code::Unimplemented, "{path}");
    }
    scene.end(0).await;
}

#[tokio::test]
async fn who_may_ask_what_rpcs_there_are_is_a_setting() {
    for (setting, stranger, holder) in [
        ("token", Some(Code::Unauthenticated), None),
        ("open", None, None),
        ("off", Some(Code::Unauthenticated), Some(Code::Unimplemented)),
    ] {
        let scene = Scene::builder().set("auth", "reflection", &format!("{setting:?}")).start().await;
        for version in ["v1", "v1alpha"] {
            let path = format!("/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo");
            // `list_services`, field 7: an empty text.
            let list = vec![(7 << 3) | 2, 0];
            let asked = call(&scene, &path, None, list.clone()).await.map_err(|status| status.code());
            assert_eq!(asked.err(), stranger, "{setting} {version}");
            let asked =
                call(&scene, &path, Some(&auth::token("")), list).await.map_err(|status| status.code());
            assert_eq!(asked.err(), holder, "{setting} {version}");
        }
        scene.end(0).await;
    }
}
