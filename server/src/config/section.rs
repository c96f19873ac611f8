//! Reads a table of the tree, setting by setting, and notes everything: what is wrong, what is unknown, what it came to.
//!
//! A setting that cannot be read gets its default, or a placeholder, so that the rest is read too: whoever has a configuration
//! to mend is told everything at once. A configuration with a problem is never used.

use std::collections::BTreeMap;

use super::Secret;
use super::errors::Errors;
use super::tree::{Node, Origin, Table, Value};
use super::value::{Setting, quoted};

/// One setting of the configuration as it came to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// Its dotted path.
    pub path: String,
    /// Its value as TOML, without secrets.
    pub value: String,
    /// Where the value is from.
    pub origin: Origin,
}

/// What was noted while reading.
#[derive(Default)]
pub(super) struct Notes {
    pub(super) errors: Errors,
    pub(super) settings: Vec<Shown>,
    /// Where tables and settings were said, by path.
    places: BTreeMap<String, Origin>,
    /// Every path that was asked for.
    #[cfg(test)]
    pub(super) known: std::collections::BTreeSet<String>,
}

impl Notes {
    /// Something is wrong with a setting that could be read.
    pub(super) fn wrong(&mut self, field: &str, problem: impl std::fmt::Display) {
        let said = self.places.get(field).filter(|origin| **origin != Origin::Default);
        self.errors.add(field, said.cloned(), problem);
    }
}

/// A table that is being read. Dropped, it reports what nobody asked for.
pub(super) struct Section<'n> {
    notes: &'n mut Notes,
    path: String,
    table: Table,
    asked: Vec<&'static str>,
}

