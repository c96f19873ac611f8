//! The steps of an event's way, and how the world is stopped at each of them: by a gate in the database, by a lock that
//! the test holds, or by a proxy that keeps bytes; each time seen by a fact, never by waiting a while.

use holdfast_tests::{
    caller::CallerProcess,
    client::keyed,
    wait::{self, LONG},
};
use serde_json::json;
use sqlx::Connection as _;
use uuid::Uuid;

use super::{
    gate::{self, Gate},
    stand::{Place, Stand},
};

/// Where an event is when somebody is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(super) enum Step {
    /// The stage's transaction has not committed: its insert waits at a gate.
    StageRuns,
    /// The stage's COMMIT is under way: it waits at a gate.
    StageCommits,
    /// The stage was answered; the caller's transaction is open.
    Staged,
    /// The caller's COMMIT is under way, not answered: it waits at a gate.
    CallerCommits,
    /// The caller's COMMIT was answered; nobody has claimed: the test holds the drain lock.
    Committed,
    /// The claim's update runs, under the drain lock: it waits at a gate.
    ClaimRuns,
    /// The claim's COMMIT is under way: it waits at a gate.
    ClaimCommits,
    /// Claimed; the publish has not left: the proxy holds the front's bytes.
    Claimed,
    /// The broker has it and a consumer got it; the confirm has not come: the proxy holds the broker's bytes.
    Published,
    /// Confirmed; the stamp's update waits at a gate.
    StampRuns,
    /// The stamp's COMMIT is under way: it waits at a gate.
    StampCommits,
}

/// The drain lock, as the server takes it.
const DRAIN_LOCK: &str = "SELECT pg_advisory_lock(x'484F4C44'::integer, 1)";

/// A caller with two events of one key at a step.
pub(super) struct Play {
    pub step: Step,
    pub key: String,
    pub caller: CallerProcess,
    pub ticket: i64,
    /// The row of the caller's own, which exists exactly if its transaction committed.
    pub row: Uuid,
    /// An event of the same key that went all the way before; since then the front has a channel to publish on.
    pub before: String,
    pub events: [Uuid; 2],
}

pub(super) const TYPE: &str = "order.placed";

/// A caller that has staged one event and whose transaction is open.
pub(super) struct Companion {
    pub caller: CallerProcess,
    pub event: Uuid,
}

impl Companion {
    pub(super) async fn stage(stand: &Stand, place: &Place, key: &str) -> Self {
        let (mut caller, event) = (stand.caller(place), Uuid::now_v7());
        caller.begin().await;
        caller.ticket().await;
        assert_eq!(caller.stage(event, TYPE, key).await, "OUTCOME_STAGED");
        Self { caller, event }
    }
}

impl Play {
    /// Brings two events of a new transaction to a step, by way of the front, and leaves everything standing there.
    pub(super) async fn freeze(stand: &mut Stand, at: usize, step: Step, key: &str) -> Self {
        let before = Self::go_before(stand, at, key).await;
        Self::freeze_behind(stand, at, step, key, before).await
    }

    /// An event that goes all the way.
    pub(super) async fn go_before(stand: &Stand, at: usize, key: &str) -> String {
        let place = &stand.places[at];
        let before = stand.commit(place, &stand.front_client(place), &keyed(TYPE, key)).await;
        // Stamped, too: its confirm must not be what is held at the step.
        place.is(&before, "published").await;
        before
    }

