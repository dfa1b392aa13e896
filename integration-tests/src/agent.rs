//! An agent in a process of its own: of this machine, or of modelled hosts.

use std::future::IntoFuture;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Command;

use serde_json::Value;

use crate::binaries::binary;
use crate::client::Client;
use crate::netns::Machine;
use crate::process::Process;
use crate::wait::{LONG, wait_for};

/// How an agent is started; `.await` starts it and waits until each of its hosts was heard.
#[derive(Debug, Clone)]
pub struct AgentStart {
    folder: PathBuf,
    name: String,
    coordinators: Vec<String>,
    seen_by: Vec<Client>,
    machine: Option<Machine>,
    environment: Vec<(String, String)>,
    hosts_file: Option<PathBuf>,
    pool: String,
    settings: String,
    hosts: Vec<(String, String)>,
    replicas: Vec<(usize, String)>,
    modelled: usize,
    report_interval: String,
    latency_period: String,
    statsd: Option<u16>,
    arguments: Vec<String>,
    wait: bool,
    runtime_dir: PathBuf,
}

impl AgentStart {
    /// An agent whose state, settings and log are in `folder`: of this machine, under the name `name`, unless hosts are
    /// added. It reports each 200 ms, has periods of 100 ms, and listens for no timings.
    pub fn new(folder: &Path, name: &str, coordinators: &[SocketAddr]) -> Self {
        let folder = folder.join(name);
        std::fs::create_dir_all(&folder).unwrap();
        Self {
            runtime_dir: folder.join("run"),
            folder,
            name: name.to_owned(),
            coordinators: coordinators.iter().map(ToString::to_string).collect(),
            seen_by: coordinators.iter().map(|address| Client::new(*address, None)).collect(),
            machine: None,
            environment: Vec::new(),
            hosts_file: None,
            pool: "desk".to_owned(),
            settings: String::new(),
            hosts: Vec::new(),
            replicas: Vec::new(),
            modelled: 0,
            report_interval: "200ms".to_owned(),
            latency_period: "100ms".to_owned(),
            statsd: None,
            arguments: Vec::new(),
            wait: true,
        }
    }

    /// Keeps what outlives a restart of the agent in a folder of its own in this one: in memory, as `/run` is.
    #[must_use]
    pub fn running_in(mut self, folder: &Path) -> Self {
        self.runtime_dir = folder.join(&self.name);
        self
    }

    /// A modelled host that keeps these values, as in `cpu=35,mem=55,users=10,procs=70,ai-xf=4`.
    #[must_use]
    pub fn host(mut self, name: &str, values: &str) -> Self {
        self.hosts.push((name.to_owned(), values.to_owned()));
        self
    }

    /// The host that was added last holds this resource.
    #[must_use]
    pub fn replica(mut self, resource: &str) -> Self {
        self.replicas.push((self.hosts.len().max(1), resource.to_owned()));
        self
    }

    /// Modelled hosts `virtual-1..=count` with a life of their own.
    #[must_use]
    pub fn modelled(mut self, count: usize) -> Self {
        self.modelled = count;
        self
    }

    /// Another pool than `desk`.
    #[must_use]
    pub fn pool(mut self, pool: &str) -> Self {
        self.pool = pool.to_owned();
        self
    }

    /// At most this many users on each of its hosts.
    #[must_use]
    pub fn max_users(self, users: u32) -> Self {
        self.argument("--max-users").argument(users.to_string())
    }

    /// As in `5s`.
    #[must_use]
    pub fn report_interval(mut self, interval: &str) -> Self {
        self.report_interval = interval.to_owned();
        self
    }

    /// As in `15s`.
    #[must_use]
    pub fn latency_period(mut self, period: &str) -> Self {
        self.latency_period = period.to_owned();
        self
    }

    /// It takes timings at this UDP port of loopback.
    #[must_use]
    pub fn statsd(mut self, port: u16) -> Self {
        self.statsd = Some(port);
        self
    }

    /// Text of the settings file.
    #[must_use]
    pub fn settings(mut self, toml: &str) -> Self {
        self.settings = toml.to_owned();
        self
    }

    /// It runs on a machine of a network; `seen_by` are clients of its coordinators that may look at hosts.
    #[must_use]
    pub fn on_machine(mut self, machine: &Machine, seen_by: &[Client]) -> Self {
        self.machine = Some(machine.clone());
        self.seen_by = seen_by.to_vec();
        self
    }

    /// Its list of coordinators is this one, as in `["usher.example:7443"]`; `.await` still waits until those that it was
    /// made with hear it.
    #[must_use]
    pub fn told_of(mut self, coordinators: &[String]) -> Self {
        self.coordinators = coordinators.to_vec();
        self
    }

    /// For it alone this file is `/etc/hosts`: where names lead changes as the file does.
    #[must_use]
    pub fn hosts_file(mut self, file: &Path) -> Self {
        self.hosts_file = Some(file.to_owned());
        self
    }

