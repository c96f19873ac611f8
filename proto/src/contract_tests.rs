//! The wire contract itself: descriptors, reasons, and that the comments of the reasons and the table agree.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;

use prost::Message as _;
use prost_types::FileDescriptorSet;
use tonic::Code;

use crate::v1::ErrorReason;
use crate::{ERROR_DOMAIN, FILE_DESCRIPTOR_SET};

fn reasons() -> impl Iterator<Item = ErrorReason> {
    // Numbers of reasons that are no more are reserved; the comments' test counts them all.
    (0..100).filter_map(|number| ErrorReason::try_from(number).ok())
}

#[test]
fn the_descriptor_set_holds_the_service_and_its_imports() {
    let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap();
    let names: Vec<_> = set.file.iter().map(|file| file.name()).collect();
    for name in [
        "google/protobuf/timestamp.proto",
        "holdfast/v1/envelope.proto",
        "holdfast/v1/error_reason.proto",
        "holdfast/v1/hold_service.proto",
        "holdfast/v1/inbox_service.proto",
        "holdfast/v1/outbox_service.proto",
    ] {
        assert!(names.contains(&name), "{names:?}");
    }
    let methods: Vec<_> = set
        .file
        .iter()
        .flat_map(|f| &f.service)
        .filter(|s| s.name() == "OutboxService")
        .flat_map(|s| &s.method)
        .map(|m| m.name().to_owned())
        .collect();
    assert_eq!(methods, ["StageInTx", "StageNow", "ConfirmStaged", "GetEvent"]);
}

#[test]
fn every_proto_file_is_compiled() {
    let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("holdfast/v1");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = format!("holdfast/v1/{}", entry.unwrap().file_name().to_string_lossy());
        assert!(set.file.iter().any(|file| file.name() == name), "{name} is not in build.rs");
    }
}

#[test]
fn a_reason_goes_over_the_wire_without_its_prefix_and_comes_back() {
    assert_eq!(ErrorReason::TicketNotOpen.reason(), "TICKET_NOT_OPEN");
    assert_eq!(ErrorReason::from_reason("NEWER_THAN_THIS_RELEASE"), None);
    assert_eq!(ERROR_DOMAIN, "holdfast.v1");
    for reason in reasons() {
        assert!(!reason.reason().starts_with("ERROR_"));
        assert_eq!(ErrorReason::from_reason(reason.reason()), Some(reason));
    }
}

#[test]
fn the_comment_of_each_reason_begins_with_its_code() {
    let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap();
    let file = set.file.iter().find(|file| file.name() == "holdfast/v1/error_reason.proto").unwrap();
    let locations = &file.source_code_info.as_ref().unwrap().location;
    let mut seen = 0;
    for (index, reason) in (0..).zip(reasons()).filter(|(_, reason)| reason.code() != Code::Unknown) {
        // 5, 0: the file's first enum; 2: its values.
        let place = locations.iter().find(|location| location.path == [5, 0, 2, index]).unwrap();
        let comment = place.leading_comments().trim_start();
        let code = comment.split([';', ' ']).next().unwrap();
        let debug: String = format!("{:?}", reason.code()).to_uppercase();
        assert_eq!(code.replace('_', ""), debug, "{reason:?}");
        assert!(comment.contains("`applied` = "), "{reason:?}");
        seen += 1;
    }
    assert_eq!(seen, 36);
    assert_eq!(seen + 1, file.enum_type[0].value.len(), "all of them, and the unspecified one");
}
