//! What does an operator type to start a coordinator, or to check its settings?
//!
//! Flags win over the environment, that over the file, that over the defaults. The settings are complete and valid
//! before anything is opened. Exit codes: 0 it ran and ended in order, or the check passed; 1 it failed; 2 it was
//! called wrongly.

use std::{
    ffi::OsString,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::LazyLock,
};

use anyhow::Context;
use clap::{Parser, Subcommand};
use usher_runtime::{
    config::{ConfigErrors, Loaded, Loader, Origin},
    shutdown::Shutdown,
    telemetry,
};

use crate::{
    bench_echo,
    config::{CoordinatorConfig, DEFAULT_PATH, ENVIRONMENT},
    policy_file::PolicyFile,
};

/// Sends each login of a server farm to the right server.
#[derive(Debug, Parser)]
#[command(name = "usher-coordinator", version = VERSION_LINE.as_str())]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,

    /// Settings file [env: USHER_CONFIG] [default: /etc/usher/coordinator.toml, which need not exist]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Where gRPC listens, such as 127.0.0.1:7443; port 0 for any free one
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,

    /// Where HTTP listens, such as 127.0.0.1:7480; "none" for nowhere
    #[arg(long, value_name = "ADDRESS")]
    http_listen: Option<String>,

    /// Folder of the store
    #[arg(long, value_name = "FOLDER")]
    data_dir: Option<PathBuf>,

    /// Name of the farm [env: USHER_FARM]
    #[arg(long, value_name = "NAME")]
    farm: Option<String>,

    /// Let modelled hosts register
    #[arg(long)]
    allow_virtual: bool,

    /// How log lines look: human or json
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,

    /// Which log lines, such as info,usher_coordinator=debug [env: USHER_LOG]
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,

    /// Print the settings in force and where each came from, then exit
    #[arg(long)]
    dump_config: bool,

    /// For benchmarks: answers a call that does nothing at this loopback address
    #[arg(long, value_name = "ADDRESS", hide = true)]
    bench_echo: Option<SocketAddr>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check a settings file: prints every fault with its place, or ok
    CheckConfig {
        /// The file
        file: PathBuf,
    },
}

/// What `--version` prints after the program's name.
static VERSION_LINE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "{} (commit {}, protocol {})",
        crate::VERSION,
        usher_runtime::COMMIT,
        usher_proto::PROTOCOL_VERSION
    )
});

/// Runs the program as called with `args`, the program's own name first.
pub fn main_from(args: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments = match Arguments::try_parse_from(args) {
        Ok(arguments) => arguments,
        Err(error) => {
            // Nothing can be told to somebody whose terminal is gone.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS };
        }
    };
    let outcome = match &arguments.command {
        Some(Command::CheckConfig { file }) => check_config(file),
        None => start(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            match error.downcast_ref::<ConfigErrors>() {
                // Each line begins with its place, which is what editors and terminals jump to.
                Some(faults) => {
                    eprintln!("{faults}");
                    // To start with bad settings is wrong use; to find them is what a check is for.
                    let code = if arguments.command.is_some() { 1 } else { 2 };
                    return ExitCode::from(code);
                }
                None => eprintln!("usher-coordinator: {error:#}"),
            }
            ExitCode::FAILURE
        }
    }
}

fn check_config(file: &Path) -> anyhow::Result<()> {
    let loaded: Loaded<CoordinatorConfig> = Loader::only(file).load()?;
    println!("{}: ok", file.display());
    if let Some(policies) = loaded.value.policy_file() {
        PolicyFile::load(policies)?;
        println!("{}: ok", policies.display());
    }
    Ok(())
}

fn start(arguments: &Arguments) -> anyhow::Result<()> {
    let loaded = load(arguments, |name| std::env::var(name).ok())?;
    if arguments.dump_config {
        print!("{}", loaded.dump().context("failed to write the settings as TOML")?);
        return Ok(());
    }
    let config = loaded.value;
    telemetry::init(config.log.format, config.log.filter.as_deref())?;
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("coordinator")
        .build()
        .context("failed to start the runtime")?
        .block_on(async {
            let shutdown = Shutdown::new();
            shutdown.on_signals().context("failed to install the signal handlers")?;
            if let Some(address) = arguments.bench_echo {
                bench_echo::start(address, config.tls.files().as_ref(), &shutdown)
                    .await
                    .context("cannot serve the benchmarks' echo")?;
            }
            crate::server::run(config, shutdown).await
        })
}

