//! Waiting for facts. Nothing in these tests sleeps for luck: a wait polls something observable, has a deadline,
//! and fails with what it waited for and what it saw last.

use std::{
    fmt::Debug,
    time::{Duration, Instant},
};

/// Long enough for anything on a loaded machine; only a failing test ever waits this long.
pub const LONG: Duration = Duration::from_secs(30);

/// Polls `look` until it says `Ok`, and returns that; `Err` is what it sees instead.
///
/// # Panics
/// At the deadline, with `what` and the last thing seen.
pub async fn until<T, S, F>(what: &str, within: Duration, mut look: impl FnMut() -> F) -> T
where
    S: Debug,
    F: Future<Output = Result<T, S>>,
{
    let start = Instant::now();
    let mut pause = Duration::from_millis(2);
    loop {
        match look().await {
            Ok(found) => return found,
            Err(seen) => {
                assert!(start.elapsed() < within, "waited {within:?} for {what}; last seen: {seen:?}")
            }
        }
        tokio::time::sleep(pause).await;
        // Quick facts are seen quickly, slow ones do not cost a busy loop.
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// Polls `look` until it yields `wanted`.
///
/// # Panics
/// At the deadline.
pub async fn until_equal<T, F>(what: &str, within: Duration, wanted: T, mut look: impl FnMut() -> F)
where
    T: PartialEq + Debug,
    F: Future<Output = T>,
{
    until(&format!("{what} to be {wanted:?}"), within, || {
        let seen = look();
        async {
            let seen = seen.await;
            if seen == wanted { Ok(()) } else { Err(seen) }
        }
    })
    .await;
}
