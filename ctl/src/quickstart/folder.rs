//! Where a quickstart farm keeps its data: a temporary folder that goes with it, or one that was named and stays.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use tempfile::TempDir;

use crate::failure::Failure;

/// The folder, for as long as the farm lives.
#[derive(Debug)]
pub(super) enum DataFolder {
    /// Removed when this is dropped.
    Temporary(TempDir),
    /// Stays.
    Kept(PathBuf),
}

impl DataFolder {
    /// Opens the folder that was named, making it if it is not there, or makes a temporary one.
    ///
    /// # Errors
    /// If it cannot be made.
    pub(super) fn open(named: Option<&Path>) -> Result<Self, Failure> {
        let Some(named) = named else {
            let folder = tempfile::Builder::new().prefix("usher-quickstart-").tempdir();
            return Ok(Self::Temporary(folder.context("making a temporary folder")?));
        };
        let context = || format!("making data folder {}", named.display());
        std::fs::create_dir_all(named).with_context(context)?;
        Ok(Self::Kept(std::path::absolute(named).with_context(context)?))
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Temporary(folder) => folder.path(),
            Self::Kept(path) => path,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_folder_stays_and_a_temporary_one_goes() {
        let outer = tempfile::tempdir().unwrap();
        let named = outer.path().join("a/b");
        drop(DataFolder::open(Some(&named)).unwrap());
        assert!(named.is_dir());
        let temporary = DataFolder::open(None).unwrap();
        let path = temporary.path().to_owned();
        assert!(path.is_dir());
        drop(temporary);
        assert!(!path.exists());
    }
}
