//! What is left of baselines when the agent is killed again and again, at any moment?
//!
//! A real agent with short periods is fed timings without a pause, killed without a warning, and started anew. What it
//! saved must be whole each time, no older than a period, and what it starts with must be what it saved.
//! `USHER_KILLS=1000 cargo test -p usher-agent --test crash_kills -- --nocapture` kills more often than a test of every
//! change does.

#![allow(clippy::unwrap_used, reason = "a test's tool fails as a test does")]

use std::collections::BTreeMap;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use usher_agent::latency::baseline_file::{BaselineFile, BaselineOrigin, BaselineOwner, Baselines};

/// Kills in a test of every change: some seconds.
const DEFAULT_KILLS: u64 = 30;
/// The shortest period there is, so that much of the time is saving.
const PERIOD: Duration = Duration::from_millis(100);
/// As much of a period as saving, and a machine that is busy with other tests, may add to the age of what is saved.
const SLACK: Duration = Duration::from_secs(2);
/// So many that a save takes a moment to be hit in.
const OPERATIONS: usize = 200;
/// Far above what anything here takes.
const LONG: Duration = Duration::from_secs(30);

/// Whatever the seed is, a kill hits another moment in each run: it only spreads them.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// A program that tells of calls without a pause, whether anybody listens or not.
struct Feeder {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Feeder {
    fn start(to: PathBuf) -> Self {
        let lines: String = (0..OPERATIONS).map(|number| format!("op_{number}:10|ms|@0.05\n")).collect();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let socket = UnixDatagram::unbound().unwrap();
            socket.set_nonblocking(true).unwrap();
            while !stopped.load(Ordering::Relaxed) {
                // Nobody listens while the agent is dead.
                let _ = socket.send_to(lines.as_bytes(), &to);
                std::thread::park_timeout(PERIOD / 5);
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Host {
    folder: tempfile::TempDir,
}

impl Host {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        // Nobody listens at this port of loopback: an agent without a coordinator learns all the same.
        let settings = format!(
            "coordinators = [\"127.0.0.1:1\"]\nname = \"h1\"\nstate_dir = {:?}\nruntime_dir = {:?}\n\
             [latency]\nperiod = \"{}ms\"\n[statsd]\nlisten = \"none\"\n",
            path("state"),
            path("run"),
            PERIOD.as_millis(),
        );
        std::fs::write(path("agent.toml"), settings).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start(&self) -> Running {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.path("log")).unwrap();
        let mut command = program();
        command.arg("--config").arg(self.path("agent.toml")).stdout(Stdio::null()).stderr(log);
        Running(command.spawn().unwrap())
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap()
    }

    /// What is on the disk, and when it was saved. Absent: nothing yet. Panics if it is not whole and in its place.
    fn saved(&self) -> Option<(Baselines, u64)> {
        let path = self.path("state/baselines");
        let text = std::fs::read_to_string(&path).ok()?;
        let (_, body) = text.split_once('\n').unwrap();
        let body: Value = serde_json::from_str(body).unwrap();
        let host_id = std::fs::read_to_string(self.path("state/host_id")).unwrap().trim().to_owned();
        let saved_unix_ms = body["saved_unix_ms"].as_u64().unwrap();
        let file = BaselineFile::new(path, BaselineOwner { host_id, cpu_model: None });
        let loaded = file.load(saved_unix_ms);
        assert_eq!((loaded.origin, loaded.warning), (BaselineOrigin::File, None));
        Some((loaded.baselines, saved_unix_ms))
    }

    /// The calls that each baseline of the running agent rests on. Absent: it does not answer yet.
    fn status(&self) -> Option<BTreeMap<String, u64>> {
        let output = program()
            .args(["status", "--json", "--socket"])
            .arg(self.path("run/agent.sock"))
            .output()
            .unwrap();
        let status: Value = serde_json::from_slice(&output.stdout).ok()?;
        let samples = |operation: &Value| {
            Some((operation["name"].as_str()?.to_owned(), operation["baseline"]["samples"].as_u64()?))
        };
        Some(status["operations"].as_array()?.iter().filter_map(samples).collect())
    }
}

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_usher-agent"));
    command.env_remove("USHER_CONFIG").env_remove("USHER_COORDINATORS").env_remove("NOTIFY_SOCKET");
    command.env("USHER_LOG", "warn").stdin(Stdio::null());
    command
}

/// Killed when it is dropped.
struct Running(Child);

impl Running {
    fn kill(mut self) -> SystemTime {
        self.0.kill().unwrap();
        let killed = SystemTime::now();
        self.0.wait().unwrap();
        killed
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(started.elapsed() < LONG, "waited for {what}");
        std::thread::yield_now();
    }
}

fn unix_ms(time: SystemTime) -> u64 {
    u64::try_from(time.duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

fn samples(baselines: &Baselines) -> BTreeMap<String, u64> {
    baselines.iter().map(|(name, record)| (name.clone(), record.minimum.samples)).collect()
}

/// Whether no baseline rests on fewer calls than before.
fn none_lost(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> bool {
    before.iter().all(|(name, count)| after.get(name).is_some_and(|after| after >= count))
}

/// Lets the agent run for `random` moments after its first save, and looks at what it saves meanwhile.
fn watch(host: &Host, started_ms: u64, moments: Duration) -> BTreeMap<String, u64> {
    wait_for("a save of this run", || host.saved().filter(|(_, saved_ms)| *saved_ms >= started_ms));
    let begun = Instant::now();
    let mut seen = BTreeMap::new();
    while begun.elapsed() < moments {
        let (baselines, _) = host.saved().unwrap();
        let now = samples(&baselines);
        assert!(none_lost(&seen, &now), "a save lost calls");
        seen = now;
    }
    seen
}

#[test]
fn baselines_outlive_kills_at_any_moment() {
    let kills = std::env::var("USHER_KILLS").ok().map_or(DEFAULT_KILLS, |kills| kills.parse().unwrap());
    let (host, mut random) = (Host::new(), Random(1));
    let _feeder = Feeder::start(host.path("run/statsd.sock"));
    let (mut kept, mut oldest) = (BTreeMap::new(), Duration::ZERO);
    for kill in 0..kills {
        let started_ms = unix_ms(SystemTime::now());
        let running = host.start();
        // Every other run is killed before it can save anything: its start may not spoil what is there.
        let is_long = kill % 2 == 0;
        let seen = if is_long {
            watch(&host, started_ms, Duration::from_millis(random.below(3 * 100)))
        } else {
            // No condition to wait for: the moment is what is tried.
            std::thread::park_timeout(Duration::from_millis(random.below(200)));
            kept.clone()
        };
        let killed = running.kill();
        let Some((baselines, saved_ms)) = host.saved() else { panic!("nothing is saved\n{}", host.log()) };
        let now = samples(&baselines);
        assert!(none_lost(&seen, &now) && none_lost(&kept, &now), "kill {kill} lost calls");
        if is_long {
            let age = Duration::from_millis(unix_ms(killed).saturating_sub(saved_ms));
            assert!(age <= PERIOD + SLACK, "kill {kill}: what is saved is {age:?} old");
            oldest = oldest.max(age);
        }
        kept = now;
    }
    let again = host.start();
    let told = wait_for("the agent's status", || host.status().filter(|told| !told.is_empty()));
    assert!(none_lost(&kept, &told), "it starts with what was saved: {kept:?}, {told:?}");
    drop(again);
    let (log, least) = (host.log(), kept.values().min().copied().unwrap_or_default());
    println!("{kills} kills, at most {oldest:?} lost, {} baselines of at least {least} calls", kept.len());
    assert!(!log.contains("baselines"), "{log}");
    assert_eq!(kept.len(), OPERATIONS);
    assert_eq!(stray_files(&host.path("state")), Vec::<String>::new());
}

/// What is neither the file, the copy before, nor what a kill leaves beside until the next save.
fn stray_files(state: &Path) -> Vec<String> {
    let expected =
        ["baselines", "baselines.bak", "baselines.new", "baselines.bak.new", "host_id", "identity.lock"];
    let names =
        std::fs::read_dir(state).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| !expected.contains(&name.as_str())).collect()
}
