//! How are all sources read at once, and what becomes of what they say?

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::time::Instant;

use super::container::{self, Container};
use super::cpu::{CpuReading, CpuSampler};
use super::deadline::{Awaited, Detached, Line};
use super::demand::DemandSampler;
use super::fallback::{Read, SYSINFO};
use super::memory::MemoryReading;
use super::processes::ProcessCounter;
use super::sessions::SessionReader;
use super::uptime::boot_clock;
use super::{
    BusAddress, CollectorStatus, HostSample, MountUse, SampleError, SessionConfig, SessionReading, describe,
    memory, mounts, nologin, pressure, uptime,
};

/// How long each source is waited for. Below half of the default report interval of 5 s, so that even a host whose
/// logind and utmp both hang, one after the other, reports in each interval.
pub const SOURCE_DEADLINE: Duration = Duration::from_secs(2);

/// The share of the deadline, one over this, after which small files are not read one after another any more.
const PATIENT_SHARE: u32 = 4;

/// Takes samples of the host.
#[derive(Debug)]
pub struct Sampler {
    root: PathBuf,
    /// The time of the next sample. Absent: the clock's.
    at: Option<Duration>,
    /// Always [`SOURCE_DEADLINE`] but in tests.
    pub(super) deadline: Duration,
    own: OwnSources,
    mounts: Vec<(PathBuf, Detached<()>)>,
    sessions: SessionReader,
}

impl Sampler {
    /// A sampler of the machine whose files lie below `root` (`/` in production) and whose logind is at `bus`.
    #[must_use]
    pub fn new(root: &Path, sessions: SessionConfig, bus: BusAddress) -> Self {
        Self {
            root: root.to_owned(),
            at: None,
            deadline: SOURCE_DEADLINE,
            own: OwnSources::default(),
            mounts: Vec::new(),
            sessions: SessionReader::new(sessions, root, bus),
        }
    }

    /// With an eye on these mounts too.
    #[must_use]
    pub fn with_mounts(mut self, paths: &[PathBuf]) -> Self {
        self.watch_mounts(paths);
        self
    }

    /// From now on with an eye on these mounts and no others. One that hangs is not started a second time.
    pub fn watch_mounts(&mut self, paths: &[PathBuf]) {
        let mut before = std::mem::take(&mut self.mounts);
        for path in paths {
            let known = before.iter().position(|(known, _)| known == path);
            let detached = known.map_or_else(|| Detached::new("statvfs"), |at| before.swap_remove(at).1);
            self.mounts.push((path.clone(), detached));
        }
    }

    /// What looks at the sessions alone, between two samples.
    pub fn sessions(&mut self) -> &mut SessionReader {
        &mut self.sessions
    }

    /// The next sample is of the files below `root`, taken at the moment `at` of any clock that does not go back: for
    /// copies of a machine's files, which are from another time.
    pub fn move_to(&mut self, root: &Path, at: Duration) {
        if root != self.root {
            root.clone_into(&mut self.root);
            self.sessions.move_to(root);
        }
        self.at = Some(at);
    }

    /// Takes one sample. Never fails: what could not be read is absent. Returns within four [`SOURCE_DEADLINE`]s, which
    /// is the longest way through the sources of sessions; within one if none of them hangs.
    ///
    /// A source that hangs holds a thread of the runtime's blocking pool, so a runtime that must stop should not wait
    /// for that pool (`Runtime::shutdown_timeout`).
    pub async fn sample(&mut self) -> HostSample {
        let at = self.at.unwrap_or_else(boot_clock);
        let (root, deadline) = (&self.root, self.deadline);
        let mounts = self.mounts.iter_mut().map(async |(path, detached)| {
            let (root, mount) = (root.clone(), path.clone());
            let read = detached.run(deadline, move |()| mounts::read(&root, &mount)).await;
            (path.display().to_string(), read.and_then(|read| read))
        });
        let (own, mounts, sessions) = tokio::join!(
            self.own.look(root, at, deadline),
            join_all(mounts),
            self.sessions.measure(deadline)
        );
        let mut sample = HostSample { at, ..HostSample::default() };
        let view = sample.take_cpu(own.cpu);
        let memory_source = sample.take_memory(own.memory);
        sample.take_processes(own.processes);
        sample.uptime = sample.take("uptime", "proc", own.uptime);
        sample.psi_full_percent = sample.take("pressure", "proc", own.pressure).flatten();
        sample.not_ready = sample.take("readiness", "nologin", own.nologin).flatten();
        sample.take_mounts(mounts);
        sample.take_sessions(sessions);
        sample.collectors.extend(view.status(memory_source));
        sample
    }
}

