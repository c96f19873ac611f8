//! What people type, typed: `grpcurl` as the second real client, and `holdfast dev`.

mod dev;
mod grpcurl;
