//! What every call goes through, whatever it calls. From outside to inside:
//!
//! 1. [`RequestId`]: the call's name in logs, in the answer and in each error;
//! 2. [`Calls`]: counted, timed, said at debug;
//! 3. [`Authentication`]: who calls; inside of both, so that refusals have their id and their count;
//! 4. [`RenameOversize`]: the codec's one answer that is not ours.

mod authentication;
mod calls;
mod oversize;
mod request_id;

pub use authentication::{Authentication, Gate};
pub use calls::Calls;
pub use oversize::RenameOversize;
pub(super) use request_id::CallId;
pub use request_id::RequestId;
