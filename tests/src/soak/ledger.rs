//! The books: what the writers know of their transactions, against what came and what the databases hold.
//!
//! An event is expected exactly if its transaction's COMMIT was answered or, where the answer was lost, if the row that its writer
//! wrote in the same transaction is there. Discards cannot be foretold to the row, for two reasons, and have bounds: a stage that
//! was not answered may have been carried out, and after a discard even twice (a replica that slept stages again what the other
//! one has discarded); and a stage commits asynchronously, so that a killed PostgreSQL may forget rows of a transaction that it
//! rolls back. What a later answered COMMIT of anybody has forced out with it, it does not forget.

use std::time::Instant;

use uuid::Uuid;

use super::recorder::Deliveries;
use crate::reconcile::Census;

/// How a transaction ended, as its writer knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// COMMIT was answered.
    Committed,
    /// Rolled back, left without a word, or broken before its COMMIT was sent.
    Nothing,
    /// The answer to COMMIT was lost; the writer's own row was there, or not.
    Unknown {
        /// Whether it was.
        row: bool,
    },
}

/// Events written together: by one stage, or by `publish_in_tx`.
#[derive(Debug, Clone)]
pub struct Batch {
    /// Each with the number of its writer's key; `None` is keyless.
    pub events: Vec<(Uuid, Option<usize>)>,
    /// By StageInTx; else in the writer's own transaction, where a rollback leaves nothing to discard.
    pub ticketed: bool,
    /// When its stage was answered.
    pub answered: Option<Instant>,
    /// Stages that were given up or failed.
    pub unanswered: u64,
    /// In a savepoint that was rolled back.
    pub undone: bool,
}

/// One transaction.
#[derive(Debug, Clone)]
pub struct Deed {
    /// What it wrote, in order.
    pub batches: Vec<Batch>,
    /// How it ended.
    pub end: End,
}

impl Deed {
    fn committed(&self) -> bool {
        matches!(self.end, End::Committed | End::Unknown { row: true })
    }
}

/// A kill of PostgreSQL: what was staged before the fence is durable.
#[derive(Debug, Clone, Copy)]
pub struct DatabaseKill {
    /// The latest sending of a COMMIT that was answered before the kill.
    pub fence: Option<Instant>,
    /// When it was dead.
    pub over: Instant,
}

/// One service's writers, each a list of deeds in their order.
#[derive(Debug)]
pub struct Ledger {
    /// The service.
    pub service: String,
    /// By writer.
    pub writers: Vec<Vec<Deed>>,
}

/// Numbers of one service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Account {
    /// Events that were handed over: stages answered, and inserts.
    pub staged: u64,
    /// Events whose COMMIT was answered.
    pub committed: u64,
    /// Events rolled back, by transaction or savepoint, or left.
    pub rolled_back: u64,
    /// Events whose COMMIT's answer was lost and whose row was there.
    pub unknown_there: u64,
    /// … and was not.
    pub unknown_gone: u64,
    /// Expected and came.
    pub delivered: u64,
    /// Deliveries beyond the first, of expected events.
    pub duplicates: u64,
    /// Expected and did not come.
    pub lost: u64,
    /// Came and must not have.
    pub wrong: u64,
    /// Neighbours of a key whose first deliveries came the other way round.
    pub order_violations: u64,
    /// Fewest and most rows that can have been discarded.
    pub discards: (u64, u64),
}

impl Account {
    /// Everything that committed.
    pub fn expected(&self) -> u64 {
        self.committed + self.unknown_there
    }

    /// Whether invariants 1 and 4 hold.
    pub fn holds(&self) -> bool {
        (self.lost, self.wrong, self.order_violations) == (0, 0, 0)
    }

    /// What is wrong with the rows (invariant 2), if anything.
    pub fn reconcile(&self, census: &Census) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut claim = |holds: bool, words: String| {
            if !holds {
                wrong.push(words);
            }
        };
        let gone: i64 = census.gone.values().sum();
        claim(census.moving() == 0, format!("{} rows still move", census.moving()));
        claim(
            u64::try_from(census.published) == Ok(self.expected()),
            format!("{} rows are published, {} were committed", census.published, self.expected()),
        );
        claim(
            census.rows == census.published,
            format!("{} rows, of which {} published", census.rows, census.published),
        );
        claim(
            census.accounted() == census.rows + gone,
            format!("{} accounted for, {} rows and {gone} discarded", census.accounted(), census.rows),
        );
        let (least, most) = self.discards;
        claim(
            u64::try_from(gone).is_ok_and(|gone| (least..=most).contains(&gone)),
            format!("{gone} discarded, not {least} to {most}"),
        );
        wrong
    }
}

