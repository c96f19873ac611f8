//! `holdfast.v1.ReplayService`. What acts goes through [`Operating::act`], so that it is in the audit, and is said at WARN; what looks
//! takes the scope to read.

use std::pin::Pin;
use std::time::Duration;

use futures::Stream;
use holdfast_proto::envelope::Violations;
use holdfast_proto::v1;
use holdfast_proto::v1::replay_service_server::ReplayService;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use tracing::warn;
use uuid::Uuid;

use super::admin::{Acted, Admin};
use super::operating::{Call, Operating};
use super::outbox_admin_list as list;
use super::replay_words::{Wanted, asked, consumers, counts, described, moving, not_asked, uuid, wanted};
use super::{Failure, NotAsked, ServiceHandle, Services, answer, call_id, calling};
use crate::auth::Caller;
use crate::outbox::replay::Replay;

/// Most replays, and most failures, of a page.
const MOST_REPLAYS: usize = 100;
const MOST_FAILURES: usize = 500;
/// Ids that an answer names.
const NAMED: usize = 10;
/// Who watches is told so often at most.
const WATCH: Duration = Duration::from_millis(500);

/// The front of the replays.
#[derive(Clone)]
pub struct ReplayFront {
    services: Services,
    operating: Operating,
}

impl ReplayFront {
    /// A front to these services.
    pub fn new(services: Services, admin: Admin) -> Self {
        Self { operating: Operating::new(services.clone(), admin), services }
    }

    /// Scope, service, the rest, in that order.
    fn to_read(
        &self,
        caller: &Caller,
        service: &str,
        mut violations: Violations,
    ) -> Result<ServiceHandle, Failure> {
        match Services::check_name(service) {
            Ok(()) => {
                let handle = self.services.to_read(&caller.read(service)?)?;
                if violations.is_empty() { Ok(handle.clone()) } else { Err(Failure::Invalid(violations)) }
            }
            Err(Failure::Invalid(found)) => {
                violations.merge(found);
                Err(Failure::Invalid(violations))
            }
            Err(Failure::ReservedService(found)) => {
                violations.merge(found);
                Err(Failure::ReservedService(violations))
            }
            Err(other) => Err(other),
        }
    }

    async fn found(&self, caller: &Caller, service: &str, id: &str) -> Result<Replay, Failure> {
        let mut violations = Violations::default();
        let id = uuid("replay_id", id, &mut violations);
        let handle = self.to_read(caller, service, violations)?;
        handle.replays.get(id).await.map_err(Failure::Replay)
    }

    /// One of the acts on a replay that is there.
    async fn act<T, F>(
        &self,
        request: Request<T>,
        verb: &'static str,
        named: impl FnOnce(T) -> (String, String),
        act: impl FnOnce(ServiceHandle, Uuid, String) -> F + Send + 'static,
    ) -> Result<Response<v1::Replay>, Status>
    where
        F: Future<Output = Result<Replay, crate::outbox::replay::Refused>> + Send + 'static,
    {
        let id = call_id(&request);
        let (caller, request) = calling(request)?;
        let (service, replay) = named(request);
        let mut violations = Violations::default();
        let job = uuid("replay_id", &replay, &mut violations);
        let by = by(&caller);
        let arguments = json!({"replay_id": replay});
        let said = Said { sub: by.clone(), service: service.clone(), verb, asked: arguments.to_string() };
        let name = service.clone();
        let call = Call { id, caller, service, verb, arguments, violations };
        let acted = self.operating.act(call, move |service| async move {
            let replay = act(service, job, by).await.map_err(Failure::Replay)?;
            let counts = counts(&replay);
            Ok(Acted { counts, answer: described(&name, replay) })
        });
        let acted = acted.await;
        said.of(acted.as_ref().map(Response::get_ref));
        acted
    }
}

/// What an act is said as, once it was answered: one line, whatever came of it.
struct Said {
    sub: String,
    service: String,
    verb: &'static str,
    asked: String,
}

impl Said {
    fn of(self, answer: Result<&v1::Replay, &Status>) {
        let Self { sub, service, verb, asked } = self;
        match answer {
            Ok(v1::Replay { replay_id, matched, done, failed, expired, pruned, not_published, .. }) => warn!(
                sub,
                service.name = service,
                verb,
                asked,
                outcome = "done",
                replay.id = replay_id,
                matched,
                done,
                failed,
                expired,
                pruned,
                not_published,
                "replay: an admin's call"
            ),
            Err(status) => {
                let code = status.code();
                warn!(sub, service.name = service, verb, asked, outcome = ?code, "replay: an admin's call");
            }
        }
    }
}

