//! The benches: `./x bench [NAME…]`, one of `drain`, `flatness`, `latency`, `staging`, `consume`, `replay`, `idle`, `wal`; all of them without a name.
//!
//! Each figure is a ratio within one run, its baseline interleaved with it round by round, after one round to warm up; the line
//! says median, minimum, maximum and the number of rounds. Nothing here is random but ids. What the figures mean and what they
//! were: `docs/performance.md`. One binary, because linking one takes long enough.
#![expect(clippy::unwrap_used, reason = "a bench that meets something unexpected ends")]

mod common;
mod consume;
mod drain;
mod idle;
mod latency;
mod replay;
mod staging;
mod wal;

fn main() {
    let names: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let wanted = |name: &str| names.is_empty() || names.iter().any(|one| one == name);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        if wanted("drain") {
            drain::run().await;
        }
        if wanted("flatness") {
            drain::flatness().await;
        }
        if wanted("latency") {
            latency::run().await;
        }
        if wanted("staging") {
            staging::run().await;
        }
        if wanted("consume") {
            consume::run().await;
        }
        if wanted("replay") {
            replay::run().await;
        }
        if wanted("idle") {
            idle::run().await;
        }
        if wanted("wal") {
            wal::run().await;
        }
    });
}
