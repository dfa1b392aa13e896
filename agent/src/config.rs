//! What may an operator set, and within which bounds?
//!
//! Everything has a default that works on a normal server; only the coordinators' addresses must be given. Values that
//! cannot be true are refused with the key and what is allowed. What can only be known on the machine (a folder that
//! cannot be written, a port in use) is not judged here.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use tokio::sync::watch;
use usher_runtime::config::{Faults, HumanDuration, Validate};
use usher_runtime::net::check_target;
use usher_runtime::telemetry::LogFormat;
use usher_runtime::tls::TlsSettings;
use usher_types::{Endpoint, HostName, HostOverrides, Percent, Policy, PoolName, UserLimit, Zone};

use crate::coordinators::{MAX_COORDINATORS, check_service, service_of};
use crate::hooks::HooksConfig;
use crate::inventory::InventoryConfig;
use crate::latency::listener::DEFAULT_UDP;
use crate::probe::config::{validate_probes, within};
use crate::probe::{DoorConfig, ProbeConfig};
use crate::sample::sessions::SessionConfig;

/// Where the settings are looked for when nothing else is said.
pub const DEFAULT_PATH: &str = "/etc/usher/agent.toml";

/// Report intervals: faster would cost the host more than it tells, slower tells nothing of a day.
const REPORT_INTERVAL: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3600));
/// Periods of the latency window.
const LATENCY_PERIOD: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(300));
/// Most labels, endpoints and mounts; each travels with every stream's first message.
const MAX_ENTRIES: usize = 64;
/// Longest path of a mount: as long as a coordinator takes.
const MAX_PATH_BYTES: usize = 1024;
/// Most name servers: as many as a resolver asks.
const MAX_NAMESERVERS: usize = 3;
/// The port of a name server.
const DNS_PORT: u16 = 53;

/// The settings of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentConfig {
    /// Every coordinator of the farm, `host:port`; the port may be left out (7443). The agent reports to all of them.
    /// `srv:_usher._tcp.example.org` stands for all that DNS names for that service.
    pub coordinators: Vec<String>,
    /// Name servers that are asked for services, `address` or `address:port`. None: those of `/etc/resolv.conf`.
    pub nameservers: Vec<String>,
    /// The pool that the host serves.
    pub pool: String,
    /// Name of the host as people say it. Absent: the kernel's.
    pub name: Option<String>,
    /// Where it stands. Absent: nowhere in particular.
    pub zone: Option<String>,
    /// Words of the operator's, at most 64.
    pub labels: BTreeMap<String, String>,
    /// Where clients reach the host. None: `ssh` at the host's name, port 22.
    pub endpoints: Vec<Endpoint>,
    /// How often the host is measured and reported, 100ms..=1h. Shorter finds a dead host sooner (it is OFFLINE after
    /// three of them and a second) and costs more traffic.
    pub report_interval: HumanDuration,
    /// What must outlive a loss of power: the host's identity and its baselines.
    pub state_dir: PathBuf,
    /// What must outlive a restart of the agent, but not of the host: the places given out.
    pub runtime_dir: PathBuf,
    /// Root of the file system that is measured; another one when the agent runs in a container.
    pub root: PathBuf,
    /// Mounts whose fullness is reported, at most 64: absolute paths. A full one makes the host BUSY, from the pool's
    /// `mount_critical` on.
    pub mounts: Vec<PathBuf>,
    /// The latency window.
    pub latency: LatencyConfig,
    /// Where programs send their timings.
    pub statsd: StatsdConfig,
    /// How the host's own door is tried.
    pub door: DoorConfig,
    /// What else is tried, at most 64.
    pub probes: Vec<ProbeConfig>,
    /// Programs that speak for the host.
    pub hooks: HooksConfig,
    /// How sessions are counted.
    pub sessions: SessionConfig,
    /// What the host holds.
    pub inventory: InventoryConfig,
    /// What wins over the pool's settings on this host.
    pub overrides: OverridesConfig,
    /// The key that login names are hashed with where the pool's `user_names` is `hashed`: a file of at least 16 bytes,
    /// the same on every host and gateway of the pool, readable by its owner only. Absent: such a pool gets no names
    /// from this host, and its users do not come back to their sessions.
    pub user_names_key_file: Option<PathBuf>,
    /// Our certificate. Without it only coordinators on this machine can be reached.
    pub tls: TlsSettings,
    /// Log lines.
    pub log: LogConfig,
}