/// Small files of the machine itself, read one after another on one thread as long as none of them is slow.
#[derive(Debug)]
struct OwnSources {
    cpu: Detached<CpuSources>,
    memory: Detached<()>,
    processes: Detached<ProcessCounter>,
    uptime: Detached<()>,
    pressure: Detached<()>,
    nologin: Detached<()>,
}

/// What they say.
#[derive(Debug)]
struct OwnLook {
    cpu: Result<CpuLook, SampleError>,
    memory: Result<MemoryReading, SampleError>,
    processes: Result<Read<u32>, SampleError>,
    uptime: Result<Duration, SampleError>,
    pressure: Result<Option<f64>, SampleError>,
    nologin: Result<Option<String>, SampleError>,
}

impl Default for OwnSources {
    fn default() -> Self {
        Self {
            cpu: Detached::new("CPU counters"),
            memory: Detached::new("memory"),
            processes: Detached::new("processes"),
            uptime: Detached::new("uptime"),
            pressure: Detached::new("pressure"),
            nologin: Detached::new("nologin"),
        }
    }
}

impl OwnSources {
    async fn look(&mut self, root: &Path, at: Duration, deadline: Duration) -> OwnLook {
        let begun = Instant::now();
        let root: Arc<Path> = root.into();
        let mut line = Line::default();
        let cpu_root = root.clone();
        let cpu = self.cpu.queue(&mut line, move |sources| sources.look(&cpu_root, at));
        let memory = queue(&mut self.memory, &mut line, &root, memory::read);
        let proc_root = root.clone();
        let processes = self.processes.queue(&mut line, move |counter| counter.read(&proc_root));
        let uptime = queue(&mut self.uptime, &mut line, &root, uptime::read);
        let pressure = queue(&mut self.pressure, &mut line, &root, pressure::read);
        let nologin = queue(&mut self.nologin, &mut line, &root, nologin::read);
        line.work(deadline / PATIENT_SHARE).await;
        // Whoever is left waits until the same moment.
        OwnLook {
            cpu: self.cpu.answer(cpu, begun, deadline).await,
            memory: self.memory.answer(memory, begun, deadline).await.flatten(),
            processes: self.processes.answer(processes, begun, deadline).await.flatten(),
            uptime: self.uptime.answer(uptime, begun, deadline).await.flatten(),
            pressure: self.pressure.answer(pressure, begun, deadline).await.flatten(),
            nologin: self.nologin.answer(nologin, begun, deadline).await.flatten(),
        }
    }
}

fn queue<T: Send + 'static>(
    detached: &mut Detached<()>,
    line: &mut Line,
    root: &Arc<Path>,
    read: fn(&Path) -> T,
) -> Awaited<T> {
    let root = root.clone();
    detached.queue(line, move |()| read(&root))
}

/// The counters of the CPUs, of which each look needs the one before.
#[derive(Debug, Default)]
struct CpuSources {
    cpu: CpuSampler,
    demand: DemandSampler,
    /// Of the last good look.
    looked_at: Duration,
    /// Looked for once: what a host is does not change while the agent runs.
    container: Option<Option<Container>>,
}

/// One look at them.
#[derive(Debug)]
struct CpuLook {
    cpu: Result<CpuReading, SampleError>,
    /// Waiting tasks per CPU.
    waiting: Result<Option<f64>, SampleError>,
    container: Option<Container>,
}

impl CpuSources {
    /// `now` is any clock that does not go back, the same at each call. Blocks.
    fn look(&mut self, root: &Path, now: Duration) -> CpuLook {
        let elapsed = now.saturating_sub(self.looked_at);
        let cpu = self.cpu.read(root, elapsed);
        // Both are of one interval, so without the one there is no use in the other.
        let waiting = if cpu.is_ok() { self.demand.read(root, elapsed) } else { Ok(None) };
        if cpu.is_ok() {
            self.looked_at = now;
        }
        let container = self.container.get_or_insert_with(|| container::detect(root)).clone();
        CpuLook { cpu, waiting, container }
    }
}

