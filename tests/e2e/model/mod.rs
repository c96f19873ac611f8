//! A model of the outbox's states against the real database: random interleavings of staging, committing, rolling back, confirms,
//! refusals and lost answers, crashes, leases and back-offs that run out, over two replicas, a few keys and a few callers. After
//! each step the invariants that hold at every instant are looked at, at the end the books are closed (design, section 15,
//! invariants 1 to 4).
//!
//! The replicas are the real stager, resolver and drainer; only the broker is played ([`wire`]), so that an answer can come late,
//! twice, wrong or never. Their tasks run freely between two steps: that is part of the interleaving. A failure is shrunk to few
//! steps and becomes a test of its own below. New states (replay, prune) become new [`Op`]s.

mod replica;
mod wire;
mod world;

use proptest::{
    prelude::*,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use world::{CALLERS, PAIRS, World};

/// Cases of a run of CI: as many as take some twenty seconds.
const CASES: u32 = 24;

/// A step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    /// StageInTx in the caller's transaction, which begins if there is none. Key 0 is keyless.
    Stage { caller: usize, replica: usize, key: usize },
    /// The same request once more.
    StageAgain { caller: usize, replica: usize },
    /// StageInTx in a savepoint that is then rolled back.
    Undone { caller: usize, replica: usize, key: usize },
    /// `publish_in_tx` in the caller's transaction.
    Publish { caller: usize, key: usize },
    /// COMMIT; that replica is told (2: nobody).
    Commit { caller: usize, hint: usize },
    /// ROLLBACK.
    RollBack { caller: usize, hint: usize },
    /// One of the messages on the wire gets its answer, however late; before that the replicas come to rest, or not.
    Answer { which: usize, how: How, calm: bool },
    /// kill -9, and a new one.
    Crash { replica: usize },
    /// Every claim's lease runs out, the living replicas' too; before that they come to rest, or not.
    LeasesRunOut { calm: bool },
    /// Every back-off ends.
    BackOffsRunOut,
    /// What is parked goes off again.
    Unpark,
    /// StageInTx with a hold.
    Hold { caller: usize, replica: usize, key: usize, pair: usize },
    /// ReleaseHeld or DropHeld.
    Decide { replica: usize, pair: usize, release: bool },
}

/// What becomes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Confirmed,
    Nacked,
    Returned,
    /// The broker has it, and its confirm does not come.
    TimedOutTaken,
    TimedOut,
    /// The broker has it, and the connection goes.
    LostTaken,
    Lost,
}

fn op() -> impl Strategy<Value = Op> {
    let how = prop_oneof![
        6 => Just(How::Confirmed), 1 => Just(How::Nacked), 1 => Just(How::Returned), 1 => Just(How::TimedOutTaken),
        1 => Just(How::TimedOut), 1 => Just(How::LostTaken), 1 => Just(How::Lost),
    ];
    let (caller, replica, key, hint) = (0..CALLERS, 0..2_usize, 0..3_usize, 0..3_usize);
    let (caller_again, replica_again, key_again) = (caller.clone(), replica.clone(), key.clone());
    prop_oneof![
        6 => (caller.clone(), replica.clone(), key.clone())
            .prop_map(|(caller, replica, key)| Op::Stage { caller, replica, key }),
        1 => (caller.clone(), replica.clone()).prop_map(|(caller, replica)| Op::StageAgain { caller, replica }),
        1 => (caller.clone(), replica.clone(), key.clone())
            .prop_map(|(caller, replica, key)| Op::Undone { caller, replica, key }),
        3 => (caller.clone(), key).prop_map(|(caller, key)| Op::Publish { caller, key }),
        6 => (caller.clone(), hint.clone()).prop_map(|(caller, hint)| Op::Commit { caller, hint }),
        2 => (caller, hint).prop_map(|(caller, hint)| Op::RollBack { caller, hint }),
        9 => (0..6_usize, how, prop::bool::weighted(0.7))
            .prop_map(|(which, how, calm)| Op::Answer { which, how, calm }),
        1 => replica.prop_map(|replica| Op::Crash { replica }),
        2 => any::<bool>().prop_map(|calm| Op::LeasesRunOut { calm }),
        1 => Just(Op::BackOffsRunOut),
        1 => Just(Op::Unpark),
        4 => (caller_again, replica_again.clone(), key_again, 0..PAIRS)
            .prop_map(|(caller, replica, key, pair)| Op::Hold { caller, replica, key, pair }),
        2 => (replica_again, 0..PAIRS, prop::bool::weighted(0.7))
            .prop_map(|(replica, pair, release)| Op::Decide { replica, pair, release }),
    ]
}

