//! Judges a JSON text as it was sent, before anything is stored.
//!
//! Guarantees: what passes is one JSON text that `jsonb` takes and gives back with the same value; a strict reader
//! finds no duplicate keys in it. One pass, no tree is built, and no number is ever expanded: `1e999999999` costs its
//! eleven bytes. Error texts name positions, never contents. Design: section 2.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};

use super::limits::{MAX_JSON_DEPTH, MAX_NUMBER_DIGITS};

/// Keys that the `serde_json` of any Rust consumer would take for a number or a raw text of its own instead of an
/// object: such an object could not be read by it, so it is refused.
const PRIVATE_KEYS: &str = "$serde_json::private::";

/// Checks a JSON text. Ok: by how many bytes it grows when `jsonb` writes the exponents of its numbers out.
///
/// # Errors
/// The first rule that is broken, with line and column, without any of the contents.
pub(super) fn check(text: &str) -> Result<usize, String> {
    let growth = Cell::new(0);
    let mut reader = serde_json::Deserializer::from_str(text);
    Node { depth: 0, growth: &growth }
        .deserialize(&mut reader)
        .and_then(|()| reader.end())
        .map_err(|error| format!("is not acceptable JSON: {error}"))?;
    Ok(growth.get())
}

/// One JSON value inside `depth` objects and arrays.
struct Node<'g> {
    depth: usize,
    growth: &'g Cell<usize>,
}

impl<'g> Node<'g> {
    fn inner<E: Error>(&self) -> Result<impl Fn() -> Node<'g>, E> {
        if self.depth >= MAX_JSON_DEPTH {
            return Err(E::custom("nesting is deeper than 64"));
        }
        let (depth, growth) = (self.depth + 1, self.growth);
        Ok(move || Node { depth, growth })
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    // Integers of 64 bits arrive as such: at most 20 digits, and no exponent.
    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        no_nul(text)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let inner = self.inner()?;
        while items.next_element_seed(inner())?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let first = members.next_key_seed(Key)?;
        if let Some(KeyOf::Number) = first {
            let growth = number_growth(&members.next_value::<String>()?).map_err(A::Error::custom)?;
            self.growth.set(self.growth.get().saturating_add(growth));
            return Ok(());
        }
        let inner = self.inner()?;
        let mut seen = HashSet::new();
        let mut next = first;
        while let Some(KeyOf::Text(key)) = next {
            no_nul(&key)?;
            if key.starts_with(PRIVATE_KEYS) {
                return Err(A::Error::custom("a key is reserved by JSON readers"));
            }
            if !seen.insert(key) {
                return Err(A::Error::custom("a key is there twice in one object"));
            }
            members.next_value_seed(inner())?;
            next = members.next_key_seed(Key)?;
        }
        Ok(())
    }
}

/// jsonb holds no U+0000, in strings or in keys.
fn no_nul<E: Error>(text: &str) -> Result<(), E> {
    if text.contains('\0') {
        return Err(E::custom("a string or key contains U+0000"));
    }
    Ok(())
}

/// Reads a key and tells a real one from the mark under which `arbitrary_precision` hands over a number.
///
/// With that feature every other number arrives as a map with one magic key. An object of the caller's may have the same key, so
/// the text cannot tell them apart; the way it comes can: asked for an option, a real key answers `some`, because keys
/// cannot be null, and the mark answers with its text. A test holds this behaviour of the reader fast.
struct Key;

enum KeyOf<'de> {
    Number,
    Text(Cow<'de, str>),
}

impl<'de> DeserializeSeed<'de> for Key {
    type Value = KeyOf<'de>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        reader.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for Key {
    type Value = KeyOf<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_some<D: Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        reader.deserialize_str(KeyText).map(KeyOf::Text)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Self::Value, E> {
        Ok(KeyOf::Number)
    }
}

/// The text of a real key, borrowed where it holds no escapes.
struct KeyText;

impl<'de> Visitor<'de> for KeyText {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

/// By how many bytes a number grows when its exponent is written out, if it has at most [`MAX_NUMBER_DIGITS`] digits
/// then. Zeros count wherever `jsonb` writes them: `1.50e2` is `150`, `0e-5` is `0.00000`.
pub(super) fn number_growth(text: &str) -> Result<usize, &'static str> {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    // An exponent past 64 bits is as good as the largest one: both are refused.
    let huge = if exponent.starts_with('-') { i64::MIN } else { i64::MAX };
    let exponent: i64 = exponent.parse().unwrap_or(huge);
    let length = |digits: &str| i64::try_from(digits.len()).unwrap_or(i64::MAX);

    let whole = length(whole).saturating_add(exponent).max(1);
    let fraction = length(fraction).saturating_sub(exponent).max(0);
    let digits = usize::try_from(whole.saturating_add(fraction)).unwrap_or(usize::MAX);
    if digits > MAX_NUMBER_DIGITS {
        return Err("a number has more than 100 digits when its exponent is written out");
    }
    let written = digits + usize::from(fraction > 0);
    // The reader puts a plus before an exponent that has no sign, so a plus is not counted as sent.
    let sent = unsigned.len() - usize::from(unsigned.contains('+'));
    Ok(written.saturating_sub(sent))
}
