//! The kinds of values that settings have: how each is read, and how it is shown.

use std::net::SocketAddr;
use std::time::Duration;

use super::tree::Value;
use super::{Secret, Unroutable, Wake};
use crate::auth::Algorithm;
use crate::grpc::Reflection;
use crate::logging::Format;

/// A kind of value.
pub(super) trait Setting: Sized {
    /// Reads it; the error says what it must be, and not what it is.
    fn read(value: &Value) -> Result<Self, String>;

    /// As TOML, without secrets.
    fn show(&self) -> String;
}

pub(super) fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::Text(text) | Value::Raw(text) => Some(text),
        _ => None,
    }
}

fn must_be<T>(what: &str, value: &Value) -> Result<T, String> {
    let is = match value {
        Value::Text(_) => ", not a text",
        Value::Integer(_) => ", not a number",
        Value::Bool(_) => ", not true or false",
        Value::Table(_) => ", not a table",
        Value::List(_) => ", not a list",
        Value::Other(other) => return Err(format!("must be {what}, not {other}")),
        // What it is in the environment is a matter of opinion.
        Value::Raw(_) => "",
    };
    Err(format!("must be {what}{is}"))
}

impl Setting for String {
    fn read(value: &Value) -> Result<Self, String> {
        text(value).map_or_else(|| must_be("a text in quotes", value), |text| Ok(text.to_owned()))
    }

    fn show(&self) -> String {
        quoted(self)
    }
}

impl Setting for Secret {
    fn read(value: &Value) -> Result<Self, String> {
        String::read(value).map(Self)
    }

    fn show(&self) -> String {
        quoted(&self.redacted())
    }
}

impl Setting for bool {
    fn read(value: &Value) -> Result<Self, String> {
        match value {
            Value::Bool(value) => Ok(*value),
            Value::Raw(text) if text == "true" => Ok(true),
            Value::Raw(text) if text == "false" => Ok(false),
            _ => must_be("true or false", value),
        }
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

macro_rules! number {
    ($type:ty) => {
        impl Setting for $type {
            fn read(value: &Value) -> Result<Self, String> {
                let (Value::Integer(digits) | Value::Raw(digits)) = value else {
                    return must_be("a whole number", value);
                };
                digits.parse().map_err(|_| "must be a whole number and at least 0".to_owned())
            }

            fn show(&self) -> String {
                self.to_string()
            }
        }
    };
}

number!(u32);
number!(u64);
number!(usize);

impl Setting for Duration {
    fn read(value: &Value) -> Result<Self, String> {
        const WHAT: &str = "a duration with its unit, as \"500ms\", \"30s\" or \"2m\"";
        let Some(text) = text(value) else { return must_be(WHAT, value) };
        humantime::parse_duration(text).map_err(|_| format!("must be {WHAT}"))
    }

    fn show(&self) -> String {
        const DAY: u64 = 24 * 3_600;
        // In days: "1month 13h 26m 24s" is what the library makes of 31.
        if self.subsec_nanos() == 0 && self.as_secs() >= DAY && self.as_secs().is_multiple_of(DAY) {
            return quoted(&format!("{}d", self.as_secs() / DAY));
        }
        quoted(&humantime::format_duration(*self).to_string())
    }
}

impl Setting for SocketAddr {
    fn read(value: &Value) -> Result<Self, String> {
        const WHAT: &str = "an address and a port, as \"127.0.0.1:50551\" or \"[::1]:50551\"";
        let Some(text) = text(value) else { return must_be(WHAT, value) };
        text.parse().map_err(|_| format!("must be {WHAT}"))
    }

    fn show(&self) -> String {
        quoted(&self.to_string())
    }
}

/// A list; a single value is a list of one, and in the environment commas stand between several.
impl<T: Setting> Setting for Vec<T> {
    fn read(value: &Value) -> Result<Self, String> {
        match value {
            Value::List(list) => list.iter().map(T::read).collect::<Result<_, _>>(),
            Value::Raw(text) => {
                let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
                words.map(|word| T::read(&Value::Raw(word.to_owned()))).collect()
            }
            one => T::read(one).map(|one| vec![one]),
        }
        .map_err(|problem| format!("is a list whose members {problem}"))
    }

    fn show(&self) -> String {
        format!("[{}]", self.iter().map(T::show).collect::<Vec<_>>().join(", "))
    }
}

/// An empty text is none.
impl Setting for Option<SocketAddr> {
    fn read(value: &Value) -> Result<Self, String> {
        const WHAT: &str = "an address and a port, as \"127.0.0.1:50552\", or empty";
        match text(value) {
            Some("") => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| format!("must be {WHAT}")),
            None => must_be(WHAT, value),
        }
    }

    fn show(&self) -> String {
        self.map_or_else(|| quoted(""), |address| address.show())
    }
}

/// One of a few words.
macro_rules! choice {
    ($type:ty { $first:literal => $default:path, $($word:literal => $variant:path),+ }) => {
        impl Setting for $type {
            fn read(value: &Value) -> Result<Self, String> {
                match text(value) {
                    Some($first) => Ok($default),
                    $(Some($word) => Ok($variant),)+
                    _ => Err(concat!("must be one of \"", $first, "\"" $(, ", \"", $word, "\"")+).to_owned()),
                }
            }

            fn show(&self) -> String {
                match self { $default => quoted($first), $($variant => quoted($word),)+ }
            }
        }
    };
}

choice!(Format { "text" => Format::Text, "json" => Format::Json });
choice!(Wake { "poll" => Wake::Poll, "notify" => Wake::Notify });
choice!(Reflection { "token" => Reflection::Token, "open" => Reflection::Open, "off" => Reflection::Off });
choice!(Algorithm { "EdDSA" => Algorithm::EdDSA, "ES256" => Algorithm::ES256, "RS256" => Algorithm::RS256 });
choice!(Unroutable { "retry" => Unroutable::Retry, "accept" => Unroutable::Accept });