impl Default for AgentConfig {
    fn default() -> Self {
        Self {
            coordinators: Vec::new(),
            nameservers: Vec::new(),
            pool: "default".into(),
            name: None,
            zone: None,
            labels: BTreeMap::new(),
            endpoints: Vec::new(),
            report_interval: HumanDuration::from_secs(5),
            state_dir: "/var/lib/usher/agent".into(),
            runtime_dir: "/run/usher".into(),
            root: "/".into(),
            mounts: Vec::new(),
            latency: LatencyConfig::default(),
            statsd: StatsdConfig::default(),
            door: DoorConfig::default(),
            probes: Vec::new(),
            hooks: HooksConfig::default(),
            sessions: SessionConfig::default(),
            inventory: InventoryConfig::default(),
            overrides: OverridesConfig::default(),
            user_names_key_file: None,
            tls: TlsSettings::default(),
            log: LogConfig::default(),
        }
    }
}

/// The table `[latency]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LatencyConfig {
    /// One period, 100ms..=5min. The index moves once a period.
    pub period: HumanDuration,
    /// Periods in the window, 1..=20. More make the index calmer and later.
    pub periods: usize,
    /// Most names of operations, 1..=10000. Calls of more are counted and take no part.
    pub max_names: usize,
}

impl Default for LatencyConfig {
    fn default() -> Self {
        Self { period: HumanDuration::from_secs(15), periods: 5, max_names: 256 }
    }
}

/// The table `[statsd]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StatsdConfig {
    /// UDP address, or `none`. Beyond the loopback anybody who reaches it can make the host look slow.
    pub listen: String,
    /// Path of a unix datagram socket, or `none`. Empty: `statsd.sock` in the runtime directory.
    pub socket: String,
}

impl Default for StatsdConfig {
    fn default() -> Self {
        Self { listen: DEFAULT_UDP.to_string(), socket: String::new() }
    }
}

/// The table `[overrides]`: the host's own settings, which win over the pool's.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OverridesConfig {
    /// Size relative to a normal host, > 0 and at most 1000: coordinators take no more.
    pub capacity: Option<f64>,
    /// Most users: a number >= 1, or `"unlimited"`.
    pub max_users: Option<UserLimitSetting>,
    /// BUSY at or below this availability index; 0 = never, 100 = always.
    pub threshold_percent: Option<f64>,
    /// Exponent of the availability index, 1..=30; not a time: the window of time is `latency.period` and
    /// `latency.periods`.
    pub range: Option<f64>,
}

/// The table `[log]`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// `human` or `json`.
    pub format: LogFormat,
    /// Which lines, as in `info,usher_agent=debug`. Absent: `info`.
    pub filter: Option<String>,
}

/// A limit of users as it is written: `50` or `"unlimited"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserLimitSetting(pub UserLimit);

impl UserLimitSetting {
    /// Reads what a person writes. 0 is refused: whoever means "any number" says `unlimited`, whoever means "nobody"
    /// drains the host.
    ///
    /// # Errors
    /// What is allowed.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.trim() {
            "unlimited" => Ok(Self(UserLimit::Unlimited)),
            text => match text.parse() {
                Ok(users) if users > 0 => Ok(Self(UserLimit::Users(users))),
                _ => Err(format!("{text:?} is not allowed, must be a number >= 1 or \"unlimited\"")),
            },
        }
    }
}

impl fmt::Display for UserLimitSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            UserLimit::Unlimited => f.write_str("unlimited"),
            UserLimit::Users(users) => write!(f, "{users}"),
        }
    }
}

impl Serialize for UserLimitSetting {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            UserLimit::Unlimited => serializer.serialize_str("unlimited"),
            UserLimit::Users(users) => serializer.serialize_u32(users),
        }
    }
}

impl<'de> Deserialize<'de> for UserLimitSetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Limit;
        impl de::Visitor<'_> for Limit {
            type Value = UserLimitSetting;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number >= 1 or \"unlimited\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                UserLimitSetting::parse(text).map_err(E::custom)
            }

            fn visit_u64<E: de::Error>(self, users: u64) -> Result<Self::Value, E> {
                UserLimitSetting::parse(&users.to_string()).map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, users: i64) -> Result<Self::Value, E> {
                UserLimitSetting::parse(&users.to_string()).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Limit)
    }
}

