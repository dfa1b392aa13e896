//! What is the host like now?
//!
//! Each value has its own source and fails alone: an unreadable utmp must not hide the CPU. A value that a source
//! could not give is absent, and its collector says why; nothing is ever 0 or guessed in its place.
//!
//! Groups run side by side, each with its own deadline, so that a hung one cannot stop the report: the files of the
//! kernel, the nologin files (which may lie on a mounted disk), each chosen mount, and the sessions (which ask another
//! program).

pub mod cpu;
mod deadline;
mod error;
pub mod host_facts;
pub mod logind;
pub mod memory;
pub mod mounts;
pub mod nologin;
pub mod pressure;
pub mod processes;
pub mod sessions;
mod source;
pub mod uptime;
pub mod utmp;

use std::path::{Path, PathBuf};
use std::time::Duration;

pub use error::{SampleError, describe};
pub use host_facts::HostFacts;
pub use logind::BusAddress;
pub use memory::Memory;
pub use mounts::MountUse;
pub use sessions::{SessionConfig, SessionReading, SessionSample, SessionSeen, SessionSource, SessionState};

use cpu::{CpuReading, CpuSampler};
use deadline::Detached;
use futures::future::join_all;
use sessions::SessionReader;

/// How long each group of sources is waited for. Below half of the default report interval of 5 s, so that even a
/// host whose logind and utmp both hang, one after the other, reports in each interval.
pub const SOURCE_DEADLINE: Duration = Duration::from_secs(2);

/// How a collector fares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectorStatus {
    /// `cpu`, `memory`, `processes`, `uptime`, `pressure`, `readiness`, `mounts` or `users`.
    pub name: &'static str,
    /// Where the value comes from: `proc`, `nologin`, `statvfs`, `logind`, `utmp` or `none`.
    pub source: &'static str,
    /// Why there is no value. Absent when there is one, or when there cannot be one yet.
    pub error: Option<String>,
    /// Something an operator should know although there is a value.
    pub warning: Option<String>,
}

impl CollectorStatus {
    fn of<T>(name: &'static str, source: &'static str, result: &Result<T, SampleError>) -> Self {
        Self { name, source, error: result.as_ref().err().map(|error| describe(error)), warning: None }
    }
}

/// The state of the host at one moment. What is not known is absent.
#[derive(Debug, Clone, PartialEq)]
pub struct HostSample {
    /// When it was taken, on the host's boot-time clock.
    pub at: Duration,
    /// Busy share since the last sample, 0..=100. Always absent in the first.
    pub cpu_percent: Option<f64>,
    /// Memory in use.
    pub memory: Option<Memory>,
    /// Processes, not threads.
    pub processes: Option<u32>,
    /// Who is logged in.
    pub sessions: Option<SessionSample>,
    /// Why the host takes no logins. Absent when it takes them.
    pub not_ready: Option<String>,
    /// Time since boot.
    pub uptime: Option<Duration>,
    /// Share of time in which all work waited for CPU, memory or disk, whichever is highest, 0..=100. Absent also where
    /// the kernel does not measure it.
    pub psi_full_percent: Option<f64>,
    /// The chosen mounts whose use is known.
    pub mounts: Vec<MountUse>,
    /// One entry per collector.
    pub collectors: Vec<CollectorStatus>,
}

/// The values that come from files of the kernel, each with its own failure.
#[derive(Debug)]
struct FileSample {
    cpu: Result<CpuReading, SampleError>,
    memory: Result<Memory, SampleError>,
    processes: Result<u32, SampleError>,
    uptime: Result<Duration, SampleError>,
    psi_full_percent: Result<Option<f64>, SampleError>,
}

/// Reads the files of the kernel; remembers the last look at the CPU counters.
#[derive(Debug, Default)]
struct FileSources {
    cpu: CpuSampler,
    sampled_at: Duration,
}

impl FileSources {
    /// Reads all of them below `root`. `now` is any clock that does not go back, the same at each call. Blocks.
    fn sample_files(&mut self, root: &Path, now: Duration) -> FileSample {
        let elapsed = now.saturating_sub(self.sampled_at);
        let cpu = self.cpu.read(root, elapsed);
        if cpu.is_ok() {
            self.sampled_at = now;
        }
        FileSample {
            cpu,
            memory: memory::read(root),
            processes: processes::read(root),
            uptime: uptime::read(root),
            psi_full_percent: pressure::read(root),
        }
    }
}

/// Takes samples of the host.
#[derive(Debug)]
pub struct Sampler {
    root: PathBuf,
    /// Always [`SOURCE_DEADLINE`] but in tests.
    deadline: Duration,
    files: Detached<FileSources>,
    nologin: Detached<()>,
    mounts: Vec<(PathBuf, Detached<()>)>,
    sessions: SessionReader,
}

