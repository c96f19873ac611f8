//! A token from an async function: an identity provider, a secrets manager.
//!
//! Guarantees: the function runs once for all calls that want a token at the same time, again when nine tenths of the
//! token's life are over or the server has refused it, and to its end even if the call that wanted it is gone. However many
//! calls are refused, refusals alone bring one fetch in [`PAUSE`].

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::{Token, TokenError, TokenFuture, TokenSource};

/// How long after a refused token was dropped the next one is kept, refused or not. A server that accepts none of them (a
/// wrong audience, a key it does not know) must not make each call ask the identity provider.
const PAUSE: Duration = Duration::from_secs(10);

type Fetch = dyn Fn() -> TokenFuture<'static> + Send + Sync;

/// Keeps the token that an async function fetches. Cheap to clone; the clones share it.
///
/// ```
/// use std::time::Duration;
///
/// use holdfast_client::Holdfast;
/// use holdfast_client::token::{Token, TokenError, TokenProvider};
///
/// # struct Grant { access_token: String, expires_in: u64 }
/// # async fn client_credentials() -> Result<Grant, std::io::Error> {
/// #     Ok(Grant { access_token: std::fs::read_to_string("/run/token")?, expires_in: 300 })
/// # }
/// # fn example() -> Result<(), holdfast_client::BuildError> {
/// let provider = TokenProvider::new(|| async {
///     let grant = client_credentials().await.map_err(TokenError::other)?;
///     Ok(Token::new(grant.access_token)?.valid_for(Duration::from_secs(grant.expires_in)))
/// });
/// let holdfast =
///     Holdfast::builder().endpoint("https://holdfast.internal:50551").token(provider).build()?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct TokenProvider(Arc<Inner>);

struct Inner {
    fetch: Box<Fetch>,
    kept: Mutex<Kept>,
    /// Held by whoever fetches.
    fetching: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Kept {
    token: Option<Token>,
    /// When a refused one was last dropped.
    dropped: Option<Instant>,
}

impl TokenProvider {
    /// From this function. It is called when a call needs a token and there is none that is good. Give it a time-out of its
    /// own: whoever needs a token waits for the one fetch that is under way. A refused token is replaced at most once in
    /// 10 s; what is refused sooner than that is the call's error.
    #[must_use]
    pub fn new<F, Fut>(fetch: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Token, TokenError>> + Send + 'static,
    {
        let fetch: Box<Fetch> = Box::new(move || Box::pin(fetch()));
        Self(Arc::new(Inner { fetch, kept: Mutex::default(), fetching: tokio::sync::Mutex::new(()) }))
    }
}

impl Inner {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fresh(&self) -> Option<Token> {
        let now = Instant::now();
        self.kept().token.clone().filter(|token| token.is_fresh(now))
    }

    async fn fetch(&self) -> Result<Token, TokenError> {
        let _alone = self.fetching.lock().await;
        if let Some(token) = self.fresh() {
            return Ok(token);
        }
        let token = (self.fetch)().await?;
        self.kept().token = Some(token.clone());
        Ok(token)
    }
}

impl TokenSource for TokenProvider {
    fn token(&self) -> TokenFuture<'_> {
        Box::pin(async {
            if let Some(token) = self.0.fresh() {
                return Ok(token);
            }
            // In a task: a provider that is slower than a call's deadline would else begin anew with each call.
            let inner = Arc::clone(&self.0);
            tokio::spawn(async move { inner.fetch().await }).await.map_err(TokenError::other)?
        })
    }

    fn invalidate(&self, refused: &Token) -> bool {
        let mut kept = self.0.kept();
        if kept.token.as_ref() != Some(refused) {
            // There is another one already, or it is being fetched.
            return true;
        }
        let now = Instant::now();
        if kept.dropped.is_some_and(|at| now.saturating_duration_since(at) < PAUSE) {
            return false;
        }
        *kept = Kept { token: None, dropped: Some(now) };
        true
    }
}

impl fmt::Debug for TokenProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenProvider").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    use std::time::Duration;

