//! Which publish was returned? Pure.
//!
//! The broker sends an unroutable message back before it confirms it, but the client library hands a waiting return to
//! whichever confirm completes next, which need not be the same message's: with many publishes under way a routed one would
//! be called unroutable and the unroutable one published. So confirms are judged here, by message id.
//!
//! What is sure: a return arrives before its own confirm, and each confirm that completes takes the oldest waiting return
//! along, if there is one. Hence (1) a confirm that took nothing along found none waiting, so its own return, if it had one,
//! was taken by an earlier confirm and is known here; (2) when every return known here has met its own confirm, none is
//! waiting in the library for a confirm that has completed already. A confirm that took somebody else's return is kept
//! until either tells.

use std::collections::HashMap;

use super::Outcome;

/// A confirm as the library completed it.
#[derive(Debug)]
pub(super) struct Landed<A> {
    /// The message that was confirmed.
    pub id: String,
    /// Whether the broker took responsibility (ack) or not (nack).
    pub acked: bool,
    /// The return that came along: its message's id, and the broker's words.
    pub carried: Option<(String, String)>,
    /// For whoever waits for the outcome.
    pub answer: A,
}

/// Returns that have not met their own confirm, and confirms that wait for certainty.
#[derive(Debug)]
pub(super) struct Returns<A> {
    /// How often, and why: the same event may be on the wire twice.
    unmatched: HashMap<String, (u32, String)>,
    kept: Vec<Landed<A>>,
}

impl<A> Default for Returns<A> {
    fn default() -> Self {
        Self { unmatched: HashMap::new(), kept: Vec::new() }
    }
}

impl<A> Returns<A> {
    /// Judges confirms; `landed` must hold everything that has completed up to now, since the order in which completed
    /// confirms are seen need not be the order in which the library completed them.
    pub(super) fn judge(&mut self, landed: Vec<Landed<A>>) -> Vec<(A, Outcome)> {
        for (id, reason) in landed.iter().filter_map(|l| l.carried.as_ref()) {
            self.unmatched.entry(id.clone()).or_insert_with(|| (0, reason.clone())).0 += 1;
        }
        let mut judged = Vec::new();
        let waiting = std::mem::take(&mut self.kept);
        for confirm in waiting.into_iter().chain(landed) {
            if let Some(reason) = self.take(&confirm.id) {
                judged.push((confirm.answer, Outcome::Returned(reason)));
            } else if confirm.carried.is_none() {
                judged.push((confirm.answer, plain(confirm.acked)));
            } else {
                self.kept.push(confirm);
            }
        }
        if self.unmatched.is_empty() {
            judged.extend(self.kept.drain(..).map(|confirm| (confirm.answer, plain(confirm.acked))));
        }
        judged
    }

    fn take(&mut self, id: &str) -> Option<String> {
        let (count, reason) = self.unmatched.get_mut(id)?;
        let reason = reason.clone();
        *count -= 1;
        if *count == 0 {
            self.unmatched.remove(id);
        }
        Some(reason)
    }
}

fn plain(acked: bool) -> Outcome {
    if acked { Outcome::Confirmed } else { Outcome::Nacked }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    fn landed(id: &str, carried: Option<&str>) -> Landed<String> {
        let carried = carried.map(|id| (id.to_owned(), "312 NO_ROUTE".to_owned()));
        Landed { id: id.to_owned(), acked: true, carried, answer: id.to_owned() }
    }

    fn returned(judged: &[(String, Outcome)]) -> Vec<&str> {
        judged.iter().filter(|(_, o)| matches!(o, Outcome::Returned(_))).map(|(id, _)| id.as_str()).collect()
    }

    #[test]
    fn a_return_that_another_confirm_took_along_belongs_to_its_own_message() {
        let mut returns = Returns::default();
        // The routed one's confirm came first and took the unroutable one's return.
        assert_eq!(returns.judge(vec![landed("routed", Some("unroutable"))]), []);
        let judged = returns.judge(vec![landed("unroutable", None)]);
        assert_eq!(returned(&judged), ["unroutable"]);
        assert!(judged.contains(&("routed".to_owned(), Outcome::Confirmed)));
    }

    #[test]
    fn the_same_event_twice_on_the_wire_is_returned_twice() {
        let mut returns = Returns::default();
        let judged = returns.judge(vec![landed("a", Some("a")), landed("a", Some("a"))]);
        assert_eq!(returned(&judged), ["a", "a"]);
    }

    proptest! {
        /// The library, played: confirms complete in any order, each taking the oldest waiting return along; they are seen in
        /// batches, and within a batch in any order.
        #[test]
        fn exactly_the_unroutable_ones_are_returned(
            unroutable in proptest::collection::vec(any::<bool>(), 1..40),
            order in proptest::collection::vec(any::<prop::sample::Index>(), 40),
            batches in proptest::collection::vec(1_usize..6, 40),
            backwards in any::<bool>(),
        ) {
            let mut open: Vec<usize> = (0..unroutable.len()).collect();
            let mut waiting: VecDeque<usize> = VecDeque::new();
            let mut announced = vec![false; unroutable.len()];
            let mut completed = Vec::new();
            for pick in order.iter().take(unroutable.len()) {
                let one = open.remove(pick.index(open.len()));
                // Returns arrive in the order of publishing, each before its own confirm.
                for (other, done) in announced.iter_mut().enumerate().take(one + 1) {
                    if unroutable[other] && !*done {
                        *done = true;
                        waiting.push_back(other);
                    }
                }
                let carried = waiting.pop_front().map(|r| r.to_string());
                completed.push(landed(&one.to_string(), carried.as_deref()));
            }
            let mut returns = Returns::default();
            let mut judged = Vec::new();
            let mut rest = completed;
            for size in batches {
                let tail = rest.split_off(size.min(rest.len()));
                let mut batch = std::mem::replace(&mut rest, tail);
                if backwards {
                    batch.reverse();
                }
                judged.extend(returns.judge(batch));
            }
            prop_assert_eq!(judged.len(), unroutable.len(), "every confirm is judged in the end");
            for (id, outcome) in judged {
                let index: usize = id.parse().unwrap_or_default();
                prop_assert_eq!(matches!(outcome, Outcome::Returned(_)), unroutable[index]);
            }
        }
    }
}
