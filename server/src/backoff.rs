//! How long to wait before trying again: exponential, capped, jittered.
//!
//! Jitter is "equal": half of the step is certain, half random, so that what failed together does not come back together
//! and yet nothing comes back at once.

use std::time::Duration;

/// An exponential back-off.
#[derive(Debug, Clone, Copy)]
pub struct Backoff {
    /// The first step.
    pub base: Duration,
    /// No wait is longer.
    pub cap: Duration,
}

impl Backoff {
    /// The wait after `failures` failures in a row (1 = the first).
    pub fn after(&self, failures: u32) -> Duration {
        let step = self.step(failures);
        step.mul_f64(rand::random_range(0.5..=1.0))
    }

    /// The longest wait after `failures` failures.
    pub fn step(&self, failures: u32) -> Duration {
        // 2^31 of any base is past any cap; the shift must not overflow for a row that failed for a year.
        let doubled = self.base.saturating_mul(1_u32 << failures.saturating_sub(1).min(31));
        doubled.min(self.cap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_up_to_its_cap_and_never_overflows() {
        let backoff = Backoff { base: Duration::from_secs(1), cap: Duration::from_secs(60) };
        assert_eq!(backoff.step(1), Duration::from_secs(1));
        assert_eq!(backoff.step(5), Duration::from_secs(16));
        assert_eq!(backoff.step(7), Duration::from_secs(60));
        assert_eq!(backoff.step(u32::MAX), Duration::from_secs(60));
    }

    #[test]
    fn the_wait_is_at_least_half_its_step() {
        let backoff = Backoff { base: Duration::from_secs(1), cap: Duration::from_secs(60) };
        for failures in 1..20 {
            let wait = backoff.after(failures);
            assert!(wait >= backoff.step(failures) / 2 && wait <= backoff.step(failures));
        }
    }
}