    use tokio::sync::Semaphore;

    use super::*;

    /// Gives "0", "1", …, each after a permit of the gate was taken.
    fn counting(gate: &Arc<Semaphore>, life: Duration) -> TokenProvider {
        let (gate, count) = (Arc::clone(gate), Arc::new(AtomicU32::new(0)));
        TokenProvider::new(move || {
            let (gate, count) = (Arc::clone(&gate), Arc::clone(&count));
            async move {
                gate.acquire().await.map_err(TokenError::other)?.forget();
                // Everybody else gets the chance to begin one, too.
                for _ in 0..10 {
                    tokio::task::yield_now().await;
                }
                Ok(Token::new(count.fetch_add(1, SeqCst).to_string())?.valid_for(life))
            }
        })
    }

    #[tokio::test]
    async fn many_calls_fetch_once() -> Result<(), TokenError> {
        let gate = Arc::new(Semaphore::new(9));
        let provider = counting(&gate, Duration::from_secs(60));
        let (a, b, c) = tokio::join!(provider.token(), provider.token(), provider.token());
        let zero = Token::new("0")?;
        assert_eq!([&a?, &b?, &c?], [&zero; 3]);
        Ok(())
    }

    #[tokio::test]
    async fn what_is_refused_or_old_is_fetched_anew() -> Result<(), TokenError> {
        let gate = Arc::new(Semaphore::new(9));
        let provider = counting(&gate, Duration::from_secs(100));
        let zero = provider.token().await?;
        assert!(provider.invalidate(&zero));
        let one = provider.token().await?;
        assert_eq!(one, Token::new("1")?);
        // A late refusal of the old one does not cost the new one.
        assert!(provider.invalidate(&zero));
        assert_eq!(provider.token().await?, one);

        let short = counting(&gate, Duration::ZERO);
        assert_eq!([short.token().await?, short.token().await?], [Token::new("0")?, Token::new("1")?]);
        Ok(())
    }

    #[tokio::test]
    async fn tokens_that_are_all_refused_cost_one_fetch_a_pause() -> Result<(), TokenError> {
        let gate = Arc::new(Semaphore::new(9));
        let provider = counting(&gate, Duration::from_secs(3_600));
        let zero = provider.token().await?;
        assert!(provider.invalidate(&zero));
        for _ in 0..100 {
            let one = provider.token().await?;
            assert_eq!(one, Token::new("1")?);
            assert!(!provider.invalidate(&one));
        }
        // The pause is over: as if the refusal had been that long ago.
        provider.0.kept().dropped = Instant::now().checked_sub(PAUSE);
        assert!(provider.invalidate(&Token::new("1")?));
        assert_eq!(provider.token().await?, Token::new("2")?);
        Ok(())
    }

    #[tokio::test]
    async fn a_fetch_goes_on_when_the_call_that_wanted_it_is_gone() -> Result<(), TokenError> {
        let gate = Arc::new(Semaphore::new(0));
        let provider = counting(&gate, Duration::from_secs(60));
        let mut first = provider.token();
        // One poll begins the fetch, then the caller loses its patience.
        let polled = tokio::time::timeout(Duration::ZERO, &mut first).await;
        assert!(polled.is_err());
        drop(first);
        gate.add_permits(1);
        assert_eq!(provider.token().await?, Token::new("0")?);
        Ok(())
    }

    #[tokio::test]
    async fn a_failure_is_not_kept() {
        let failures = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&failures);
        let provider = TokenProvider::new(move || {
            counted.fetch_add(1, SeqCst);
            async { Err(TokenError::other("the provider is away")) }
        });
        assert!(provider.token().await.is_err());
        assert!(provider.token().await.is_err());
        assert_eq!(failures.load(SeqCst), 2);
    }
}
