//! Key files: read at the start, and again when they change.
//!
//! All files are read at each look and compared by what is in them: they are few and small, and times of change, sizes and
//! inodes each miss something (a tick of the clock, an edit in place, a mount that was swapped).
//!
//! A file that can no longer be understood, or read, keeps the keys that it last had, is said once at WARN and shown by a
//! gauge; others are not held up by it. A file that a pattern matched and that is gone takes its keys along: that is how a
//! key is revoked. If no file is left, or names collide, the whole last good set stays: locking everybody out is never what
//! was meant, and cannot be told from a mount that is missing.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::keys::{self, Algorithm, Key, KeySet, Problem};

/// No key file is larger.
const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// Between two looks at the files, less up to a half of it: replicas do not look at a shared volume in step. A key that was
/// taken away is refused within this.
const INTERVAL: Duration = Duration::from_secs(4);

/// The files, what they last held, and the keys in force.
#[derive(Debug)]
pub struct KeyFiles {
    patterns: Vec<String>,
    allowed: Vec<Algorithm>,
    files: BTreeMap<PathBuf, Held>,
    current: Arc<ArcSwap<KeySet>>,
    /// What is wrong at the moment, so that it is said once.
    said: Vec<Problem>,
}

/// A file's last good content.
#[derive(Debug, Clone)]
struct Held {
    digest: [u8; 32],
    keys: Vec<Key>,
}

/// How a look at the files ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Keys in force.
    pub keys: usize,
    /// Whether they are other ones than before.
    pub changed: bool,
    /// What is wrong; what was good before stays in force.
    pub problems: Vec<Problem>,
}

impl KeyFiles {
    /// Reads all files for the first time. A pattern is a path, or one with `*`, `?` and `[…]` in it.
    ///
    /// # Errors
    /// Everything that is wrong: nothing was good before, so nothing stays in force.
    pub fn open(patterns: &[String], allowed: &[Algorithm]) -> Result<Self, Vec<Problem>> {
        let mut files = Self {
            patterns: patterns.to_vec(),
            allowed: allowed.to_vec(),
            files: BTreeMap::new(),
            current: Arc::default(),
            said: Vec::new(),
        };
        let report = files.look();
        if report.problems.is_empty() { Ok(files) } else { Err(report.problems) }
    }

    /// The keys in force, now and later.
    #[must_use]
    pub fn current(&self) -> Arc<ArcSwap<KeySet>> {
        self.current.clone()
    }

    /// Reads all files again.
    pub fn look(&mut self) -> Report {
        let (paths, mut problems) = self.paths();
        let mut files = BTreeMap::new();
        for (path, named) in paths {
            match self.file(&path) {
                Ok(held) => drop(files.insert(path, held)),
                // It went between the listing and the reading.
                Err(None) if !named => {}
                Err(what) => {
                    let what = what.unwrap_or_else(|| "is not there".into());
                    problems.push(Problem { place: path.display().to_string(), what });
                    if let Some(held) = self.files.get(&path) {
                        files.insert(path, held.clone());
                    }
                }
            }
        }
        let same = |held: &BTreeMap<PathBuf, Held>| {
            held.iter().map(|(path, one)| (path.clone(), one.digest)).collect::<Vec<_>>()
        };
        let changed = same(&files) != same(&self.files);
        if changed {
            let whole = match KeySet::of(files.values().flat_map(|held| held.keys.clone())) {
                Ok(set) if set.is_empty() => Err("there is no key left".to_owned()),
                set => set,
            };
            match whole {
                Ok(set) => {
                    self.current.store(Arc::new(set));
                    self.files = files;
                }
                Err(what) => problems.push(Problem { place: "auth.keys".into(), what }),
            }
        } else if files.is_empty() && problems.is_empty() {
            problems.push(Problem { place: "auth.keys".into(), what: "there is no key".into() });
        }
        let changed = changed && problems.iter().all(|problem| problem.place != "auth.keys");
        Report { keys: self.current.load().len(), changed, problems }
    }

    /// The files that there are, each with whether it was named as such; and what is wrong with the patterns.
    fn paths(&self) -> (BTreeMap<PathBuf, bool>, Vec<Problem>) {
        let mut paths = BTreeMap::new();
        let mut problems = Vec::new();
        let mut problem =
            |place: &str, what: String| problems.push(Problem { place: place.to_owned(), what });
        for pattern in &self.patterns {
            if !pattern.contains(['*', '?', '[']) {
                paths.insert(PathBuf::from(pattern), true);
                continue;
            }
            match glob::glob(pattern) {
                Err(error) => problem(pattern, format!("is no pattern: {}", error.msg)),
                Ok(found) => {
                    for path in found {
                        match path {
                            Ok(path) if path.is_dir() => {}
                            Ok(path) => drop(paths.entry(path).or_insert(false)),
                            Err(error) => {
                                problem(&error.path().display().to_string(), error.error().to_string())
                            }
                        }
                    }
                }
            }
        }
        (paths, problems)
    }

    /// One file: what is in it. `Err(None)`: it is not there.
    fn file(&self, path: &Path) -> Result<Held, Option<String>> {
        let content = read(path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => None,
            _ => Some(error.to_string()),
        })?;
        if content.len() as u64 > MAX_FILE_BYTES {
            return Err(Some(format!("has more than {MAX_FILE_BYTES} bytes")));
        }
        let digest: [u8; 32] = Sha256::digest(&content).into();
        match self.files.get(path) {
            Some(held) if held.digest == digest => Ok(held.clone()),
            _ => keys::read(path, &content, &self.allowed).map(|keys| Held { digest, keys }).map_err(Some),
        }
    }

    /// Looks again and again until `stopping`; tells `each` what came of it, at once and after each look.
    pub async fn run(mut self, mut each: impl FnMut(&Report), stopping: CancellationToken) {
        each(&Report { keys: self.current.load().len(), changed: false, problems: Vec::new() });
        loop {
            let pause = INTERVAL.mul_f64(rand::random_range(0.5..=1.0));
            tokio::select! {
                () = stopping.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            // Files may lie on a volume that does not answer.
            let looked = tokio::task::spawn_blocking(move || {
                let report = self.look();
                (self, report)
            });
            let (files, report) = tokio::select! {
                () = stopping.cancelled() => return,
                looked = looked => match looked {
                    Ok(looked) => looked,
                    Err(failed) => {
                        // The keys in force stay, but nobody would read new ones: whoever supervises us starts us again.
                        error!(error = %failed, "looking at the key files failed through a fault of the server");
                        std::panic::resume_unwind(failed.into_panic());
                    }
                },
            };
            self = files;
            self.say(&report);
            each(&report);
        }
    }

    fn say(&mut self, report: &Report) {
        for problem in report.problems.iter().filter(|problem| !self.said.contains(problem)) {
            warn!(
                key.file = problem.place,
                problem = problem.what,
                "a key file cannot be used; what was good before stays in force"
            );
        }
        if !self.said.is_empty() && report.problems.is_empty() {
            info!(keys = report.keys, "the key files are good again");
        }
        if report.changed {
            let set = self.current.load();
            info!(keys = report.keys, key.ids = %set.kids().collect::<Vec<_>>().join(" "), "keys were read anew");
        }
        self.said.clone_from(&report.problems);
    }
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut content)?;
    Ok(content)
}

#[cfg(test)]
mod tests;
