//! guarantees.md names tests: each must be one.

use std::{collections::BTreeSet, fs, path::Path};

/// Every name of a function in the Rust files below a folder that has `#[test]` or `#[tokio::test…]` above it.
fn tests_below(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            tests_below(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let mut is_test = false;
            for line in text.lines().map(str::trim) {
                is_test |= line == "#[test]" || line.starts_with("#[tokio::test");
                let function =
                    line.trim_start_matches("pub ").trim_start_matches("async ").strip_prefix("fn ");
                if let Some(function) = function {
                    if is_test {
                        names.insert(function.split(['(', '<']).next().unwrap().to_owned());
                    }
                    is_test = false;
                }
            }
        }
    }
}

#[test]
fn every_test_that_the_guarantees_name_is_there_and_every_row_names_one() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("../docs/guarantees.md")).unwrap();
    let mut there = BTreeSet::new();
    tests_below(&root.join("e2e"), &mut there);
    let mut named = BTreeSet::new();
    let mut rows = 0;
    for line in text.lines() {
        // Test names are sentences: nothing else in backticks has so many words.
        let in_line: Vec<_> =
            line.split('`').skip(1).step_by(2).filter(|word| word.matches('_').count() > 3).collect();
        let is_row = line.starts_with("| ") && !line.starts_with("| ---") && !line.ends_with("| tests |");
        if is_row {
            rows += 1;
            assert!(!in_line.is_empty(), "a row without a test: {line}");
        }
        named.extend(in_line.into_iter().map(str::to_owned));
    }
    assert!(rows > 20 && named.len() > 40, "{rows} rows, {} names", named.len());
    let missing: Vec<_> = named.difference(&there).collect();
    assert!(missing.is_empty(), "no such tests: {missing:?}");
}