fn play(ops: &[Op]) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let mut world = World::new().await;
        for op in ops {
            world.apply(op).await;
        }
        Box::pin(world.end()).await;
    });
}

#[test]
fn heavy_whatever_happens_in_whatever_order_the_outbox_keeps_its_invariants() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seed = number("HOLDFAST_MODEL_SEED").unwrap_or_else(rand::random);
    let cases = number("HOLDFAST_MODEL_CASES").map_or(CASES, |cases| u32::try_from(cases).unwrap());
    eprintln!("HOLDFAST_MODEL_SEED={seed} HOLDFAST_MODEL_CASES={cases}");
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let config = Config { cases, failure_persistence: None, max_shrink_time: 60_000, ..Config::default() };
    let steps = prop::collection::vec(op(), 5..40);
    let outcome = TestRunner::new_with_rng(config, rng).run(&steps, |ops| {
        play(&ops);
        Ok(())
    });
    assert!(outcome.is_ok(), "seed {seed}: {}", outcome.unwrap_err());
}

#[test]
fn what_is_held_goes_or_stays_as_its_pair_is_decided_whatever_its_transaction_does() {
    play(&[
        Op::Hold { caller: 0, replica: 0, key: 1, pair: 0 },
        Op::Hold { caller: 0, replica: 1, key: 1, pair: 1 },
        Op::Stage { caller: 0, replica: 0, key: 1 },
        Op::Commit { caller: 0, hint: 0 },
        Op::Hold { caller: 1, replica: 0, key: 1, pair: 0 },
        Op::Hold { caller: 2, replica: 1, key: 1, pair: 1 },
        Op::Decide { replica: 1, pair: 0, release: true },
        Op::Stage { caller: 2, replica: 0, key: 1 },
        Op::Decide { replica: 0, pair: 1, release: false },
        Op::StageAgain { caller: 1, replica: 1 },
        Op::Decide { replica: 0, pair: 0, release: true },
        Op::Decide { replica: 1, pair: 0, release: false },
        Op::Hold { caller: 1, replica: 0, key: 1, pair: 0 },
        Op::Hold { caller: 1, replica: 0, key: 1, pair: 1 },
        Op::StageAgain { caller: 1, replica: 1 },
        Op::Commit { caller: 2, hint: 1 },
        Op::Commit { caller: 1, hint: 2 },
    ]);
}

// Shrunk failures. (This one with the generation taken out of `stamp.sql`.)

#[test]
fn a_confirm_that_comes_after_another_claim_of_its_row_changes_nothing() {
    play(&[
        Op::Publish { caller: 0, key: 1 },
        Op::Commit { caller: 0, hint: 2 },
        Op::LeasesRunOut { calm: true },
        // Two messages of one event are on the wire now; this is the older one's confirm.
        Op::Answer { which: 0, how: How::Confirmed, calm: true },
        Op::Answer { which: 0, how: How::Nacked, calm: true },
    ]);
}

#[test]
fn a_row_is_parked_when_seven_claims_ended_without_an_outcome_and_its_followers_wait_for_it() {
    let mut ops = vec![
        Op::Publish { caller: 0, key: 1 },
        Op::Commit { caller: 0, hint: 2 },
        Op::Publish { caller: 1, key: 1 },
        Op::Publish { caller: 1, key: 2 },
        Op::Commit { caller: 1, hint: 2 },
    ];
    for _ in 0..7 {
        let death = [Op::LeasesRunOut { calm: true }, Op::Crash { replica: 0 }, Op::Crash { replica: 1 }];
        ops.extend(death);
        ops.push(Op::BackOffsRunOut);
    }
    ops.extend([Op::Answer { which: 0, how: How::Confirmed, calm: true }, Op::Unpark]);
    play(&ops);
}

// (This one while the model took every claim whose lease had run out for outdated: a row that must be claimed alone waits for the
// flights to be empty, and the old confirm is good meanwhile.)
#[test]
fn a_confirm_counts_after_its_lease_ran_out_unless_another_claim_outdated_it() {
    play(&[
        Op::Publish { caller: 0, key: 1 },
        Op::Commit { caller: 0, hint: 2 },
        Op::LeasesRunOut { calm: true },
        Op::LeasesRunOut { calm: true },
        Op::Answer { which: 1, how: How::Confirmed, calm: true },
        Op::BackOffsRunOut,
        Op::Answer { which: 0, how: How::Nacked, calm: true },
    ]);
}