/// The database takes no U+0000, and who signs tokens chooses what a `sub` is.
fn by(caller: &Caller) -> String {
    caller.sub().replace('\0', "\u{fffd}")
}

#[tonic::async_trait]
impl ReplayService for ReplayFront {
    async fn replay(
        &self,
        request: Request<v1::ReplayRequest>,
    ) -> Result<Response<v1::ReplayResponse>, Status> {
        let id = call_id(&request);
        let (caller, request) = calling(request)?;
        let mut violations = Violations::default();
        let wanted = wanted(&request, &mut violations);
        let (arguments, by, service) = (asked(&request), by(&caller), request.service);
        let (verb, asked) = ("Replay", arguments.to_string());
        let said = Said { sub: by.clone(), service: service.clone(), verb, asked };
        let name = service.clone();
        let (inboxes, refused) = self.services.inboxes(&caller);
        let call = Call { id, caller, service, verb, arguments, violations };
        let acted = self.operating.act(call, move |service| async move {
            let desk = service.replays;
            let replay = match wanted.ok_or(Failure::Internal)? {
                Wanted::Plan(selection, pace) => desk.plan(&by, &selection, pace).await,
                Wanted::RunNow(selection, pace) => desk.run_now(&by, &selection, pace).await,
                Wanted::RunPlan { id, max_rate, ramp } => desk.run_plan(&by, id, max_rate, ramp).await,
            };
            let replay = replay.map_err(Failure::Replay)?;
            let sample = desk.sample(&replay.about).await.map_err(Failure::Read)?;
            let counts = counts(&replay);
            let mut consumers = consumers(inboxes, &sample).await;
            for NotAsked { service, queues, failure } in refused {
                let (_, why) = failure.said_of(&service);
                consumers.extend(queues.into_iter().map(|queue| not_asked(&service, queue, why.clone())));
            }
            consumers.sort_by(|a, b| (&a.service, &a.consumer_queue).cmp(&(&b.service, &b.consumer_queue)));
            let answer = v1::ReplayResponse {
                replay: Some(described(&name, replay)),
                sample: sample.iter().take(NAMED).map(Uuid::to_string).collect(),
                consumers,
            };
            Ok(Acted { counts, answer })
        });
        let acted = acted.await;
        let none = v1::Replay::default();
        said.of(acted.as_ref().map(|answer| answer.get_ref().replay.as_ref().unwrap_or(&none)));
        acted
    }

    async fn get_replay(
        &self,
        request: Request<v1::GetReplayRequest>,
    ) -> Result<Response<v1::GetReplayResponse>, Status> {
        let (caller, v1::GetReplayRequest { service, replay_id }) = calling(request)?;
        let replay =
            self.found(&caller, &service, &replay_id).await.map_err(|failure| answer(failure, &service))?;
        Ok(Response::new(v1::GetReplayResponse { replay: Some(described(&service, replay)) }))
    }

    async fn list_replays(
        &self,
        request: Request<v1::ListReplaysRequest>,
    ) -> Result<Response<v1::ListReplaysResponse>, Status> {
        let (caller, v1::ListReplaysRequest { service, page_size, page_token }) = calling(request)?;
        let mut violations = Violations::default();
        let limit = list::paging(page_size, "", MOST_REPLAYS, &mut violations).limit;
        let before = (!page_token.is_empty()).then(|| uuid("page_token", &page_token, &mut violations));
        let listed = async {
            let handle = self.to_read(&caller, &service, violations)?;
            let most = i64::try_from(limit).unwrap_or(i64::MAX);
            handle.replays.list(before, most).await.map_err(Failure::Read)
        };
        let replays = listed.await.map_err(|failure| answer(failure, &service))?;
        let next = (replays.len() == limit).then(|| replays.last().map(|last| last.job.id.to_string()));
        Ok(Response::new(v1::ListReplaysResponse {
            replays: replays.into_iter().map(|replay| described(&service, replay)).collect(),
            next_page_token: next.flatten().unwrap_or_default(),
        }))
    }

    type WatchReplayStream = Pin<Box<dyn Stream<Item = Result<v1::WatchReplayResponse, Status>> + Send>>;

