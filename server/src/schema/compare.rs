//! What of a difference breaks this release, and what does not. Decides, asks nobody.
//!
//! *Breaking*: something that we rely on is gone or is another thing, or something that we know nothing of can refuse or change
//! what we write. *Additive*: something more that nothing of ours meets. A migration of the next release may add the latter:
//! columns that nobody must fill, indexes that are not unique (or are one of ours once more), tables, functions, constraints over new columns alone, triggers
//! that run a function of this schema. Anybody else's trigger could swallow rows: it is breaking. Design, section 11.

use super::shape::{Name, Shape};

/// How a schema differs from what it should be, each difference in words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Drift {
    /// With these the release does not work.
    pub breaking: Vec<String>,
    /// With these it does.
    pub additive: Vec<String>,
}

/// Most bytes of a summary: it goes into an error's metadata.
const MOST_BYTES: usize = 400;
/// Differences named in a summary.
const NAMED: usize = 3;

impl Drift {
    /// Whether there is no difference.
    pub fn is_none(&self) -> bool {
        self.breaking.is_empty() && self.additive.is_empty()
    }

    /// The first differences of a list, in one line.
    pub fn summary(differences: &[String]) -> String {
        let mut text = differences.iter().take(NAMED).cloned().collect::<Vec<_>>().join("; ");
        if text.len() > MOST_BYTES {
            text.truncate(text.floor_char_boundary(MOST_BYTES));
            text.push('…');
        }
        match differences.len().saturating_sub(NAMED) {
            0 => text,
            more => format!("{text}; and {more} more"),
        }
    }
}

/// Holds `seen` against `expected`. What is in `known` may be there, too, without being a difference.
pub fn compare(expected: &Shape, seen: &Shape, known: &Shape) -> Drift {
    let mut drift = Drift::default();
    if !seen.0.keys().any(|name| name.kind == "table") {
        drift.breaking.push("schema holdfast is missing: run `holdfast migrate`".to_owned());
        return drift;
    }
    for (name, fact) in &expected.0 {
        match seen.0.get(name) {
            Some(now) if now == fact => {}
            Some(now) => changed(name, fact, now, &mut drift),
            // A table takes all that belongs to it along.
            None if name.kind != "table" && name.table().is_some_and(|table| !seen.has_table(table)) => {}
            None => drift.breaking.push(format!("{name} is missing")),
        }
    }
    for (name, fact) in seen.0.iter().filter(|(name, _)| !expected.0.contains_key(name)) {
        let elsewhere = name.kind != "table" && name.table().is_some_and(|table| !expected.has_table(table));
        if !elsewhere && !known.has(name, fact) {
            extra(name, fact, expected, &mut drift);
        }
    }
    drift
}

/// A column: its type, whether it must be filled, what fills it.
fn column(fact: &str) -> (&str, bool, &str) {
    let mut parts = fact.splitn(3, " | ");
    let mut next = || parts.next().unwrap_or_default();
    let (of, null, filled) = (next(), next(), next());
    (of, null == "not null", filled)
}

fn changed(name: &Name, fact: &str, now: &str, drift: &mut Drift) {
    let (was_rest, was_state) = fact.rsplit_once(" | ").unwrap_or((fact, ""));
    let (rest, state) = now.rsplit_once(" | ").unwrap_or((now, ""));
    match name.kind.as_str() {
        "column" => changed_column(name, column(fact), column(now), drift),
        "index" if rest == fact && state == "invalid" => {
            drift.breaking.push(format!("{name} is invalid: REINDEX it"));
        }
        "trigger" if rest == was_rest && was_state == "enabled" => {
            drift.breaking.push(format!("{name} is {state}, not enabled"));
        }
        "table" => drift.breaking.push(format!("{name} is {now}, not {fact}")),
        _ => drift.breaking.push(format!("{name} is not this release's: it has been changed")),
    }
}

fn changed_column(
    name: &Name,
    (was_type, was_not_null, was_filled): (&str, bool, &str),
    (now_type, now_not_null, now_filled): (&str, bool, &str),
    drift: &mut Drift,
) {
    if now_type != was_type {
        drift.breaking.push(format!("{name} is {now_type}, not {was_type}"));
    }
    match (was_not_null, now_not_null) {
        (false, true) => drift.breaking.push(format!("{name} is NOT NULL and should not be")),
        // We write what we always wrote.
        (true, false) => drift.additive.push(format!("{name} is not NOT NULL any more")),
        _ => {}
    }
    match (was_filled, now_filled) {
        (was, now) if was == now => {}
        ("nothing", now) if now.starts_with("default ") => drift.additive.push(format!("{name} has a {now}")),
        ("nothing", now) => drift.breaking.push(format!("{name} is {now} and should not be")),
        (was, "nothing") => drift.breaking.push(format!("{name} has lost its {was}")),
        (was, now) => drift.breaking.push(format!("{name} has {now}, not {was}")),
    }
}

