//! How much CPU time has a session, or all that a user runs, used?
//!
//! systemd puts each session into a control group of its own, below that of its user. Version 2 tells the use of every
//! group, and how long its work waited for a CPU if the kernel measures pressure; version 1 tells the use of those that
//! systemd was told to account for. A group that does not tell its use is unknown, never 0.

use std::path::Path;
use std::time::Duration;

use super::logons::{CpuGroup, CpuUse};
use super::source::read_optional_text;

/// Where version 2 is mounted, alone or beside version 1.
const VERSION_2: [&str; 2] = ["sys/fs/cgroup", "sys/fs/cgroup/unified"];
/// Where version 1 mounts its accounts of CPU time: alone, or with the scheduler's in either order.
const VERSION_1: [&str; 3] =
    ["sys/fs/cgroup/cpuacct", "sys/fs/cgroup/cpu,cpuacct", "sys/fs/cgroup/cpuacct,cpu"];

/// The group's folder below a mount. Absent: a unit of this name is no session's.
#[must_use]
pub fn folder(group: &CpuGroup) -> Option<String> {
    match group {
        CpuGroup::User(uid) => Some(format!("user.slice/user-{uid}.slice")),
        // The name comes from logind, or from a file that stands for it: it must not lead elsewhere.
        CpuGroup::Session(uid, scope) => (scope.ends_with(".scope") && !scope.contains('/'))
            .then(|| format!("user.slice/user-{uid}.slice/{scope}")),
    }
}

/// The use of CPUs by `group` of the system below `root`. Absent: not known. Blocks.
#[must_use]
pub fn read(root: &Path, group: &CpuGroup) -> Option<CpuUse> {
    let folder = folder(group)?;
    // A group that goes while it is looked at is not there.
    let text = |file: String| read_optional_text(root, &file).ok().flatten();
    let second = |mount: &&str| {
        let used = used_us(&text(format!("{mount}/{folder}/cpu.stat"))?)?;
        let pressure = text(format!("{mount}/{folder}/cpu.pressure"));
        let waited = pressure.and_then(|text| waited_us(&text)).unwrap_or_default();
        Some(CpuUse { used, waited })
    };
    let first = |mount: &&str| {
        let used = used_ns(&text(format!("{mount}/{folder}/cpuacct.usage"))?)?;
        Some(CpuUse { used, waited: Duration::ZERO })
    };
    VERSION_2.iter().find_map(second).or_else(|| VERSION_1.iter().find_map(first))
}

fn used_us(cpu_stat: &str) -> Option<Duration> {
    let value = cpu_stat.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
    value.trim().parse().ok().map(Duration::from_micros)
}

/// The line `some avg10=0.00 avg60=0.00 avg300=0.00 total=123`.
fn waited_us(cpu_pressure: &str) -> Option<Duration> {
    let line = cpu_pressure.lines().find_map(|line| line.strip_prefix("some "))?;
    let total = line.split_ascii_whitespace().find_map(|word| word.strip_prefix("total="))?;
    total.parse().ok().map(Duration::from_micros)
}

fn used_ns(usage: &str) -> Option<Duration> {
    usage.trim().parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sample::test_tree::tree;

    #[test]
    fn the_use_of_a_session_and_of_its_user_is_read_in_either_version() {
        let session = CpuGroup::Session(1000, "session-3.scope".into());
        let used = Some(CpuUse { used: Duration::from_millis(2500), waited: Duration::ZERO });
        for (mount, file, text) in [
            ("sys/fs/cgroup", "cpu.stat", "usage_usec 2500000\nuser_usec 1\n"),
            ("sys/fs/cgroup/unified", "cpu.stat", "nr_periods 0\nusage_usec 2500000\n"),
            ("sys/fs/cgroup/cpuacct", "cpuacct.usage", "2500000000\n"),
            ("sys/fs/cgroup/cpu,cpuacct", "cpuacct.usage", "2500000000\n"),
        ] {
            let user = format!("{mount}/user.slice/user-1000.slice");
            let root = tree(&[(&format!("{user}/session-3.scope/{file}"), text)]);
            assert_eq!(read(root.path(), &session), used, "{mount}");
            assert_eq!(read(root.path(), &CpuGroup::User(1000)), None);
            let root = tree(&[(&format!("{user}/{file}"), text)]);
            assert_eq!(read(root.path(), &CpuGroup::User(1000)), used);
        }
    }

    #[test]
    fn waiting_for_a_cpu_is_read_where_the_kernel_measures_it() {
        let user = "sys/fs/cgroup/user.slice/user-1000.slice";
        let pressure = "some avg10=1.00 avg60=0.50 avg300=0.10 total=700000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=9\n";
        let root = tree(&[
            (&format!("{user}/cpu.stat"), "usage_usec 1\n"),
            (&format!("{user}/cpu.pressure"), pressure),
        ]);
        let waited = read(root.path(), &CpuGroup::User(1000)).unwrap().waited;
        assert_eq!(waited, Duration::from_millis(700));
    }

    #[test]
    fn what_is_not_told_is_unknown_and_a_hostile_name_leads_nowhere() {
        let root = tree(&[
            ("sys/fs/cgroup/user.slice/user-7.slice/cpu.stat", "usage_usec x\n"),
            ("sys/fs/cgroup/user.slice/evil.scope/cpu.stat", "usage_usec 5\n"),
        ]);
        for group in [
            CpuGroup::User(7),
            CpuGroup::User(8),
            CpuGroup::Session(7, "../evil.scope".into()),
            CpuGroup::Session(7, String::new()),
        ] {
            assert_eq!(read(root.path(), &group), None, "{group:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_time_or_unknown(text in "(usage_usec |some |total=|[0-9]{0,21}|\n|.){0,20}") {
            let _ = (used_us(&text), used_ns(&text), waited_us(&text));
        }
    }
}
