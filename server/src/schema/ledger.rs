//! What a ledger of migrations says, held against the files in this binary. Decides, asks nobody.
//!
//! Releases number their migrations by the hundred, both lines alike: release 1 has 0001 to 0099, release 2 has 0101 to 0199.
//! So a number tells its release, and release N, which runs on the schemas of N and N + 1, takes any up to (N + 1)99.

use crate::db::migrate::Migration;

/// A row of a ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Applied {
    pub(crate) version: i64,
    pub(crate) success: bool,
    pub(crate) checksum: Vec<u8>,
}

/// How a schema and this release stand to each other.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The same.
    Level(i64),
    /// The schema is ahead, by no more than the next release's migrations: this one runs on it, too.
    Next(i64),
    /// Further ahead: a release that this one knows nothing of. It runs up to `most`.
    Ahead { schema: i64, most: i64 },
    /// These are not applied yet.
    Behind { missing: Vec<i64> },
    /// This one was applied from another file than ours.
    Differs(i64),
    /// This one began and did not end.
    Unfinished(i64),
}

/// Which release this is. Not read off the newest migration: a release need not have one, and would take itself for the one
/// before it. Raised with the first change after a release (CONTRIBUTING).
pub(crate) const RELEASE: i64 = 1;

/// The last number that `release` can give a migration.
const fn last_of(release: i64) -> i64 {
    release * 100 - 1
}

/// The last number of a ledger that `release` runs on: the last one of the release after it.
pub(crate) const fn most(release: i64) -> i64 {
    last_of(release + 1)
}

pub(crate) fn compare(applied: &[Applied], ours: &[Migration], most: i64) -> Standing {
    if let Some(row) = applied.iter().find(|row| !row.success) {
        return Standing::Unfinished(row.version);
    }
    for row in applied {
        if ours.iter().any(|one| one.version == row.version && one.checksum != row.checksum) {
            return Standing::Differs(row.version);
        }
    }
    let missing: Vec<i64> = ours
        .iter()
        .map(|one| one.version)
        .filter(|version| !applied.iter().any(|row| row.version == *version))
        .collect();
    if !missing.is_empty() {
        return Standing::Behind { missing };
    }
    let newest = ours.iter().map(|one| one.version).max().unwrap_or_default();
    let ahead: Vec<i64> = applied.iter().map(|row| row.version).filter(|version| *version > newest).collect();
    match ahead.as_slice() {
        [] => Standing::Level(newest),
        [.., schema] if *schema <= most => Standing::Next(*schema),
        [.., schema] => Standing::Ahead { schema: *schema, most },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::migrate;

    fn ours(versions: &[i64]) -> Vec<Migration> {
        versions.iter().map(|version| Migration { version: *version, checksum: vec![7] }).collect()
    }

    fn rows(versions: &[i64]) -> Vec<Applied> {
        versions
            .iter()
            .map(|version| Applied { version: *version, success: true, checksum: vec![7] })
            .collect()
    }

    /// Of the first release.
    fn standing(applied: &[Applied], ours: &[Migration]) -> Standing {
        compare(applied, ours, most(1))
    }

    #[test]
    fn no_migration_is_numbered_beyond_its_release() {
        let lines = [migrate::service_migrations(), migrate::control_migrations()];
        for one in lines.iter().flatten() {
            assert!(one.version <= last_of(RELEASE), "{} is no number of release {RELEASE}", one.version);
        }
    }

    #[test]
    fn a_release_without_migrations_of_its_own_runs_on_the_next_ones_all_the_same() {
        let (applied, ours) = (rows(&[1, 2, 201]), ours(&[1, 2]));
        assert_eq!(compare(&applied, &ours, most(2)), Standing::Next(201));
        assert_eq!(compare(&rows(&[1, 2, 301]), &ours, most(2)), Standing::Ahead { schema: 301, most: 299 });
    }

    #[test]
    fn a_release_runs_on_its_own_schema_and_on_all_of_the_next_ones() {
        assert_eq!(standing(&rows(&[1, 2]), &ours(&[1, 2])), Standing::Level(2));
        assert_eq!(standing(&rows(&[1, 2, 3, 4]), &ours(&[1, 2])), Standing::Next(4));
        assert_eq!(standing(&rows(&[1, 2, 101, 102, 199]), &ours(&[1, 2])), Standing::Next(199));
        assert_eq!(
            standing(&rows(&[1, 2, 101, 201]), &ours(&[1, 2])),
            Standing::Ahead { schema: 201, most: 199 }
        );
        assert_eq!(compare(&rows(&[1, 101, 201]), &ours(&[1, 101]), most(2)), Standing::Next(201));
        assert_eq!(standing(&rows(&[1]), &ours(&[1, 2, 3])), Standing::Behind { missing: vec![2, 3] });
        assert_eq!(standing(&[], &ours(&[1])), Standing::Behind { missing: vec![1] });
    }

    #[test]
    fn a_migration_of_another_text_and_one_that_broke_off_are_named() {
        let mut other = rows(&[1, 2]);
        other[1].checksum = vec![8];
        assert_eq!(standing(&other, &ours(&[1, 2])), Standing::Differs(2));
        other[0].success = false;
        assert_eq!(standing(&other, &ours(&[1, 2])), Standing::Unfinished(1));
    }
}
