//! How many processes are there?
//!
//! The numeric folders of `/proc`. Threads live one level deeper, under `task/`, and are not counted: a database of
//! one process with 300 threads is one.

use std::fs;
use std::path::Path;

use super::error::SampleError;

/// Counts the processes below `root`.
///
/// # Errors
/// When `/proc` cannot be listed or lists no process, which no running system does.
pub fn read(root: &Path) -> Result<u32, SampleError> {
    let path = root.join("proc");
    let failed = |source| SampleError::Read { path: path.clone(), source };
    let mut count = 0_u32;
    for entry in fs::read_dir(&path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let is_pid = entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit);
        // A process that ends while we look is gone either way.
        if is_pid && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            count = count.saturating_add(1);
        }
    }
    if count == 0 {
        return Err(SampleError::malformed("/proc", "lists no process"));
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn case_015_threads_are_not_processes() {
        let root = tempfile::tempdir().expect("a folder");
        for pid in [10, 20, 30] {
            for thread in 0..10 {
                fs::create_dir_all(root.path().join(format!("proc/{pid}/task/{}", pid + thread)))
                    .expect("made");
            }
        }
        fs::create_dir_all(root.path().join("proc/sys")).expect("made");
        fs::write(root.path().join("proc/40"), "a file, not a process").expect("written");
        assert_eq!(read(root.path()).expect("counted"), 3);
    }

    #[test]
    fn case_016_ended_processes_are_not_counted() {
        let before = read(Path::new("/")).expect("counted");
        for _ in 0..100 {
            Command::new("true").status().expect("ran");
        }
        let after = read(Path::new("/")).expect("counted");
        // Other work on the machine comes and goes; a hundred that stayed would show.
        assert!(after < before + 60, "{before} -> {after}");
    }

    #[test]
    fn an_empty_proc_is_an_error_not_zero() {
        let root = tempfile::tempdir().expect("a folder");
        assert!(read(root.path()).is_err());
        fs::create_dir(root.path().join("proc")).expect("made");
        assert!(read(root.path()).is_err());
    }
}
