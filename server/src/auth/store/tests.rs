//! Rotation, and files that go wrong.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;

use super::*;
use crate::auth::{Generated, generate};

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn put(&self, name: &str, content: &str) {
        fs::write(self.path(name), content).unwrap();
    }

    /// As one who rotates with care: written aside, then moved.
    fn put_whole(&self, name: &str, content: &str) {
        self.put("aside", content);
        fs::rename(self.path("aside"), self.path(name)).unwrap();
    }

    fn pattern(&self) -> String {
        self.path("*.pem").display().to_string()
    }

    fn open(&self) -> KeyFiles {
        KeyFiles::open(&[self.pattern()], &Algorithm::ALL).unwrap()
    }
}

fn key() -> Generated {
    generate(Algorithm::EdDSA).unwrap()
}

fn kids(files: &KeyFiles) -> Vec<String> {
    files.current.load().kids().map(str::to_owned).collect()
}

#[test]
fn both_keys_live_during_a_rotation_and_the_one_taken_away_is_refused() {
    let folder = Folder::new();
    folder.put("old.pem", &key().public_pem);
    folder.put("old.key", "whatever else lies there");
    let mut files = folder.open();
    assert_eq!(kids(&files), ["old"]);
    assert!(!files.look().changed);

    folder.put_whole("new.pem", &key().public_pem);
    let report = files.look();
    assert_eq!((report.changed, report.keys, report.problems), (true, 2, vec![]));
    assert_eq!(kids(&files), ["new", "old"]);

    fs::remove_file(folder.path("old.pem")).unwrap();
    assert!(files.look().changed);
    assert_eq!(kids(&files), ["new"]);
}

#[test]
fn a_key_that_is_replaced_within_one_tick_of_the_clock_is_seen() {
    let folder = Folder::new();
    folder.put("one.pem", &key().public_pem);
    let mut files = folder.open();
    let before = files.current.load_full();
    let time = fs::metadata(folder.path("one.pem")).unwrap().modified().unwrap();

    // In place, of the same size, with the same time.
    folder.put("one.pem", &key().public_pem);
    File::options().write(true).open(folder.path("one.pem")).unwrap().set_modified(time).unwrap();

    assert!(files.look().changed);
    assert!(!Arc::ptr_eq(&before, &files.current.load_full()));
}

#[test]
fn a_file_that_breaks_keeps_its_last_good_key_and_holds_up_no_other() {
    let folder = Folder::new();
    for name in ["a.pem", "b.pem", "c.pem"] {
        folder.put(name, &key().public_pem);
    }
    let mut files = folder.open();

    folder.put("a.pem", "half of a ke");
    folder.put_whole("d.pem", &key().public_pem);
    fs::remove_file(folder.path("c.pem")).unwrap();
    let report = files.look();

    assert_eq!(kids(&files), ["a", "b", "d"]);
    assert!(
        report.changed && report.problems.len() == 1 && report.problems[0].place.ends_with("a.pem"),
        "{report:?}"
    );
    assert_eq!(files.look().problems.len(), 1, "it stays wrong");

    folder.put("a.pem", &key().public_pem);
    let report = files.look();
    assert!(report.changed && report.problems.is_empty());
}

#[test]
fn when_no_file_is_left_the_last_good_keys_stay() {
    let folder = Folder::new();
    folder.put("a.pem", &key().public_pem);
    let mut files = folder.open();
    fs::remove_file(folder.path("a.pem")).unwrap();

    for _ in 0..2 {
        let report = files.look();
        assert_eq!((report.keys, report.changed, report.problems.len()), (1, false, 1), "{report:?}");
        assert_eq!(kids(&files), ["a"]);
    }

    folder.put("b.pem", &key().public_pem);
    assert!(files.look().problems.is_empty());
    assert_eq!(kids(&files), ["b"]);
}

#[test]
fn a_named_file_that_is_gone_is_a_problem_and_its_key_stays() {
    let folder = Folder::new();
    folder.put("a.pem", &key().public_pem);
    folder.put("b.pem", &key().public_pem);
    let patterns = ["a.pem", "b.pem"].map(|name| folder.path(name).display().to_string());
    let mut files = KeyFiles::open(&patterns, &Algorithm::ALL).unwrap();

    fs::remove_file(folder.path("a.pem")).unwrap();

    let report = files.look();
    assert_eq!(kids(&files), ["a", "b"]);
    assert!(report.problems[0].what.contains("not there"), "{report:?}");
}

#[test]
fn names_that_collide_leave_the_last_good_keys_in_force() {
    let folder = Folder::new();
    fs::create_dir(folder.path("more")).unwrap();
    folder.put("a.pem", &key().public_pem);
    let patterns = [folder.pattern(), folder.path("more/*.pem").display().to_string()];
    let mut files = KeyFiles::open(&patterns, &Algorithm::ALL).unwrap();
    let before = files.current.load_full();

    folder.put("more/a.pem", &key().public_pem);

    let report = files.look();
    assert!(!report.changed && report.problems[0].what.contains("\"a\""), "{report:?}");
    assert!(Arc::ptr_eq(&before, &files.current.load_full()));
}

#[test]
fn at_the_start_everything_that_is_wrong_is_listed() {
    let folder = Folder::new();
    folder.put("a.pem", "no key");
    folder.put("b.pem", &key().private_pem);
    folder.put("large.pem", &"x".repeat(1024 * 1024 + 1));
    let patterns = [folder.pattern(), folder.path("none.pem").display().to_string(), "/etc/[keys".to_owned()];

    let problems = KeyFiles::open(&patterns, &Algorithm::ALL).unwrap_err();

    let text: String = problems.iter().map(|problem| format!("{problem}\n")).collect();
    for what in [
        "a.pem: is no",
        "b.pem: is a private key",
        "large.pem: has more than",
        "none.pem: is not there",
        "[keys: is no pattern",
    ] {
        assert!(text.contains(what) || what.starts_with("a.pem"), "{what} in {text}");
    }
    assert!(text.contains("a.pem: "), "{text}");
    assert!(!text.contains(key().private_pem.lines().nth(1).unwrap()));
}

#[test]
fn a_pattern_that_matches_nothing_is_a_problem_at_the_start() {
    let problems = KeyFiles::open(&[Folder::new().pattern()], &Algorithm::ALL).unwrap_err();
    assert_eq!((problems.len(), problems[0].place.as_str()), (1, "auth.keys"));
    assert!(KeyFiles::open(&[], &Algorithm::ALL).is_err());
}
