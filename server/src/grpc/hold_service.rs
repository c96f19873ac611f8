//! `holdfast.v1.HoldService`: releases, drops and lists what is held.

use holdfast_proto::envelope::{self, Violations};
use holdfast_proto::v1;
use holdfast_proto::v1::hold_service_server::HoldService;
use tonic::{Request, Response, Status};
use tracing::{Instrument as _, Span, debug};

use super::{Failure, ServiceHandle, Services, answer, calling, timestamp};
use crate::auth::Caller;
use crate::outbox::holds::{self, Held, Outcome, Pair};

/// Pairs of a page whose size is left to us.
const PAGE: usize = 100;

impl From<v1::Hold> for Pair {
    fn from(hold: v1::Hold) -> Self {
        Self { operation_id: hold.operation_id, generation: hold.generation }
    }
}

/// The front of holds.
#[derive(Clone)]
pub struct HoldFront {
    services: Services,
}

impl HoldFront {
    /// A front to these services.
    pub fn new(services: Services) -> Self {
        Self { services }
    }

    async fn decide(
        &self,
        caller: &Caller,
        service: &str,
        hold: Option<v1::Hold>,
        outcome: Outcome,
    ) -> Result<holds::Answer, Failure> {
        let mut violations = Violations::default();
        match &hold {
            None => violations.push("hold", "is missing"),
            Some(hold) => envelope::check_hold(hold, &mut violations),
        }
        let known = |name: &str| self.services.to_write(&caller.write(name)?);
        let (service, hold) = match (judged(service, known, violations)?, hold) {
            (service, Some(hold)) => (service, Pair::from(hold)),
            (_, None) => return Err(Failure::Internal),
        };
        let name = service.metrics.service();
        let (operation, generation) = (hold.operation_id.as_str(), hold.generation);
        debug!(
            service.name = name,
            operation.id = operation,
            generation,
            outcome = outcome.as_str(),
            "deciding"
        );
        let decide = async move {
            match outcome {
                Outcome::Released => service.holds.release(&hold).await,
                Outcome::Dropped => service.holds.drop_held(&hold).await,
            }
        };
        // A task of its own: a decision that was begun is carried out, whether its caller waits for it or not.
        let decided = tokio::spawn(decide.instrument(Span::current()));
        decided.await.map_err(|_| Failure::Internal)?.map_err(Failure::Hold)
    }

    async fn list(
        &self,
        caller: &Caller,
        request: v1::ListHeldRequest,
    ) -> Result<v1::ListHeldResponse, Failure> {
        let mut violations = Violations::default();
        envelope::check_operation_id("operation_id", &request.operation_id, &mut violations);
        let size = match usize::try_from(request.page_size) {
            Ok(0) => PAGE,
            Ok(size) if size <= holds::MOST => size,
            _ => {
                violations.push("page_size", "must be 1 to 1000, or 0 for the default");
                PAGE
            }
        };
        let after = if request.page_token.is_empty() { None } else { read_token(&request.page_token) };
        if after.is_none() && !request.page_token.is_empty() {
            violations.push("page_token", "is not one that this call has answered with");
        }
        let known = |name: &str| self.services.to_read(&caller.read(name)?);
        let service = judged(&request.service, known, violations)?;
        let look = async move {
            let only = Some(request.operation_id.as_str()).filter(|text| !text.is_empty());
            service.holds.list(only, after.as_ref(), size).await
        };
        // As above: a caller's deadline must not cut a conversation with the database in the middle.
        let page = tokio::spawn(look.instrument(Span::current()));
        let page = page.await.map_err(|_| Failure::Internal)?.map_err(Failure::Read)?;
        Ok(v1::ListHeldResponse {
            operations: page.pairs.into_iter().map(describe).collect(),
            next_page_token: page.next.map(|pair| token(&pair)).unwrap_or_default(),
        })
    }
}

/// Whose request it is, unless something is wrong with it: everything at once. With a name that can be somebody's the scope,
/// which `known` asks for, comes first.
fn judged<'a>(
    service: &str,
    known: impl FnOnce(&str) -> Result<&'a ServiceHandle, Failure>,
    mut violations: Violations,
) -> Result<ServiceHandle, Failure> {
    match Services::check_name(service) {
        Ok(()) => {
            let service = known(service)?;
            if violations.is_empty() { Ok(service.clone()) } else { Err(Failure::Invalid(violations)) }
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

/// A page's end, for the caller to hand back. Nothing in it is secret: the page itself ends with that pair.
fn token(pair: &Pair) -> String {
    format!("{}:{}", pair.generation, pair.operation_id)
}

fn read_token(token: &str) -> Option<Pair> {
    let (generation, operation_id) = token.split_once(':')?;
    // The database takes no U+0000, and what it has is not limited by our rules: hand-written SQL may have put it in.
    let generation = generation.parse().ok()?;
    (!operation_id.contains('\0')).then(|| Pair { operation_id: operation_id.to_owned(), generation })
}

fn describe(held: Held) -> v1::HeldOperation {
    v1::HeldOperation {
        hold: Some(v1::Hold { operation_id: held.pair.operation_id, generation: held.pair.generation }),
        held: held.held,
        unresolved: held.unresolved,
        oldest_created_at: held.oldest.map(timestamp),
        outcome: match held.outcome {
            None => v1::HoldOutcome::Unspecified,
            Some(Outcome::Released) => v1::HoldOutcome::Released,
            Some(Outcome::Dropped) => v1::HoldOutcome::Dropped,
        }
        .into(),
    }
}

fn count(rows: u64) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}

#[tonic::async_trait]
impl HoldService for HoldFront {
    async fn release_held(
        &self,
        request: Request<v1::ReleaseHeldRequest>,
    ) -> Result<Response<v1::ReleaseHeldResponse>, Status> {
        let (caller, v1::ReleaseHeldRequest { service, hold }) = calling(request)?;
        let decided = self.decide(&caller, &service, hold, Outcome::Released).await;
        let holds::Answer { rows, before, complete } =
            decided.map_err(|failure| answer(failure, &service))?;
        let released = count(rows);
        Ok(Response::new(v1::ReleaseHeldResponse { released, decided_before: before, complete }))
    }

    async fn drop_held(
        &self,
        request: Request<v1::DropHeldRequest>,
    ) -> Result<Response<v1::DropHeldResponse>, Status> {
        let (caller, v1::DropHeldRequest { service, hold }) = calling(request)?;
        let decided = self.decide(&caller, &service, hold, Outcome::Dropped).await;
        let holds::Answer { rows, before, complete } =
            decided.map_err(|failure| answer(failure, &service))?;
        let dropped = count(rows);
        Ok(Response::new(v1::DropHeldResponse { dropped, decided_before: before, complete }))
    }

    async fn list_held(
        &self,
        request: Request<v1::ListHeldRequest>,
    ) -> Result<Response<v1::ListHeldResponse>, Status> {
        let (caller, request) = calling(request)?;
        let service = request.service.clone();
        self.list(&caller, request).await.map(Response::new).map_err(|failure| answer(failure, &service))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_token_comes_back_as_the_pair_it_was_made_of_and_nothing_else_is_one() {
        for (operation_id, generation) in [("a", 0), ("a:b", 7), ("", i64::MIN), (":", -1)] {
            let pair = Pair { operation_id: operation_id.to_owned(), generation };
            assert_eq!(read_token(&token(&pair)), Some(pair));
        }
        for bad in ["x", "a:1", "1", "99999999999999999999:a", "1:a\0"] {
            assert_eq!(read_token(bad), None, "{bad:?}");
        }
    }
}
