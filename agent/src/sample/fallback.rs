//! What if our own reader of a value makes nothing of what the system says?
//!
//! Then sysinfo, the portable library, is asked for it: a second reader of other make, for a layout that ours does not
//! know. It knows the machine that it runs on and nothing else, so it never stands in for a copy of another machine's
//! files, and never for a container's share, which it does not know.
//!
//! It has no errors: what it cannot read it leaves at 0, or as it was. So each of its values is believed only if it can
//! be one, and none if the file could not be read at all, because on Linux it reads the same one.

use std::path::Path;

use sysinfo::{
    CpuRefreshKind, MemoryRefreshKind, ProcessRefreshKind, ProcessesToUpdate, RefreshKind, System,
};

use super::error::{SampleError, describe};
use super::memory::Memory;

/// Its name as a source.
pub(crate) const SYSINFO: &str = "sysinfo";

/// A value and, if it is not our own reader's, why.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Read<T> {
    pub(crate) value: T,
    pub(crate) stands_in: Option<String>,
}

/// What our own reader says, or what sysinfo does in its place.
///
/// # Errors
/// Those of our own reader, when sysinfo has no value either.
pub(crate) fn or_sysinfo<T>(
    root: &Path,
    own: Result<T, SampleError>,
    theirs: impl FnOnce() -> Option<T>,
) -> Result<Read<T>, SampleError> {
    match own {
        Ok(value) => Ok(Read { value, stands_in: None }),
        Err(error @ SampleError::Malformed { .. }) if root == Path::new("/") => {
            let why = format!("{SYSINFO} stands in: {}", describe(&error));
            theirs().map(|value| Read { value, stands_in: Some(why) }).ok_or(error)
        }
        Err(error) => Err(error),
    }
}

/// Busy share of the CPUs, which takes two looks.
#[derive(Debug, Default)]
pub(crate) struct SysinfoCpu {
    /// With its last look. Absent as long as nobody needs it.
    system: Option<System>,
}

/// What a look at the CPUs gave.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct CpuShown {
    /// Since the last look, 0..=100. Absent in the first.
    pub(crate) percent: Option<f64>,
    /// How many there are, > 0.
    pub(crate) cpus: u64,
}

impl SysinfoCpu {
    /// Looks at the CPUs of this machine. Absent when sysinfo finds none.
    pub(crate) fn look(&mut self) -> Option<CpuShown> {
        let is_first = self.system.is_none();
        let system = match &mut self.system {
            Some(system) => system,
            none => none.insert(System::new().ok()?),
        };
        system.refresh_cpu_specifics(CpuRefreshKind::nothing().with_usage());
        let cpus = system.cpus().len() as u64;
        let percent = f64::from(system.global_cpu_usage());
        let percent = Some(percent).filter(|percent| !is_first && (0.0..=100.0).contains(percent));
        (cpus > 0).then_some(CpuShown { percent, cpus })
    }

    /// Our own reader is back: the next look is a first one.
    pub(crate) fn forget(&mut self) {
        self.system = None;
    }
}

/// Memory of this machine. Absent when sysinfo finds none.
pub(crate) fn memory() -> Option<Memory> {
    let kind = RefreshKind::nothing().with_memory(MemoryRefreshKind::nothing().with_ram());
    let system = System::new_with_specifics(kind).ok()?;
    let (total_bytes, available_bytes) = (system.total_memory(), system.available_memory());
    // Nothing available is what it says when it does not know.
    let is_told = total_bytes > 0 && available_bytes > 0;
    let used_bytes = total_bytes.checked_sub(available_bytes).filter(|_| is_told)?;
    Some(Memory { used_bytes, total_bytes })
}

/// Processes of this machine, without threads. Absent when sysinfo finds none.
pub(crate) fn processes() -> Option<u32> {
    let mut system = System::new().ok()?;
    let kind = ProcessRefreshKind::nothing().without_tasks();
    system.refresh_processes_specifics(ProcessesToUpdate::All, true, kind);
    u32::try_from(system.processes().len()).ok().filter(|&count| count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn malformed() -> SampleError {
        SampleError::malformed("/proc/meminfo", "MemTotal is 0")
    }

    #[test]
    fn our_own_reader_is_asked_first() {
        let read = or_sysinfo(Path::new("/"), Ok(1), || panic!("not asked")).unwrap();
        assert_eq!(read, Read { value: 1, stands_in: None });
    }

    #[test]
    fn sysinfo_stands_in_and_says_why() {
        let read = or_sysinfo(Path::new("/"), Err(malformed()), || Some(7)).unwrap();
        assert_eq!(read.value, 7);
        assert_eq!(read.stands_in.unwrap(), "sysinfo stands in: /proc/meminfo: MemTotal is 0");
    }

    #[test]
    fn without_a_value_of_sysinfo_our_own_error_remains() {
        let error = or_sysinfo::<u32>(Path::new("/"), Err(malformed()), || None).unwrap_err();
        assert_eq!(error.to_string(), "/proc/meminfo: MemTotal is 0");
    }

    #[test]
    fn sysinfo_is_not_asked_about_a_copy_or_about_a_file_that_cannot_be_read() {
        assert!(or_sysinfo(Path::new("/copy"), Err(malformed()), || Some(7)).is_err());
        let unread =
            SampleError::Read { path: "/proc/stat".into(), source: std::io::ErrorKind::NotFound.into() };
        assert!(or_sysinfo(Path::new("/"), Err(unread), || Some(7)).is_err());
        assert!(
            or_sysinfo(Path::new("/"), Err(SampleError::StillHangs { subject: "memory" }), || Some(7))
                .is_err()
        );
    }

    #[test]
    fn the_first_look_at_the_cpus_gives_no_percentage() {
        let mut cpu = SysinfoCpu::default();
        let first = cpu.look().unwrap();
        assert_eq!(first.percent, None);
        assert!(first.cpus > 0);
        // At once: too early for a new value, but one that can be one.
        assert!(cpu.look().unwrap().percent.is_none_or(|percent| (0.0..=100.0).contains(&percent)));
        cpu.forget();
        assert_eq!(cpu.look().unwrap().percent, None);
    }

    #[test]
    fn this_machine_can_be_read() {
        let memory = memory().unwrap();
        assert!(memory.used_bytes <= memory.total_bytes && memory.used_bytes > 0);
        assert!(processes().unwrap() > 0);
    }
}
