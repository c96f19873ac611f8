//! What is asked of the catalogue, and of the ledgers.

use super::ledger::Applied;
use super::shape::Shape;
use crate::db;

const PATH: &str = include_str!("queries/path.sql");
const SHAPE: &str = include_str!("queries/shape.sql");
const LEDGERS: &str = include_str!("queries/ledgers.sql");
const SERVICE_LINE: &str = include_str!("queries/service_line.sql");
const CONTROL_LINE: &str = include_str!("queries/control_line.sql");

/// Every statement of this module, by file name: a test PREPAREs them all. (That of the control line only fits a control
/// database; see [`CONTROL_QUERIES`].)
pub const QUERIES: &[(&str, &str)] =
    &[("path", PATH), ("shape", SHAPE), ("ledgers", LEDGERS), ("service_line", SERVICE_LINE)];

/// The statements that fit a control database only.
pub const CONTROL_QUERIES: &[(&str, &str)] = &[("control_line", CONTROL_LINE)];

/// Inside a transaction: it sets the search path until its end.
pub(super) async fn shape(conn: &mut db::Conn) -> Result<Shape, db::Error> {
    sqlx::query(PATH).execute(&mut *conn).await?;
    let things: Vec<(String, String, String)> = sqlx::query_as(SHAPE).fetch_all(conn).await?;
    Ok(Shape::of(things))
}

/// Whether the ledgers of the service line and of the control line are there.
pub(super) async fn ledgers(conn: &mut db::Conn) -> Result<(bool, bool), db::Error> {
    Ok(sqlx::query_as(LEDGERS).fetch_one(conn).await?)
}

/// The ledger of the service line.
pub(crate) async fn service_line(conn: &mut db::Conn) -> Result<Vec<Applied>, db::Error> {
    line(conn, SERVICE_LINE).await
}

/// The ledger of the control line.
pub(crate) async fn control_line(conn: &mut db::Conn) -> Result<Vec<Applied>, db::Error> {
    line(conn, CONTROL_LINE).await
}

async fn line(conn: &mut db::Conn, statement: &'static str) -> Result<Vec<Applied>, db::Error> {
    let rows: Vec<(i64, bool, Vec<u8>)> = sqlx::query_as(statement).fetch_all(conn).await?;
    let applied = |(version, success, checksum)| Applied { version, success, checksum };
    Ok(rows.into_iter().map(applied).collect())
}
