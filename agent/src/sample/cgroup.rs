//! What may this container use, and what does it use of that?
//!
//! In a container `/proc` shows the machine: an idle container on a busy machine looks busy, and a full one looks idle.
//! The limits of the container stand in its own control group, which it sees as the root of the mount. The root of a
//! whole machine has no limit there, so whatever is found is a container's. Both versions of the kernel's interface are
//! read: `cpu.max` and `memory.max`, or the `cfs` quota and `memory.limit_in_bytes`.
//!
//! A limit that is no smaller than the machine limits nothing: then the machine's own figures are the right ones,
//! because the neighbours count too. Limits of the agent's own service, deeper in the tree, are not the host's and are
//! not looked at.

use std::path::Path;
use std::time::Duration;

use super::error::SampleError;
use super::memory::Memory;
use super::source::read_optional_text;

const CPU_MAX: &str = "cpu.max";
const CFS_QUOTA: &str = "cpu.cfs_quota_us";
const CPUSET: &str = "cpuset";
const MEMORY: &str = "cgroup memory";

const VERSION_2: &str = "sys/fs/cgroup";
/// Where version 1 mounts its controllers of CPU time: alone, or together in either order.
const VERSION_1_CPU: [&str; 3] =
    ["sys/fs/cgroup/cpu", "sys/fs/cgroup/cpu,cpuacct", "sys/fs/cgroup/cpuacct,cpu"];
const VERSION_1_USAGE: [&str; 3] =
    ["sys/fs/cgroup/cpuacct", "sys/fs/cgroup/cpu,cpuacct", "sys/fs/cgroup/cpuacct,cpu"];

/// CPU time of a container.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CpuShare {
    /// CPUs that it may use at most, > 0, maybe a fraction.
    pub cpus: f64,
    /// CPU time used since it began.
    pub used: Duration,
}

/// The container's share of the CPUs, if it is less than all `machine_cpus` (0: not known how many there are).
///
/// # Errors
/// When there is a limit and it, or the use of it, cannot be read.
pub fn cpu_share(root: &Path, machine_cpus: u64) -> Result<Option<CpuShare>, SampleError> {
    let limits = [quota(root)?, cpu_set(root)?];
    let Some(cpus) = limits.into_iter().flatten().reduce(f64::min) else { return Ok(None) };
    if machine_cpus > 0 && cpus >= machine_cpus as f64 {
        return Ok(None);
    }
    let used = used_cpu(root)?
        .ok_or_else(|| SampleError::malformed("cgroup CPU", "has a limit and does not say what is used"))?;
    Ok(Some(CpuShare { cpus, used }))
}

/// The container's memory, if its limit is below the machine's `total_bytes`. What the kernel would drop first, file
/// pages that were not used lately, does not count as used.
///
/// # Errors
/// When there is a limit and the use of it cannot be read.
pub fn memory_share(root: &Path, total_bytes: u64) -> Result<Option<Memory>, SampleError> {
    let versions = [
        ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
        ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ];
    for (folder, limit_file, usage_file, droppable) in versions {
        let Some(text) = read_optional_text(root, &format!("{folder}/{limit_file}"))? else { continue };
        let Some(limit_bytes) = limit(&text)?.filter(|&limit_bytes| limit_bytes < total_bytes) else {
            return Ok(None);
        };
        if limit_bytes == 0 {
            return Err(SampleError::malformed(MEMORY, "the limit is 0"));
        }
        let usage = read_optional_text(root, &format!("{folder}/{usage_file}"))?
            .ok_or_else(|| SampleError::malformed(MEMORY, format!("no {usage_file}")))?;
        let usage_bytes = whole_number(MEMORY, &usage)?;
        // A container's statistics may be hidden; then all that is used counts.
        let statistics = read_optional_text(root, &format!("{folder}/memory.stat"))?.unwrap_or_default();
        let droppable_bytes = keyed(&statistics, droppable).unwrap_or(0);
        let used_bytes = usage_bytes.saturating_sub(droppable_bytes).min(limit_bytes);
        return Ok(Some(Memory { used_bytes, total_bytes: limit_bytes }));
    }
    Ok(None)
}

