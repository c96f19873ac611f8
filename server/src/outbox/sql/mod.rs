//! All SQL that names `holdfast.event_outbox` for staging, resolving and draining. One function a file of `queries/`.

mod depth;
mod drain;
mod outcomes;
mod prune;
mod staging;
mod verdicts;

pub(super) use depth::*;
pub(super) use drain::*;
pub(super) use outcomes::*;
pub(super) use prune::*;
pub(super) use staging::*;
pub(super) use verdicts::*;

macro_rules! queries {
    ($($name:ident = $file:literal),* $(,)?) => {
        $(const $name: &str = include_str!(concat!("../queries/", $file, ".sql"));)*
        /// Every statement of this module, by file name: a test PREPAREs them all.
        pub const QUERIES: &[(&str, &str)] = &[$(($file, $name)),*];
    };
}

queries! {
    UNDECIDED = "undecided",
    NAMING = "naming",
    KEEP = "keep",
    DISCARD_ROLLED_BACK = "discard_rolled_back",
    STAGE_GROUP = "stage_group",
    STAGE_HELD_GROUP = "stage_held_group",
    INSERT = "insert",
    EXISTING = "existing",
    REPLACE_ROLLED_BACK = "replace_rolled_back",
    NOW = "now",
    FLUSH = "flush",
    WORK_WAITS = "work_waits",
    ANNOUNCES = "announces",
    LOCK = "lock",
    HEAL = "heal",
    CLOSE_LAPSED = "close_lapsed",
    HEAL_STRAYS = "heal_strays",
    SETTLE_ENDED = "settle_ended",
    PROMOTE = "promote",
    SEE = "see",
    CLAIM = "claim",
    CLOSE_CLAIMS = "close_claims",
    LONE = "lone",
    LONE_WAITS = "lone_waits",
    PARK = "park",
    PARK_UNCLAIMABLE = "park_unclaimable",
    STAMP = "stamp",
    RELEASE = "release",
    PROBE = "probe",
    FAIL = "fail",
    GIVE_BACK = "give_back",
    SKIPPED = "skipped",
    ABSOLVE = "absolve",
    STRANDED = "stranded",
    DEPTH = "depth",
    PRUNE = "prune",
}

/// Advisory lock of the drain, in the two-int form: our class, one key. Nonces use the bigint form.
const LOCK_CLASS: i32 = 0x484F_4C44;
const DRAIN_LOCK: i32 = 1;
/// The watch over holds.
const WATCH_LOCK: i32 = 2;
/// Pairs of operation and generation: a class of their own, because a key is a hash and may be any number.
pub(super) const PAIR_LOCK_CLASS: i32 = LOCK_CLASS + 1;

/// The tally is spread so that transactions of several connections seldom wait for each other's row.
const TALLY_SLOTS: i32 = 16;

pub(super) fn tally_slot() -> i32 {
    rand::random_range(0..TALLY_SLOTS)
}

/// Rows decided in one transaction: it must stay far below its time limits.
pub(super) const DECIDED_PER_TX: u64 = 1_000;