impl<'n> Section<'n> {
    pub(super) fn root(table: Table, notes: &'n mut Notes) -> Self {
        Self { notes, path: String::new(), table, asked: Vec::new() }
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn take(&mut self, key: &'static str) -> Option<Node> {
        let node = self.table.remove(key)?;
        self.notes.places.insert(self.path_of(key), node.origin.clone());
        Some(node)
    }

    fn note(&mut self, key: &str, value: String, origin: Origin) {
        let path = self.path_of(key);
        self.notes.places.insert(path.clone(), origin.clone());
        self.notes.settings.push(Shown { path, value, origin });
    }

    /// What was said, if it was said and can be read.
    fn said<T: Setting>(&mut self, key: &'static str) -> Option<(T, Origin)> {
        #[cfg(test)]
        {
            let path = self.path_of(key);
            self.notes.known.insert(path);
        }
        let Node { origin, value } = self.take(key)?;
        match T::read(&value) {
            Ok(read) => Some((read, origin)),
            Err(problem) => {
                let path = self.path_of(key);
                self.notes.errors.add(&path, Some(origin), problem);
                None
            }
        }
    }

    /// A setting with a default.
    pub(super) fn get<T: Setting>(&mut self, key: &'static str, default: T) -> T {
        self.asked.push(key);
        let (value, origin) = self.said(key).unwrap_or((default, Origin::Default));
        self.note(key, value.show(), origin);
        value
    }

    /// A setting without a default; `None` and no problem if it is not there.
    pub(super) fn optional<T: Setting>(&mut self, key: &'static str) -> Option<T> {
        self.asked.push(key);
        let (value, origin) = self.said::<T>(key)?;
        self.note(key, value.show(), origin);
        Some(value)
    }

    /// A setting that is not shown and not documented.
    pub(super) fn hidden<T: Setting>(&mut self, key: &'static str, default: T) -> T {
        self.said(key).map_or(default, |(value, _)| value)
    }

    /// A secret, said here or in a file that `KEY_file` names; `None` and no problem if neither is there.
    pub(super) fn secret(&mut self, key: &'static str, key_file: &'static str) -> Option<Secret> {
        self.asked.extend([key, key_file]);
        let here = self.said::<Secret>(key);
        let Some((path, file_origin)) = self.said::<String>(key_file) else {
            let (secret, origin) = here?;
            if secret.0.is_empty() {
                let path = self.path_of(key);
                self.notes.errors.add(&path, Some(origin), "is empty");
                return None;
            }
            self.note(key, secret.show(), origin);
            return Some(secret);
        };
        let field = self.path_of(key_file);
        if let Some((_, origin)) = here {
            let text = format!("{} is set, too ({origin}); only one of them may be", self.path_of(key));
            self.notes.errors.add(&field, Some(file_origin), text);
            return None;
        }
        if path.contains("://") {
            // The secret itself, where its file's name belongs: not repeated.
            self.notes.errors.add(
                &field,
                Some(file_origin),
                "must be the path of a file, and looks like a URL",
            );
            return None;
        }
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                let text = text
                    .strip_suffix('\n')
                    .map_or(text.as_str(), |text| text.strip_suffix('\r').unwrap_or(text));
                if text.is_empty() {
                    self.notes.errors.add(&field, Some(file_origin), format!("{path} is empty"));
                    return None;
                }
                let secret = Secret(text.to_owned());
                self.note(key_file, quoted(&path), file_origin);
                self.note(key, secret.show(), Origin::SecretFile(path));
                Some(secret)
            }
            // (What is no UTF-8 is an error of this kind, too, and is not shown.)
            Err(error) => {
                self.notes.errors.add(&field, Some(file_origin), format!("cannot read {path}: {error}"));
                None
            }
        }
    }

    /// A secret that must be there; a placeholder stands for one that is not.
    pub(super) fn required_secret(&mut self, key: &'static str, key_file: &'static str) -> Secret {
        let paths = [key, key_file].map(|key| self.path_of(key));
        self.secret(key, key_file).unwrap_or_else(|| {
            let [path, file] = &paths;
            // Who wrote something wrong there is told of that; in a text that is no TOML it may be there, unread.
            if ![path, file, &self.path].iter().any(|path| self.notes.errors.about(path))
                && !self.notes.errors.about("")
            {
                let text =
                    format!("is missing; say it here, in a file that {file} names, or in {}", variable(path));
                self.notes.errors.add(path, None, text);
            }
            Secret(String::new())
        })
    }

    /// A table below this one; an empty one if it is not there.
    pub(super) fn section(&mut self, key: &'static str) -> Section<'_> {
        self.asked.push(key);
        let node = self.take(key);
        self.below(key, node)
    }

    /// Every table of a table, by the names that people gave them.
    pub(super) fn each<T>(
        &mut self,
        key: &'static str,
        read: impl Fn(Section<'_>) -> T,
    ) -> BTreeMap<String, T> {
        let mut all = self.section(key);
        let tables = std::mem::take(&mut all.table);
        let mut found = BTreeMap::new();
        for (name, node) in tables {
            all.notes.places.insert(all.path_of(&name), node.origin.clone());
            let one = all.below(&name, Some(node));
            found.insert(name, read(one));
        }
        found
    }

    fn below(&mut self, key: &str, node: Option<Node>) -> Section<'_> {
        let path = self.path_of(key);
        let table = match node {
            None => Table::new(),
            Some(Node { value: Value::Table(table), .. }) => table,
            Some(Node { origin, .. }) => {
                self.notes.errors.add(&path, Some(origin), format!("must be a table, [{path}]"));
                Table::new()
            }
        };
        Section { notes: self.notes, path, table, asked: Vec::new() }
    }
}

impl Drop for Section<'_> {
    fn drop(&mut self) {
        for (key, node) in std::mem::take(&mut self.table) {
            let path = self.path_of(&key);
            let here =
                if self.path.is_empty() { "at the top".to_owned() } else { format!("in [{}]", self.path) };
            let text = format!("is no setting; {here} there are {}", self.asked.join(", "));
            self.notes.errors.add(&path, Some(node.origin), text);
        }
    }
}

/// The variable that sets a path.
pub(super) fn variable(path: &str) -> String {
    format!("HOLDFAST_{}", path.replace('.', "__").replace('-', "_").to_ascii_uppercase())
}
