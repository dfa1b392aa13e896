//! How are login names hidden from whoever reads the wire or a coordinator?
//!
//! By HMAC-SHA-256 with a key that the hosts and gateways of a pool share and coordinators do not know: equal names give
//! equal hashes, so users still come back to their sessions, and nobody without the key can tell or guess whose they
//! are. A plain hash would not do, because all login names of a company can be tried in a second.
//!
//! A hash is written `hmac:KEY:HASH`. KEY names the key (the first 8 hexadecimal digits of its SHA-256), so that a host
//! with an old key is seen as such instead of silently matching nobody.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::{fmt, io};

use ring::{digest, hmac};
use usher_placement::host::NameHasher;
use usher_types::UserKey;

/// Fewer bytes could be found by trying.
const MIN_BYTES: usize = 16;
/// More is some other file.
const MAX_BYTES: usize = 4096;
/// Of the key's SHA-256: enough to tell the keys of a farm apart, too little to test a guess by.
const KEY_ID_BYTES: usize = 4;

/// The file of the key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UserNameKeyError {
    /// It cannot be read.
    #[error("cannot read the key for login names {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Its content is no key.
    #[error(
        "the key for login names {} has {bytes} bytes, allowed are {MIN_BYTES}..={MAX_BYTES}, a final line feed not counted",
        path.display()
    )]
    Length {
        /// The file.
        path: PathBuf,
        /// How long it is.
        bytes: usize,
    },
}

/// Hashes login names with the pool's key.
pub struct UserNameKey {
    id: String,
    key: hmac::Key,
}

impl UserNameKey {
    /// Reads the key: the bytes of the file, without a final line feed. Blocks.
    ///
    /// # Errors
    /// When the file cannot be read, or is shorter than 16 bytes or longer than 4096.
    pub fn read(path: &Path) -> Result<Self, UserNameKeyError> {
        let content =
            std::fs::read(path).map_err(|source| UserNameKeyError::Read { path: path.to_owned(), source })?;
        let cut = content.strip_suffix(b"\n").unwrap_or(&content);
        let secret = cut.strip_suffix(b"\r").unwrap_or(cut);
        if !(MIN_BYTES..=MAX_BYTES).contains(&secret.len()) {
            return Err(UserNameKeyError::Length { path: path.to_owned(), bytes: secret.len() });
        }
        let mode = std::fs::metadata(path).map_or(0, |facts| facts.permissions().mode() & 0o7777);
        if mode & 0o004 != 0 {
            tracing::warn!(path = %path.display(), mode = %format_args!("{mode:04o}"),
                "the key for login names can be read by every user of this machine, make it readable by its owner only");
        }
        Ok(Self::new(secret))
    }

    fn new(secret: &[u8]) -> Self {
        let digest = digest::digest(&digest::SHA256, secret);
        let id = hex(digest.as_ref().iter().take(KEY_ID_BYTES));
        Self { id, key: hmac::Key::new(hmac::HMAC_SHA256, secret) }
    }
}

impl NameHasher for UserNameKey {
    fn hash(&self, name: &UserKey) -> UserKey {
        let hash = hmac::sign(&self.key, name.as_str().as_bytes());
        UserKey::hashed(&self.id, &hex(hash.as_ref().iter()))
    }
}

/// Without the key itself.
impl fmt::Debug for UserNameKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserNameKey").field("id", &self.id).finish_non_exhaustive()
    }
}

fn hex<'a>(bytes: impl Iterator<Item = &'a u8>) -> String {
    bytes.fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use usher_types::UserMatch;

    use super::*;

    fn read(content: &[u8]) -> Result<UserNameKey, UserNameKeyError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("names.key");
        std::fs::write(&path, content).unwrap();
        UserNameKey::read(&path)
    }

    fn hash(key: &UserNameKey, name: &str) -> String {
        key.hash(&UserMatch::Folded.key(name).unwrap()).as_str().to_owned()
    }

    #[test]
    fn a_name_is_hashed_as_anyone_can_compute_it() {
        // printf alice | openssl dgst -sha256 -hmac 0123456789abcdef
        let key = read(b"0123456789abcdef\n").unwrap();
        let expected = "hmac:9f9f5111:fdbf8b1cacd3d578e062d0e41104357d06aa63eca39f80b6fd7c83afedf1d44a";
        assert_eq!(hash(&key, "CORP\\Alice"), expected);
        assert_eq!(
            hash(&read(b"0123456789abcdef").unwrap(), "alice"),
            expected,
            "the line feed is no part of it"
        );
        assert_ne!(hash(&read(b"0123456789abcdeF").unwrap(), "alice"), expected);
    }

    #[test]
    fn a_key_that_is_none_is_refused_and_never_printed() {
        for bad in [&b""[..], b"short\n", &[7; 4097]] {
            let error = read(bad).unwrap_err().to_string();
            assert!(error.contains("names.key") && error.contains("16..=4096"), "{error}");
        }
        let missing = UserNameKey::read(Path::new("/nonexistent/names.key")).unwrap_err().to_string();
        assert!(missing.starts_with("cannot read the key for login names"), "{missing}");
        let shown = format!("{:?}", read(b"0123456789abcdef").unwrap());
        assert!(!shown.contains("0123456789abcdef"), "{shown}");
    }
}
