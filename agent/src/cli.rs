//! What does an operator type to run an agent?
//!
//! Flags win over the environment, which wins over the file, which wins over the defaults. `--dump-config` shows the
//! result and where each value came from, and does nothing else.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::LazyLock;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use usher_runtime::config::{EnvKind, EnvVar, Loaded, Loader, Origin};
use usher_runtime::shutdown::Shutdown;
use usher_runtime::telemetry;

use crate::config::{AgentConfig, DEFAULT_PATH, UserLimitSetting};
use crate::local::commands::{self, DrainArguments, StatusArguments, UndrainArguments};
use crate::process::reload::Reload;
use crate::process::{self, AgentError};
use crate::sample::describe;
use crate::sampled::{self, SampleArguments};
use crate::timed::{self, TimeArguments};
use crate::virtual_hosts::{FixedValues, MAX_HOSTS, ModelKind, VirtualOptions};

/// Variables of the environment and the keys that they set.
const ENVIRONMENT: &[EnvVar<'static>] =
    &[("USHER_COORDINATORS", "coordinators", EnvKind::List), ("USHER_LOG", "log.filter", EnvKind::Text)];

/// Version, commit and protocol, as `--version` prints them.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let protocol = usher_proto::PROTOCOL_VERSION;
    format!("{} (commit {}, protocol {protocol})", env!("CARGO_PKG_VERSION"), usher_runtime::COMMIT)
});
/// Wrong use, or a configuration that is refused.
const WRONG_USE: u8 = 2;
/// How long threads that hang in a read are waited for at the end.
const THREADS_WAIT: Duration = Duration::from_millis(200);

#[derive(Debug, Parser)]
#[command(
    name = "usher-agent",
    about = "Measures this host and reports it to the coordinators of its farm",
    version = VERSION.as_str(),
    after_help = "Examples:
  usher-agent --coordinators c1.example:7443,c2.example:7443 --pool desk
  usher-agent --config /etc/usher/agent.toml --dump-config
  usher-agent check-config /etc/usher/agent.toml
  usher-agent drain --reason \"new disks\" --persistent
  usher-agent status --json
  usher-agent sample --elapsed 1s
  usher-agent time nightly_copy -- rsync -a /srv/ backup:/srv/
  usher-agent --coordinators 127.0.0.1:7443 --virtual 5 --state-dir ./virtual --runtime-dir ./virtual-run"
)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    settings: SettingsFlags,
    #[command(flatten)]
    modelled: VirtualFlags,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Say what is wrong with a configuration file
    CheckConfig {
        /// The file
        file: PathBuf,
    },
    /// Send no new sessions to this host, whether or not a coordinator can be reached
    Drain(DrainArguments),
    /// Take back a drain that was given on this host
    Undrain(UndrainArguments),
    /// Say how the agent of this host fares
    Status(StatusArguments),
    /// Look at this machine, or at a copy of another's files, and print the report that would be sent
    Sample(SampleArguments),
    /// Run a command and tell the agent how long it took
    Time(TimeArguments),
}

/// Flags that stand for settings.
#[derive(Debug, Clone, Args)]
struct SettingsFlags {
    /// The configuration file [env: USHER_CONFIG] [default: /etc/usher/agent.toml, which need not exist]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Every coordinator, host:port, separated by commas [env: USHER_COORDINATORS]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    coordinators: Vec<String>,
    /// The pool that the host serves
    #[arg(long)]
    pool: Option<String>,
    /// Name of the host
    #[arg(long)]
    name: Option<String>,
    /// Where the host stands
    #[arg(long)]
    zone: Option<String>,
    /// How often to report, as in 5s
    #[arg(long, value_name = "DURATION")]
    report_interval: Option<String>,
    /// Folder of what must outlive a loss of power
    #[arg(long, value_name = "DIR")]
    state_dir: Option<String>,
    /// Folder of what must outlive a restart of the agent
    #[arg(long, value_name = "DIR")]
    runtime_dir: Option<String>,
    /// UDP address for timings, or none
    #[arg(long, value_name = "ADDRESS")]
    statsd_listen: Option<String>,
    /// One period of the latency window, as in 15s
    #[arg(long, value_name = "DURATION")]
    latency_period: Option<String>,
    /// Most users of the host: a number, or unlimited
    #[arg(long, value_name = "USERS", value_parser = UserLimitSetting::parse)]
    max_users: Option<UserLimitSetting>,
    /// How log lines look: human or json
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// Which log lines, as in info,usher_agent=debug [env: USHER_LOG]
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
    /// Print the settings in force and where each came from, and stop
    #[arg(long)]
    dump_config: bool,
}

