//! The tasks of a server, in the groups that a stop ends one after the other.

use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::error;

/// The order of stopping: first no new calls and no new claims, then staging, then the broker, at last the admin port, which
/// shows the rest of it.
#[derive(Clone, Default)]
pub(super) struct Stop {
    pub(super) front: CancellationToken,
    pub(super) staging: CancellationToken,
    pub(super) link: CancellationToken,
    pub(super) admin: CancellationToken,
}

/// The tasks, by group.
#[derive(Clone, Default)]
pub(super) struct Tasks {
    pub(super) front: TaskTracker,
    pub(super) staging: TaskTracker,
    pub(super) drains: TaskTracker,
    pub(super) link: TaskTracker,
    pub(super) admin: TaskTracker,
    pub(super) failed: CancellationToken,
}

impl Tasks {
    /// Spawns a task that the server cannot be without. Should it panic, nobody would do its work and nobody would notice: the
    /// server stops, whoever supervises it starts it again, and leases heal what was in hand.
    pub(super) fn spawn(
        &self,
        on: &TaskTracker,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let failed = self.failed.clone();
        on.spawn(async move {
            if AssertUnwindSafe(task).catch_unwind().await.is_err() {
                error!(task = name, "a task of the server panicked; the server stops");
                failed.cancel();
            }
        });
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::panic, reason = "the panic is what is tested")]
    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_stops_the_server_and_one_that_ends_does_not() {
        let tasks = Tasks::default();
        tasks.spawn(&tasks.link, "quiet", async {});
        tasks.link.close();
        tasks.link.wait().await;
        assert!(!tasks.failed.is_cancelled());

        tasks.spawn(&tasks.drains, "loud", async { panic!("on purpose") });
        tasks.failed.cancelled().await;
    }
}