impl Sampler {
    /// A sampler of the machine whose files lie below `root` (`/` in production) and whose logind is at `bus`.
    #[must_use]
    pub fn new(root: &Path, sessions: SessionConfig, bus: BusAddress) -> Self {
        Self {
            root: root.to_owned(),
            deadline: SOURCE_DEADLINE,
            files: Detached::new("/proc"),
            nologin: Detached::new("nologin"),
            mounts: Vec::new(),
            sessions: SessionReader::new(sessions, root, bus),
        }
    }

    /// With an eye on these mounts too.
    #[must_use]
    pub fn with_mounts(mut self, paths: &[PathBuf]) -> Self {
        self.mounts = paths.iter().map(|path| (path.clone(), Detached::new("statvfs"))).collect();
        self
    }

    /// Takes one sample. Never fails: what could not be read is absent. Returns within two [`SOURCE_DEADLINE`]s.
    ///
    /// A source that hangs holds a thread of the runtime's blocking pool, so a runtime that must stop should not wait
    /// for that pool (`Runtime::shutdown_timeout`).
    pub async fn sample(&mut self) -> HostSample {
        let at = uptime::boot_clock();
        let (files_root, nologin_root) = (self.root.clone(), self.root.clone());
        let (root, deadline) = (&self.root, self.deadline);
        let mounts = self.mounts.iter_mut().map(async |(path, detached)| {
            let (root, mount) = (root.clone(), path.clone());
            let read = detached.run(deadline, move |()| mounts::read(&root, &mount)).await;
            (path.display().to_string(), read.and_then(|read| read))
        });
        let (files, nologin, mounts, sessions) = tokio::join!(
            self.files.run(self.deadline, move |sources| sources.sample_files(&files_root, at)),
            self.nologin.run(self.deadline, move |()| nologin::read(&nologin_root)),
            join_all(mounts),
            self.sessions.read(self.deadline),
        );
        let mut sample = HostSample {
            at,
            cpu_percent: None,
            memory: None,
            processes: None,
            sessions: None,
            not_ready: None,
            uptime: None,
            psi_full_percent: None,
            mounts: Vec::new(),
            collectors: Vec::with_capacity(8),
        };
        sample.take_files(files);
        sample.take_nologin(nologin.and_then(|read| read));
        sample.take_mounts(mounts);
        sample.take_sessions(sessions);
        sample
    }
}

impl HostSample {
    fn take_files(&mut self, files: Result<FileSample, SampleError>) {
        let files = match files {
            Ok(files) => files,
            Err(error) => {
                let error = Some(describe(&error));
                for name in ["cpu", "memory", "processes", "uptime", "pressure"] {
                    let error = error.clone();
                    self.collectors.push(CollectorStatus { name, source: "proc", error, warning: None });
                }
                return;
            }
        };
        let FileSample { cpu, memory, processes, uptime, psi_full_percent } = files;
        let mut status = CollectorStatus::of("cpu", "proc", &cpu);
        if let Ok(reading) = cpu {
            self.cpu_percent = reading.percent;
            status.warning = reading.warning;
        }
        self.collectors.push(status);
        self.memory = self.take("memory", memory);
        self.processes = self.take("processes", processes);
        self.uptime = self.take("uptime", uptime);
        self.psi_full_percent = self.take("pressure", psi_full_percent).flatten();
    }

    fn take<T>(&mut self, name: &'static str, result: Result<T, SampleError>) -> Option<T> {
        self.collectors.push(CollectorStatus::of(name, "proc", &result));
        result.ok()
    }

    fn take_nologin(&mut self, nologin: Result<Option<String>, SampleError>) {
        self.collectors.push(CollectorStatus::of("readiness", "nologin", &nologin));
        self.not_ready = nologin.ok().flatten();
    }

    fn take_mounts(&mut self, mounts: Vec<(String, Result<f64, SampleError>)>) {
        if mounts.is_empty() {
            return;
        }
        let mut errors = Vec::new();
        for (path, used) in mounts {
            match used {
                Ok(used_percent) => self.mounts.push(MountUse { path, used_percent }),
                Err(error) => errors.push(format!("{path}: {}", describe(&error))),
            }
        }
        let error = (!errors.is_empty()).then(|| errors.join("; "));
        self.collectors.push(CollectorStatus { name: "mounts", source: "statvfs", error, warning: None });
    }

