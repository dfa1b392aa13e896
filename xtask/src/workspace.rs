//! Where the tree is and what cargo knows about it, asked once.

use std::path::PathBuf;

use anyhow::Context;
use cargo_metadata::{Metadata, MetadataCommand};

/// The checked-out tree and cargo's view of it.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) metadata: Metadata,
}

impl Workspace {
    /// Asks cargo about the workspace that this program was built from.
    ///
    /// # Errors
    ///
    /// When `cargo metadata` fails: a broken manifest, or a Cargo.lock that does not match the manifests and
    /// may not be changed.
    pub(crate) fn load() -> anyhow::Result<Self> {
        let metadata = MetadataCommand::new()
            .manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"))
            .exec()
            .context("asking cargo about the workspace")?;
        let root = metadata.workspace_root.clone().into_std_path_buf();
        Ok(Self { root, metadata })
    }

    /// Where cargo puts the binaries of a debug build.
    pub(crate) fn bin_dir(&self) -> PathBuf {
        self.metadata.target_directory.join("debug").into_std_path_buf()
    }

    /// Where cargo puts the binaries of a release build.
    pub(crate) fn release_dir(&self) -> PathBuf {
        self.metadata.target_directory.join("release").into_std_path_buf()
    }

    /// The Python environment that holds the peers from PyPI.
    pub(crate) fn venv_dir(&self) -> PathBuf {
        self.metadata.target_directory.join("peers/venv").into_std_path_buf()
    }
}