impl Ledger {
    /// Closes the books.
    pub fn close(&self, deliveries: &Deliveries, kills: &[DatabaseKill]) -> Account {
        let mut account = Account::default();
        for deeds in &self.writers {
            let mut last_of_key: Vec<Option<usize>> = Vec::new();
            for deed in deeds {
                for batch in &deed.batches {
                    let kept = deed.committed() && !batch.undone && batch.answered.is_some();
                    account.count(deed, batch, kept, kills);
                    for (id, key) in &batch.events {
                        let came = deliveries.by_id.get(id);
                        match (kept, came) {
                            (true, Some(came)) => {
                                account.delivered += 1;
                                account.duplicates += came.times - 1;
                                if let Some(key) = *key {
                                    last_of_key.resize(last_of_key.len().max(key + 1), None);
                                    let late = last_of_key[key].is_some_and(|last| came.first < last);
                                    account.order_violations += u64::from(late);
                                    last_of_key[key] = Some(came.first);
                                }
                            }
                            (true, None) => account.lost += 1,
                            (false, Some(_)) => account.wrong += 1,
                            (false, None) => {}
                        }
                    }
                }
            }
        }
        account
    }
}

impl Account {
    fn count(&mut self, deed: &Deed, batch: &Batch, kept: bool, kills: &[DatabaseKill]) {
        let number = batch.events.len() as u64;
        if batch.answered.is_some() {
            self.staged += number;
        }
        match deed.end {
            End::Committed if kept => self.committed += number,
            End::Unknown { row: true } if kept => self.unknown_there += number,
            End::Unknown { row: false } if batch.answered.is_some() && !batch.undone => {
                self.unknown_gone += number;
            }
            _ if batch.answered.is_some() => self.rolled_back += number,
            _ => {}
        }
        if !kept && batch.ticketed {
            let answered = batch.answered.is_some();
            self.discards.0 += if batch.answered.is_some_and(|at| durable(at, kills)) { number } else { 0 };
            self.discards.1 += number * (u64::from(answered) + batch.unanswered);
        }
    }
}

/// Whether what was staged at `at` outlived every kill after it: the first one decides, what it left is on disk.
fn durable(at: Instant, kills: &[DatabaseKill]) -> bool {
    kills.iter().find(|kill| kill.over > at).is_none_or(|kill| kill.fence.is_some_and(|fence| fence > at))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn batch(ids: &[u128], answered: Instant) -> Batch {
        Batch {
            events: ids.iter().map(|id| (Uuid::from_u128(*id), Some(0))).collect(),
            ticketed: true,
            answered: Some(answered),
            unanswered: 0,
            undone: false,
        }
    }

    fn deed(batch: Batch, end: End) -> Deed {
        Deed { batches: vec![batch], end }
    }

    fn came(ids: &[u128]) -> Deliveries {
        let mut deliveries = Deliveries::default();
        ids.iter().for_each(|id| deliveries.note(&Uuid::from_u128(*id).to_string()));
        deliveries
    }

    fn ledger(deeds: Vec<Deed>) -> Ledger {
        Ledger { service: "orders".into(), writers: vec![deeds] }
    }

    #[test]
    fn what_is_lost_wrong_twice_or_out_of_order_is_counted_as_such() {
        let now = Instant::now();
        let ledger = ledger(vec![
            deed(batch(&[1, 2], now), End::Committed),
            deed(batch(&[3], now), End::Unknown { row: true }),
            deed(batch(&[4], now), End::Unknown { row: false }),
            deed(batch(&[5], now), End::Nothing),
            deed(batch(&[6], now), End::Committed),
        ]);
        let account = ledger.close(&came(&[2, 1, 3, 3, 5]), &[]);
        assert_eq!((account.staged, account.committed, account.rolled_back), (6, 3, 1));
        assert_eq!((account.unknown_there, account.unknown_gone), (1, 1));
        assert_eq!((account.delivered, account.duplicates), (3, 1));
        assert_eq!((account.lost, account.wrong, account.order_violations), (1, 1, 1));
        assert_eq!(account.discards, (2, 2));
        assert!(!account.holds());
        assert!(ledger.close(&came(&[1, 2, 3, 6]), &[]).holds());
    }

    #[test]
    fn a_savepoint_that_was_rolled_back_is_not_expected() {
        let now = Instant::now();
        let undone = Batch { undone: true, ..batch(&[2], now) };
        let whole = Deed { batches: vec![batch(&[1], now), undone], end: End::Committed };
        let account = ledger(vec![whole]).close(&came(&[1, 2]), &[]);
        assert_eq!((account.committed, account.rolled_back, account.wrong), (1, 1, 1));
    }

    #[test]
    fn a_killed_database_may_forget_what_no_later_commit_has_forced_out() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let kills =
            [DatabaseKill { fence: Some(at(5)), over: at(10) }, DatabaseKill { fence: None, over: at(20) }];
        let certain: Vec<bool> = [4, 6, 11, 21].map(|seconds| durable(at(seconds), &kills)).to_vec();
        assert_eq!(certain, [true, false, false, true]);
    }

    #[test]
    fn rows_that_move_are_missing_or_are_too_many_are_named() {
        let account = Account { committed: 3, discards: (1, 2), ..Account::default() };
        let good = Census {
            published: 3,
            rows: 3,
            gone: [("rolled_back".to_owned(), 2)].into(),
            ..Census::default()
        };
        assert!(account.reconcile(&good).is_empty());
        let bad = Census { published: 2, pending: 1, gone: [("rolled_back".to_owned(), 3)].into(), ..good };
        assert_eq!(account.reconcile(&bad).len(), 4, "{:?}", account.reconcile(&bad));
    }
}
