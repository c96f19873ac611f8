//! The name of one death, read back ([`consumption::token`] makes it). Pure.

use std::fmt;

use holdfast_proto::consumption;
use uuid::Uuid;

use super::Key;

/// What collectors take. A queue's name has at most 200 bytes, so that it always fits.
const MOST_BYTES: usize = 256;

/// The name of one death.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// Who died.
    pub key: Key,
    /// When its series began, in whole seconds since 1970.
    pub epoch: i64,
}

impl Token {
    /// Reads one back; `None`: it is none.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > MOST_BYTES || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return None;
        }
        let (id, rest) = text.strip_prefix(consumption::TOKEN_PREFIX)?.split_once(':')?;
        // From behind: a queue's name may have colons.
        let (queue, epoch) = rest.rsplit_once(':')?;
        let token = Self {
            key: Key { envelope_id: Uuid::try_parse(id).ok()?, queue: queue.to_owned() },
            epoch: epoch.parse().ok()?,
        };
        // One death, one name: no other spelling of the same is taken.
        (!queue.is_empty() && token.to_string() == text).then_some(token)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&consumption::token(self.key.envelope_id, &self.key.queue, self.epoch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0198c2a5-7d1e-7c43-9d0c-2f6f0f0c9a22";

    #[test]
    fn a_token_comes_back_as_what_it_was_made_of_also_with_colons_in_the_queue() {
        for queue in ["orders.payments", "a:b:7", ":", "x"] {
            let envelope_id = Uuid::try_parse(ID).unwrap_or_default();
            let token = Token { key: Key { envelope_id, queue: queue.to_owned() }, epoch: 1_780_000_000 };
            assert_eq!(Token::parse(&token.to_string()), Some(token));
        }
    }

    #[test]
    fn nothing_else_is_a_token() {
        let upper = ID.to_uppercase();
        for bad in [
            String::new(),
            "dlxcap:".to_owned(),
            format!("dlxcap:{ID}:q"),
            format!("dlxcap:{ID}::1"),
            format!("dlxcap:{ID}:q:"),
            format!("dlxcap:{ID}:q:1x"),
            format!("dlxcap:{ID}:q:+1"),
            format!("dlxcap:{ID}:q:01"),
            format!("dlxcap:{upper}:q:1"),
            format!("xdeath:{ID}:q:1"),
            format!("dlxcap:{ID}:q q:1"),
            format!("dlxcap:{ID}:{}:1", "q".repeat(250)),
        ] {
            assert_eq!(Token::parse(&bad), None, "{bad:?}");
        }
    }
}
