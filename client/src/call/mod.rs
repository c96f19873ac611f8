//! One call: its deadline, and what is sent again within it.
//!
//! Guarantees: ends within the deadline, whatever the server does; what is sent again is the same request; an error is
//! "certainly not applied" only if no attempt of the call was. Which RPC may be sent again is [`crate::rpc`]'s.

mod retry;

use std::time::Duration;

use tokio::time::Instant;
use tonic::{Code, Request, Response, Status};

use crate::Error;
use crate::connection::{Renewable, Transport};
use crate::rpc::Rpc;

/// Far enough away to be "never", and no overflow.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// Calls until it is answered, for as long and as often as this RPC may be sent again.
///
/// Three things do not wait: the first refusal of an access token whose source may have another one, and, while there is
/// a replica that is not known to be away, one that could not be connected to.
pub(crate) async fn call<M, A, F>(
    transport: &Transport,
    rpc: Rpc,
    within: Duration,
    request: &M,
    send: impl Fn(Request<M>) -> F,
) -> Result<A, Error>
where
    M: Clone,
    F: Future<Output = Result<Response<A>, Status>>,
{
    let deadline = Instant::now() + within.min(FOR_EVER);
    let mut all_certain = true;
    let (mut failures, mut elsewhere, mut renewed) = (0, 0, false);
    loop {
        let mut message = Request::new(request.clone());
        // So that nobody works for a caller that is gone.
        message.set_timeout(remaining(deadline));
        let renewable = Renewable::default();
        message.extensions_mut().insert(renewable.clone());
        let error = match until(deadline, send(message)).await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        all_certain &= error.is_certainly_not_applied();
        if renewable.is_set() && !renewed {
            renewed = true;
            continue;
        }
        if error.is_unconnected() && elsewhere < transport.replicas() && transport.any_up() {
            elsewhere += 1;
            continue;
        }
        failures += 1;
        match retry::wait(&error, rpc.repeat(), failures, remaining(deadline), rand::random()) {
            Some(wait) => tokio::time::sleep(wait).await,
            None if all_certain => return Err(error),
            None => return Err(error.after_an_unclear_attempt()),
        }
    }
}

fn remaining(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

async fn until<T>(
    deadline: Instant,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, Error> {
    match tokio::time::timeout_at(deadline, call).await {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        // The server keeps the same deadline and may be the first to notice; it then answers CANCELLED.
        Ok(Err(status)) if status.code() == Code::Cancelled && remaining(deadline).is_zero() => {
            Err(Error::deadline_exceeded())
        }
        Ok(Err(status)) => Err(status.into()),
        Err(_) => Err(Error::deadline_exceeded()),
    }
}