/// Flags of modelled hosts.
#[derive(Debug, Args)]
#[command(next_help_heading = "Modelled hosts")]
struct VirtualFlags {
    /// Attach N modelled hosts in the place of this one
    #[arg(long = "virtual", value_name = "N")]
    count: Option<usize>,
    /// Number of the first
    #[arg(long = "virtual-first", value_name = "K", default_value_t = 1, requires = "count")]
    first: usize,
    /// How they behave
    #[arg(long = "virtual-model", value_name = "MODEL", value_enum, default_value_t, requires = "count")]
    model: ModelKind,
    /// Values of fixed hosts, as in cpu=35,mem=55,users=10,procs=70,ai-xf=4; the k-th is for the k-th host, the last
    /// for all that follow; a missing key is an unknown value
    #[arg(long = "virtual-values", value_name = "VALUES", requires = "count")]
    values: Vec<FixedValues>,
    /// Name of the k-th host; virtual-K if there is none
    #[arg(long = "virtual-name", value_name = "NAME", requires = "count")]
    names: Vec<String>,
    /// A resource of the k-th host
    #[arg(long = "virtual-replica", value_name = "K:RESOURCE", value_parser = parse_replica, requires = "count")]
    replicas: Vec<(usize, String)>,
    /// Seed of all chance
    #[arg(long = "virtual-seed", value_name = "SEED", default_value_t = 1, requires = "count")]
    seed: u64,
    /// Append every change of their users and places to this file, one JSON object a line
    #[arg(id = "virtual_log", long = "virtual-log", value_name = "FILE", requires = "count")]
    log: Option<PathBuf>,
}

fn parse_replica(text: &str) -> Result<(usize, String), String> {
    let (host, resource) = text.split_once(':').ok_or("must be K:RESOURCE, as in 2:crm")?;
    let host = host.parse().ok().filter(|host| *host > 0).ok_or("K must be a number from 1")?;
    Ok((host, resource.to_owned()))
}

impl VirtualFlags {
    fn options(self) -> Result<Option<VirtualOptions>, String> {
        let Some(count) = self.count else { return Ok(None) };
        if !(1..=MAX_HOSTS).contains(&count) {
            return Err(format!("--virtual = {count} is not allowed, must be 1..={MAX_HOSTS}"));
        }
        if self.model == ModelKind::Model && !self.values.is_empty() {
            return Err("--virtual-values is for --virtual-model fixed".to_owned());
        }
        if let Some((host, _)) = self.replicas.iter().find(|(host, _)| *host > count) {
            return Err(format!("--virtual-replica names host {host}, there are {count}"));
        }
        let VirtualFlags { first, model: kind, values, names, replicas, seed, log, .. } = self;
        Ok(Some(VirtualOptions { count, first, kind, values, names, replicas, seed, log }))
    }
}

impl SettingsFlags {
    /// The settings in force. `environment` looks a variable up.
    fn load(&self, environment: impl Fn(&str) -> Option<String>) -> Result<Loaded<AgentConfig>, String> {
        let from_environment = environment("USHER_CONFIG").filter(|path| !path.is_empty()).map(PathBuf::from);
        let mut loader = Loader::new(DEFAULT_PATH)
            .file(from_environment, Origin::Environment("USHER_CONFIG".into()))
            .file(self.config.clone(), Origin::Flag("--config".into()))
            .env_from(ENVIRONMENT, environment);
        if !self.coordinators.is_empty() {
            let list: Vec<toml::Value> =
                self.coordinators.iter().map(|target| toml::Value::from(target.trim())).collect();
            loader = loader.override_with("coordinators", list, Origin::Flag("--coordinators".into()));
        }
        let max_users = self.max_users.map(|limit| match limit.0.finite() {
            Some(users) => toml::Value::from(i64::from(users)),
            None => toml::Value::from("unlimited"),
        });
        if let Some(limit) = max_users {
            loader = loader.override_with("overrides.max_users", limit, Origin::Flag("--max-users".into()));
        }
        let texts = [
            ("pool", "--pool", &self.pool),
            ("name", "--name", &self.name),
            ("zone", "--zone", &self.zone),
            ("report_interval", "--report-interval", &self.report_interval),
            ("state_dir", "--state-dir", &self.state_dir),
            ("runtime_dir", "--runtime-dir", &self.runtime_dir),
            ("statsd.listen", "--statsd-listen", &self.statsd_listen),
            ("latency.period", "--latency-period", &self.latency_period),
            ("log.format", "--log-format", &self.log_format),
            ("log.filter", "--log", &self.log),
        ];
        for (key, flag, value) in texts {
            if let Some(value) = value {
                loader = loader.override_with(key, value.as_str(), Origin::Flag(flag.into()));
            }
        }
        loader.load().map_err(|errors| errors.to_string())
    }
}

