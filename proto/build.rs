//! Compiles `holdfast/v1/*.proto` without protoc and writes the Rust code and the descriptor set (for reflection)
//! into the build's output folder.

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

use prost::Message as _;

const FILES: [&str; 8] = [
    "holdfast/v1/control_service.proto",
    "holdfast/v1/envelope.proto",
    "holdfast/v1/error_reason.proto",
    "holdfast/v1/hold_service.proto",
    "holdfast/v1/inbox_service.proto",
    "holdfast/v1/outbox_admin_service.proto",
    "holdfast/v1/outbox_service.proto",
    "holdfast/v1/replay_service.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var("OUT_DIR")?);
    for file in FILES {
        println!("cargo::rerun-if-changed={file}");
    }
    println!("cargo::rerun-if-changed=build.rs");

    let descriptors = protox::compile(FILES, [&root])?;
    fs::write(out.join("holdfast_descriptor.bin"), descriptors.encode_to_vec())?;
    // BTreeMap: an envelope is then composed and hashed in one order, whatever order the caller filled the map in.
    let mut config = tonic_prost_build::Config::new();
    // A message knows its name, by which the descriptor set knows it: that is how the command line shows any as JSON.
    config.enable_type_names();
    // A row of an inbox is much larger than the words that stand there without one.
    config.boxed(".holdfast.v1.EventConsumer.known.consumption");
    tonic_prost_build::configure().btree_map(".holdfast.v1").compile_fds_with_config(descriptors, config)?;
    Ok(())
}
