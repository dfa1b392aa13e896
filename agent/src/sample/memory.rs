//! How much of the memory is in use?
//!
//! The kernel's own estimate of what new work could get, `MemAvailable`, is the only honest free memory: `MemFree`
//! leaves out the page cache and makes every long-running host look full. Kernels before 3.14 do not have it; then
//! free pages, buffers, page cache and reclaimable slab together stand in, without shared memory, which lies in the
//! page cache but cannot be dropped. Lines are found by name, never by position.
//!
//! Two things the file does not know: the cache of ZFS, which gives memory back as the page cache does, and the limit of
//! a container, which is the smaller of what it may use and what the machine has.

use std::path::Path;

use super::error::{SampleError, describe};
use super::fallback::{self, Read, SYSINFO, or_sysinfo};
use super::source::read_text;
use super::{arc, cgroup};

const MEMINFO: &str = "/proc/meminfo";

/// Memory of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Not available to new work, bytes, at most `total_bytes`.
    pub used_bytes: u64,
    /// Usable by the kernel, bytes, > 0.
    pub total_bytes: u64,
}

/// Reads the text of `/proc/meminfo`.
///
/// # Errors
/// When a needed line is missing or unreadable, or the lines contradict each other.
pub fn parse(text: &str) -> Result<Memory, SampleError> {
    let total_bytes = required(text, "MemTotal")?;
    if total_bytes == 0 {
        return Err(SampleError::malformed(MEMINFO, "MemTotal is 0"));
    }
    let available_bytes = match optional(text, "MemAvailable")? {
        Some(available_bytes) => available_bytes,
        None => reclaimable_bytes(text)?,
    };
    let used_bytes = total_bytes.checked_sub(available_bytes).ok_or_else(|| {
        SampleError::malformed(MEMINFO, format!("{available_bytes} bytes available of {total_bytes}"))
    })?;
    Ok(Memory { used_bytes, total_bytes })
}

/// Memory with where the numbers come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryReading {
    /// The numbers.
    pub memory: Memory,
    /// `proc`, `cgroup` for a container below the machine's size, or `sysinfo` where our own reader makes nothing of it.
    pub source: &'static str,
    /// Something odd that did not stop the reading.
    pub warning: Option<String>,
}

/// [`parse`] of the file below `root`, with what ZFS would give back, within the limit of the container.
///
/// # Errors
/// As there, and when the file, or the use of a limit, cannot be read.
pub fn read(root: &Path) -> Result<MemoryReading, SampleError> {
    let own = read_text(root, "proc/meminfo").and_then(|text| parse(&text));
    let Read { value: mut memory, stands_in } = or_sysinfo(root, own, fallback::memory)?;
    if let Some(memory) = cgroup::memory_share(root, memory.total_bytes)? {
        return Ok(MemoryReading { memory, source: "cgroup", warning: stands_in });
    }
    let source = if stands_in.is_some() { SYSINFO } else { "proc" };
    let warning = match arc::read(root) {
        Ok(reclaimable_bytes) => {
            memory.used_bytes = memory.used_bytes.saturating_sub(reclaimable_bytes.unwrap_or(0));
            stands_in
        }
        Err(error) => {
            let cache = format!("the cache of ZFS counts as used: {}", describe(&error));
            Some(stands_in.into_iter().chain([cache]).collect::<Vec<_>>().join("; "))
        }
    };
    Ok(MemoryReading { memory, source, warning })
}

fn reclaimable_bytes(text: &str) -> Result<u64, SampleError> {
    let mut sum_bytes = required(text, "MemFree")?;
    for key in ["Buffers", "Cached"] {
        sum_bytes = sum_bytes.saturating_add(required(text, key)?);
    }
    sum_bytes = sum_bytes.saturating_add(optional(text, "SReclaimable")?.unwrap_or(0));
    Ok(sum_bytes.saturating_sub(optional(text, "Shmem")?.unwrap_or(0)))
}

fn required(text: &str, key: &'static str) -> Result<u64, SampleError> {
    optional(text, key)?.ok_or_else(|| SampleError::malformed(MEMINFO, format!("no {key}")))
}

