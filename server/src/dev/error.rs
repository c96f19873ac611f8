//! What can go wrong with a private server, in words that say what to do about it.

use std::{io, path::PathBuf};

/// Why a private server could not be started or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A program that is needed is not on this machine.
    #[error("{program} was not found (looked in {looked_in}); {install}")]
    MissingProgram {
        /// The program's name.
        program: &'static str,
        /// Where it was looked for.
        looked_in: String,
        /// How to get it.
        install: &'static str,
    },
    /// We are root, the server refuses to be, and the account it should run under does not exist.
    #[error("the system account {account:?} does not exist; {install}")]
    MissingAccount {
        /// The account's name.
        account: &'static str,
        /// How to get it.
        install: &'static str,
    },
    /// A folder on the way to a file is closed to the account that the server runs under.
    #[error(
        "the account {account:?} cannot pass through {folder}, which is on the way to {path}; \
         use a folder below /tmp or open it with chmod o+x"
    )]
    Untraversable {
        /// The account that the server runs under.
        account: String,
        /// The folder that is closed.
        folder: PathBuf,
        /// What should have been reached.
        path: PathBuf,
    },
    /// A server runs in this folder already.
    #[error("a server is running in {dir} already (process {pid})")]
    AlreadyRunning {
        /// The folder.
        dir: PathBuf,
        /// The process that holds it.
        pid: i32,
    },
    /// A session lives in this folder.
    #[error(
        "another `holdfast dev` (process {owner}) uses {dir}; stop it, or take another folder with --data"
    )]
    InUse {
        /// The folder.
        dir: PathBuf,
        /// Who has it, as he wrote it down.
        owner: String,
    },
    /// A folder that is to become a session's holds what no session made.
    #[error(
        "{dir} is not empty ({found}) and no folder of `holdfast dev`: left as it is; \
         take a new or an empty folder with --data"
    )]
    NotASession {
        /// The folder.
        dir: PathBuf,
        /// Something that was found in it.
        found: String,
    },
    /// A session's folder is another user's, or what says that it is one is no file of ours.
    #[error("{marker} is no file of this user: the folder is left as it is; take another with --data")]
    AnothersSession {
        /// What says that the folder is a session's.
        marker: PathBuf,
    },
    /// A folder that is to be deleted holds what is not ours.
    #[error(
        "{dir} holds {found}, which is none of a session's files: not deleted; take another folder with --data"
    )]
    NotOurs {
        /// The folder.
        dir: PathBuf,
        /// What was found in it.
        found: String,
    },
    /// The folder for the locks of ports is not ours alone: who can write there could make us write elsewhere.
    #[error(
        "{folder} must be a folder of this user that nobody else may enter (mode 0700), but {but}; \
         delete it, or name another place for temporary files in TMPDIR"
    )]
    UnsafeFolder {
        /// The folder.
        folder: PathBuf,
        /// What is wrong with it.
        but: String,
    },
    /// No port could be had.
    #[error("found no free port between {from} and {to}")]
    NoFreePort {
        /// Lowest port tried.
        from: u16,
        /// One above the highest port tried.
        to: u16,
    },
    /// The server was started and did not become ready, or ended.
    #[error("{server} did not start: {reason}; its last log lines:\n{log}")]
    DidNotStart {
        /// Which server.
        server: &'static str,
        /// What was seen.
        reason: String,
        /// The tail of its log.
        log: String,
    },
    /// A server did not end although it was told to.
    #[error("{server} did not stop within {seconds} s; it was killed")]
    DidNotStop {
        /// Which server.
        server: &'static str,
        /// How long was waited.
        seconds: u64,
    },
    /// A helper program failed.
    #[error("{program} failed ({status}):\n{output}")]
    Program {
        /// The program's name.
        program: &'static str,
        /// Its exit status.
        status: String,
        /// What it printed.
        output: String,
    },
    /// The operating system refused something.
    #[error("cannot {doing}: {source}")]
    Io {
        /// What was being done, with the path.
        doing: String,
        /// The system's answer.
        source: io::Error,
    },
}

impl Error {
    /// Is this a start that failed because somebody else holds the port? Such a start is worth another port.
    #[must_use]
    pub fn is_port_taken(&self) -> bool {
        let Self::DidNotStart { log, .. } = self else { return false };
        let log = log.to_ascii_lowercase();
        ["address already in use", "eaddrinuse", "in use by another node"]
            .iter()
            .any(|words| log.contains(words))
    }
}

/// Puts words to an I/O error.
pub(super) fn io<T>(result: io::Result<T>, doing: impl FnOnce() -> String) -> Result<T, Error> {
    result.map_err(|source| Error::Io { doing: doing(), source })
}
