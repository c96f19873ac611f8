//! A new migration file is not seen by the macro that embeds the folder until the crate is built again.

fn main() {
    println!("cargo:rerun-if-changed=../migrations");
}
