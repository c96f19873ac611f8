//! What is wrong with a configuration: all of it, each with its place, never a value.

use std::fmt;

use super::tree::Origin;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The setting, by its dotted path; empty for what is wrong with the text itself.
    pub field: String,
    /// Where it was said, if anywhere.
    pub origin: Option<Origin>,
    /// What is wrong and what is right. Repeats no value: it may be a secret in the wrong place.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.field.as_str(), &self.origin) {
            ("", Some(origin)) => write!(f, "{origin}: {}", self.text),
            (field, Some(origin)) => write!(f, "{field} ({origin}): {}", self.text),
            (field, None) => write!(f, "{field}: {}", self.text),
        }
    }
}

/// Everything that is wrong with a configuration.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Errors(Vec<Problem>);

impl Errors {
    pub(super) fn add(&mut self, field: &str, origin: Option<Origin>, text: impl fmt::Display) {
        self.0.push(Problem { field: field.to_owned(), origin, text: text.to_string() });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether something is wrong with this setting already: what follows from it is not worth another line.
    pub(super) fn about(&self, field: &str) -> bool {
        self.0.iter().any(|problem| problem.field == field)
    }

    /// The problems, in the order in which they were found.
    pub fn problems(&self) -> &[Problem] {
        &self.0
    }
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the configuration has {} problem(s)", self.0.len())?;
        self.0.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

impl std::error::Error for Errors {}
