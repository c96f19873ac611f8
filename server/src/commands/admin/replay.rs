//! `replay`: planned, run, watched, paused, resumed, cancelled. Nothing is sent before a plan was shown.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use holdfast_proto::v1::replay_service_client::ReplayServiceClient;
use holdfast_proto::v1::{
    CancelReplayRequest, GetReplayRequest, ListReplayFailuresRequest, ListReplaysRequest, PauseReplayRequest,
    Replay, ReplayRequest, ReplayState, ResumeReplayRequest, WatchReplayRequest,
};
use prost_types::Timestamp;

use super::fleet::time;
use super::output::{Column, Show};
use super::session::{FAILED, Session, Trouble};

/// `replay`.
#[derive(Debug, Args)]
pub(super) struct Replays {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Counts what a window has, and freezes that set for an hour. Sends nothing.
    Plan(Plan),
    /// Runs a plan, and shows how it goes until it has ended or is paused.
    Run(Run),
    /// One replay as it stands.
    Show(One),
    /// Replays and plans, the newest first.
    List(OfService),
    /// Shows how a replay goes until it has ended or is paused.
    Watch(One),
    /// Has a replay wait. What is in hand is sent.
    Pause(One),
    /// Has a paused replay go on from where it was.
    Resume(One),
    /// Ends a replay, or a plan. Final.
    Cancel(One),
    /// What a replay could not send, and why.
    Failures(One),
}

#[derive(Debug, Args)]
struct Plan {
    /// The service whose events are sent again.
    service: String,
    /// Staged at or after this time, such as 2026-01-31T08:00:00Z.
    #[arg(long, value_parser = time)]
    from: Timestamp,
    /// Staged before this time.
    #[arg(long, value_parser = time)]
    to: Timestamp,
    /// Only events of this type.
    #[arg(long = "type")]
    event_type: Option<String>,
    /// Only events of this ordering key.
    #[arg(long = "key")]
    ordering_key: Option<String>,
    #[command(flatten)]
    pace: Pace,
    /// The share of failures above which it pauses itself; 0.1 if not given.
    #[arg(long)]
    max_failure_ratio: Option<f64>,
}

#[derive(Debug, Args)]
struct Pace {
    /// Events a second, 1 to 10000; 1000 (or as planned) if not given.
    #[arg(long)]
    max_rate: Option<i32>,
    /// Begins with one event, then ten, then a hundred, as long as all goes well.
    #[arg(long)]
    ramp: bool,
}

#[derive(Debug, Args)]
struct Run {
    /// The service.
    service: String,
    /// The plan.
    plan: String,
    #[command(flatten)]
    pace: Pace,
    /// Does not wait for its end.
    #[arg(long)]
    detach: bool,
}

#[derive(Debug, Args)]
struct One {
    /// The service.
    service: String,
    /// The replay.
    replay: String,
}

#[derive(Debug, Args)]
struct OfService {
    /// The service.
    service: String,
}

const RECORD: &[Column] = &[
    ("replay", "replayId", Show::Plain),
    ("service", "service", Show::Plain),
    ("state", "state", Show::Word("REPLAY_STATE_")),
    ("reason", "reason", Show::Plain),
    ("from", "from", Show::Plain),
    ("to", "to", Show::Plain),
    ("type", "eventType", Show::Plain),
    ("key", "orderingKey", Show::Plain),
    ("matched", "matched", Show::Plain),
    ("done", "done", Show::Plain),
    ("failed", "failed", Show::Plain),
    ("expired", "expired", Show::Plain),
    ("pruned", "pruned", Show::Plain),
    ("not published", "notPublished", Show::Plain),
    ("max rate", "maxRate", Show::Plain),
    ("ramp", "ramp", Show::YesNo),
    ("by", "requestedBy", Show::Plain),
    ("planned", "createdAt", Show::Plain),
    ("run until", "expiresAt", Show::Plain),
    ("started", "startedAt", Show::Plain),
    ("ended", "endedAt", Show::Plain),
];