/// `cpu.max` or the quota of version 1, in CPUs. Absent: none.
fn quota(root: &Path) -> Result<Option<f64>, SampleError> {
    if let Some(text) = read_optional_text(root, &format!("{VERSION_2}/cpu.max"))? {
        return parse_cpu_max(&text);
    }
    for folder in VERSION_1_CPU {
        let Some(quota) = read_optional_text(root, &format!("{folder}/cpu.cfs_quota_us"))? else { continue };
        let period = read_optional_text(root, &format!("{folder}/cpu.cfs_period_us"))?.unwrap_or_default();
        return parse_cfs(&quota, &period);
    }
    Ok(None)
}

/// CPUs that the container is bound to. Absent: not told.
fn cpu_set(root: &Path) -> Result<Option<f64>, SampleError> {
    // The root of a machine has this file in both versions, with all its CPUs.
    let files = ["sys/fs/cgroup/cpuset.cpus.effective", "sys/fs/cgroup/cpuset/cpuset.effective_cpus"];
    for file in files {
        if let Some(text) = read_optional_text(root, file)? {
            return parse_cpu_list(&text).map(|cpus| (cpus > 0).then_some(cpus as f64));
        }
    }
    Ok(None)
}

fn used_cpu(root: &Path) -> Result<Option<Duration>, SampleError> {
    if let Some(text) = read_optional_text(root, &format!("{VERSION_2}/cpu.stat"))?
        && let Some(used_us) = keyed(&text, "usage_usec")
    {
        return Ok(Some(Duration::from_micros(used_us)));
    }
    for folder in VERSION_1_USAGE {
        if let Some(text) = read_optional_text(root, &format!("{folder}/cpuacct.usage"))? {
            return whole_number("cpuacct.usage", &text).map(|used_ns| Some(Duration::from_nanos(used_ns)));
        }
    }
    Ok(None)
}

/// Reads the text of `cpu.max`: `MAX PERIOD`, both in microseconds, or `max PERIOD`. In CPUs; absent: no limit.
///
/// # Errors
/// When it is neither.
pub fn parse_cpu_max(text: &str) -> Result<Option<f64>, SampleError> {
    let mut words = text.split_ascii_whitespace();
    let (most, period) = (words.next().unwrap_or_default(), words.next().unwrap_or("100000"));
    if most == "max" {
        return Ok(None);
    }
    ratio(CPU_MAX, most, period).map(Some)
}

/// Reads the quota and the period of version 1. In CPUs; absent: no limit.
///
/// # Errors
/// When they are no numbers, or the period is 0.
pub fn parse_cfs(quota: &str, period: &str) -> Result<Option<f64>, SampleError> {
    if quota.trim().starts_with('-') {
        return Ok(None);
    }
    ratio(CFS_QUOTA, quota, period).map(Some)
}

fn ratio(subject: &'static str, most: &str, period: &str) -> Result<f64, SampleError> {
    let (most_us, period_us) = (whole_number(subject, most)?, whole_number(subject, period)?);
    if most_us == 0 || period_us == 0 {
        return Err(SampleError::malformed(subject, format!("allows {most_us} us in {period_us} us")));
    }
    Ok(most_us as f64 / period_us as f64)
}

/// Counts the CPUs of a list such as `0-3,8`.
///
/// # Errors
/// When it is none.
pub fn parse_cpu_list(text: &str) -> Result<u64, SampleError> {
    let malformed = || SampleError::malformed(CPUSET, format!("`{}` is no list of CPUs", shown(text)));
    let mut count = 0_u64;
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: u32 = first.parse().map_err(|_| malformed())?;
        let last: u32 = last.parse().map_err(|_| malformed())?;
        count = count.saturating_add(u64::from(last.checked_sub(first).ok_or_else(malformed)?) + 1);
    }
    Ok(count)
}

/// Bytes of a limit; absent for the word `max`.
fn limit(text: &str) -> Result<Option<u64>, SampleError> {
    if text.trim() == "max" {
        return Ok(None);
    }
    whole_number(MEMORY, text).map(Some)
}

fn whole_number(subject: &'static str, text: &str) -> Result<u64, SampleError> {
    let problem = || format!("`{}` is no whole number", shown(text));
    text.trim().parse().map_err(|_| SampleError::malformed(subject, problem()))
}

/// Enough of a text for a message.
fn shown(text: &str) -> &str {
    let text = text.trim();
    &text[..text.floor_char_boundary(40)]
}