    /// [`Play::freeze`] for when the proxy holds things already: `before` went all the way earlier.
    pub(super) async fn freeze_behind(
        stand: &mut Stand,
        at: usize,
        step: Step,
        key: &str,
        before: String,
    ) -> Self {
        let place = &stand.places[at];
        let database = &place.database;
        let mut caller = stand.caller(place);
        let (row, events) = (Uuid::now_v7(), [Uuid::now_v7(), Uuid::now_v7()]);
        caller.begin().await;
        caller.sql(&format!("INSERT INTO app_rows VALUES ('{row}', 'its own')")).await;
        let ticket = caller.ticket().await;
        assert_eq!(caller.stage(events[0], TYPE, key).await, "OUTCOME_STAGED");
        let gate = match step {
            Step::StageRuns => Some(Gate::Stage),
            Step::StageCommits => Some(Gate::StageCommit),
            Step::CallerCommits => Some(Gate::CallerCommit),
            Step::ClaimRuns => Some(Gate::Claim),
            Step::ClaimCommits => Some(Gate::ClaimCommit),
            Step::StampRuns => Some(Gate::Stamp),
            Step::StampCommits => Some(Gate::StampCommit),
            Step::Staged | Step::Committed | Step::Claimed | Step::Published => None,
        };
        if let Some(gate) = gate {
            gate::close(database, gate).await;
        }
        if step <= Step::StageCommits {
            let stage = json!({"stage": {"id": events[1].to_string(), "type": TYPE, "key": key}});
            caller.send(&stage).await.unwrap();
        } else {
            assert_eq!(caller.stage(events[1], TYPE, key).await, "OUTCOME_STAGED");
        }
        match step {
            Step::Committed => {
                let mut session = database.connect().await;
                sqlx::query(DRAIN_LOCK).execute(&mut session).await.unwrap();
                stand.places[at].drain_lock = Some(session);
            }
            Step::Claimed => stand.proxy.stall(),
            Step::Published => stand.proxy.stall_replies(),
            _ => {}
        }
        if step == Step::CallerCommits {
            caller.send(&json!({"sql": "COMMIT"})).await.unwrap();
        } else if step > Step::CallerCommits {
            caller.commit().await;
            caller.step(&json!("confirm")).await;
        }
        let play = Self { step, key: key.to_owned(), caller, ticket, row, before, events };
        let place = &stand.places[at];
        if let Some(gate) = gate {
            gate::somebody_waits(&place.database, gate).await;
        }
        play.is_there(stand, place).await;
        play
    }

    /// Waits until the step is reached, as far as it shows outside of a gate.
    async fn is_there(&self, stand: &Stand, place: &Place) {
        let first = self.events[0].to_string();
        match self.step {
            Step::StageRuns | Step::StageCommits | Step::Staged | Step::CallerCommits => {
                place.is(&first, "unresolved").await;
            }
            Step::Committed => {
                place.is(&first, "pending").await;
                assert_eq!(stand.deliveries(&first), 0);
            }
            Step::ClaimRuns | Step::ClaimCommits => assert_eq!(stand.deliveries(&first), 0),
            Step::Claimed => {
                place.is(&first, "claimed").await;
                assert_eq!(stand.deliveries(&first), 0);
            }
            Step::Published => {
                stand.consumer.wait_for_ids(&[&first], LONG).await;
                assert_eq!(place.state(&first).await, "claimed");
            }
            Step::StampRuns | Step::StampCommits => {
                stand.consumer.wait_for_ids(&[&first], LONG).await;
                // Invariant 3 from its other side: what is not stamped yet was confirmed.
                assert_eq!(place.state(&first).await, "claimed");
            }
        }
    }

    /// Stages the second event again with the standby, as a caller does whose call was lost; returns the outcome.
    pub(super) async fn stage_again(&self, stand: &Stand, at: usize) -> String {
        let client = stand.standby_client(&stand.places[at]);
        let mut event = keyed(TYPE, &self.key);
        event.id = self.events[1].to_string();
        wait::until("the stage to be answered", LONG, || async {
            match client.try_stage(self.ticket, std::slice::from_ref(&event)).await {
                Ok(staged) => Ok(staged[0].outcome().as_str_name().to_owned()),
                // The session of the killed server has not ended yet.
                Err(status) if status.code() == tonic::Code::Aborted => Err(status),
                Err(status) => panic!("{status}"),
            }
        })
        .await
    }

    /// Is the caller's own row there?
    pub(super) async fn has_row(&self, place: &Place) -> bool {
        let mut connection = place.database.connect().await;
        let there = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM app_rows WHERE id = $1)")
            .bind(self.row)
            .fetch_one(&mut connection)
            .await
            .unwrap();
        connection.close().await.unwrap();
        there
    }
}