fn optional(text: &str, key: &'static str) -> Result<Option<u64>, SampleError> {
    let Some(value) =
        text.lines().find_map(|line| line.split_once(':').filter(|(name, _)| *name == key)).map(|(_, v)| v)
    else {
        return Ok(None);
    };
    let kibibytes = value.trim().strip_suffix("kB").and_then(|number| number.trim_end().parse::<u64>().ok());
    kibibytes
        .and_then(|kibibytes| kibibytes.checked_mul(1024))
        .map(Some)
        .ok_or_else(|| SampleError::malformed(MEMINFO, format!("{key} is `{}`", value.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::test_tree::tree;
    use proptest::prelude::*;

    fn percent(memory: Memory) -> f64 {
        100.0 * memory.used_bytes as f64 / memory.total_bytes as f64
    }

    #[test]
    fn case_010_a_limit_larger_than_the_machine_limits_nothing() {
        let meminfo = "MemTotal: 134217728 kB\nMemAvailable: 13421773 kB\n";
        for limit in ["9223372036854771712\n", "max\n"] {
            let root = tree(&[("proc/meminfo", meminfo), ("sys/fs/cgroup/memory.max", limit)]);
            let reading = read(root.path()).unwrap();
            assert_eq!((reading.source, reading.memory.total_bytes), ("proc", 134_217_728 * 1024));
            assert!((percent(reading.memory) - 90.0).abs() < 1e-6);
        }
    }

    #[test]
    fn a_container_has_what_its_limit_allows() {
        let root = tree(&[
            ("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 900 kB\n"),
            ("sys/fs/cgroup/memory.max", "102400\n"),
            ("sys/fs/cgroup/memory.current", "81920\n"),
        ]);
        let reading = read(root.path()).unwrap();
        assert_eq!(reading.memory, Memory { used_bytes: 81_920, total_bytes: 102_400 });
        assert_eq!(reading.source, "cgroup");
    }

    #[test]
    fn the_cache_of_zfs_is_given_back_and_a_bad_file_of_it_hides_nothing() {
        let meminfo = ("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 100 kB\n");
        let arcstats = "proc/spl/kstat/zfs/arcstats";
        let root = tree(&[meminfo, (arcstats, "c_min 4 1024\nsize 4 512000\n")]);
        assert_eq!(read(root.path()).unwrap().memory.used_bytes, (900 - 499) * 1024);
        let reading = read(tree(&[meminfo, (arcstats, "")]).path()).unwrap();
        assert_eq!(reading.memory.used_bytes, 900 * 1024);
        assert!(reading.warning.unwrap().contains("arcstats"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(
            text in "((MemTotal|MemFree|MemAvailable|Buffers|Cached|Shmem|: |[0-9]{1,20}| kB|\n){0,24})"
        ) {
            if let Ok(memory) = parse(&text) {
                prop_assert!(memory.used_bytes <= memory.total_bytes && memory.total_bytes > 0);
            }
        }
    }

    #[test]
    fn used_is_what_is_not_available() {
        let text = "MemTotal:  1000 kB\nMemFree: 10 kB\nMemAvailable:   400 kB\n";
        assert_eq!(
            parse(text).expect("readable"),
            Memory { used_bytes: 600 * 1024, total_bytes: 1000 * 1024 }
        );
    }

    #[test]
    fn case_012_an_old_kernel_does_not_look_full() {
        let lines = [
            "Shmem: 500000 kB",
            "Cached: 2500000 kB",
            "MemTotal: 8000000 kB",
            "SReclaimable: 300000 kB",
            "Buffers: 200000 kB",
            "MemFree: 1000000 kB",
        ];
        let memory = parse(&lines.join("\n")).expect("readable");
        let percent = 100.0 * memory.used_bytes as f64 / memory.total_bytes as f64;
        assert!((53.7..=56.3).contains(&percent), "{percent}");
    }

    #[test]
    fn a_name_that_only_begins_alike_is_not_taken() {
        let text = "SwapCached: 9 kB\nMemTotal: 100 kB\nMemAvailableX: 1 kB\nMemAvailable: 50 kB";
        assert_eq!(parse(text).expect("readable").used_bytes, 50 * 1024);
    }

    #[test]
    fn contradictions_are_errors_not_numbers() {
        for bad in [
            "",
            "MemTotal: 0 kB\nMemAvailable: 0 kB",
            "MemTotal: 100 kB",
            "MemTotal: 100 kB\nMemAvailable: 101 kB",
            "MemTotal: 100 MB\nMemAvailable: 1 kB",
            "MemTotal: -100 kB\nMemAvailable: 1 kB",
            "MemTotal: 18446744073709551615 kB\nMemAvailable: 1 kB",
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