const ROWS: &[Column] = &[
    ("REPLAY", "replayId", Show::Plain),
    ("STATE", "state", Show::Word("REPLAY_STATE_")),
    ("FROM", "from", Show::Plain),
    ("TO", "to", Show::Plain),
    ("TYPE", "eventType", Show::Plain),
    ("MATCHED", "matched", Show::Plain),
    ("DONE", "done", Show::Plain),
    ("FAILED", "failed", Show::Plain),
    ("EXPIRED", "expired", Show::Plain),
    ("PRUNED", "pruned", Show::Plain),
    ("BY", "requestedBy", Show::Plain),
];

const CONSUMERS: &[Column] = &[
    ("CONSUMER", "service", Show::Plain),
    ("QUEUE", "consumerQueue", Show::Plain),
    ("ASKED", "asked", Show::Plain),
    ("SUPPRESSED", "suppressed", Show::Plain),
    ("WOULD RUN", "wouldRun", Show::Plain),
    ("NEVER SEEN", "neverSeen", Show::Plain),
    ("NOT ASKED", "notAsked", Show::Plain),
];

const FAILURES: &[Column] =
    &[("SEQ", "seq", Show::Plain), ("EVENT", "eventId", Show::Plain), ("ERROR", "error", Show::Plain)];

impl Replays {
    pub(super) async fn run(self, session: &Session) -> Result<ExitCode, Trouble> {
        match self.what {
            What::Plan(plan) => plan.run(session).await,
            What::Run(run) => run.run(session).await,
            What::Show(one) => {
                let request = GetReplayRequest { service: one.service, replay_id: one.replay };
                let mut client = ReplayServiceClient::new(session.transport.clone());
                let answer = session.ask(request, |request| client.get_replay(request)).await?;
                show(session, answer.replay.as_ref())
            }
            What::List(of) => of.list(session).await,
            What::Watch(one) => watch(session, one.service, one.replay).await,
            What::Pause(one) => {
                let request = PauseReplayRequest { service: one.service, replay_id: one.replay };
                let mut client = ReplayServiceClient::new(session.transport.clone());
                let answer = session.ask(request, |request| client.pause_replay(request)).await?;
                show(session, answer.replay.as_ref())
            }
            What::Resume(one) => {
                let request = ResumeReplayRequest { service: one.service, replay_id: one.replay };
                let mut client = ReplayServiceClient::new(session.transport.clone());
                let answer = session.ask(request, |request| client.resume_replay(request)).await?;
                show(session, answer.replay.as_ref())
            }
            What::Cancel(one) => {
                let request = CancelReplayRequest { service: one.service, replay_id: one.replay };
                let mut client = ReplayServiceClient::new(session.transport.clone());
                let answer = session.ask(request, |request| client.cancel_replay(request)).await?;
                show(session, answer.replay.as_ref())
            }
            What::Failures(one) => one.failures(session).await,
        }
    }
}

