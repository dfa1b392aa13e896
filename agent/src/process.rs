//! What runs in one agent process, and how does it stop?
//!
//! Either this machine's host, or modelled ones; each with a task of its own, and one stream task for each host and
//! coordinator. A task that ends before it is told to is a bug: the process exits then and its service manager starts
//! it anew, instead of going on half alive.
//!
//! Stopping: find out whether the host itself goes down, say good-bye on every stream, then end the hosts, which keep
//! what they learned. All within three seconds.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use usher_placement::host::{NameHasher, NameSettings};
use usher_runtime::clock::{Clock, SystemClock, boot_id};
use usher_runtime::net::{Dial, NetworkDial};
use usher_runtime::shutdown::Shutdown;
use usher_types::{BootId, Goodbye, IdError};

use crate::config::AgentConfig;
use crate::coordinators::{Coordinators, DnsLookup, Follower, Losses, RememberedFile, Roster, service_of};
use crate::host::files::FolderLock;
use crate::host::{HostHandle, OpenError};
use crate::process::reload::Reload;
use crate::report::{Leaving, StreamSet};
use crate::user_names::{UserNameKey, UserNameKeyError};
use crate::virtual_hosts::VirtualOptions;

mod going_down;
mod machine;
mod modelled;
pub mod reload;
mod watchdog;

/// Longest time for all good-byes.
const STREAMS_WAIT: Duration = Duration::from_millis(2200);
/// Longest time for the hosts to keep what they learned.
const HOSTS_WAIT: Duration = Duration::from_millis(500);