/// Whose figures the host sees.
#[derive(Debug, Default)]
struct View {
    container: Option<Container>,
    limit_cpus: Option<f64>,
}

impl View {
    fn status(self, memory_source: &'static str) -> Option<CollectorStatus> {
        let has_limit = self.limit_cpus.is_some() || memory_source == "cgroup";
        if self.container.is_none() && !has_limit {
            return None;
        }
        let kind = self.container.as_ref().map_or("container", |container| &container.kind);
        let has_lxcfs = self.container.as_ref().is_some_and(|container| container.has_lxcfs);
        let proc = if has_lxcfs { "as lxcfs shows it" } else { "that of the whole machine" };
        let cpu = match self.limit_cpus {
            Some(cpus) => format!("of the {cpus} CPUs that it may use"),
            None => proc.to_owned(),
        };
        let memory = if memory_source == "cgroup" { "within its limit" } else { proc };
        Some(CollectorStatus {
            name: "container",
            source: if has_limit {
                "cgroup"
            } else if has_lxcfs {
                "lxcfs"
            } else {
                "proc"
            },
            error: None,
            warning: Some(format!("this is a container ({kind}): CPU is {cpu}, memory {memory}")),
        })
    }
}

impl HostSample {
    fn take<T>(
        &mut self,
        name: &'static str,
        source: &'static str,
        result: Result<T, SampleError>,
    ) -> Option<T> {
        let error = result.as_ref().err().map(|error| describe(error));
        self.collectors.push(CollectorStatus { name, source, error, warning: None });
        result.ok()
    }

    fn warn(&mut self, warning: Option<String>) {
        if let Some(last) = self.collectors.last_mut() {
            last.warning = warning;
        }
    }

    fn take_cpu(&mut self, look: Result<CpuLook, SampleError>) -> View {
        let (cpu, waiting, container) = match look {
            Ok(CpuLook { cpu, waiting, container }) => (cpu, waiting, container),
            Err(error) => (Err(error), Ok(None), None),
        };
        let limit_cpus = cpu.as_ref().ok().and_then(|reading| reading.limit_cpus);
        let source = match &cpu {
            Ok(reading) if reading.limit_cpus.is_some() => "cgroup",
            Ok(reading) if reading.is_sysinfo => SYSINFO,
            _ => "proc",
        };
        if let Some(reading) = self.take("cpu", source, cpu) {
            self.cpu_percent = reading.percent;
            self.warn(reading.warning);
        }
        // The waiting is the machine's: it does not fit to a share of it.
        let is_whole =
            limit_cpus.is_none() && container.as_ref().is_none_or(|container| !container.has_lxcfs);
        let waiting = self.take("demand", "schedstat", waiting).flatten().filter(|_| is_whole);
        self.runnable_demand = waiting.zip(self.cpu_percent).map(|(waiting, busy)| busy / 100.0 + waiting);
        View { container, limit_cpus }
    }

    fn take_memory(&mut self, reading: Result<MemoryReading, SampleError>) -> &'static str {
        let source = reading.as_ref().map_or("proc", |reading| reading.source);
        if let Some(reading) = self.take("memory", source, reading) {
            self.memory = Some(reading.memory);
            self.warn(reading.warning);
        }
        source
    }

    fn take_processes(&mut self, reading: Result<Read<u32>, SampleError>) {
        let stands_in = reading.as_ref().is_ok_and(|reading| reading.stands_in.is_some());
        let source = if stands_in { SYSINFO } else { "proc" };
        if let Some(reading) = self.take("processes", source, reading) {
            self.processes = Some(reading.value);
            self.warn(reading.stands_in);
        }
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
        if let Some(reading) = self.take("users", source, sessions) {
            self.sessions = Some(reading.sample);
            self.warn(reading.warning);
        }
    }
}

#[cfg(test)]
#[path = "sampler_tests.rs"]
mod tests;