impl Validate for AgentConfig {
    fn validate(&self, faults: &mut Faults) {
        self.validate_coordinators(faults);
        self.validate_nameservers(faults);
        self.validate_names(faults);
        self.validate_endpoints(faults);
        self.validate_mounts(faults);
        within(faults, "report_interval", self.report_interval, REPORT_INTERVAL);
        within(faults, "latency.period", self.latency.period, LATENCY_PERIOD);
        faults.range("latency.periods", &self.latency.periods, 1..=20);
        faults.range("latency.max_names", &self.latency.max_names, 1..=10_000);
        if let Err(message) = self.statsd.udp() {
            faults.refuse("statsd.listen", message);
        }
        faults.nested("inventory", &self.inventory);
        faults.nested("door", &self.door);
        validate_probes(faults, &self.probes);
        faults.nested("hooks", &self.hooks);
        faults.nested("sessions", &self.sessions);
        faults.nested("overrides", &self.overrides);
        faults.nested("tls", &self.tls);
    }
}

impl AgentConfig {
    /// A coordinator that is named twice would get two streams of one host, and end the one for the other without end.
    fn validate_coordinators(&self, faults: &mut Faults) {
        if self.coordinators.len() > MAX_COORDINATORS {
            faults.refuse("coordinators", format!("has more than {MAX_COORDINATORS} entries"));
        }
        let has_tls = self.tls.files().is_some();
        let mut seen = BTreeSet::new();
        for (index, target) in self.coordinators.iter().enumerate() {
            let key = format!("coordinators[{index}]");
            if let Some(service) = service_of(target) {
                match check_service(service) {
                    Ok(name) if seen.insert(name.clone()) => {}
                    Ok(name) => faults.refuse(&key, format!("names {name} a second time")),
                    Err(error) => faults.refuse(&key, format!("cannot be used: {error}")),
                }
                continue;
            }
            match check_target(target, has_tls) {
                Ok(address) if seen.insert(address.clone()) => {}
                Ok(address) => faults.refuse(&key, format!("names {address} a second time")),
                Err(error) => faults.refuse(&key, format!("cannot be used: {error}")),
            }
        }
    }

    fn validate_nameservers(&self, faults: &mut Faults) {
        if self.nameservers.len() > MAX_NAMESERVERS {
            faults.refuse("nameservers", format!("has more than {MAX_NAMESERVERS} entries"));
        }
        for (index, server) in self.nameservers.iter().enumerate() {
            if nameserver(server).is_none() {
                let allowed = "an address as in \"192.0.2.53\" or \"192.0.2.53:53\"";
                faults.reject(&format!("nameservers[{index}]"), format!("{server:?}"), allowed);
            }
        }
    }

    fn validate_names(&self, faults: &mut Faults) {
        if let Err(error) = PoolName::new(&self.pool) {
            faults.refuse("pool", error.fault);
        }
        if let Some(Err(error)) = self.name.as_ref().map(HostName::new) {
            faults.refuse("name", error.fault);
        }
        if let Some(Err(error)) = self.zone.as_ref().map(Zone::new) {
            faults.refuse("zone", error.fault);
        }
        if self.labels.len() > MAX_ENTRIES {
            faults.refuse("labels", format!("has more than {MAX_ENTRIES} entries"));
        }
    }

    fn validate_endpoints(&self, faults: &mut Faults) {
        if self.endpoints.len() > MAX_ENTRIES {
            faults.refuse("endpoints", format!("has more than {MAX_ENTRIES} entries"));
        }
        for (index, endpoint) in self.endpoints.iter().enumerate() {
            let key = |field: &str| format!("endpoints[{index}].{field}");
            if endpoint.kind.is_empty() {
                faults.refuse(&key("kind"), "is empty");
            }
            if endpoint.port == 0 {
                faults.reject(&key("port"), 0, "1..=65535");
            }
            if let Err(message) = check_address(&endpoint.address) {
                faults.refuse(&key("address"), message);
            }
        }
    }

    fn validate_mounts(&self, faults: &mut Faults) {
        if self.mounts.len() > MAX_ENTRIES {
            faults.refuse("mounts", format!("has more than {MAX_ENTRIES} entries"));
        }
        for (index, mount) in self.mounts.iter().enumerate() {
            let key = format!("mounts[{index}]");
            if !mount.is_absolute() || mount.as_os_str().len() > MAX_PATH_BYTES {
                faults.reject(&key, mount.display(), "an absolute path of at most 1024 bytes");
            } else if self.mounts[..index].contains(mount) {
                faults.refuse(&key, format!("names {} a second time", mount.display()));
            }
        }
    }

    /// The host's own settings. Values that [`Validate`] refuses are left out.
    #[must_use]
    pub fn host_overrides(&self) -> HostOverrides {
        HostOverrides {
            capacity: self.overrides.capacity,
            max_users: self.overrides.max_users.map(|limit| limit.0),
            threshold: self.overrides.threshold_percent.and_then(|percent| Percent::new(percent).ok()),
            range: self.overrides.range,
        }
    }

