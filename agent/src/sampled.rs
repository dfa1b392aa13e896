//! `usher-agent sample`: what would the agent report of this machine, or of a copy of another's files?
//!
//! Every collector runs once and the report that comes of it is printed, with how each of them fares. A CPU has no
//! percentage in one look, so a second one can be taken: of a second copy, or of the running system some time later.
//! Nothing is sent, nothing is written, and nobody needs to run.
//!
//! The settings are those of the agent of that system, `etc/usher/agent.toml` below the root, unless another file is
//! named: a copy reads the same wherever it is looked at.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use usher_placement::host::{CoreSettings, HostCore, HostRecord, NameSettings, Occupancy};
use usher_proto::{v1, write};
use usher_runtime::config::{HumanDuration, Loader, Origin};
use usher_types::{BootTime, PoolName};

use crate::config::{AgentConfig, DEFAULT_PATH};
use crate::host::machine::{measurement, occupancy};
use crate::sample::{BusAddress, HostSample, Sampler, clocks, describe, uptime};

const WRONG_USE: u8 = 2;
/// How long threads that hang in a read are waited for at the end.
const THREADS_WAIT: Duration = Duration::from_millis(100);

/// `usher-agent sample`.
#[derive(Debug, Args)]
pub struct SampleArguments {
    /// The folder that stands for / [default: the `root` of the settings]
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// A second folder, looked at after the first, for what takes two looks
    #[arg(long, value_name = "DIR", requires = "elapsed")]
    then: Option<PathBuf>,
    /// The time between the two looks, as in 1s; without --then the running system is looked at again after it
    #[arg(long, value_name = "DURATION")]
    elapsed: Option<HumanDuration>,
    /// The settings [default: etc/usher/agent.toml below the folder, which need not exist]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print one JSON object, named as in the protocol's Load
    #[arg(long)]
    json: bool,
}

/// What is printed: a Load as it would be sent, and the sessions that go in a message of their own.
#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    load: v1::Load,
    sessions: Vec<v1::Session>,
}

/// Looks and prints. `above` is a settings file that was named before the command. 0: printed, whatever the collectors
/// found; 2: wrong use.
#[must_use]
pub fn run(arguments: &SampleArguments, above: Option<PathBuf>) -> ExitCode {
    match report(arguments, above) {
        Ok(report) => {
            let text = if arguments.json { json(&report) } else { Ok(lines(&report)) };
            // A closed pipe is no reason for another error.
            match text {
                Ok(text) => {
                    let _ = io::stdout().lock().write_all(text.as_bytes());
                    ExitCode::SUCCESS
                }
                Err(error) => {
                    eprintln!("cannot print the report: {error}");
                    ExitCode::FAILURE
                }
            }
        }
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(WRONG_USE)
        }
    }
}

