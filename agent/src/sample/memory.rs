//! How much of the memory is in use?
//!
//! The kernel's own estimate of what new work could get, `MemAvailable`, is the only honest free memory: `MemFree`
//! leaves out the page cache and makes every long-running host look full. Kernels before 3.14 do not have it; then
//! free pages, buffers, page cache and reclaimable slab together stand in, without shared memory, which lies in the
//! page cache but cannot be dropped. Lines are found by name, never by position.

use std::path::Path;

use super::error::SampleError;
use super::source::read_text;

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

/// [`parse`] of the file below `root`.
///
/// # Errors
/// As there, and when the file cannot be read.
pub fn read(root: &Path) -> Result<Memory, SampleError> {
    parse(&read_text(root, "proc/meminfo")?)
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
