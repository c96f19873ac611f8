//! PostgreSQL: pools, transactions that say what they are, and one table from SQLSTATE to what it means for us.
//!
//! Guarantees: every transaction of ours is explicitly READ COMMITTED, READ WRITE and names its `synchronous_commit`,
//! whatever the database or role defaults to (a lone statement has it from its session, and sets the rest itself); a connection never returns to its pool with an open transaction; a unit of
//! work that outlives its limit takes its connection with it. Does not: retry, or know any table.
//! Design, sections 3 and 13.

mod conn;
mod error;
mod gate;
mod listener;
mod lone;
pub mod migrate;
mod pool;
mod pulse;
mod tx;

pub use conn::Conn;
pub use error::{Error, Kind};
pub use gate::Gate;
pub use listener::Listener;
pub use lone::Lone;
pub use pool::{Options, Pool};
pub use pulse::Pulse;
pub use tx::{Answer, Begin, Read, Tx, within};