/// The value of a line `key value`.
fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::test_tree::tree;
    use proptest::prelude::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn case_018_a_quota_is_the_share_of_the_container_in_either_version() {
        let second = [
            ("sys/fs/cgroup/cpu.max", "500000 100000\n"),
            ("sys/fs/cgroup/cpu.stat", "usage_usec 7000000\nuser_usec 1\n"),
        ];
        let first = [
            ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "500000\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/cpuacct/cpuacct.usage", "7000000000\n"),
        ];
        for files in [&second[..], &first[..]] {
            let share = cpu_share(tree(files).path(), 32).unwrap().expect("a share");
            assert_eq!(share, CpuShare { cpus: 5.0, used: Duration::from_secs(7) });
        }
        let together = [
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "150000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpuacct.usage", "1\n"),
        ];
        assert_eq!(cpu_share(tree(&together).path(), 0).unwrap().unwrap().cpus, 1.5);
    }

    #[test]
    fn the_smaller_of_quota_and_cpu_set_counts_and_only_below_the_machine() {
        let files = |max: &str, set: &str| {
            let (max, set) = (max.to_owned(), set.to_owned());
            let folder = tree(&[
                ("sys/fs/cgroup/cpu.max", max.as_str()),
                ("sys/fs/cgroup/cpuset.cpus.effective", set.as_str()),
                ("sys/fs/cgroup/cpu.stat", "usage_usec 1\n"),
            ]);
            cpu_share(folder.path(), 8).unwrap().map(|share| share.cpus)
        };
        assert_eq!(files("max 100000", "0-1,5\n"), Some(3.0));
        assert_eq!(files("150000 100000", "0-1,5\n"), Some(1.5));
        assert_eq!(files("max 100000", "0-7\n"), None);
        assert_eq!(files("1600000 100000", "0-7\n"), None);
    }

    #[test]
    fn a_whole_machine_has_no_share() {
        assert_eq!(cpu_share(tree(&[]).path(), 4).unwrap(), None);
        let first = tree(&[
            ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ]);
        assert_eq!(cpu_share(first.path(), 4).unwrap(), None);
        assert_eq!(memory_share(first.path(), GIB).unwrap(), None);
        assert_eq!(memory_share(tree(&[("sys/fs/cgroup/memory.max", "max\n")]).path(), GIB).unwrap(), None);
    }

    #[test]
    fn a_limit_of_memory_counts_with_what_cannot_be_dropped() {
        let second = [
            ("sys/fs/cgroup/memory.max", "1000\n"),
            ("sys/fs/cgroup/memory.current", "900\n"),
            ("sys/fs/cgroup/memory.stat", "anon 1\ninactive_file 300\n"),
        ];
        let first = [
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "1000\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "900\n"),
            ("sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 300\n"),
        ];
        for files in [&second[..], &first[..]] {
            let memory = memory_share(tree(files).path(), GIB).unwrap();
            assert_eq!(memory, Some(Memory { used_bytes: 600, total_bytes: 1000 }));
        }
    }

    #[test]
    fn a_limit_without_its_use_is_an_error_and_no_number() {
        let cpu = tree(&[("sys/fs/cgroup/cpu.max", "100000 100000\n")]);
        assert!(cpu_share(cpu.path(), 4).is_err());
        let memory = tree(&[("sys/fs/cgroup/memory.max", "1000\n")]);
        assert!(memory_share(memory.path(), GIB).is_err());
        let odd = tree(&[("sys/fs/cgroup/memory.max", "1k\n")]);
        assert!(memory_share(odd.path(), GIB).is_err());
        for bad in ["", "x 1", "1 0", "0 1", "-1 100000", "1.5 1", "99999999999999999999 1"] {
            assert!(parse_cpu_max(bad).is_err(), "{bad}");
        }
        for bad in ["a", "3-1", "1-", "-", "1 2", "99999999999"] {
            assert!(parse_cpu_list(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn this_machine_can_be_read() {
        let cpus = cpu_share(Path::new("/"), 0).unwrap();
        assert!(cpus.is_none_or(|share| share.cpus > 0.0));
        memory_share(Path::new("/"), u64::MAX).unwrap();
    }

    proptest! {
        #[test]
        fn any_text_is_a_limit_or_an_error(text in "[0-9max ,\\-\n]{0,40}") {
            if let Ok(Some(cpus)) = parse_cpu_max(&text) {
                prop_assert!(cpus.is_finite() && cpus > 0.0);
            }
            if let Ok(Some(cpus)) = parse_cfs(&text, &text) {
                prop_assert!(cpus.is_finite() && cpus > 0.0);
            }
            let _ = (parse_cpu_list(&text), limit(&text), keyed(&text, "max"));
        }
    }
}
