//! Keys and tokens of a run: the servers under test ask for tokens as any server does, and the clients of tests have them.
//!
//! One pair of keys a run, made by `with-services`; a process that is not below it makes one for itself and the processes
//! it starts.

use std::{
    path::{Path, PathBuf},
    sync::OnceLock,
    time::Duration,
};

use holdfast_server::auth::{self, Algorithm, Order, PrivateKey};
use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::Channel,
};

use crate::folder::RunFolder;

/// Names the folder with the run's keys, for the processes of a run.
pub const KEYS: &str = "HOLDFAST_TEST_KEYS";
/// What the servers of tests ask for.
pub const AUDIENCE: &str = "holdfast";

/// Makes a pair of keys in a folder.
///
/// # Panics
/// When that cannot be done.
pub fn make(folder: &Path) {
    auth::generate(Algorithm::EdDSA).and_then(|pair| pair.write(folder)).expect("make the run's keys");
}

/// The folder with the run's keys.
///
/// # Panics
/// When it is not there and cannot be made.
pub fn folder() -> PathBuf {
    static OWN: OnceLock<RunFolder> = OnceLock::new();
    std::env::var_os(KEYS).map_or_else(
        || {
            OWN.get_or_init(|| {
                let folder = RunFolder::new();
                make(folder.path());
                folder
            })
            .path()
            .to_owned()
        },
        PathBuf::from,
    )
}

/// What `auth.keys` of a server under test names.
pub fn public_keys() -> String {
    folder().join("*.pem").display().to_string()
}

/// The run's private key.
///
/// # Panics
/// When it is not there.
pub fn private_key() -> PrivateKey {
    let entries = std::fs::read_dir(folder()).expect("the run's keys");
    let mut paths = entries.map(|entry| entry.expect("the run's keys").path());
    let path = paths.find(|path| path.extension().is_some_and(|own| own == "key")).expect("the run's key");
    PrivateKey::read(&path, None).expect("the run's key")
}

/// A token of a caller called `tests`.
///
/// # Panics
/// When a scope is none.
pub fn token(scope: &str) -> String {
    token_of("tests", scope)
}

/// A token of a caller.
///
/// # Panics
/// When a scope is none.
pub fn token_of(sub: &str, scope: &str) -> String {
    let ttl = Duration::from_secs(24 * 3600);
    let order = Order { sub, audience: AUDIENCE, issuer: None, scope, ttl };
    private_key().mint(&order).expect("mint a token")
}

/// Every scope of a service; of one that can be nobody's, none.
pub fn all_of(service: &str) -> String {
    if holdfast_proto::envelope::service_name_problem(service).is_some() {
        return String::new();
    }
    format!("{service}.write {service}.read {service}.admin payload.read")
}

/// A channel whose calls bring a token.
pub type Authenticated = InterceptedService<Channel, Bearer>;

/// Brings a token along with each call that has none of its own.
#[derive(Debug, Clone)]
pub struct Bearer(MetadataValue<Ascii>);

impl Bearer {
    /// This one.
    ///
    /// # Panics
    /// When it cannot be metadata.
    pub fn new(token: &str) -> Self {
        Self(format!("Bearer {token}").parse().expect("a token"))
    }

    /// Over this channel.
    pub fn over(self, channel: Channel) -> Authenticated {
        InterceptedService::new(channel, self)
    }
}

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if !request.metadata().contains_key("authorization") {
            request.metadata_mut().insert("authorization", self.0.clone());
        }
        Ok(request)
    }
}
