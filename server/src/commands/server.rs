//! Where a running server is and how it is spoken to, for the commands that are its clients: the same connection that
//! services have, with the same judgement of what may travel in clear text.

use std::error::Error as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use holdfast_client::Holdfast;
use holdfast_client::token::{Token, TokenFile};
use tonic::{ConnectError, Status};

/// The server.
#[derive(Debug, Args)]
pub(super) struct Server {
    /// Where it listens: HOST:PORT or http://HOST:PORT; https://HOST:PORT with TLS.
    #[arg(long, global = true, env = "HOLDFAST_ADDRESS", default_value = "127.0.0.1:50551", value_parser = address)]
    address: String,
    /// Trusts the certificate authorities of this PEM file, and not the system's.
    #[arg(long, global = true, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The name that the server's certificate has, if it is not the address's host.
    #[arg(long, global = true, value_name = "NAME")]
    domain: Option<String>,
    /// The certificate to show the server, a PEM file.
    #[arg(long, global = true, value_name = "FILE", requires = "client_key")]
    client_certificate: Option<PathBuf>,
    /// Its key, a PEM file.
    #[arg(long, global = true, value_name = "FILE", requires = "client_certificate")]
    client_key: Option<PathBuf>,
}

/// Who the caller is.
#[derive(Debug, Args)]
pub(super) struct Identity {
    /// The file with the token to send. Without it the variable `HOLDFAST_TOKEN` is asked; without both, none is sent.
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Sends the token over http:// to other machines than this one: for where a mesh encrypts.
    #[arg(long, global = true)]
    allow_token_in_clear_text: bool,
}

/// The variable with a token. No argument takes one: arguments are seen by everybody on the machine.
const TOKEN: &str = "HOLDFAST_TOKEN";

/// With a scheme, whatever was given.
fn address(text: &str) -> Result<String, String> {
    let url = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let uri: http::Uri = url.parse().map_err(|_| "is no address".to_owned())?;
    match uri.scheme_str() {
        Some("http" | "https") if uri.port().is_some() => Ok(url),
        _ => Err("must be HOST:PORT, http://HOST:PORT or https://HOST:PORT".to_owned()),
    }
}

fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))
}

impl Server {
    /// The connection, which is made by the first call. With nobody's token, for what needs none.
    ///
    /// # Errors
    /// A file that cannot be read, a setting that cannot be right.
    pub(super) fn anonymously(&self, timeout: Duration) -> anyhow::Result<Holdfast> {
        Ok(self.builder(timeout)?.build()?)
    }

    /// The same with the caller's token, if there is one.
    ///
    /// # Errors
    /// As [`Self::anonymously`]; and a variable with something that is no token.
    pub(super) fn known_as(&self, identity: &Identity, timeout: Duration) -> anyhow::Result<Holdfast> {
        let mut builder = self.builder(timeout)?;
        if identity.allow_token_in_clear_text {
            builder = builder.allow_token_in_clear_text();
        }
        if let Some(file) = &identity.token_file {
            builder = builder.token(TokenFile::new(file));
        } else if let Ok(token) = std::env::var(TOKEN)
            && !token.is_empty()
        {
            builder = builder.token(Token::new(token).context(TOKEN)?);
        }
        Ok(builder.build()?)
    }

    fn builder(&self, timeout: Duration) -> anyhow::Result<holdfast_client::Builder> {
        let mut builder =
            Holdfast::builder().endpoint(&self.address).deadline(timeout).connect_timeout(timeout);
        if let Some(ca) = &self.ca {
            builder = builder.ca_pem(read(ca)?);
        }
        if let Some(domain) = &self.domain {
            builder = builder.domain(domain);
        }
        if let (Some(certificate), Some(key)) = (&self.client_certificate, &self.client_key) {
            builder = builder.client_certificate(read(certificate)?, read(key)?);
        }
        Ok(builder)
    }
}

/// A time that something may take.
pub(super) fn patience(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(value) if !value.is_zero() => Ok(value),
        Ok(_) => Err("must be more than 0".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Whether the call failed because there is no connection: then nothing was sent. What the connection died of, as far as
/// it is told.
pub(super) fn no_connection(status: &Status) -> Option<String> {
    let causes = std::iter::successors(status.source(), |cause| (*cause).source());
    let connecting = causes.skip_while(|cause| !cause.is::<ConnectError>());
    // The innermost one is the system's: "connection refused", "invalid peer certificate".
    connecting.last().map(ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_needs_a_port_and_may_have_a_scheme() {
        assert_eq!(address("127.0.0.1:50551").as_deref(), Ok("http://127.0.0.1:50551"));
        assert!(address("http://[::1]:50551").is_ok() && address("https://holdfast:50551").is_ok());
        for bad in ["", "127.0.0.1", "ftp://127.0.0.1:1", "http://", "a b:1"] {
            assert!(address(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn no_time_at_all_is_refused() {
        assert_eq!(patience("1500ms"), Ok(Duration::from_millis(1_500)));
        assert!(patience("0s").is_err() && patience("soon").is_err());
    }
}
