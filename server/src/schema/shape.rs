//! A schema as a list of things, and the list as text: `migrations/golden/*.txt`, one line a thing.

use std::collections::BTreeMap;
use std::fmt;

/// What one thing is called: its kind (`table`, `column`, …), and its name within schema `holdfast`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    /// As `queries/shape.sql` has it.
    pub kind: String,
    /// `event_outbox.seq`, say.
    pub name: String,
}

impl Name {
    /// The table it belongs to; a function belongs to none.
    pub(super) fn table(&self) -> Option<&str> {
        (self.kind != "function").then(|| self.name.split(['.', ' ']).next().unwrap_or(&self.name))
    }

    /// Its own name, without the table's.
    pub(super) fn own(&self) -> &str {
        self.name.split_once('.').map_or(self.name.as_str(), |(_, own)| own)
    }
}

/// As an operator would call it.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name } = self;
        match (kind.as_str(), self.table()) {
            ("index", _) => write!(f, "index holdfast.{}", self.own()),
            ("constraint" | "trigger" | "rule", Some(table)) => {
                write!(f, "{kind} {} of holdfast.{table}", self.own())
            }
            _ => write!(f, "{kind} holdfast.{name}"),
        }
    }
}

/// All things of a schema, and what each is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shape(pub(super) BTreeMap<Name, String>);

impl Shape {
    /// Of what a database answered: kind, name, fact.
    pub fn of(things: impl IntoIterator<Item = (String, String, String)>) -> Self {
        // One line each, whatever somebody has called it or written into it.
        let line = |text: String| text.replace(['\n', '\r'], " ");
        let things = things.into_iter();
        Self(things.map(|(kind, name, fact)| (Name { kind, name: line(name) }, line(fact))).collect())
    }

    /// Reads what [`Shape::to_text`] has written; lines that are none of its are left out.
    pub fn parse(text: &str) -> Self {
        Self::of(text.lines().filter_map(|line| {
            let (thing, fact) = line.split_once(": ")?;
            let (kind, name) = thing.split_once(' ')?;
            Some((kind.to_owned(), name.to_owned(), fact.to_owned()))
        }))
    }

    /// One line a thing, in their order.
    pub fn to_text(&self) -> String {
        let line = |(Name { kind, name }, fact): (&Name, &String)| format!("{kind} {name}: {fact}\n");
        self.0.iter().map(line).collect()
    }

    /// What is not in `other`.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        let own = self.0.iter().filter(|(name, fact)| other.0.get(name) != Some(fact));
        Self(own.map(|(name, fact)| (name.clone(), fact.clone())).collect())
    }

    /// With everything of `other`, too.
    #[must_use]
    pub fn with(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Whether it has this very thing.
    pub(super) fn has(&self, name: &Name, fact: &str) -> bool {
        self.0.get(name).is_some_and(|known| known == fact)
    }

    /// Whether it has this table.
    pub(super) fn has_table(&self, table: &str) -> bool {
        self.0.contains_key(&Name { kind: "table".to_owned(), name: table.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_read_as_it_was_written() {
        let shape = Shape::of(
            [
                ("table", "a", "logged"),
                ("column", "a.b", "text | null | default 'x: y'::text"),
                ("function", "f(x integer)", "returns void"),
            ]
            .map(|(kind, name, fact)| (kind.to_owned(), name.to_owned(), fact.to_owned())),
        );
        assert_eq!(Shape::parse(&shape.to_text()), shape);
        assert_eq!(shape.without(&shape), Shape::default());
    }
}
