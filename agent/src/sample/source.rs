//! How is a small file of the kernel or the system read without trusting its size?
//!
//! Every reader takes the root of the tree, `/` in production, so that a test can stand up any machine as a folder.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::error::SampleError;

/// Far above any real one (`/proc/stat` of 4096 CPUs is about 1 MiB), far below what would hurt the host.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// Room for most files, read in one piece: files of `/proc` do not tell their size, and room that grows while they are
/// read costs a call each time.
const USUAL_FILE_BYTES: usize = 4096;

/// The whole content of `root`/`relative`.
///
/// # Errors
/// When it cannot be opened or read, or is larger than 16 MiB.
pub(crate) fn read_bytes(root: &Path, relative: &str) -> Result<Vec<u8>, SampleError> {
    let path = root.join(relative);
    let read = || -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(USUAL_FILE_BYTES);
        File::open(&path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        Ok(bytes)
    };
    read().map_err(|source| SampleError::Read { path: path.clone(), source })
}

/// As [`read_bytes`], as text. Bytes that are not UTF-8 are replaced: a CPU may have a strange name, and that must
/// not hide its counters.
pub(crate) fn read_text(root: &Path, relative: &str) -> Result<String, SampleError> {
    Ok(String::from_utf8_lossy(&read_bytes(root, relative)?).into_owned())
}

/// As [`read_text`]; absent when there is no such file.
pub(crate) fn read_optional_text(root: &Path, relative: &str) -> Result<Option<String>, SampleError> {
    match read_text(root, relative) {
        Ok(text) => Ok(Some(text)),
        Err(SampleError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