    /// A variable of its environment.
    #[must_use]
    pub fn environment(mut self, name: &str, value: impl Into<String>) -> Self {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    /// A further argument.
    #[must_use]
    pub fn argument(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// `.await` does not wait until the hosts were heard.
    #[must_use]
    pub fn without_waiting(mut self) -> Self {
        self.wait = false;
        self
    }

    /// Names of its hosts.
    pub fn host_names(&self) -> Vec<String> {
        match (self.modelled, self.hosts.is_empty()) {
            (0, true) => vec![self.name.clone()],
            (0, false) => self.hosts.iter().map(|(name, _)| name.clone()).collect(),
            (count, _) => (1..=count).map(|number| format!("virtual-{number}")).collect(),
        }
    }

    fn spawn(&self) -> Process {
        let statsd = self.statsd.map_or_else(|| "none".to_owned(), |port| format!("127.0.0.1:{port}"));
        let mut command = match &self.hosts_file {
            None => Command::new(binary("usher-agent")),
            Some(file) => {
                // A mount of its own; the process stays the same one.
                let mut command = Command::new("unshare");
                command.args(["--mount", "sh", "-c", "mount --bind \"$0\" /etc/hosts && exec \"$@\""]);
                command.arg(file).arg(binary("usher-agent"));
                command
            }
        };
        command.arg("--config").arg(self.folder.join("agent.toml"));
        command.arg("--state-dir").arg(self.folder.join("state"));
        command.arg("--runtime-dir").arg(&self.runtime_dir);
        command.args(["--coordinators", &self.coordinators.join(","), "--pool", &self.pool]);
        command.args(["--report-interval", &self.report_interval, "--latency-period", &self.latency_period]);
        command.args(["--statsd-listen", &statsd]);
        if self.modelled > 0 {
            command.args(["--virtual", &self.modelled.to_string()]);
        } else if self.hosts.is_empty() {
            command.args(["--name", &self.name]);
        } else {
            command.args(["--virtual", &self.hosts.len().to_string(), "--virtual-model", "fixed"]);
            for (name, values) in &self.hosts {
                command.args(["--virtual-name", name, "--virtual-values", values]);
            }
            for (host, resource) in &self.replicas {
                command.args(["--virtual-replica", &format!("{host}:{resource}")]);
            }
        }
        command.args(&self.arguments).envs(self.environment.iter().map(|(name, value)| (name, value)));
        Process::start_on(self.machine.as_ref(), &self.name, &mut command, &self.folder.join("agent.log"))
    }

    async fn start(self) -> Agent {
        std::fs::write(self.folder.join("agent.toml"), &self.settings).unwrap();
        let mut agent = Agent { process: self.spawn(), start: self };
        if agent.start.wait {
            agent.heard().await;
        }
        agent
    }
}

impl IntoFuture for AgentStart {
    type Output = Agent;
    type IntoFuture = Pin<Box<dyn Future<Output = Agent>>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.start())
    }
}

/// An agent that runs. Its [`Process`] can be killed, asked to end, and frozen.
#[derive(Debug)]
pub struct Agent {
    start: AgentStart,
    process: Process,
}

impl Agent {
    /// Starts it again after it has ended, with the same state. Does not wait until it was heard.
    ///
    /// # Panics
    /// If it still runs.
    pub fn restart(&mut self) {
        assert!(!self.process.is_running(), "agent {} still runs", self.start.name);
        self.process = self.start.spawn();
    }

    /// Waits until every coordinator has a stream of, and a report of, each of its hosts, with its resources.
    ///
    /// # Panics
    /// If one is not heard, or the agent ends.
    pub async fn heard(&mut self) {
        for client in self.start.seen_by.clone() {
            for (index, name) in self.start.host_names().into_iter().enumerate() {
                let held = self.start.replicas.iter().filter(|(host, _)| *host == index + 1).count();
                wait_for(&format!("a report of {name}"), LONG, async || {
                    assert!(self.process.is_running(), "the agent ended:\n{}", self.process.log());
                    let host = client.host(&name).await.map_err(|status| status.to_string())?;
                    let heard = host.connected && host.load_age_ms.is_some();
                    // The list of a real host's resources is its own.
                    let listed = held == 0 || host.replicas as usize == held;
                    if heard && listed { Ok(()) } else { Err(format!("{host:?}")) }
                })
                .await;
            }
        }
    }

    /// The book of places of its `number`-th modelled host, or of this machine's host with 0, as it is on disk.
    ///
    /// # Panics
    /// If the file is there and is no JSON.
    pub fn places(&self, number: usize) -> Value {
        let run = self.runtime_dir();
        let folder = if number == 0 { run } else { run.join(format!("virtual-{number}")) };
        match std::fs::read(folder.join("places.json")) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap(),
            Err(_) => Value::Null,
        }
    }

    /// The requests whose places its `number`-th modelled host holds, by its own book.
    ///
    /// # Panics
    /// If the book is there and is none.
    pub fn held(&self, number: usize) -> Vec<String> {
        let book = self.places(number);
        let places = book["book"]["places"].as_array().cloned().unwrap_or_default();
        places.iter().map(|place| place["token"]["request_id"].as_str().unwrap().to_owned()).collect()
    }

    /// What outlives a restart of the agent.
    pub fn runtime_dir(&self) -> PathBuf {
        self.start.runtime_dir.clone()
    }

    /// What outlives a loss of power.
    pub fn state_dir(&self) -> PathBuf {
        self.start.folder.join("state")
    }
}

impl Deref for Agent {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for Agent {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}