fn extra(name: &Name, fact: &str, expected: &Shape, drift: &mut Drift) {
    let harmless = match name.kind.as_str() {
        "table" | "function" => true,
        "column" => {
            let (_, not_null, filled) = column(fact);
            !not_null || filled != "nothing"
        }
        "index" => !fact.starts_with("CREATE UNIQUE ") || is_once_more(name, fact, expected),
        // Over columns alone that we do not write: what their defaults are is the migration's own affair.
        "constraint" => {
            (fact.starts_with("CHECK ") || fact.starts_with("FOREIGN KEY ")) && {
                let columns = fact.rsplit_once(" | ").map_or("", |(_, columns)| columns);
                let table = name.table().unwrap_or_default();
                let ours = |column: &str| {
                    let name = Name { kind: "column".to_owned(), name: format!("{table}.{column}") };
                    expected.0.contains_key(&name)
                };
                !columns.is_empty() && !columns.split(',').any(ours)
            }
        }
        "trigger" => fact.ends_with(" | disabled") || fact.contains(" EXECUTE FUNCTION holdfast."),
        // A stranger's foreign key or rule.
        _ => false,
    };
    if harmless {
        drift.additive.push(format!("{name} is more than this release knows"));
    } else {
        drift
            .breaking
            .push(format!("{name} is not this release's, and can get in the way of what it writes"));
    }
}