fn report(arguments: &SampleArguments, above: Option<PathBuf>) -> Result<Report, String> {
    let config = settings(arguments, above)?;
    let root = arguments.root.clone().unwrap_or_else(|| config.root.clone());
    for folder in [Some(&root), arguments.then.as_ref()].into_iter().flatten() {
        if !folder.is_dir() {
            return Err(format!("{} is no folder", folder.display()));
        }
    }
    let elapsed = arguments.elapsed.map(HumanDuration::get);
    let is_live = clocks::is_live(&root);
    if arguments.then.is_none() && elapsed.is_some() && !is_live {
        return Err("--elapsed without --then needs a running system: a copy does not change".to_owned());
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start: {error}"))?;
    let sample = runtime.block_on(look(&config, &root, arguments.then.as_deref(), elapsed));
    runtime.shutdown_timeout(THREADS_WAIT);
    let clocks = clocks::read(arguments.then.as_deref().unwrap_or(&root));
    let wall_unix_ms = clocks.wall_unix.map_or(0, |wall| u64::try_from(wall.as_millis()).unwrap_or(u64::MAX));
    of_sample(&config, sample, wall_unix_ms)
}

fn settings(arguments: &SampleArguments, above: Option<PathBuf>) -> Result<AgentConfig, String> {
    let named = arguments.config.clone().or(above);
    let loader = match &arguments.root {
        // What the environment of this process names is not of the system below another root.
        Some(root) => Loader::new(root.join(DEFAULT_PATH.trim_start_matches('/'))),
        None => {
            let from_environment = std::env::var_os("USHER_CONFIG").filter(|path| !path.is_empty());
            let origin = Origin::Environment("USHER_CONFIG".into());
            Loader::new(DEFAULT_PATH).file(from_environment.map(PathBuf::from), origin)
        }
    };
    let loaded = loader.file(named, Origin::Flag("--config".into())).load::<AgentConfig>();
    Ok(loaded.map_err(|errors| errors.to_string())?.value)
}

/// One look, or two.
async fn look(
    config: &AgentConfig,
    root: &Path,
    then: Option<&Path>,
    elapsed: Option<Duration>,
) -> HostSample {
    let bus = BusAddress::below(root);
    let mut sampler = Sampler::new(root, config.sessions.clone(), bus).with_mounts(&config.mounts);
    let Some(elapsed) = elapsed else { return sampler.sample().await };
    match then {
        // The looks lie as far apart as is said, not as far as they are taken.
        Some(then) => {
            sampler.move_to(root, Duration::ZERO);
            sampler.sample().await;
            sampler.move_to(then, elapsed);
        }
        None => {
            sampler.sample().await;
            tokio::time::sleep(elapsed).await;
        }
    }
    sampler.sample().await
}

/// The report that the agent would make of a sample.
fn of_sample(config: &AgentConfig, sample: HostSample, wall_unix_ms: u64) -> Result<Report, String> {
    let settings = CoreSettings {
        pool: PoolName::new(&config.pool).map_err(|error| describe(&error))?,
        overrides: config.host_overrides(),
        incarnation_ms: 0,
        latency_period: config.latency.period.get(),
        periods: config.latency.periods,
        max_names: config.latency.max_names,
        names: NameSettings::default(),
        coordinators: config.coordinators.clone(),
        report_interval: config.report_interval.get(),
    };
    let now = BootTime::from_millis(u64::try_from(uptime::boot_clock().as_millis()).unwrap_or(u64::MAX));
    let occupancy = sample.sessions.as_ref().map_or(Occupancy::Unknown, occupancy);
    let mut core = HostCore::new(settings, HostRecord::default());
    core.measure(measurement(sample), occupancy, now);
    let load = core.load(now, wall_unix_ms).ok_or("there is no measurement")?;
    let sessions = core.session_list().sessions.iter().map(write::session).collect();
    Ok(Report { load: write::load(&load), sessions })
}

fn json(report: &Report) -> serde_json::Result<String> {
    serde_json::to_string_pretty(report).map(|text| text + "\n")
}

/// For people: each value, then each collector.
fn lines(report: &Report) -> String {
    fn shown<T: ToString>(value: Option<T>) -> String {
        value.map_or_else(|| "unknown".to_owned(), |value| value.to_string())
    }
    let load = &report.load;
    let percent = |value: Option<f64>| value.map(|value| format!("{value:.1} %"));
    let mebibytes = |bytes: u64| format!("{} MiB", bytes >> 20);
    let memory = load.memory_used_bytes.zip(load.memory_total_bytes);
    let memory = memory.map(|(used, total)| format!("{} of {}", mebibytes(used), mebibytes(total)));
    let ready = match &load.not_ready_reason {
        Some(reason) => format!("no: {}", printable(reason)),
        None => "yes".to_owned(),
    };
    let mut rows = vec![
        ("cpu".to_owned(), shown(percent(load.cpu_percent))),
        ("runnable demand".to_owned(), shown(load.runnable_demand.map(|demand| format!("{demand:.2}")))),
        ("memory".to_owned(), shown(memory)),
        ("users".to_owned(), shown(load.users)),
        ("sessions active".to_owned(), shown(load.sessions_active)),
        ("sessions disconnected".to_owned(), shown(load.sessions_disconnected)),
        ("sessions lingering".to_owned(), shown(load.sessions_lingering)),
        ("logons in progress".to_owned(), shown(load.logons_in_progress.as_ref().map(|logons| logons.now))),
        ("logons of 10 min".to_owned(), shown(load.finished_logons.as_ref().map(finished))),
        ("processes".to_owned(), shown(load.processes)),
        ("pressure".to_owned(), shown(percent(load.psi_full_percent))),
        ("uptime".to_owned(), shown(load.uptime_ms.map(|ms| format!("{} s", ms / 1000)))),
        ("ready".to_owned(), ready),
    ];
    rows.extend(
        load.mounts
            .iter()
            .map(|m| (format!("mount {}", printable(&m.path)), format!("{:.1} %", m.used_percent))),
    );
    rows.extend(load.collectors.iter().map(|collector| {
        let state = match (&collector.error, &collector.warning) {
            (Some(error), _) => format!("FAILED: {error}"),
            (None, Some(warning)) => format!("ok, but: {warning}"),
            (None, None) => "ok".to_owned(),
        };
        (format!("collector {}", collector.name), format!("{}: {}", collector.source, printable(&state)))
    }));
    rows.into_iter().map(|(name, value)| format!("{name:<24}{value}\n")).collect()
}

/// As in `2, of 12.5 s and 9.3 core-seconds each`.
fn finished(logons: &v1::FinishedLogons) -> String {
    let each = |sum: f64| sum / f64::from(logons.count);
    match (logons.count, logons.core_seconds) {
        (0, _) => "0".to_owned(),
        (count, None) => format!("{count}, of {:.1} s each", each(logons.seconds)),
        (count, Some(used)) => {
            format!("{count}, of {:.1} s and {:.1} core-seconds each", each(logons.seconds), each(used))
        }
    }
}

/// Texts of files and programs must not steer a terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
