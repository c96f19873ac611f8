//! Who may call and over what: keys, what tokens must say, certificates.

use std::path::{Path, PathBuf};

use super::Config;
use super::section::{Notes, Section};
use crate::auth::{Algorithm, KeyFiles};
use crate::grpc::Reflection;

/// Who may call.
#[derive(Debug)]
pub struct Auth {
    /// Files with public keys, or patterns of such.
    pub keys: Vec<String>,
    /// The algorithms that keys may be for.
    pub algorithms: Vec<Algorithm>,
    /// One of these must be a token's audience.
    pub audience: Vec<String>,
    /// If given, a token's issuer.
    pub issuer: Option<String>,
    /// Who may ask what RPCs there are.
    pub reflection: Reflection,
    /// Everybody may do everything. No file can say so: it is for `holdfast dev`, on a loopback address.
    pub open: bool,
}

/// Over what calls come.
#[derive(Debug)]
pub struct Tls {
    /// The server's certificate and those between it and a root that clients know.
    pub certificate_file: Option<PathBuf>,
    /// Its private key.
    pub key_file: Option<PathBuf>,
    /// If given, clients must have a certificate of one of these authorities.
    pub client_ca_file: Option<PathBuf>,
    /// Whether a listener that others can reach may be without.
    pub allow_plaintext: bool,
}

impl Auth {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        Self {
            keys: section.get("keys", Vec::new()),
            algorithms: section.get("algorithms", Algorithm::ALL.to_vec()),
            audience: section.get("audience", vec!["holdfast".to_owned()]),
            issuer: section.optional("issuer"),
            reflection: section.get("reflection", Reflection::default()),
            open: false,
        }
    }

    pub(super) fn check(&self, notes: &mut Notes) {
        if self.algorithms.is_empty() && !notes.errors.about("auth.algorithms") {
            notes.wrong("auth.algorithms", "must name at least one");
        }
        if (self.audience.is_empty() || self.audience.iter().any(String::is_empty))
            && !notes.errors.about("auth.audience")
        {
            notes.wrong("auth.audience", "must name at least one, and none may be empty");
        }
        if self.issuer.as_ref().is_some_and(String::is_empty) {
            notes.wrong("auth.issuer", "must not be empty; leave it out to take any");
        }
    }

    /// What nobody but `serve` needs.
    fn check_serving(&self, notes: &mut Notes) {
        if notes.errors.about("auth") {
            return;
        }
        if self.keys.is_empty() {
            notes.wrong(
                "auth.keys",
                "is missing: without a key nobody can call. `holdfast token keygen` makes one, and HOLDFAST_AUTH__KEYS or the \
                 file names its public half",
            );
        } else if let Err(problems) = KeyFiles::open(&self.keys, &self.algorithms) {
            for problem in problems {
                let text = if problem.place == "auth.keys" { problem.what } else { problem.to_string() };
                notes.wrong("auth.keys", text);
            }
        }
    }
}

impl Tls {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        let path = |path: Option<String>| path.map(PathBuf::from);
        Self {
            certificate_file: path(section.optional("certificate_file")),
            key_file: path(section.optional("key_file")),
            client_ca_file: path(section.optional("client_ca_file")),
            allow_plaintext: section.get("allow_plaintext", false),
        }
    }

    /// Whether calls are encrypted.
    pub fn is_on(&self) -> bool {
        self.certificate_file.is_some()
    }

    fn check(&self, notes: &mut Notes) {
        if self.certificate_file.is_some() != self.key_file.is_some() {
            let (missing, other) = if self.key_file.is_some() {
                ("tls.certificate_file", "tls.key_file")
            } else {
                ("tls.key_file", "tls.certificate_file")
            };
            notes.wrong(missing, format!("is missing; {other} is there, and they need each other"));
        }
        if self.client_ca_file.is_some() && self.certificate_file.is_none() && self.key_file.is_none() {
            notes.wrong("tls.client_ca_file", "needs tls.certificate_file and tls.key_file, too");
        }
        if self.is_on() && self.allow_plaintext {
            notes.wrong("tls.allow_plaintext", "contradicts tls.certificate_file: with it nothing is plain");
        }
    }

    fn check_serving(&self, notes: &mut Notes) {
        for (field, path, what) in [
            ("tls.certificate_file", &self.certificate_file, "CERTIFICATE"),
            ("tls.key_file", &self.key_file, "PRIVATE KEY"),
            ("tls.client_ca_file", &self.client_ca_file, "CERTIFICATE"),
        ] {
            if let Some(path) = path
                && let Err(problem) = holds(path, what)
            {
                notes.wrong(field, format!("{}: {problem}", path.display()));
            }
        }
    }
}

/// Whether a PEM file has such a block. Whether key and certificate belong together is found out when the listener opens.
fn holds(path: &Path, what: &str) -> Result<(), String> {
    let content = std::fs::read(path).map_err(|error| format!("cannot be read: {error}"))?;
    let blocks = pem::parse_many(content).map_err(|_| "is no PEM file".to_owned())?;
    let there = blocks.iter().any(|block| block.tag().ends_with(what));
    if there { Ok(()) } else { Err(format!("has no {what} in it")) }
}

pub(super) fn check(config: &Config, notes: &mut Notes) {
    config.auth.check(notes);
    config.tls.check(notes);
    if !config.listen.ip().is_loopback() && !config.tls.is_on() && !config.tls.allow_plaintext {
        notes.wrong(
            "listen",
            "is no loopback address, and tokens would cross the network in the clear: set tls.certificate_file and \
             tls.key_file, or tls.allow_plaintext = true where something else encrypts",
        );
    }
}

pub(super) fn check_serving(config: &Config, notes: &mut Notes) {
    config.auth.check_serving(notes);
    config.tls.check_serving(notes);
}