/// The settings in force. `environment` looks a variable up.
fn load(
    arguments: &Arguments,
    environment: impl Fn(&str) -> Option<String>,
) -> anyhow::Result<Loaded<CoordinatorConfig>> {
    let from_environment = environment("USHER_CONFIG").filter(|path| !path.is_empty()).map(PathBuf::from);
    let mut loader = Loader::new(DEFAULT_PATH)
        .file(from_environment, Origin::Environment("USHER_CONFIG".to_owned()))
        .file(arguments.config.clone(), Origin::Flag("--config".to_owned()))
        .env_from(ENVIRONMENT, environment);
    let data_dir = arguments.data_dir.as_ref().map(|folder| {
        folder.to_str().map(str::to_owned).with_context(|| format!("--data-dir {folder:?} is not UTF-8 text"))
    });
    let texts = [
        ("--listen", "listen", arguments.listen.clone()),
        ("--http-listen", "http.listen", arguments.http_listen.clone()),
        ("--data-dir", "data_dir", data_dir.transpose()?),
        ("--farm", "farm", arguments.farm.clone()),
        ("--log-format", "log.format", arguments.log_format.clone()),
        ("--log", "log.filter", arguments.log.clone()),
    ];
    for (flag, key, text) in texts {
        if let Some(text) = text {
            loader = loader.override_with(key, text, Origin::Flag(flag.to_owned()));
        }
    }
    if arguments.allow_virtual {
        loader = loader.override_with("allow_virtual", true, Origin::Flag("--allow-virtual".to_owned()));
    }
    Ok(loader.load()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Arguments {
        Arguments::try_parse_from([&["usher-coordinator"], words].concat()).unwrap()
    }

    fn code(words: &[&str]) -> String {
        let words = [&["usher-coordinator"], words].concat();
        format!("{:?}", main_from(words.into_iter().map(OsString::from)))
    }

    fn file(text: &str) -> (tempfile::TempDir, String) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("coordinator.toml");
        std::fs::write(&path, text).unwrap();
        let path = path.to_str().unwrap().to_owned();
        (folder, path)
    }

    #[test]
    fn flags_win_over_environment_over_file_over_defaults() {
        let (_folder, path) = file("farm = \"file\"\ndata_dir = \"/file\"\n[log]\nfilter = \"warn\"\n");
        let environment = |name: &str| match name {
            "USHER_FARM" => Some("environment".to_owned()),
            "USHER_LOG" => Some("debug".to_owned()),
            "USHER_CONFIG" => Some("/nonexistent/other.toml".to_owned()),
            _ => None,
        };
        let loaded = load(&parse(&["--config", &path, "--farm", "flag"]), environment).unwrap();
        assert_eq!(loaded.value.farm, "flag");
        assert_eq!(loaded.value.log.filter.as_deref(), Some("debug"));
        assert_eq!(loaded.value.data_dir, PathBuf::from("/file"));
        assert_eq!(loaded.value.listen, CoordinatorConfig::default().listen);
        let dump = loaded.dump().unwrap();
        for line in ["farm = \"flag\"  # flag --farm", "filter = \"debug\"  # environment USHER_LOG"] {
            assert!(dump.contains(line), "{line} not in {dump}");
        }
    }

    #[test]
    fn the_file_is_named_by_the_environment_if_no_flag_does() {
        let (_folder, path) = file("farm = \"from_file\"");
        let lookup = |name: &str| (name == "USHER_CONFIG").then(|| path.clone());
        assert_eq!(load(&parse(&[]), lookup).unwrap().value.farm, "from_file");
        let missing = load(&parse(&[]), |name| (name == "USHER_CONFIG").then(|| "/nonexistent/x".to_owned()));
        assert!(missing.unwrap_err().to_string().contains("environment USHER_CONFIG"));
    }

    #[test]
    fn a_bad_flag_is_named() {
        let error = load(&parse(&["--listen", "nowhere", "--log-format", "xml"]), |_| None).unwrap_err();
        let message = error.to_string();
        assert!(message.contains("flag --listen") && message.contains("flag --log-format"), "{message}");
    }

    #[test]
    fn check_config_tells_good_from_bad_from_wrong_use_by_its_exit_code() {
        let (_good_folder, good) = file("farm = \"desk\"");
        let (_bad_folder, bad) = file("farm = \"desk\"\nfram = 1");
        let success = format!("{:?}", ExitCode::SUCCESS);
        assert_eq!(code(&["check-config", &good]), success);
        assert_eq!(code(&["check-config", &bad]), format!("{:?}", ExitCode::FAILURE));
        assert_eq!(code(&["check-config"]), format!("{:?}", ExitCode::from(2)));
        assert_eq!(code(&["--nonsense"]), format!("{:?}", ExitCode::from(2)));
        assert_eq!(code(&["--version"]), success);
    }

    #[test]
    fn the_version_names_commit_and_protocol() {
        let version = VERSION_LINE.as_str();
        assert!(version.contains("commit ") && version.contains("protocol 1"), "{version}");
    }
}