fn show(session: &Session, replay: Option<&Replay>) -> Result<ExitCode, Trouble> {
    if let Some(replay) = replay {
        session.show(replay, RECORD)?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Plan {
    async fn run(self, session: &Session) -> Result<ExitCode, Trouble> {
        let mut client = ReplayServiceClient::new(session.transport.clone());
        let request = ReplayRequest {
            service: self.service.clone(),
            from: Some(self.from),
            to: Some(self.to),
            event_type: self.event_type.unwrap_or_default(),
            ordering_key: self.ordering_key,
            dry_run: true,
            max_rate: self.pace.max_rate,
            ramp: self.pace.ramp,
            max_failure_ratio: self.max_failure_ratio,
            plan_id: String::new(),
        };
        let answer = session.ask(request, |request| client.replay(request)).await?;
        show(session, answer.replay.as_ref())?;
        if let (Some(plan), false) = (&answer.replay, session.json) {
            let sample: String = answer.sample.iter().map(|id| format!("  {id}\n")).collect();
            if !sample.is_empty() {
                session.say(&format!("\nthe first of them:\n{}", sample.trim_end()))?;
            }
            if !answer.consumers.is_empty() {
                session.say("\nwhat the inboxes of consumers remember of it:")?;
                session.rows(&answer.consumers, CONSUMERS)?;
            }
            session.say(&format!(
                "\nnothing is sent yet. Within the hour:\n  holdfast admin replay run {} {}",
                self.service, plan.replay_id
            ))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Run {
    async fn run(self, session: &Session) -> Result<ExitCode, Trouble> {
        let mut client = ReplayServiceClient::new(session.transport.clone());
        let request = ReplayRequest {
            service: self.service.clone(),
            plan_id: self.plan.clone(),
            max_rate: self.pace.max_rate,
            ramp: self.pace.ramp,
            ..ReplayRequest::default()
        };
        let answer = session.ask(request, |request| client.replay(request)).await?;
        if self.detach {
            return show(session, answer.replay.as_ref());
        }
        watch(session, self.service, self.plan).await
    }
}

impl OfService {
    async fn list(self, session: &Session) -> Result<ExitCode, Trouble> {
        let ask = async |page_token, page_size: u32| {
            let page_size = page_size.min(100).cast_signed();
            let request = ListReplaysRequest { service: self.service.clone(), page_size, page_token };
            let mut client = ReplayServiceClient::new(session.transport.clone());
            let page = session.ask(request, |request| client.list_replays(request)).await?;
            Ok((page.replays, page.next_page_token))
        };
        session.list(ROWS, ask).await?;
        Ok(ExitCode::SUCCESS)
    }
}

impl One {
    async fn failures(self, session: &Session) -> Result<ExitCode, Trouble> {
        let ask = async |page_token, page_size: u32| {
            let request = ListReplayFailuresRequest {
                service: self.service.clone(),
                replay_id: self.replay.clone(),
                page_size: page_size.cast_signed(),
                page_token,
            };
            let mut client = ReplayServiceClient::new(session.transport.clone());
            let page = session.ask(request, |request| client.list_replay_failures(request)).await?;
            Ok((page.failures, page.next_page_token))
        };
        session.list(FAILURES, ask).await?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Shows how it goes: a bar where there is a terminal, else nothing before the end; then the replay. 0 only if all of it was sent.
async fn watch(session: &Session, service: String, replay_id: String) -> Result<ExitCode, Trouble> {
    let mut client = ReplayServiceClient::new(session.transport.clone());
    let mut watched = client.watch_replay(WatchReplayRequest { service, replay_id }).await?.into_inner();
    let bar = std::io::stderr().is_terminal() && !session.json;
    let mut last = None;
    while let Some(told) = watched.message().await? {
        let Some(replay) = told.replay else { continue };
        if bar {
            eprint!("\r{}\x1b[K", progress(&replay, told.rate));
            std::io::stderr().flush()?;
        }
        let paused = replay.state() == ReplayState::Paused;
        last = Some(replay);
        if paused {
            break;
        }
    }
    if bar {
        eprintln!();
    }
    let Some(replay) = last else { return Ok(ExitCode::from(FAILED)) };
    session.show(&replay, RECORD)?;
    let whole = replay.state() == ReplayState::Done && replay.failed == 0;
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

/// One line: how much of it is dealt with, and how fast.
fn progress(replay: &Replay, rate: f64) -> String {
    const WIDTH: i64 = 30;
    let dealt = replay.done + replay.failed + replay.expired + replay.pruned;
    let share = if replay.matched > 0 { (dealt * WIDTH / replay.matched).clamp(0, WIDTH) } else { WIDTH };
    let full = usize::try_from(share).unwrap_or(0);
    let rest = usize::try_from(WIDTH - share).unwrap_or(0);
    let state = replay.state().as_str_name().trim_start_matches("REPLAY_STATE_").to_lowercase();
    format!(
        "[{}{}] {dealt} of {}, {} failed, {rate:.0}/s, {state}",
        "#".repeat(full),
        ".".repeat(rest),
        replay.matched,
        replay.failed
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_is_as_full_as_what_is_dealt_with_whatever_the_numbers() {
        let of = |matched, done, failed| Replay { matched, done, failed, state: 3, ..Replay::default() };
        assert_eq!(
            progress(&of(10, 4, 1), 12.4),
            "[###############...............] 5 of 10, 1 failed, 12/s, running"
        );
        assert!(progress(&of(0, 0, 0), 0.0).starts_with("[##############################]"));
        assert!(progress(&of(10, 20, 0), 0.0).starts_with("[##############################]"));
    }
}
