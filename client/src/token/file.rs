//! A token in a file that somebody else renews, such as a projected service account token.
//!
//! Guarantees: what is in the file at an attempt is what is sent. While it cannot be read or holds no token (it is being
//! replaced) the last good one is used, until the server refuses that.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use tokio::fs::File;
use tokio::io::AsyncReadExt as _;

use super::{MAX_BYTES, Token, TokenError, TokenFuture, TokenSource};

/// More than any token that would be accepted, and not as much as somebody's wrong path may have.
const MAX_READ: u64 = 2 * MAX_BYTES as u64;

/// Reads the token from a file, at each attempt: a change is seen at once, however it is made.
///
/// ```
/// use holdfast_client::{Holdfast, token::TokenFile};
///
/// # fn example() -> Result<(), holdfast_client::BuildError> {
/// let holdfast = Holdfast::builder()
///     .endpoint("https://holdfast.internal:50551")
///     .token(TokenFile::new("/var/run/secrets/holdfast/token"))
///     .build()?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
    last_good: Mutex<Option<Token>>,
}

impl TokenFile {
    /// From this file. It is not looked at before the first call.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), last_good: Mutex::new(None) }
    }

    async fn read(&self) -> Result<Token, TokenError> {
        let unreadable = |source| TokenError::File { path: self.path.display().to_string(), source };
        let mut text = String::new();
        let file = File::open(&self.path).await.map_err(unreadable)?;
        file.take(MAX_READ).read_to_string(&mut text).await.map_err(unreadable)?;
        Token::new(text)
    }
}

impl TokenSource for TokenFile {
    fn token(&self) -> TokenFuture<'_> {
        Box::pin(async {
            let read = self.read().await;
            let mut last_good = self.last_good.lock().unwrap_or_else(PoisonError::into_inner);
            match read {
                Ok(token) => Ok(last_good.insert(token).clone()),
                Err(error) => last_good.clone().ok_or(error),
            }
        })
    }

    fn invalidate(&self, refused: &Token) -> bool {
        let mut last_good = self.last_good.lock().unwrap_or_else(PoisonError::into_inner);
        if last_good.as_ref() == Some(refused) {
            *last_good = None;
        }
        // It may have been replaced while the call was under way.
        true
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    #[tokio::test]
    async fn the_last_good_token_serves_until_it_is_refused() -> Result<(), Box<dyn Error>> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("token");
        let source = TokenFile::new(&path);
        assert!(matches!(source.token().await, Err(TokenError::File { .. })));

        std::fs::write(&path, "one\n")?;
        let one = source.token().await?;
        assert_eq!(one, Token::new("one")?);
        for broken in ["", "two words"] {
            std::fs::write(&path, broken)?;
            assert_eq!(source.token().await?, one);
        }
        assert!(source.invalidate(&one));
        assert!(matches!(source.token().await, Err(TokenError::Malformed { .. })));
        std::fs::write(&path, "two")?;
        assert_eq!(source.token().await?, Token::new("two")?);
        assert!(source.invalidate(&one));
        std::fs::remove_file(&path)?;
        assert_eq!(source.token().await?, Token::new("two")?);
        Ok(())
    }
}
