//! How many processes are there?
//!
//! The numeric folders of `/proc`. Threads live one level deeper, under `task/`, and are not counted: a database of
//! one process with 300 threads is one.
//!
//! Nothing is opened but `/proc` itself, and its names are read as the kernel gives them: looking into each process
//! costs twenty times as much, which is what makes other agents expensive on hosts with many.
//!
//! Even the names are half of what a sample costs. The kernel counts as well: as a folder has a link from each folder in
//! it, `/proc` has one for each process of the whole machine and for each of its few fixed folders. So the names are
//! counted now and then, and in between the links are, less what was more than the names. That is exact where all
//! processes can be seen. In a container, and where the processes of others are hidden, the links are far more than the
//! names; then the names are counted every time. What is no running system has no such links either.

use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RawDir, RawDirEntry, StatxFlags, openat, statat, statx,
};
use rustix::io::Errno;

use super::error::SampleError;
use super::fallback::{self, Read, or_sysinfo};

/// Room for the names of a thousand processes in one call.
const NAMES_BYTES: usize = 32 * 1024;

/// After so many counts by the links the names are counted: it costs little, and tells when the links cannot be believed.
const LOOKS_BY_LINKS: u32 = 60;

/// Fixed folders of `/proc` with their links: about 20. The threads of the kernel alone, which a container does not see,
/// are more than twice as many as this.
const MOST_FIXED_FOLDERS: u64 = 32;

/// How many of them may come or go between two counts of the names.
const FOLDERS_COME_AND_GO: u64 = 4;

/// Counts the processes below `root`.
///
/// # Errors
/// When `/proc` cannot be listed or lists no process, which no running system does.
pub fn read(root: &Path) -> Result<u32, SampleError> {
    let path = root.join("proc");
    let count = count(&path).map_err(|errno| SampleError::Read { path, source: errno.into() })?;
    if count == 0 {
        return Err(SampleError::malformed("/proc", "lists no process"));
    }
    Ok(count)
}

/// Counts again and again.
#[derive(Debug, Default)]
pub(crate) struct ProcessCounter {
    links: Links,
    /// By the links, since the names were counted.
    looks: u32,
}

/// What is known of the links of `/proc`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
enum Links {
    #[default]
    Unknown,
    /// So many more than there are processes.
    Beside(u64),
    /// They were not what they should be.
    NotBelieved,
}

impl ProcessCounter {
    /// Processes of the system below `root`, by its names or its links, or by what sysinfo says in their place.
    ///
    /// # Errors
    /// As [`read`].
    pub(crate) fn read(&mut self, root: &Path) -> Result<Read<u32>, SampleError> {
        if root != Path::new("/") {
            return Ok(Read { value: read(root)?, stands_in: None });
        }
        if let Links::Beside(others) = self.links
            && self.looks < LOOKS_BY_LINKS
            && let Some(count) = links().and_then(|links| u32::try_from(links.checked_sub(others)?).ok())
        {
            self.looks += 1;
            return Ok(Read { value: count, stands_in: None });
        }
        let before = links();
        let count = or_sysinfo(root, read(root), fallback::processes)?;
        let after = links();
        self.looks = 0;
        if let Some(links) = before.filter(|_| before == after) {
            self.links = self.links.compared(links, count.value);
        }
        Ok(count)
    }
}

impl Links {
    /// After both were counted, while no process came or went.
    fn compared(self, links: u64, processes: u32) -> Self {
        let others = links.checked_sub(u64::from(processes)).filter(|others| *others <= MOST_FIXED_FOLDERS);
        match (self, others) {
            (Self::Unknown, Some(others)) => Self::Beside(others),
            // A driver came or went with its folder, or a process went for one that came while they were counted.
            (Self::Beside(before), Some(others)) if before.abs_diff(others) <= FOLDERS_COME_AND_GO => {
                Self::Beside(others)
            }
            _ => Self::NotBelieved,
        }
    }
}

/// Links of `/proc`.
fn links() -> Option<u64> {
    let facts = statx(CWD, "/proc", AtFlags::empty(), StatxFlags::NLINK).ok()?;
    Some(facts.stx_nlink.into())
}

fn count(path: &Path) -> Result<u32, Errno> {
    let folder = openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut names = Vec::with_capacity(NAMES_BYTES);
    let mut entries = RawDir::new(&folder, names.spare_capacity_mut());
    let mut count = 0_u32;
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let is_pid = entry.file_name().to_bytes().iter().all(u8::is_ascii_digit);
        if is_pid && is_folder(&folder, &entry) {
            count = count.saturating_add(1);
        }
    }
    Ok(count)
}

/// A process that ends while we look is gone either way.
fn is_folder(folder: &impl std::os::fd::AsFd, entry: &RawDirEntry<'_>) -> bool {
    match entry.file_type() {
        // Copies can lie on file systems that do not tell.
        FileType::Unknown => statat(folder, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|facts| FileType::from_raw_mode(facts.st_mode) == FileType::Directory),
        kind => kind == FileType::Directory,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
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
    fn links_are_believed_only_as_long_as_they_are_a_few_more_than_the_processes() {
        let trusted = Links::default().compared(112, 100);
        assert_eq!(trusted, Links::Beside(12));
        assert_eq!(trusted.compared(213, 200), Links::Beside(13));
        // Links that do not follow the processes, and those of a whole machine around a container.
        assert_eq!(trusted.compared(112, 90), Links::NotBelieved);
        assert_eq!(Links::default().compared(400, 100), Links::NotBelieved);
        assert_eq!(Links::default().compared(3, 100), Links::NotBelieved);
        assert_eq!(Links::NotBelieved.compared(112, 100), Links::NotBelieved);
    }

    #[test]
    fn processes_that_come_between_two_counts_of_the_names_are_seen_at_once() {
        let mut counter = ProcessCounter::default();
        let root = Path::new("/");
        let mut count = || i64::from(counter.read(root).expect("counted").value);
        let before = (0..10).map(|_| count()).last().expect("counted");
        let sleeper = || Command::new("sleep").arg("60").spawn().expect("started");
        let mut sleepers: Vec<_> = (0..30).map(|_| sleeper()).collect();
        let during = count();
        let names = i64::from(read(root).expect("counted"));
        for sleeper in &mut sleepers {
            sleeper.kill().expect("killed");
            sleeper.wait().expect("ended");
        }
        // Other work on the machine comes and goes.
        assert!((during - before - 30).abs() < 25, "{before} -> {during}");
        assert!((during - names).abs() < 25, "{during}, {names} by the names");
    }

    #[test]
    fn a_copy_of_another_machine_is_counted_by_its_names() {
        let root = tempfile::tempdir().expect("a folder");
        let mut counter = ProcessCounter::default();
        for pid in 1..=3 {
            fs::create_dir_all(root.path().join(format!("proc/{pid}"))).expect("made");
            assert_eq!(counter.read(root.path()).expect("counted").value, pid);
        }
        assert_eq!(counter.links, Links::Unknown);
    }

    #[test]
    fn an_empty_proc_is_an_error_not_zero() {
        let root = tempfile::tempdir().expect("a folder");
        assert!(read(root.path()).is_err());
        fs::create_dir(root.path().join("proc")).expect("made");
        assert!(read(root.path()).is_err());
    }
}
