//! Has the system closed its doors to logins?
//!
//! `/run/nologin` and `/etc/nologin` are how an administrator, or a shutdown that has begun, tells `pam_nologin` to
//! turn users away. Whoever is sent to such a host is refused at the door, so the host says that it is not ready. A
//! file that exists but cannot be read closes the door all the same.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use super::error::SampleError;

/// The first of these that exists gives the reason: the one that systemd writes before the lasting one.
const FILES: [&str; 2] = ["run/nologin", "etc/nologin"];

/// Bound of a reason meant for people.
const MAX_REASON_BYTES: usize = 1024;

/// The reason why the host takes no logins; `None` when it does.
///
/// # Errors
/// When it cannot be told whether a file exists.
pub fn read(root: &Path) -> Result<Option<String>, SampleError> {
    for file in FILES {
        let path = root.join(file);
        match fs::symlink_metadata(&path) {
            Ok(_) => {
                let text = first_bytes(&path).map(|bytes| reason(&bytes)).unwrap_or_default();
                return Ok(Some(if text.is_empty() { format!("/{file} exists") } else { text }));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(SampleError::Read { path, source }),
        }
    }
    Ok(None)
}

fn first_bytes(path: &Path) -> io::Result<Vec<u8>> {
    // A fifo in the place of the file would hold the reader for ever.
    if !fs::metadata(path)?.is_file() {
        return Ok(Vec::new());
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(4 * MAX_REASON_BYTES as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The first line that is not blank, without control characters, cut at a character's border.
fn reason(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let mut reason: String = line.chars().filter(|c| !c.is_control()).collect();
    reason.truncate(reason.floor_char_boundary(MAX_REASON_BYTES));
    reason
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &[u8])]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder");
        for (name, content) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            fs::write(path, content).expect("written");
        }
        root
    }

    #[test]
    fn no_file_means_open_doors() {
        assert_eq!(read(tree(&[]).path()).expect("told"), None);
    }

    #[test]
    fn the_text_is_the_reason() {
        let root = tree(&[("etc/nologin", b"\n  Upgrade until noon \x1b[31m\nmore\n")]);
        assert_eq!(read(root.path()).expect("told").as_deref(), Some("Upgrade until noon [31m"));
        let root = tree(&[("etc/nologin", b"lasting"), ("run/nologin", b"System is going down.")]);
        assert_eq!(read(root.path()).expect("told").as_deref(), Some("System is going down."));
    }

    #[test]
    fn a_file_without_text_closes_the_door_too() {
        assert_eq!(
            read(tree(&[("run/nologin", b"")]).path()).expect("told").as_deref(),
            Some("/run/nologin exists")
        );
        let root = tree(&[("run/nologin/inside", b"a folder")]);
        assert_eq!(read(root.path()).expect("told").as_deref(), Some("/run/nologin exists"));
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let root = tree(&[("run/nologin", "ä".repeat(3000).as_bytes())]);
        let text = read(root.path()).expect("told").expect("closed");
        assert_eq!(text.len(), 1024);
        assert!(text.chars().all(|c| c == 'ä'));
    }
}
