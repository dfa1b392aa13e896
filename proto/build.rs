//! Compiles the .proto files without protoc, and writes the descriptor set that reflection serves.
//!
//! The JSON form of each message is generated here too, from the descriptors: an attribute per field that says how it
//! is written, so that no list of fields is kept by hand.

use std::{env, error::Error, fmt::Write as _, fs, path::PathBuf};

use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorSet,
    field_descriptor_proto::{Label, Type},
};
use tonic_prost_build::Builder;

const FILES: [&str; 5] = [
    "usher/v1/common.proto",
    "usher/v1/agent.proto",
    "usher/v1/placement.proto",
    "usher/v1/directory.proto",
    "usher/v1/admin.proto",
];
/// What only benchmarks call: not in the descriptor set, so that reflection does not show it.
const BENCH_FILES: [&str; 1] = ["usher/bench/v1/echo.proto"];
/// Another program's protocol, of which we are a client: not in the descriptor set.
const ETCD_FILES: [&str; 1] = ["etcd/rpc.proto"];
const PACKAGE: &str = "usher.v1";
/// Lists with presence: written as the list.
const WRITTEN_AS_THEIR_FIELD: &str = "SharedAccounts";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=usher");
    println!("cargo::rerun-if-changed=etcd");
    let descriptors = protox::compile(FILES, ["."])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("usher_descriptor.bin"), prost_bytes(&descriptors))?;
    fs::write(out.join("enum_names.rs"), enum_names(&descriptors)?)?;
    with_json(tonic_prost_build::configure(), &descriptors)?.compile_fds(descriptors)?;
    tonic_prost_build::configure().compile_fds(protox::compile(BENCH_FILES, ["."])?)?;
    let etcd = tonic_prost_build::configure().build_server(false);
    etcd.compile_fds(protox::compile(ETCD_FILES, ["."])?)?;
    Ok(())
}

fn prost_bytes(descriptors: &impl prost::Message) -> Vec<u8> {
    descriptors.encode_to_vec()
}

/// The values of each enum without the prefix that the enum's zero value shows.
fn enum_names(descriptors: &FileDescriptorSet) -> Result<String, Box<dyn Error>> {
    let mut code = String::new();
    let own = descriptors.file.iter().filter(|file| file.package() == PACKAGE);
    for item in own.flat_map(|file| &file.enum_type) {
        let prefix =
            prefix(item).ok_or_else(|| format!("{}: value 0 is not ..._UNSPECIFIED", item.name()))?;
        writeln!(code, "impl EnumNames for crate::v1::{} {{", item.name())?;
        writeln!(code, "    const NAMES: &'static [(i32, &'static str)] = &[")?;
        for value in &item.value {
            let name =
                value.name().strip_prefix(prefix).ok_or_else(|| format!("{}: prefix", value.name()))?;
            // The one name that operators write in one word.
            let name = if value.name() == "HOST_STATE_MAX_USERS" { "MAXUSERS" } else { name };
            writeln!(code, "        ({}, {name:?}),", value.number())?;
        }
        writeln!(code, "    ];\n}}")?;
    }
    Ok(code)
}

fn prefix(item: &EnumDescriptorProto) -> Option<&str> {
    item.value.iter().find(|value| value.number() == 0)?.name().strip_suffix("UNSPECIFIED")
}

fn with_json(mut builder: Builder, descriptors: &FileDescriptorSet) -> Result<Builder, Box<dyn Error>> {
    let own = descriptors.file.iter().filter(|file| file.package() == PACKAGE);
    for message in own.flat_map(|file| &file.message_type) {
        if !is_choice(message) {
            builder = message_with_json(builder, message)?;
        }
    }
    Ok(builder)
}

fn message_with_json(mut builder: Builder, message: &DescriptorProto) -> Result<Builder, Box<dyn Error>> {
    let path = format!(".{PACKAGE}.{}", message.name());
    let derive = if message.name() == WRITTEN_AS_THEIR_FIELD {
        "#[derive(::serde::Serialize)]\n#[serde(transparent)]"
    } else {
        "#[derive(::serde::Serialize)]"
    };
    builder = builder.message_attribute(&path, derive);
    if message.nested_type.iter().any(|nested| !nested.options.clone().unwrap_or_default().map_entry()) {
        return Err(format!("{path}: nested messages have no JSON form").into());
    }
    for field in &message.field {
        for attribute in field_attributes(message, field)? {
            builder = builder.field_attribute(format!("{path}.{}", field.name()), attribute);
        }
    }
    Ok(builder)
}

/// A choice has no one JSON form: limits are written by hand, in `json.rs`, and the envelopes of the agents' stream are
/// shown to nobody. (`optional` makes oneofs of its own, which do not count.)
fn is_choice(message: &DescriptorProto) -> bool {
    message.field.iter().any(|field| field.oneof_index.is_some() && !field.proto3_optional())
}

fn field_attributes(
    message: &DescriptorProto,
    field: &FieldDescriptorProto,
) -> Result<Vec<String>, Box<dyn Error>> {
    let repeated = field.label() == Label::Repeated;
    let is_map = repeated
        && field.r#type() == Type::Message
        && message
            .nested_type
            .iter()
            .any(|nested| field.type_name().ends_with(&format!(".{}", nested.name())));
    let is_option = field.proto3_optional() || (field.r#type() == Type::Message && !repeated);
    let prefix = if field.proto3_optional() { "optional_" } else { "" };
    let mut attributes = Vec::new();
    if is_option {
        attributes.push("#[serde(skip_serializing_if = \"::core::option::Option::is_none\")]".to_owned());
    }
    let writer = match field.r#type() {
        _ if is_map => Some("sorted".to_owned()),
        Type::Enum | Type::Double | Type::Float | Type::Fixed64 | Type::Bytes if repeated => {
            return Err(format!("{}.{}: no JSON form for such a list", message.name(), field.name()).into());
        }
        Type::Enum => {
            if !is_option {
                attributes.push("#[serde(skip_serializing_if = \"crate::json::is_unspecified\")]".to_owned());
            }
            let name = field.type_name().trim_start_matches(&format!(".{PACKAGE}."));
            Some(format!("{prefix}enum_value::<crate::v1::{name}, _>"))
        }
        Type::Double | Type::Float => Some(format!("{prefix}finite")),
        Type::Fixed64 => Some(format!("{prefix}hex")),
        Type::Message if field.type_name() == ".google.protobuf.Timestamp" => Some("timestamp".to_owned()),
        _ => None,
    };
    if let Some(writer) = writer {
        attributes.push(format!("#[serde(serialize_with = \"crate::json::{writer}\")]"));
    }
    Ok(attributes)
}
