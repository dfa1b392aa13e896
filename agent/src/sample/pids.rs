//! Does a process still run, and since when?
//!
//! A record of a login names a process. That one may be gone, or its number may belong to another by now, which its
//! begin tells. On the machine itself the kernel is asked, because `/proc` can be told to hide the processes of others;
//! below another root the folder of the process is looked for, because numbers of another namespace say nothing here.

use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use super::source::read_optional_text;

/// `USER_HZ`, as in `/proc/stat`.
const TICKS_PER_SECOND: u64 = 100;

/// What became of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// There is none of this number.
    Gone,
    /// There is one.
    Alive {
        /// When it began, since boot. Absent: not told.
        since_boot: Option<Duration>,
    },
}

/// What became of process `pid` of the system below `root`.
#[must_use]
pub fn look(root: &Path, pid: i32) -> Life {
    let is_there =
        if root == Path::new("/") { runs(pid) } else { pid > 0 && root.join(format!("proc/{pid}")).is_dir() };
    if !is_there {
        return Life::Gone;
    }
    let stat = read_optional_text(root, &format!("proc/{pid}/stat")).ok().flatten();
    Life::Alive { since_boot: stat.and_then(|text| began(&text)) }
}

/// Whether a process of this machine runs. One that we may not signal does.
fn runs(pid: i32) -> bool {
    // `from_raw` takes 0 as none; below it `kill` would mean groups.
    let Some(pid) = (pid > 0).then(|| Pid::from_raw(pid)).flatten() else {
        return false;
    };
    !matches!(test_kill_process(pid), Err(Errno::SRCH))
}

/// Reads the text of `/proc/PID/stat`: when the process began, since boot.
#[must_use]
pub fn began(stat: &str) -> Option<Duration> {
    // The program's name, in brackets, may hold brackets and spaces.
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks: u64 = fields.split_ascii_whitespace().nth(19)?.parse().ok()?;
    Some(Duration::from_millis(ticks.checked_mul(1000 / TICKS_PER_SECOND)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::test_tree::tree;
    use proptest::prelude::*;

    #[test]
    fn case_030_a_process_we_may_not_signal_is_alive() {
        let root = Path::new("/");
        let ours = look(root, i32::try_from(std::process::id()).expect("a pid"));
        assert!(matches!(ours, Life::Alive { since_boot: Some(_) }), "{ours:?}");
        assert!(matches!(look(root, 1), Life::Alive { .. }));
        for none in [0, -1, i32::MIN, i32::MAX] {
            assert_eq!(look(root, none), Life::Gone, "{none}");
        }
    }

    #[test]
    fn below_another_root_the_folder_counts() {
        let stat = "42 (a) b ( c) S 1 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 12345 0\n";
        let root = tree(&[("proc/42/stat", stat), ("proc/43/comm", "x"), ("proc/44", "a file")]);
        assert_eq!(look(root.path(), 42), Life::Alive { since_boot: Some(Duration::from_millis(123_450)) });
        assert_eq!(look(root.path(), 43), Life::Alive { since_boot: None });
        for gone in [1, 44, -42] {
            assert_eq!(look(root.path(), gone), Life::Gone, "{gone}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_says_nothing(text in ".{0,10}\\)([0-9 ]{0,60}|.{0,60})") {
            let _ = began(&text);
        }
    }
}
