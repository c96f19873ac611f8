//! What was found, for people and for machines.

use std::fmt::Write as _;

use serde::Serialize;

/// How it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// `serve` works, and this is a risk.
    Warn,
    /// `serve` does not work with this, or loses what it promises.
    Fail,
}

/// One answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How it is.
    pub verdict: Verdict,
    /// Whom it is about: `control`, `services.NAME`, `broker`, `postgres HOST:PORT`.
    pub subject: String,
    /// What was asked: `reachable`, `schema`, `rights`, ….
    pub topic: &'static str,
    /// What was seen.
    pub seen: String,
    /// What to do, if something is to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

/// All answers.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// In the order: control, services by name, broker, PostgreSQL servers.
    pub checks: Vec<Finding>,
}

impl Report {
    pub(super) fn ok(&mut self, subject: &str, topic: &'static str, seen: impl Into<String>) {
        self.add(Verdict::Ok, subject, topic, seen.into(), None);
    }

    pub(super) fn warn(
        &mut self,
        subject: &str,
        topic: &'static str,
        seen: impl Into<String>,
        advice: impl Into<String>,
    ) {
        self.add(Verdict::Warn, subject, topic, seen.into(), Some(advice.into()));
    }

    pub(super) fn fail(
        &mut self,
        subject: &str,
        topic: &'static str,
        seen: impl Into<String>,
        advice: impl Into<String>,
    ) {
        self.add(Verdict::Fail, subject, topic, seen.into(), Some(advice.into()));
    }

    fn add(
        &mut self,
        verdict: Verdict,
        subject: &str,
        topic: &'static str,
        seen: String,
        advice: Option<String>,
    ) {
        self.checks.push(Finding { verdict, subject: subject.to_owned(), topic, seen, advice });
    }

    pub(super) fn extend(&mut self, other: Self) {
        self.checks.extend(other.checks);
    }

    /// The worst of all.
    pub fn worst(&self) -> Verdict {
        self.checks.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Ok)
    }

    /// One line an answer: verdict, subject, topic, what was seen, and what to do.
    pub fn to_text(&self) -> String {
        let wide = self.checks.iter().map(|finding| finding.subject.len()).max().unwrap_or_default();
        let mut text = String::new();
        for Finding { verdict, subject, topic, seen, advice } in &self.checks {
            let word = match verdict {
                Verdict::Ok => "ok",
                Verdict::Warn => "warn",
                Verdict::Fail => "FAIL",
            };
            let _ = write!(text, "{word:<4}  {subject:<wide$}  {topic:<11}  {seen}");
            if let Some(advice) = advice {
                let _ = write!(text, "  → {advice}");
            }
            text.push('\n');
        }
        text
    }
}
