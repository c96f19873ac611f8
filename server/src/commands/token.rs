//! `holdfast token keygen | mint`: keys and tokens for operators without an identity provider. Needs no server and no
//! configuration; a private key is read by `mint` and by nobody else.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::auth::{Algorithm, Order, PrivateKey, generate};

/// What can be done about tokens.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Makes a pair of keys: KID.key signs tokens (mode 600, never given to the server), KID.pem goes to `auth.keys`.
    Keygen {
        /// The folder to write both into; made if it is not there. No file is replaced.
        #[arg(long)]
        out: PathBuf,
        /// EdDSA (Ed25519), ES256 (P-256) or RS256 (RSA, 3072 bits).
        #[arg(long, default_value = "EdDSA")]
        alg: Algorithm,
    },
    /// Signs a token and prints it, and nothing else. It cannot be called back: keep its life short.
    Mint {
        /// The private key's file. Its name without the extension is the key's `kid`, unless --kid says otherwise.
        #[arg(long)]
        key: PathBuf,
        /// Who the token is for. It is written into the audit.
        #[arg(long)]
        sub: String,
        /// What it allows, with spaces between: "orders.write orders.read"; payload.read, SERVICE.admin, holdfast.admin.
        #[arg(long)]
        scope: String,
        /// How long it is good: 15m, 1h, 30d; at most 366d.
        #[arg(long, default_value = "1h", value_parser = humantime::parse_duration)]
        ttl: Duration,
        /// Whom it is shown to: `auth.audience` of the server.
        #[arg(long, default_value = "holdfast")]
        aud: String,
        /// Who says so: `auth.issuer` of the server, if it has one.
        #[arg(long)]
        iss: Option<String>,
        /// The key's `kid`, if it is not the file's name.
        #[arg(long)]
        kid: Option<String>,
    },
}

/// Makes the keys, or the token.
pub(super) fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    match arguments.what {
        What::Keygen { out, alg } => {
            let (private, public) = generate(alg)?.write(&out)?;
            super::say(format_args!("private  {}  (signs; keep it from the server)", private.display()))?;
            super::say(format_args!("public   {}  (one of auth.keys)", public.display()))?;
        }
        What::Mint { key, sub, scope, ttl, aud, iss, kid } => {
            let key = PrivateKey::read(&key, kid.as_deref())?;
            let order = Order { sub: &sub, audience: &aud, issuer: iss.as_deref(), scope: &scope, ttl };
            super::say(key.mint(&order)?)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