/// Runs the agent's command line; `args` begins with the program's name. 0: done, or stopped in order; 1: it could not
/// run, or the checked file is bad; 2: wrong use.
pub fn main_from(args: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments = match Arguments::try_parse_from(args) {
        Ok(arguments) => arguments,
        Err(error) => {
            let code = if error.use_stderr() { ExitCode::from(WRONG_USE) } else { ExitCode::SUCCESS };
            // A closed terminal is no reason for another error.
            let _ = error.print();
            return code;
        }
    };
    match arguments.command {
        Some(Command::CheckConfig { file }) => check_config(file),
        Some(Command::Drain(arguments)) => commands::drain(arguments),
        Some(Command::Undrain(arguments)) => commands::undrain(&arguments),
        Some(Command::Status(arguments)) => commands::status(&arguments),
        Some(Command::Sample(sample)) => sampled::run(&sample, arguments.settings.config),
        Some(Command::Time(arguments)) => timed::run(&arguments),
        None => run(arguments.settings, arguments.modelled),
    }
}

fn check_config(file: PathBuf) -> ExitCode {
    match Loader::only(&file).load::<AgentConfig>() {
        Ok(_) => {
            println!("{}: ok", file.display());
            ExitCode::SUCCESS
        }
        Err(errors) => {
            eprintln!("{errors}");
            ExitCode::FAILURE
        }
    }
}

fn run(settings: SettingsFlags, modelled: VirtualFlags) -> ExitCode {
    let wrong_use = |message: String| {
        eprintln!("{message}");
        ExitCode::from(WRONG_USE)
    };
    let modelled = match modelled.options() {
        Ok(modelled) => modelled,
        Err(message) => return wrong_use(message),
    };
    let loaded = match settings.load(|name| std::env::var(name).ok()) {
        Ok(loaded) => loaded,
        Err(message) => return wrong_use(message),
    };
    if settings.dump_config {
        return match loaded.dump() {
            Ok(text) => {
                print!("{text}");
                ExitCode::SUCCESS
            }
            Err(error) => wrong_use(error.to_string()),
        };
    }
    let config = loaded.value;
    if config.coordinators.is_empty() {
        return wrong_use(AgentError::NoCoordinator.to_string());
    }
    if let Err(error) = telemetry::init(config.log.format, config.log.filter.as_deref()) {
        return wrong_use(describe(&error));
    }
    let reload = Reload::new(move || {
        let read = settings.load(|name| std::env::var(name).ok());
        read.map(|loaded| loaded.value)
    });
    serve(&config, modelled.as_ref(), reload)
}

fn serve(config: &AgentConfig, modelled: Option<&VirtualOptions>, reload: Reload) -> ExitCode {
    let mut builder = match modelled {
        // One host needs less than a hundredth of one CPU, and each thread more costs wake-ups; what blocks has threads
        // of its own.
        None => tokio::runtime::Builder::new_current_thread(),
        Some(_) => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = match builder.worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "cannot start");
            return ExitCode::FAILURE;
        }
    };
    let result = runtime.block_on(async {
        let shutdown = Shutdown::new();
        shutdown.on_signals().map_err(|error| format!("cannot watch for signals: {error}"))?;
        let running = process::run_reloading(config, modelled, &shutdown, Some(reload));
        running.await.map_err(|error| describe(&error))
    });
    // A read that hangs in a dead mount holds its thread for ever.
    runtime.shutdown_timeout(THREADS_WAIT);
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error, "the agent stops");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
#[path = "cli_tests.rs"]
mod tests;