    fn take_sessions(&mut self, sessions: Result<SessionReading, SampleError>) {
        let source = sessions.as_ref().map_or("none", |reading| reading.sample.source);
        let mut status = CollectorStatus::of("users", source, &sessions);
        if let Ok(reading) = sessions {
            status.warning = reading.warning;
            self.sessions = Some(reading.sample);
        }
        self.collectors.push(status);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder");
        for (name, content) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            fs::write(path, content).expect("written");
        }
        root
    }

    fn sampler(root: &Path) -> Sampler {
        let bus = BusAddress::At(format!("unix:path={}", root.join("no-bus").display()));
        Sampler::new(root, SessionConfig::default(), bus)
    }

    fn errors(sample: &HostSample) -> Vec<&'static str> {
        sample.collectors.iter().filter(|status| status.error.is_some()).map(|status| status.name).collect()
    }

    #[tokio::test]
    async fn case_002_the_second_sample_has_a_cpu_percentage() {
        let root = tree(&[
            ("proc/stat", "cpu 0 0 0 0 0 0 0 0\n"),
            ("proc/meminfo", "MemTotal: 100 kB\nMemAvailable: 25 kB\n"),
            ("proc/uptime", "60.00 1.00\n"),
            ("proc/pressure/io", "full avg10=4.50 avg60=0.00 avg300=0.00 total=1\n"),
            ("proc/7/stat", ""),
            ("etc/nologin", "closed for repairs\n"),
        ]);
        let mut sampler = sampler(root.path());
        let first = sampler.sample().await;
        assert_eq!(first.cpu_percent, None);
        assert_eq!(errors(&first), ["users"]);
        assert_eq!(first.memory, Some(Memory { used_bytes: 75 * 1024, total_bytes: 100 * 1024 }));
        assert_eq!((first.processes, first.uptime), (Some(1), Some(Duration::from_secs(60))));
        assert_eq!(first.psi_full_percent, Some(4.5));
        assert_eq!(first.not_ready.as_deref(), Some("closed for repairs"));

        fs::write(root.path().join("proc/stat"), "cpu 1 0 0 1 0 0 0 0\n").expect("written");
        assert_eq!(sampler.sample().await.cpu_percent, Some(50.0));
    }

    #[tokio::test]
    async fn case_022_one_unreadable_file_does_not_silence_the_rest() {
        let root = tree(&[("proc/stat", "cpu 0 0 0 0 0 0 0 0\n"), ("proc/7/stat", "")]);
        // A folder in the place of a file cannot be read by any user, not even by root.
        fs::create_dir_all(root.path().join("run/utmp")).expect("made");
        let sample = sampler(root.path()).sample().await;
        assert_eq!(sample.processes, Some(1));
        assert_eq!((sample.memory, sample.sessions.clone()), (None, None));
        assert_eq!(errors(&sample), ["memory", "uptime", "users"]);
        let users = sample.collectors.last().and_then(|status| status.error.clone()).expect("an error");
        assert!(users.contains("run/utmp: Is a directory"), "{users}");
    }

    #[tokio::test]
    async fn a_mount_that_is_not_there_hides_no_other() {
        let root = tree(&[("home/alice/x", "")]);
        let chosen = ["/home", "/srv"].map(PathBuf::from);
        let sample = sampler(root.path()).with_mounts(&chosen).sample().await;
        assert_eq!(sample.mounts.iter().map(|mount| mount.path.as_str()).collect::<Vec<_>>(), ["/home"]);
        let mounts = sample.collectors.iter().find(|status| status.name == "mounts").expect("a collector");
        assert!(mounts.error.as_ref().expect("an error").starts_with("/srv: "));
    }

    #[tokio::test]
    async fn this_machine_can_be_sampled() {
        let sample =
            Sampler::new(Path::new("/"), SessionConfig::default(), BusAddress::System).sample().await;
        assert!(sample.memory.is_some() && sample.processes.is_some() && sample.uptime.is_some());
        assert_eq!(sample.collectors.len(), 7);
    }

    #[tokio::test]
    async fn a_hung_file_does_not_stop_the_report() {
        let root = tree(&[("proc/7/stat", "")]);
        let fifo = root.path().join("proc/stat");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .expect("made");
        let mut sampler = sampler(root.path());
        sampler.deadline = Duration::from_millis(200);
        let first = sampler.sample().await;
        assert_eq!(errors(&first), ["cpu", "memory", "processes", "uptime", "pressure", "users"]);
        let why = first.collectors[0].error.as_deref().expect("an error");
        assert_eq!(why, "/proc: timed out after 200 ms");
        let again = sampler.sample().await;
        assert_eq!(again.collectors[0].error.as_deref(), Some("/proc: timed out earlier and still hangs"));
        // Lets the reader go.
        drop(fs::OpenOptions::new().write(true).open(fifo).expect("opened"));
    }
}
