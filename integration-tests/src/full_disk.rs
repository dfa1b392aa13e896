//! What if the disk is full?
//!
//! A small file system of its own, in memory: the kernel's own "no space left on device", on a real mount, without a
//! byte taken from anybody else's disk.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::process::Process;

const PREFIX: &str = "usher-tmpfs-";

/// A small file system that goes away with this.
#[derive(Debug)]
pub struct SmallDisk {
    folder: PathBuf,
}

impl SmallDisk {
    /// Mounts one of `kib` KiB at `folder`, which is made.
    ///
    /// # Panics
    /// If this user may not mount; that is no reason to skip a test.
    pub fn mount(folder: &Path, kib: u32) -> Self {
        sweep();
        std::fs::create_dir_all(folder).unwrap();
        let source = format!("{PREFIX}{}", std::process::id());
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &format!("size={kib}k,mode=0700"), &source]).arg(folder);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "cannot mount a tmpfs: {said}; the test of a full disk wants root: run `cargo xtask test` as root"
        );
        Self { folder: folder.to_owned() }
    }

    /// Takes all that is left of it.
    ///
    /// # Panics
    /// If it cannot be filled.
    pub fn fill(&self) {
        let mut size: usize = 1 << 20;
        let mut file = std::fs::File::create(self.ballast()).unwrap();
        while size > 0 {
            // The last byte is what the error is for.
            if std::io::Write::write_all(&mut file, &vec![1; size]).is_err() {
                size /= 2;
            }
        }
    }

    /// Gives back what [`SmallDisk::fill`] took.
    ///
    /// # Panics
    /// If it was not filled.
    pub fn free(&self) {
        std::fs::remove_file(self.ballast()).unwrap();
    }

    fn ballast(&self) -> PathBuf {
        self.folder.join("ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        unmount(&self.folder);
    }
}

/// Lazily: a process that still runs there keeps it until it ends.
fn unmount(folder: &Path) {
    let mut command = Command::new("umount");
    let _ = command.arg("--lazy").arg(folder).stdin(Stdio::null()).stderr(Stdio::null()).status();
}

/// Unmounts what tests left that no longer run.
fn sweep() {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    for line in mounts.lines() {
        let mut words = line.split(' ');
        let (Some(source), Some(folder)) = (words.next(), words.next()) else { continue };
        let owner = source.strip_prefix(PREFIX).and_then(|pid| pid.parse().ok());
        if owner.is_some_and(|pid| !Process::exists(pid)) {
            unmount(Path::new(folder));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_full_until_it_is_freed() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("small");
        let disk = SmallDisk::mount(&at, 256);
        disk.fill();
        let write = || std::fs::write(at.join("file"), vec![7; 9000]);
        assert_eq!(write().unwrap_err().kind(), std::io::ErrorKind::StorageFull);
        disk.free();
        write().unwrap();
        drop(disk);
        assert!(!at.join("file").exists());
    }
}