    async fn watch_replay(
        &self,
        request: Request<v1::WatchReplayRequest>,
    ) -> Result<Response<Self::WatchReplayStream>, Status> {
        let (caller, v1::WatchReplayRequest { service, replay_id }) = calling(request)?;
        let mut last = self
            .found(&caller, &service, &replay_id)
            .await
            .map(|replay| described(&service, replay))
            .map_err(|failure| answer(failure, &service))?;
        let (told, watched) = mpsc::channel(1);
        let this = self.clone();
        tokio::spawn(async move {
            let mut at = Instant::now();
            let mut rate = 0.0;
            loop {
                let over = last.ended_at.is_some();
                let told_now = v1::WatchReplayResponse { replay: Some(last.clone()), rate };
                // Who is gone is not told any more.
                if told.send(Ok(told_now)).await.is_err() || over {
                    return;
                }
                let next = loop {
                    tokio::select! {
                        () = told.closed() => return,
                        () = tokio::time::sleep(WATCH) => {}
                    }
                    match this.found(&caller, &service, &replay_id).await {
                        Ok(replay) => {
                            let next = described(&service, replay);
                            if moving(&next) != moving(&last) {
                                break next;
                            }
                        }
                        Err(failure) => {
                            // The stream ends with it, whether or not anybody is there to hear.
                            let _ = told.send(Err(answer(failure, &service))).await;
                            return;
                        }
                    }
                };
                let dealt = (next.done + next.failed - last.done - last.failed).max(0);
                rate = dealt as f64 / at.elapsed().as_secs_f64().max(0.001);
                (last, at) = (next, Instant::now());
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(watched))))
    }

    async fn pause_replay(
        &self,
        request: Request<v1::PauseReplayRequest>,
    ) -> Result<Response<v1::PauseReplayResponse>, Status> {
        let named = |request: v1::PauseReplayRequest| (request.service, request.replay_id);
        let replay = self
            .act(request, "PauseReplay", named, |service, id, by| async move {
                service.replays.pause(id, &by).await
            })
            .await?;
        Ok(replay.map(|replay| v1::PauseReplayResponse { replay: Some(replay) }))
    }

    async fn resume_replay(
        &self,
        request: Request<v1::ResumeReplayRequest>,
    ) -> Result<Response<v1::ResumeReplayResponse>, Status> {
        let named = |request: v1::ResumeReplayRequest| (request.service, request.replay_id);
        let replay =
            self.act(request, "ResumeReplay", named, |service, id, _| async move {
                service.replays.resume(id).await
            })
            .await?;
        Ok(replay.map(|replay| v1::ResumeReplayResponse { replay: Some(replay) }))
    }

    async fn cancel_replay(
        &self,
        request: Request<v1::CancelReplayRequest>,
    ) -> Result<Response<v1::CancelReplayResponse>, Status> {
        let named = |request: v1::CancelReplayRequest| (request.service, request.replay_id);
        let replay = self
            .act(request, "CancelReplay", named, |service, id, by| async move {
                service.replays.cancel(id, &by).await
            })
            .await?;
        Ok(replay.map(|replay| v1::CancelReplayResponse { replay: Some(replay) }))
    }

    async fn list_replay_failures(
        &self,
        request: Request<v1::ListReplayFailuresRequest>,
    ) -> Result<Response<v1::ListReplayFailuresResponse>, Status> {
        let (caller, request) = calling(request)?;
        let v1::ListReplayFailuresRequest { service, replay_id, page_size, page_token } = request;
        let mut violations = Violations::default();
        let id = uuid("replay_id", &replay_id, &mut violations);
        let paging = list::paging(page_size, &page_token, MOST_FAILURES, &mut violations);
        let listed = async {
            let handle = self.to_read(&caller, &service, violations)?;
            let most = i64::try_from(paging.limit).unwrap_or(i64::MAX);
            let after = paging.after.unwrap_or(i64::MIN);
            handle.replays.failures(id, after, most).await.map_err(Failure::Replay)
        };
        let failures = listed.await.map_err(|failure| answer(failure, &service))?;
        let next = (failures.len() == paging.limit).then(|| failures.last().map(|last| last.seq.to_string()));
        Ok(Response::new(v1::ListReplayFailuresResponse {
            failures: failures
                .into_iter()
                .map(|one| v1::ReplayFailure {
                    event_id: one.event_id.to_string(),
                    seq: one.seq,
                    error: one.error,
                })
                .collect(),
            next_page_token: next.flatten().unwrap_or_default(),
        }))
    }
}
