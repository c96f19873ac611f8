//! The golden shapes are what the migrations make, on whatever PostgreSQL the tests run on.

use std::path::Path;

use holdfast_server::schema::{Of, Shape, shape};
use holdfast_tests::{database::Database, wait::LONG};

/// Set by `./x golden`: the files are written and not compared.
const WRITE: &str = "HOLDFAST_WRITE_GOLDEN";

#[tokio::test]
async fn the_golden_shapes_are_what_the_migrations_make() {
    let (service, control) = (Database::service().await, Database::control().await);

    let service = shape(&super::pool(&service.url()), LONG).await.unwrap();
    let both = shape(&super::pool(&control.url()), LONG).await.unwrap();

    assert_eq!(service.without(&both), Shape::default(), "the control database has the service line whole");
    if std::env::var_os(WRITE).is_some() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../migrations/golden");
        std::fs::write(folder.join("service.txt"), service.to_text()).unwrap();
        std::fs::write(folder.join("control.txt"), both.without(&service).to_text()).unwrap();
        return;
    }
    for (seen, of) in [(service, Of::Service), (both, Of::Control)] {
        let (more, less) = (seen.without(&of.expected()), of.expected().without(&seen));
        assert!(
            more == Shape::default() && less == Shape::default(),
            "{of:?}: after a migration run ./x golden; the database has\n{}where the golden file has\n{}",
            more.to_text(),
            less.to_text()
        );
    }
}
