//! Compiles the .proto files without protoc, and writes the descriptor set that reflection serves.

use std::{env, fs, path::PathBuf};

const FILES: [&str; 5] = [
    "usher/v1/common.proto",
    "usher/v1/agent.proto",
    "usher/v1/placement.proto",
    "usher/v1/directory.proto",
    "usher/v1/admin.proto",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=usher");
    let descriptors = protox::compile(FILES, ["."])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("usher_descriptor.bin"), prost_bytes(&descriptors))?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}

fn prost_bytes(descriptors: &impl prost::Message) -> Vec<u8> {
    descriptors.encode_to_vec()
}
