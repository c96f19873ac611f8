//! The generated client of inboxes, and the short words of tests.

use std::net::SocketAddr;

use holdfast_proto::v1::{
    BeginConsumeRequest, CompleteConsumeRequest, CompleteConsumeResponse, ConsumeLease, Consumption,
    DeadLetter, FailConsumeRequest, FailKind, GetConsumptionRequest, Process, SurfaceDeadLetterRequest,
    SurfaceDeadLetterResponse, begin_consume_request::Binding, begin_consume_response::Outcome,
    fail_consume_response::Next, inbox_service_client::InboxServiceClient,
};
use prost_types::Duration;
use tonic::Status;
use uuid::Uuid;

use crate::{
    auth::{self, Authenticated, Bearer},
    client::channel,
    scene::{QUEUES, SERVICE, Scene, Server},
};

/// A lease with a token of its own.
pub fn lease(seconds: i64) -> Binding {
    let token = Uuid::now_v7().to_string();
    Binding::Lease(ConsumeLease { duration: Some(Duration { seconds, nanos: 0 }), token })
}

/// A delivery of a message from the first of the scenes' queues.
pub fn delivery(id: &str, binding: Binding) -> BeginConsumeRequest {
    BeginConsumeRequest {
        service: SERVICE.to_owned(),
        consumer_queue: QUEUES[0].to_owned(),
        envelope_id: id.to_owned(),
        source_service: "shop".to_owned(),
        event_type: "order.placed".to_owned(),
        binding: Some(binding),
        ..BeginConsumeRequest::default()
    }
}

/// A client of one server's inboxes.
#[derive(Debug, Clone)]
pub struct Inbox {
    /// The generated client, for everything that is not here.
    pub raw: InboxServiceClient<Authenticated>,
}

impl Inbox {
    /// For a server's address, with every scope of the scenes' service.
    ///
    /// # Panics
    /// When the address is none.
    pub fn at(address: SocketAddr) -> Self {
        let token = Bearer::new(&auth::token(&auth::all_of(SERVICE)));
        Self { raw: InboxServiceClient::new(token.over(channel(address))) }
    }

    /// Of a scene's server.
    pub fn of<S: Server>(scene: &Scene<S>) -> Self {
        Self::at(scene.server.address())
    }

    /// BeginConsume.
    ///
    /// # Errors
    /// The server's answer.
    ///
    /// # Panics
    /// When it has no outcome.
    pub async fn try_begin(&self, request: BeginConsumeRequest) -> Result<Outcome, Status> {
        let answer = self.raw.clone().begin_consume(request).await?.into_inner();
        Ok(answer.outcome.expect("an outcome"))
    }

    /// BeginConsume of a plain delivery.
    ///
    /// # Panics
    /// When the server refuses.
    pub async fn begin(&self, id: &str, binding: Binding) -> Outcome {
        self.try_begin(delivery(id, binding)).await.expect("begin to consume")
    }

    /// Begins, and is to run the handler.
    ///
    /// # Panics
    /// When it is not.
    pub async fn process(&self, id: &str, binding: Binding) -> Process {
        process(self.begin(id, binding).await)
    }

    /// CompleteConsume.
    ///
    /// # Errors
    /// The server's answer.
    pub async fn try_complete(&self, id: &str, generation: i64) -> Result<CompleteConsumeResponse, Status> {
        let request = CompleteConsumeRequest {
            service: SERVICE.to_owned(),
            consumer_queue: QUEUES[0].to_owned(),
            envelope_id: id.to_owned(),
            generation,
        };
        Ok(self.raw.clone().complete_consume(request).await?.into_inner())
    }

    /// FailConsume.
    ///
    /// # Errors
    /// The server's answer.
    ///
    /// # Panics
    /// When it does not say what comes next.
    pub async fn try_fail(&self, id: &str, generation: i64, kind: FailKind) -> Result<Next, Status> {
        let request = FailConsumeRequest {
            service: SERVICE.to_owned(),
            consumer_queue: QUEUES[0].to_owned(),
            envelope_id: id.to_owned(),
            generation,
            error: "no such order".to_owned(),
            kind: kind.into(),
        };
        let answer = self.raw.clone().fail_consume(request).await?.into_inner();
        Ok(answer.next.expect("what comes next"))
    }

    /// A message that is condemned at its first start: its death.
    ///
    /// # Panics
    /// When it is not.
    pub async fn condemned(&self, id: &str) -> DeadLetter {
        let begun = self.process(id, lease(60)).await;
        match self.try_fail(id, begun.generation, FailKind::DeadLetter).await.expect("fail") {
            Next::DeadLetter(letter) => letter,
            other => panic!("{other:?}"),
        }
    }

    /// SurfaceDeadLetter with a body and nothing else.
    ///
    /// # Errors
    /// The server's answer.
    pub async fn try_surface(&self, token: &str, body: &[u8]) -> Result<SurfaceDeadLetterResponse, Status> {
        let request = SurfaceDeadLetterRequest {
            service: SERVICE.to_owned(),
            token: token.to_owned(),
            body: body.to_vec(),
            ..SurfaceDeadLetterRequest::default()
        };
        Ok(self.raw.clone().surface_dead_letter(request).await?.into_inner())
    }

    /// GetConsumption.
    ///
    /// # Errors
    /// The server's answer.
    ///
    /// # Panics
    /// When there is none in it.
    pub async fn try_get(&self, id: &str) -> Result<Consumption, Status> {
        let request = GetConsumptionRequest {
            service: SERVICE.to_owned(),
            consumer_queue: QUEUES[0].to_owned(),
            envelope_id: id.to_owned(),
        };
        let answer = self.raw.clone().get_consumption(request).await?.into_inner();
        Ok(answer.consumption.expect("a consumption"))
    }

    /// GetConsumption of what is there.
    ///
    /// # Panics
    /// When it is not.
    pub async fn get(&self, id: &str) -> Consumption {
        self.try_get(id).await.expect("get a consumption")
    }
}

/// Is to run the handler.
///
/// # Panics
/// When the answer is another one.
pub fn process(outcome: Outcome) -> Process {
    match outcome {
        Outcome::Process(process) => process,
        other => panic!("not to be processed: {other:?}"),
    }
}

/// Is to be dead-lettered.
///
/// # Panics
/// When the answer is another one.
pub fn dead_letter(outcome: Outcome) -> DeadLetter {
    match outcome {
        Outcome::DeadLetter(letter) => letter,
        other => panic!("not to be dead-lettered: {other:?}"),
    }
}