/// The agent cannot run, or did not run well.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// Nobody to report to.
    #[error(
        "no coordinator is set: use `coordinators` in the configuration, --coordinators or USHER_COORDINATORS"
    )]
    NoCoordinator,
    /// The machine's boot cannot be told.
    #[error("cannot tell this boot of the host")]
    Boot(#[source] std::io::Error),
    /// Something that names the host is not a name.
    #[error("cannot name the host")]
    Name(#[from] IdError),
    /// A folder that must be ours alone is not.
    #[error("cannot start")]
    Folder(#[source] std::io::Error),
    /// The key that login names are hashed with is none.
    #[error(transparent)]
    UserNameKey(#[from] UserNameKeyError),
    /// A host cannot start.
    #[error("cannot open host {name}")]
    Open {
        /// Which.
        name: String,
        /// Why.
        source: OpenError,
    },
    /// A task ended by itself.
    #[error("{task} stopped unexpectedly")]
    TaskEnded {
        /// Which.
        task: &'static str,
    },
}

/// The tasks of the hosts and of their sources.
#[derive(Debug, Default)]
struct Tasks {
    set: JoinSet<&'static str>,
    stop: CancellationToken,
}

impl Tasks {
    fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.set.spawn(async move {
            task.await;
            name
        });
    }
}

/// Runs an agent until `shutdown` begins, with settings that are never read anew.
///
/// # Errors
/// As [`run_reloading`].
pub async fn run(
    config: &AgentConfig,
    modelled: Option<&VirtualOptions>,
    shutdown: &Shutdown,
) -> Result<(), AgentError> {
    run_reloading(config, modelled, shutdown, None).await
}

/// Runs an agent until `shutdown` begins. `reload` says how the settings are read anew.
///
/// # Errors
/// When it cannot start, or a part of it stopped by itself.
pub async fn run_reloading(
    config: &AgentConfig,
    modelled: Option<&VirtualOptions>,
    shutdown: &Shutdown,
    reload: Option<Reload>,
) -> Result<(), AgentError> {
    if config.coordinators.is_empty() {
        return Err(AgentError::NoCoordinator);
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let boot = BootId::new(boot_id(&config.root).map_err(AgentError::Boot)?)?;
    // Two agents with one identity would push each other off every coordinator, and with one book forget promises.
    let _locks = match modelled {
        None => Some(lock_folders(config).map_err(AgentError::Folder)?),
        Some(_) => None,
    };
    let names = name_settings(config)?;
    let mut tasks = Tasks::default();
    let (settings_in, settings) = watch::channel(Arc::new(config.clone()));
    let (losses, roster) = (Losses::default(), roster(config));
    let lookup = Arc::new(DnsLookup { nameservers: config.nameservers() });
    let remembered = RememberedFile::new(&config.state_dir);
    let (follower, coordinators, services) =
        Follower::new(roster, lookup, remembered, losses.clone(), rand::make_rng());
    let known: Vec<String> = coordinators.borrow().iter().map(|known| known.target.clone()).collect();
    let hosts = match modelled {
        None => {
            let machine = machine::start(&settings, &known, services, &boot, &clock, names, &mut tasks);
            vec![machine.await?]
        }
        Some(options) => modelled::start(config, &known, options, &boot, &clock, &names, &mut tasks)?,
    };
    tasks.spawn("the look for coordinators", follower.run(tasks.stop.clone()));
    let (leave, leaving) = watch::channel(None);
    let mut streams = start_streams(config, &hosts, (&coordinators, &losses), &clock, &leaving);
    if let Some(reload) = reload {
        tasks.spawn("the reader of settings", reload.run(settings_in, tasks.stop.clone()));
    }
    if let Some(period) = watchdog::period() {
        tasks.spawn("the watchdog", watchdog::run(period, hosts.clone(), tasks.stop.clone()));
    }
    tracing::info!(hosts = hosts.len(), coordinators = known.len(), pool = config.pool, "the agent runs");
    notify(sd_notify::NotifyState::Ready);

    let ended = tokio::select! {
        () = shutdown.begun() => None,
        Some(ended) = tasks.set.join_next() => Some(ended.unwrap_or("a task")),
        Some(_) = streams.join_next() => Some("a stream's task"),
    };
    notify(sd_notify::NotifyState::Stopping);
    let reason = if modelled.is_none() && config.root == Path::new("/") {
        going_down::reason().await
    } else {
        Goodbye::AgentStop
    };
    leave.send_replace(Some(reason));
    wait_for(&mut streams, STREAMS_WAIT).await;
    tasks.stop.cancel();
    wait_for(&mut tasks.set, HOSTS_WAIT).await;
    match ended {
        None => Ok(()),
        Some(task) => Err(AgentError::TaskEnded { task }),
    }
}

/// Names are hidden on streams that leave the machine, which are those under TLS.
fn name_settings(config: &AgentConfig) -> Result<NameSettings, AgentError> {
    let key = config.user_names_key_file.as_deref().map(UserNameKey::read).transpose()?;
    let hasher = key.map(|key| -> Arc<dyn NameHasher> { Arc::new(key) });
    Ok(NameSettings { secured: config.tls.files().is_some(), hasher })
}

fn lock_folders(config: &AgentConfig) -> std::io::Result<[FolderLock; 2]> {
    Ok([
        FolderLock::take(&config.state_dir, "identity.lock")?,
        FolderLock::take(&config.runtime_dir, "places.lock")?,
    ])
}

/// Whom the settings name, and whom an earlier run found for their services. Blocks for a moment.
fn roster(config: &AgentConfig) -> Roster {
    let has_services = config.coordinators.iter().any(|entry| service_of(entry).is_some());
    let remembered =
        if has_services { RememberedFile::new(&config.state_dir).load() } else { Default::default() };
    Roster::new(&config.coordinators, config.tls.files().is_some(), &remembered)
}

fn start_streams(
    config: &AgentConfig,
    hosts: &[HostHandle],
    (coordinators, losses): (&Coordinators, &Losses),
    clock: &Arc<dyn Clock>,
    leaving: &Leaving,
) -> JoinSet<()> {
    let mut streams = JoinSet::new();
    let dial: Arc<dyn Dial> = Arc::new(NetworkDial { tls: config.tls.files(), ..NetworkDial::default() });
    for host in hosts {
        let set = StreamSet {
            host: host.clone(),
            coordinators: coordinators.clone(),
            losses: losses.clone(),
            dial: dial.clone(),
            clock: clock.clone(),
            rng: rand::make_rng(),
            leaving: leaving.clone(),
        };
        streams.spawn(set.run());
    }
    streams
}

async fn wait_for<T: 'static>(tasks: &mut JoinSet<T>, limit: Duration) {
    let all = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(limit, all).await.is_err() {
        tracing::debug!(tasks = tasks.len(), "not all tasks ended in time");
    }
}

/// Tells the service manager, if there is one.
fn notify(state: sd_notify::NotifyState<'_>) {
    notify_all(&[state]);
}

fn notify_all(states: &[sd_notify::NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "cannot notify the service manager");
    }
}

/// Places that wait for the models to hear of them.
fn place_news() -> (mpsc::Sender<crate::host::PlaceNews>, mpsc::Receiver<crate::host::PlaceNews>) {
    mpsc::channel(8192)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_second_agent_with_the_same_folders_does_not_start() {
        let folder = tempfile::tempdir().unwrap();
        let config = AgentConfig {
            coordinators: vec!["127.0.0.1:1".into()],
            state_dir: folder.path().join("state"),
            runtime_dir: folder.path().join("run"),
            ..AgentConfig::default()
        };
        let _first = lock_folders(&config).unwrap();
        let error = run(&config, None, &Shutdown::new()).await.unwrap_err();
        assert!(matches!(error, AgentError::Folder(_)), "{error}");
    }
}
