//! What a ledger of migrations says, held against the files in this binary. Decides, asks nobody.

use crate::db::migrate::Migration;

/// A row of a ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Applied {
    pub(super) version: i64,
    pub(super) success: bool,
    pub(super) checksum: Vec<u8>,
}

/// How a schema and this release stand to each other.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// The same.
    Level(i64),
    /// The schema is one migration ahead: the next release's, on which this one runs, too.
    OneAhead(i64),
    /// Further ahead: a release that this one knows nothing of.
    Ahead { schema: i64, ours: i64 },
    /// These are not applied yet.
    Behind { missing: Vec<i64> },
    /// This one was applied from another file than ours.
    Differs(i64),
    /// This one began and did not end.
    Unfinished(i64),
}

pub(super) fn compare(applied: &[Applied], ours: &[Migration]) -> Standing {
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
        [one] => Standing::OneAhead(*one),
        [.., schema] => Standing::Ahead { schema: *schema, ours: newest },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours(versions: &[i64]) -> Vec<Migration> {
        versions.iter().map(|version| Migration { version: *version, checksum: vec![7] }).collect()
    }

    fn rows(versions: &[i64]) -> Vec<Applied> {
        versions
            .iter()
            .map(|version| Applied { version: *version, success: true, checksum: vec![7] })
            .collect()
    }

    #[test]
    fn a_release_runs_on_its_own_schema_and_on_the_next_one() {
        assert_eq!(compare(&rows(&[1, 2]), &ours(&[1, 2])), Standing::Level(2));
        assert_eq!(compare(&rows(&[1, 2, 3]), &ours(&[1, 2])), Standing::OneAhead(3));
        assert_eq!(compare(&rows(&[1, 2, 3, 4]), &ours(&[1, 2])), Standing::Ahead { schema: 4, ours: 2 });
        assert_eq!(compare(&rows(&[1]), &ours(&[1, 2, 3])), Standing::Behind { missing: vec![2, 3] });
        assert_eq!(compare(&[], &ours(&[1])), Standing::Behind { missing: vec![1] });
    }

    #[test]
    fn a_migration_of_another_text_and_one_that_broke_off_are_named() {
        let mut other = rows(&[1, 2]);
        other[1].checksum = vec![8];
        assert_eq!(compare(&other, &ours(&[1, 2])), Standing::Differs(2));
        other[0].success = false;
        assert_eq!(compare(&other, &ours(&[1, 2])), Standing::Unfinished(1));
    }
}