    /// The name servers that are set. Values that [`Validate`] refuses are left out.
    #[must_use]
    pub fn nameservers(&self) -> Vec<SocketAddr> {
        self.nameservers.iter().filter_map(|server| nameserver(server)).collect()
    }

    /// Path of the unix socket for commands on this machine.
    #[must_use]
    pub fn local_socket(&self) -> PathBuf {
        self.runtime_dir.join("agent.sock")
    }

    /// These settings with those of `read` that are taken over while the agent runs, and whether `read` changes others,
    /// which need a restart.
    #[must_use]
    pub fn taking_over(&self, read: &Self) -> (Self, bool) {
        let taken = Self {
            mounts: read.mounts.clone(),
            door: read.door.clone(),
            probes: read.probes.clone(),
            hooks: read.hooks.clone(),
            inventory: read.inventory.clone(),
            sessions: read.sessions.clone(),
            log: LogConfig { filter: read.log.filter.clone(), ..self.log.clone() },
            ..self.clone()
        };
        let needs_restart = taken != *read;
        (taken, needs_restart)
    }

    /// Path of the unix socket for timings. Absent: none.
    #[must_use]
    pub fn statsd_socket(&self) -> Option<PathBuf> {
        match self.statsd.socket.as_str() {
            "none" => None,
            "" => Some(self.runtime_dir.join("statsd.sock")),
            path => Some(PathBuf::from(path)),
        }
    }
}

impl StatsdConfig {
    /// The UDP address. Absent: none.
    ///
    /// # Errors
    /// Why the text is none.
    pub fn udp(&self) -> Result<Option<SocketAddr>, String> {
        if self.listen == "none" {
            return Ok(None);
        }
        let malformed = |_| {
            format!(
                "= {:?} is not allowed, must be an address as in \"127.0.0.1:8125\", or \"none\"",
                self.listen
            )
        };
        self.listen.parse().map(Some).map_err(malformed)
    }
}

impl Validate for OverridesConfig {
    fn validate(&self, faults: &mut Faults) {
        if let Some(capacity) = self.capacity.filter(|capacity| !(*capacity > 0.0 && *capacity <= 1000.0)) {
            faults.reject("capacity", capacity, "above 0 and at most 1000");
        }
        if let Some(threshold) = &self.threshold_percent {
            faults.range("threshold_percent", threshold, 0.0..=100.0);
        }
        if let Some(range) = self.range.filter(|range| !(1.0..=30.0).contains(range)) {
            faults.reject("range", range, Policy::RANGE_ALLOWED);
        }
    }
}

fn nameserver(text: &str) -> Option<SocketAddr> {
    let text = text.trim();
    let bare = text.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, DNS_PORT));
    bare.or_else(|| text.parse().ok()).filter(|server: &SocketAddr| server.port() > 0)
}

/// A link-local address means another machine on every segment, so it must not be advertised.
fn check_address(address: &str) -> Result<(), String> {
    let bare = address.trim_start_matches('[').trim_end_matches(']');
    let (ip, zone) = bare.split_once('%').map_or((bare, None), |(ip, zone)| (ip, Some(zone)));
    let is_link_local = match ip.parse::<IpAddr>() {
        Ok(IpAddr::V4(v4)) => v4.is_link_local(),
        Ok(IpAddr::V6(v6)) => v6.is_unicast_link_local(),
        Err(_) => false,
    };
    if is_link_local || zone.is_some() {
        return Err(format!(
            "= {address:?} is a link-local address, which clients elsewhere cannot reach: give one that they can"
        ));
    }
    if bare.parse::<IpAddr>().is_ok() {
        return if bare == address { Ok(()) } else { Err(format!("= {address:?} must be without brackets")) };
    }
    if address.is_empty() || address.len() > 253 {
        return Err("must have 1 to 253 characters".to_owned());
    }
    if address
        .chars()
        .any(|c| c.is_control() || c.is_whitespace() || matches!(c, ':' | '/' | '[' | ']' | '@'))
    {
        return Err(format!("= {address:?} is not an IP address or a DNS name without a port"));
    }
    Ok(())
}

/// Waits until settings are in force that `is_it` holds of; for ever once nobody reads them anew any more.
pub(crate) async fn until(
    settings: &mut watch::Receiver<Arc<AgentConfig>>,
    is_it: impl FnMut(&Arc<AgentConfig>) -> bool,
) {
    if settings.wait_for(is_it).await.is_err() {
        std::future::pending().await
    }
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
