//! How full are the mounts that the operator chose?
//!
//! A host whose `/tmp` or whose homes are full fails logins at any load. Space and inodes can both run out, so the
//! fuller of the two counts, as `df` shows them: blocks that are kept for root are not there for users. Each mount is
//! read on a thread of its own, because a dead network mount never answers; it then has no value, and the others do.

use std::path::Path;

use rustix::fs::{StatVfs, statvfs};

use super::error::SampleError;

/// How full one mount is.
#[derive(Debug, Clone, PartialEq)]
pub struct MountUse {
    /// As the operator wrote it.
    pub path: String,
    /// Of space or of inodes, whichever is higher, 0..=100.
    pub used_percent: f64,
}

/// Share in use of the file system that holds `path` below `root`, percent, 0..=100. Blocks.
///
/// # Errors
/// When the system does not tell, or the file system has no size.
pub fn read(root: &Path, path: &Path) -> Result<f64, SampleError> {
    let below = root.join(path.strip_prefix("/").unwrap_or(path));
    let facts =
        statvfs(&below).map_err(|errno| SampleError::Read { path: path.to_owned(), source: errno.into() })?;
    used_percent(&facts).ok_or_else(|| SampleError::malformed("statvfs", "the file system has no size"))
}

fn used_percent(facts: &StatVfs) -> Option<f64> {
    let space = share(facts.f_blocks, facts.f_bfree, facts.f_bavail);
    // Some file systems make inodes as they need them, and say 0.
    let inodes = share(facts.f_files, facts.f_ffree, facts.f_favail);
    space.into_iter().chain(inodes).reduce(f64::max)
}

/// Used of what users can have. Absent when there is nothing.
fn share(all: u64, free: u64, free_for_users: u64) -> Option<f64> {
    let used = all.saturating_sub(free) as f64;
    let usable = used + free_for_users as f64;
    (all > 0 && usable > 0.0).then(|| 100.0 * used / usable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_for_root_is_not_there_for_users() {
        assert_eq!(share(100, 10, 5), Some(100.0 * 90.0 / 95.0));
        assert_eq!(share(100, 5, 0), Some(100.0));
        assert_eq!(share(100, 100, 100), Some(0.0));
        assert_eq!((share(0, 0, 0), share(5, 5, 0)), (None, None));
        assert_eq!(share(10, 11, 10), Some(0.0), "a file system that counts badly");
    }

    #[test]
    fn this_machine_can_be_read_and_a_mount_that_is_not_there_is_named() {
        let used = read(Path::new("/"), Path::new("/")).unwrap();
        assert!((0.0..=100.0).contains(&used), "{used}");
        let error = read(Path::new("/"), Path::new("/nonexistent")).unwrap_err().to_string();
        assert_eq!(error, "cannot read /nonexistent");
    }

    #[test]
    fn a_path_is_looked_for_below_the_root() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("home")).unwrap();
        read(root.path(), Path::new("/home")).unwrap();
        assert!(read(root.path(), Path::new("/srv")).is_err());
    }
}