/// Whether a unique index refuses only what one of ours refuses anyway. `REINDEX … CONCURRENTLY` builds such a one beside ours
/// (`…_ccnew`, then `…_ccold`), and leaves it there, invalid, if it is broken off.
fn is_once_more(name: &Name, fact: &str, expected: &Shape) -> bool {
    let table = name.table().unwrap_or_default();
    let on = format!(" ON holdfast.{table} USING ");
    // Columns, expressions, predicate: all but its name and whether it is valid.
    let of_index = |fact: &str| {
        let (_, of) = fact.strip_suffix(" | invalid").unwrap_or(fact).split_once(&on)?;
        Some(of.to_owned())
    };
    // A constraint's index is not told of; it is a btree over the constraint's columns.
    let of_constraint = |fact: &str| {
        let (fact, _) = fact.rsplit_once(" | ")?;
        let of = fact.strip_prefix("PRIMARY KEY ").or_else(|| fact.strip_prefix("UNIQUE "))?;
        Some(format!("btree {of}"))
    };
    let Some(more) = of_index(fact) else { return false };
    let ours = expected.0.iter().filter(|(one, _)| one.table() == Some(table));
    ours.filter_map(|(one, fact)| match one.kind.as_str() {
        "index" if fact.starts_with("CREATE UNIQUE ") => of_index(fact),
        "constraint" => of_constraint(fact),
        _ => None,
    })
    .any(|of| of == more)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    const BASE: &str = "\
table t: logged
column t.id: uuid | not null | default holdfast.uuid_v7()
column t.note: text | null | nothing
column t.n: bigint | not null | nothing
constraint t.t_pkey: PRIMARY KEY (id) | id
index t.t_note: CREATE INDEX t_note ON holdfast.t USING btree (note)
index t.t_once: CREATE UNIQUE INDEX t_once ON holdfast.t USING btree (n) WHERE (note IS NULL)
function f(): returns void, text 1
trigger t.g: CREATE TRIGGER g … EXECUTE FUNCTION holdfast.f() | enabled
";

    fn held_against(seen: &str) -> Drift {
        compare(&Shape::parse(BASE), &Shape::parse(seen), &Shape::default())
    }

    /// `BASE` with each line that begins so replaced; an empty one is left out.
    fn with(begins: &str, line: &str) -> Drift {
        let kept = BASE.lines().filter(|one| !one.starts_with(begins));
        let lines: Vec<&str> = kept.chain([line]).collect();
        held_against(&lines.join("\n"))
    }

    fn class(drift: &Drift) -> &'static str {
        match (drift.breaking.len(), drift.additive.len()) {
            (0, 0) => "none",
            (1, 0) => "breaking",
            (0, 1) => "additive",
            _ => "several",
        }
    }

    #[test]
    fn every_kind_of_difference_has_its_class() {
        for (begins, line, expected) in [
            ("x", "", "none"),
            ("column t.note", "", "breaking"),
            ("column t.note", "column t.note: integer | null | nothing", "breaking"),
            ("column t.note", "column t.note: text | not null | nothing", "breaking"),
            ("column t.note", "column t.note: text | null | default 'a'::text", "additive"),
            ("column t.note", "column t.note: text | null | identity always", "breaking"),
            ("column t.n:", "column t.n: bigint | null | nothing", "additive"),
            ("column t.id", "column t.id: uuid | not null | nothing", "breaking"),
            ("column t.id", "column t.id: uuid | not null | default gen_random_uuid()", "breaking"),
            ("x", "column t.more: text | null | nothing", "additive"),
            ("x", "column t.more: text | not null | default ''::text", "additive"),
            ("x", "column t.more: text | not null | nothing", "breaking"),
            ("constraint", "", "breaking"),
            ("x", "constraint t.c: CHECK ((n > 0)) | n", "breaking"),
            ("x", "constraint t.c: CHECK ((more > 0)) | more", "additive"),
            ("x", "constraint t.c: CHECK ((more > n)) | more,n", "breaking"),
            ("x", "constraint t.c: CHECK (false) | ", "breaking"),
            ("x", "constraint t.c: UNIQUE (more) | more", "breaking"),
            ("x", "reference t from public.x: FOREIGN KEY …", "breaking"),
            ("index t.t_note", "", "breaking"),
            (
                "index t.t_note",
                "index t.t_note: CREATE INDEX t_note ON holdfast.t USING btree (note) | invalid",
                "breaking",
            ),
            ("x", "index t.more: CREATE INDEX more ON holdfast.t USING btree (n)", "additive"),
            ("x", "index t.more: CREATE UNIQUE INDEX more ON holdfast.t USING btree (n)", "breaking"),
            // What REINDEX CONCURRENTLY makes, and what only looks like it.
            (
                "x",
                "index t.t_pkey_ccnew: CREATE UNIQUE INDEX t_pkey_ccnew ON holdfast.t USING btree (id) | invalid",
                "additive",
            ),
            (
                "x",
                "index t.t_pkey_ccold: CREATE UNIQUE INDEX t_pkey_ccold ON holdfast.t USING btree (id)",
                "additive",
            ),
            (
                "x",
                "index t.a: CREATE UNIQUE INDEX a ON holdfast.t USING btree (n) WHERE (note IS NULL) | invalid",
                "additive",
            ),
            (
                "x",
                "index t.a: CREATE UNIQUE INDEX a ON holdfast.t USING btree (n) WHERE (id IS NULL)",
                "breaking",
            ),
            ("x", "index t.a: CREATE UNIQUE INDEX a ON holdfast.t USING btree (note)", "breaking"),
            (
                "x",
                "index t.t_pkey_ccnew: CREATE UNIQUE INDEX t_pkey_ccnew ON holdfast.t USING btree (id, n) | invalid",
                "breaking",
            ),
            (
                "x",
                "index t.t_pkey_ccnew: CREATE UNIQUE INDEX t_pkey_ccnew ON holdfast.t USING hash (id)",
                "breaking",
            ),
            ("function", "", "breaking"),
            ("function", "function f(): returns void, text 2", "breaking"),
            ("x", "function f(integer): returns void, text 2", "additive"),
            ("trigger", "", "breaking"),
            (
                "trigger",
                "trigger t.g: CREATE TRIGGER g … EXECUTE FUNCTION holdfast.f() | disabled",
                "breaking",
            ),
            ("x", "trigger t.h: CREATE TRIGGER h … EXECUTE FUNCTION holdfast.f() | enabled", "additive"),
            ("x", "trigger t.h: CREATE TRIGGER h … EXECUTE FUNCTION public.f() | enabled", "breaking"),
            ("x", "trigger t.h: CREATE TRIGGER h … EXECUTE FUNCTION public.f() | disabled", "additive"),
            ("x", "rule t.r: CREATE RULE …", "breaking"),
            ("table", "table t: not logged", "breaking"),
            ("x", "table u: logged\ncolumn u.a: text | not null | nothing", "additive"),
        ] {
            let drift = with(begins, line);
            assert_eq!(class(&drift), expected, "{begins:?} → {line:?}: {drift:?}");
        }
    }

    #[test]
    fn any_single_line_that_is_missing_is_breaking_and_named() {
        for missing in BASE.lines() {
            let left: Vec<&str> = BASE.lines().filter(|line| *line != missing).collect();
            let drift = held_against(&left.join("\n"));
            assert_eq!(class(&drift), "breaking", "{missing}");
        }
        assert_eq!(with("index t.t_note", "").breaking, ["index holdfast.t_note is missing"]);
        assert_eq!(with("trigger", "").breaking, ["trigger g of holdfast.t is missing"]);
        assert_eq!(with("column t.n:", "").breaking, ["column holdfast.t.n is missing"]);
    }

    #[test]
    fn a_missing_table_is_one_difference_and_an_empty_database_another() {
        let other = "table u: logged";
        let seen = compare(&Shape::parse(BASE), &Shape::parse(other), &Shape::parse(other));
        assert_eq!(seen.breaking, ["function holdfast.f() is missing", "table holdfast.t is missing"]);
        assert_eq!(held_against("").breaking, ["schema holdfast is missing: run `holdfast migrate`"]);
    }

    #[test]
    fn a_summary_is_short_however_much_there_is() {
        let many: Vec<String> = (0..9).map(|n| format!("{n}{}", "ö".repeat(150))).collect();
        let text = Drift::summary(&many);
        assert!(text.len() < MOST_BYTES + 30 && text.ends_with("; and 6 more"), "{text}");
        assert_eq!(Drift::summary(&many[..1]), *many.first().unwrap());
    }
}
