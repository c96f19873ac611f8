//! The generated client of replays, and the short words of tests.

use holdfast_proto::v1::{
    CancelReplayRequest, GetReplayRequest, ListReplayFailuresRequest, PauseReplayRequest, Replay,
    ReplayFailure, ReplayRequest, ReplayResponse, ReplayState, ResumeReplayRequest,
    replay_service_client::ReplayServiceClient,
};
use prost_types::Timestamp;
use tonic::Status;

use crate::{
    auth::{self, Authenticated, Bearer},
    client::channel,
    scene::{SERVICE, Scene, Server},
    wait,
};

/// What replays say in the log, whatever comes of them.
pub const SAID: &str = "replay: ";

/// A time, in seconds from now.
pub fn from_now(seconds: i64) -> Timestamp {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock").as_secs();
    Timestamp { seconds: i64::try_from(now).expect("a clock") + seconds, nanos: 0 }
}

/// The last hour, and the next: everything that a test has staged.
pub fn everything() -> ReplayRequest {
    ReplayRequest {
        service: SERVICE.to_owned(),
        from: Some(from_now(-3_600)),
        to: Some(from_now(3_600)),
        ..ReplayRequest::default()
    }
}

/// A client of one server's replays.
#[derive(Debug, Clone)]
pub struct Replays {
    /// The generated client, for everything that is not here.
    pub raw: ReplayServiceClient<Authenticated>,
}

impl Replays {
    /// With this token.
    ///
    /// # Panics
    /// When the address is none.
    pub fn with_token<S: Server>(scene: &Scene<S>, token: &str) -> Self {
        Self { raw: ReplayServiceClient::new(Bearer::new(token).over(channel(scene.server.address()))) }
    }

    /// Of a scene's server, with every scope of its service; what acts are said as is announced.
    pub fn of<S: Server>(scene: &Scene<S>) -> Self {
        scene.logs.expect(SAID);
        Self::with_token(scene, &auth::token_of("olga", &auth::all_of(SERVICE)))
    }

    /// Replay.
    ///
    /// # Errors
    /// The server's answer.
    pub async fn try_replay(&self, request: ReplayRequest) -> Result<ReplayResponse, Status> {
        Ok(self.raw.clone().replay(request).await?.into_inner())
    }

    /// Replay of what can be; the replay as it stands.
    ///
    /// # Panics
    /// When the server refuses.
    pub async fn replay(&self, request: ReplayRequest) -> Replay {
        self.try_replay(request).await.expect("replay").replay.expect("a replay")
    }

    /// A plan of it.
    ///
    /// # Panics
    /// As [`Replays::replay`].
    pub async fn plan(&self, request: ReplayRequest) -> Replay {
        self.replay(ReplayRequest { dry_run: true, ..request }).await
    }

    /// Runs a plan.
    ///
    /// # Errors
    /// The server's answer.
    pub async fn try_run(&self, plan: &Replay) -> Result<Replay, Status> {
        let request = ReplayRequest {
            service: SERVICE.to_owned(),
            plan_id: plan.replay_id.clone(),
            ..ReplayRequest::default()
        };
        Ok(self.try_replay(request).await?.replay.expect("a replay"))
    }

    /// GetReplay.
    ///
    /// # Panics
    /// When there is none.
    pub async fn get(&self, id: &str) -> Replay {
        let request = GetReplayRequest { service: SERVICE.to_owned(), replay_id: id.to_owned() };
        self.raw.clone().get_replay(request).await.expect("get").into_inner().replay.expect("a replay")
    }

    /// Waits until it is in this state.
    ///
    /// # Panics
    /// When it does not come to be.
    pub async fn wait_for(&self, id: &str, state: ReplayState) -> Replay {
        wait::until(&format!("replay {id} to be {}", state.as_str_name()), wait::LONG, || async {
            let replay = self.get(id).await;
            if replay.state() == state { Ok(replay) } else { Err(replay) }
        })
        .await
    }

    /// Runs a plan to its end.
    ///
    /// # Panics
    /// When it does not come to it.
    pub async fn run(&self, plan: &Replay) -> Replay {
        let begun = self.try_run(plan).await.expect("run the plan");
        self.wait_for(&begun.replay_id, ReplayState::Done).await
    }

    /// PauseReplay.
    ///
    /// # Errors
    /// The server's answer.
    pub async fn try_pause(&self, id: &str) -> Result<Replay, Status> {
        let request = PauseReplayRequest { service: SERVICE.to_owned(), replay_id: id.to_owned() };
        Ok(self.raw.clone().pause_replay(request).await?.into_inner().replay.expect("a replay"))
    }

    /// ResumeReplay.
    ///
    /// # Errors
    /// The server's answer.
    pub async fn try_resume(&self, id: &str) -> Result<Replay, Status> {
        let request = ResumeReplayRequest { service: SERVICE.to_owned(), replay_id: id.to_owned() };
        Ok(self.raw.clone().resume_replay(request).await?.into_inner().replay.expect("a replay"))
    }

    /// CancelReplay.
    ///
    /// # Errors
    /// The server's answer.
    pub async fn try_cancel(&self, id: &str) -> Result<Replay, Status> {
        let request = CancelReplayRequest { service: SERVICE.to_owned(), replay_id: id.to_owned() };
        Ok(self.raw.clone().cancel_replay(request).await?.into_inner().replay.expect("a replay"))
    }

    /// A page of what could not be sent, and where the next begins.
    ///
    /// # Panics
    /// When the server refuses.
    pub async fn failures(&self, id: &str, page_size: i32, page_token: &str) -> (Vec<ReplayFailure>, String) {
        let request = ListReplayFailuresRequest {
            service: SERVICE.to_owned(),
            replay_id: id.to_owned(),
            page_size,
            page_token: page_token.to_owned(),
        };
        let page = self.raw.clone().list_replay_failures(request).await.expect("failures").into_inner();
        (page.failures, page.next_page_token)
    }
}
