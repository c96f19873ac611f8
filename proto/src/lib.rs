//! The wire contract of Holdfast: package `holdfast.v1` as Rust types, client and server, its descriptor set for
//! reflection, and the rules that both ends of the wire apply: [`envelope`] to an event, [`consumption`] to a message that is consumed.
//!
//! Guarantees: no I/O, no clock but the one that mints version 7 ids, no panic on any input. It does not decide what
//! is authorised or what exists. Design: sections 2 and 3.

pub mod consumption;
pub mod envelope;
mod reason;

#[cfg(test)]
mod contract_tests;

/// The generated messages, enums, client and server of package `holdfast.v1`.
#[expect(
    unused_qualifications,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    clippy::doc_lazy_continuation,
    reason = "generated code; how it reads is the generator's business"
)]
pub mod v1 {
    tonic::include_proto!("holdfast.v1");
}

/// The serialised `google.protobuf.FileDescriptorSet` of `holdfast.v1` and its imports, as server reflection wants it.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/holdfast_descriptor.bin"));

/// The `domain` of every `google.rpc.ErrorInfo` that the server sends; the `reason` is [`v1::ErrorReason::reason`].
pub const ERROR_DOMAIN: &str = "holdfast.v1";
