//! How does the farm come up?
//!
//! The coordinator chooses free ports and says in a file which; then the agents start, and the farm is ready when each
//! host is measured. A CPU percentage is the difference of two samples, so a host without one is not measured yet, and
//! a placement made before would have to guess.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use serde::Deserialize;
use tokio::time::Instant;
use usher_proto::v1;
use usher_proto::v1::directory_service_client::DirectoryServiceClient;

use super::{POOL, Processes, Progress, READY_WITHIN};
use crate::connect::Coordinators;
use crate::failure::Failure;
use crate::output::text::clean;
use crate::output::words;
use crate::reexec::{AGENT, COORDINATOR};

/// How often is looked whether something has come.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// For one answer of a coordinator on this machine.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Where the coordinator listens, as it says itself.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Listening {
    /// gRPC.
    pub(super) grpc: SocketAddr,
    /// HTTP. Absent: off.
    pub(super) http: Option<SocketAddr>,
    pid: u32,
}

/// The coordinator of the farm, for calls.
pub(super) fn coordinator(address: SocketAddr) -> Coordinators {
    Coordinators::loopback(address.to_string(), ANSWER_WITHIN)
}

/// Starts the coordinator and waits until it says where it listens.
///
/// # Errors
/// If it ends, or says nothing until the deadline.
pub(super) async fn start_coordinator(
    processes: &mut Processes,
    deadline: Instant,
) -> Result<Listening, Failure> {
    let data_dir = processes.folder().join("coordinator");
    let config = empty_config(processes.folder(), "coordinator.toml")?;
    let arguments = [
        "--config".into(),
        config,
        "--listen".into(),
        "127.0.0.1:0".into(),
        "--http-listen".into(),
        "127.0.0.1:0".into(),
        "--data-dir".into(),
        data_dir.clone().into_os_string(),
        "--allow-virtual".into(),
    ];
    let pid = processes.start("coordinator", COORDINATOR, arguments)?;
    let path = data_dir.join("listening.json");
    loop {
        processes.all_run()?;
        if let Some(listening) = read_listening(&path, pid) {
            return Ok(listening);
        }
        if Instant::now() >= deadline {
            let seconds = READY_WITHIN.as_secs();
            return Err(Failure::Check(format!("the coordinator did not listen within {seconds} s")));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// What the process `pid` says. A file of another process was left behind in a data folder that is kept.
fn read_listening(path: &Path, pid: u32) -> Option<Listening> {
    let text = std::fs::read(path).ok()?;
    serde_json::from_slice(&text).ok().filter(|listening: &Listening| listening.pid == pid)
}

/// The settings of this machine are for its own farm, so the processes read files that say nothing.
fn empty_config(folder: &Path, name: &str) -> Result<std::ffi::OsString, Failure> {
    let path = folder.join(name);
    std::fs::write(&path, "# Everything is said by flags.\n")
        .with_context(|| format!("writing {}", path.display()))?;
    Ok(path.into_os_string())
}

/// Starts the real agent and the modelled hosts.
///
/// # Errors
/// If one cannot be started.
pub(super) fn start_agents(
    processes: &mut Processes,
    coordinator: SocketAddr,
    virtual_hosts: u16,
) -> Result<(), Failure> {
    start_agent(processes, "agent", coordinator, &["--statsd-listen", "127.0.0.1:0"])?;
    for number in 1..=virtual_hosts {
        let first = number.to_string();
        let modelled = ["--virtual", "1", "--virtual-first", &first];
        start_agent(processes, &format!("virtual-{number}"), coordinator, &modelled)?;
    }
    Ok(())
}

fn start_agent(
    processes: &mut Processes,
    name: &str,
    coordinator: SocketAddr,
    special: &[&str],
) -> Result<(), Failure> {
    let folder = processes.folder().to_owned();
    let config = empty_config(&folder, "agent.toml")?;
    let mut arguments = vec![
        "--config".into(),
        config,
        "--coordinators".into(),
        coordinator.to_string().into(),
        "--pool".into(),
        POOL.into(),
        "--state-dir".into(),
        folder.join(name).into_os_string(),
        "--runtime-dir".into(),
        folder.join(format!("{name}-run")).into_os_string(),
        "--report-interval".into(),
        "1s".into(),
        // The index of a modelled host is there after one period, and nobody wants to wait for it.
        "--latency-period".into(),
        "1s".into(),
    ];
    arguments.extend(special.iter().map(Into::into));
    processes.start(name, AGENT, arguments)?;
    Ok(())
}

/// Waits until so many hosts are measured, and returns all hosts of the farm.
///
/// # Errors
/// If a process ends, or the deadline passes: then each host that is missing is named with its state.
pub(super) async fn wait_until_measured(
    processes: &mut Processes,
    address: SocketAddr,
    wanted: usize,
    deadline: Instant,
    progress: &mut Progress,
) -> Result<v1::ListHostsResponse, Failure> {
    let coordinator = coordinator(address);
    loop {
        processes.all_run()?;
        let response = coordinator
            .call("listing the hosts", async |channel, call| {
                let request = v1::ListHostsRequest { pool: Some(POOL.to_owned()) };
                DirectoryServiceClient::new(channel).list_hosts(call.request(request)).await
            })
            .await;
        let response = unless_unknown_pool(response)?;
        let attached = response.hosts.iter().filter(|host| host.connected).count();
        let measured = response.hosts.iter().filter(|host| is_measured(host)).count();
        if measured >= wanted {
            return Ok(response);
        }
        if Instant::now() >= deadline {
            return Err(Failure::Check(missing(&response, wanted)));
        }
        progress.say(&if attached < wanted {
            format!("agents attached: {attached} of {wanted}")
        } else {
            format!("hosts measured: {measured} of {wanted}")
        });
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// A pool comes into being with its first host; before that there are none.
fn unless_unknown_pool(
    response: Result<v1::ListHostsResponse, Failure>,
) -> Result<v1::ListHostsResponse, Failure> {
    match response {
        Err(Failure::Refused(refusal)) if refusal.code == tonic::Code::NotFound => {
            Ok(v1::ListHostsResponse::default())
        }
        other => other,
    }
}

fn is_measured(host: &v1::HostInfo) -> bool {
    matches!(host.state(), v1::HostState::Available | v1::HostState::Busy) && host.cpu_percent.is_some()
}

fn missing(response: &v1::ListHostsResponse, wanted: usize) -> String {
    let mut lines = vec![format!("the farm was not ready within {} s:", READY_WITHIN.as_secs())];
    for host in response.hosts.iter().filter(|host| !is_measured(host)) {
        let state = words::word::<v1::HostState>(host.state);
        let cpu = if host.cpu_percent.is_none() { ", CPU not measured" } else { "" };
        let because = if host.state_reason.is_empty() { "" } else { ": " };
        let reason = clean(&host.state_reason);
        lines.push(format!("  {} is {state}{because}{reason}{cpu}", clean(&host.host_name)));
    }
    let absent = wanted.saturating_sub(response.hosts.len());
    if absent > 0 {
        lines.push(format!("  {absent} hosts never attached"));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, state: v1::HostState, cpu_percent: Option<f64>) -> v1::HostInfo {
        v1::HostInfo { host_name: name.into(), state: state.into(), cpu_percent, ..Default::default() }
    }

    #[test]
    fn a_host_is_measured_when_it_serves_and_its_cpu_is_known() {
        assert!(is_measured(&host("a", v1::HostState::Available, Some(0.0))));
        assert!(is_measured(&host("a", v1::HostState::Busy, Some(99.0))));
        assert!(!is_measured(&host("a", v1::HostState::Available, None)));
        assert!(!is_measured(&host("a", v1::HostState::Unknown, Some(1.0))));
    }

    #[test]
    fn what_is_missing_is_named_with_its_state_and_reason() {
        let mut refused = host("app1", v1::HostState::NotReady, Some(1.0));
        refused.state_reason = "maintenance".into();
        let hosts = vec![host("virtual-1", v1::HostState::Available, Some(1.0)), refused];
        let text = missing(&v1::ListHostsResponse { hosts, ..Default::default() }, 3);
        assert_eq!(
            text,
            "the farm was not ready within 30 s:\n  app1 is NOT_READY: maintenance\n  1 hosts never attached"
        );
    }

    #[test]
    fn a_file_of_another_process_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("listening.json");
        assert_eq!(read_listening(&path, 7), None);
        std::fs::write(&path, r#"{"grpc":"127.0.0.1:1234","http":null,"pid":7}"#).unwrap();
        assert_eq!(read_listening(&path, 8), None);
        let listening = read_listening(&path, 7).unwrap();
        assert_eq!((listening.grpc.port(), listening.http), (1234, None));
    }
}
