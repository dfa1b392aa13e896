//! Which settings does a coordinator have, and which values are allowed?
//!
//! Only what must be known before the store is open stands here. How hosts are ranked, when they are busy or full are
//! settings of a pool: they are changed while the coordinator runs, and live in the store.

mod store;

use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use usher_runtime::{
    config::{EnvKind, EnvVar, Faults, HumanDuration, ListenAddr, ListenAddrError, Validate},
    identity::NAME_MAX_BYTES,
    telemetry::LogFormat,
    tls::TlsSettings,
};

pub use self::store::{StoreConfig, StoreKind};

/// Where the settings are looked for if nobody names a file.
pub const DEFAULT_PATH: &str = "/etc/usher/coordinator.toml";

/// Variables of the environment and the keys that they set.
pub const ENVIRONMENT: &[EnvVar<'static>] =
    &[("USHER_FARM", "farm", EnvKind::Text), ("USHER_LOG", "log.filter", EnvKind::Text)];

/// The settings of a coordinator, as in `coordinator.toml`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CoordinatorConfig {
    /// Where gRPC listens. Anything but loopback needs `[tls]`.
    pub listen: ListenAddr,
    /// The store, and `listening.json`. Made if it is missing.
    pub data_dir: PathBuf,
    /// Name of the farm: 1..=128 of A-Z a-z 0-9 . _ -. Certificates of other farms are refused.
    pub farm: String,
    /// Whether modelled hosts may register. Off on real farms: a modelled host would be given real logins.
    pub allow_virtual: bool,
    /// Where the settings of pools come from.
    pub policy_source: PolicySource,
    /// The file that they come from if `policy_source` is `file`.
    pub policy_file: PathBuf,
    /// Where what people decide lies.
    pub store: StoreConfig,
    /// The HTTP port.
    pub http: HttpConfig,
    /// Certificate files; all three or none.
    pub tls: TlsSettings,
    /// What is logged, and how.
    pub log: LogConfig,
    /// Bounds that keep a flood of calls from taking everything.
    pub limits: LimitsConfig,
}

/// Where the settings of pools come from.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicySource {
    /// The store: admins apply them.
    #[default]
    Store,
    /// A file on this coordinator, which is read at the start and on SIGHUP.
    File,
}

impl CoordinatorConfig {
    /// The file that the settings of pools come from. Absent: they come from the store.
    pub fn policy_file(&self) -> Option<&Path> {
        (self.policy_source == PolicySource::File).then_some(self.policy_file.as_path())
    }
}

/// Table `[http]`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpConfig {
    /// Where `/metrics`, `/healthz` and `/readyz` are served; `"none"` for nowhere. Anything but loopback needs `[tls]`.
    pub listen: HttpListen,
}

/// An address, or none.
#[derive(Clone, PartialEq, Debug)]
pub enum HttpListen {
    /// The HTTP port is off.
    None,
    /// It is there.
    At(ListenAddr),
}

/// Table `[log]`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// `human` or `json`.
    pub format: LogFormat,
    /// Which lines, in the syntax of `RUST_LOG`. Absent: `info`.
    pub filter: Option<String>,
}

/// Table `[limits]`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsConfig {
    /// Calls under way at once, agents' streams not counted, 1..=100000; further ones are refused with UNAVAILABLE.
    /// Higher: more memory in a flood, and answers that come too late to be of use. Lower: refusals in a storm of
    /// logins whose hosts give consents (up to a second each).
    pub max_concurrent_calls: u32,
    /// Longest time for a call, 100ms..=10m, if its client allows as much. Higher: stuck calls hold their place longer.
    pub call_deadline: HumanDuration,
    /// Longest message taken, bytes, 65536..=67108864. Agents page their lists below 1 MiB; lower than that cuts them
    /// off, higher lets one peer take more memory.
    pub max_message_bytes: u32,
    /// Modelled hosts that one certificate may bring, 1..=1000000, counted by their ids since the start; all of plain
    /// loopback counts as one. Each is kept until the coordinator stops. Higher: a certificate that was stolen fills
    /// more memory with hosts that there are not. Lower: trials of large farms need more certificates.
    pub max_virtual_hosts: u32,
}

impl Default for CoordinatorConfig {
    fn default() -> Self {
        Self {
            listen: loopback(7443),
            data_dir: PathBuf::from("/var/lib/usher/coordinator"),
            farm: "default".to_owned(),
            allow_virtual: false,
            policy_source: PolicySource::default(),
            policy_file: PathBuf::from("/etc/usher/pools.toml"),
            store: StoreConfig::default(),
            http: HttpConfig::default(),
            tls: TlsSettings::default(),
            log: LogConfig::default(),
            limits: LimitsConfig::default(),
        }
    }
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            max_concurrent_calls: 1024,
            call_deadline: HumanDuration::from_secs(5),
            max_message_bytes: 4 * 1024 * 1024,
            max_virtual_hosts: 10_000,
        }
    }
}

impl Default for HttpListen {
    fn default() -> Self {
        Self::At(loopback(7480))
    }
}

fn loopback(port: u16) -> ListenAddr {
    ListenAddr::from(std::net::SocketAddr::from(([127, 0, 0, 1], port)))
}

impl HttpListen {
    /// The address, if there is one.
    pub fn addr(&self) -> Option<&ListenAddr> {
        match self {
            Self::None => None,
            Self::At(addr) => Some(addr),
        }
    }
}

impl fmt::Display for HttpListen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::At(addr) => write!(f, "{addr}"),
        }
    }
}

impl FromStr for HttpListen {
    type Err = ListenAddrError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "none" { Ok(Self::None) } else { text.parse().map(Self::At) }
    }
}

impl Serialize for HttpListen {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HttpListen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl Validate for CoordinatorConfig {
    fn validate(&self, faults: &mut Faults) {
        faults.nested("tls", &self.tls);
        // A half-filled table has its own fault; a second one about the address would mislead.
        let no_tls = self.tls == TlsSettings::default();
        plain_only_on_loopback(faults, "listen", Some(&self.listen), no_tls);
        plain_only_on_loopback(faults, "http.listen", self.http.listen.addr(), no_tls);
        if let Some(http) = self.http.listen.addr()
            && *http == self.listen
            && http.port() != 0
        {
            faults.refuse(
                "http.listen",
                format!("= {http} is the address of listen too, it needs one of its own"),
            );
        }
        let named = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if self.farm.is_empty() || self.farm.len() > NAME_MAX_BYTES || !self.farm.bytes().all(named) {
            faults.reject("farm", format!("{:?}", self.farm), "1..=128 characters of A-Z a-z 0-9 . _ -");
        }
        if self.data_dir.as_os_str().is_empty() {
            faults.refuse("data_dir", "is empty, it must be a folder");
        }
        if let Some(file) = self.policy_file() {
            if file.as_os_str().is_empty() {
                faults.refuse("policy_file", "is empty, it must be a file");
            }
            if self.store.kind == StoreKind::Etcd {
                let rule = "= file goes without a shared store: coordinators that share one share the settings of pools too";
                faults.refuse("policy_source", rule);
            }
        }
        faults.nested("limits", &self.limits);
        faults.nested("store", &self.store);
        if self.policy_file().is_some() && self.store.kind == StoreKind::Etcd {
            faults.refuse(
                "policy_source",
                "= \"file\" leaves nothing for store.kind = \"etcd\" to share: choose one of them",
            );
        }
    }
}

impl Validate for LimitsConfig {
    fn validate(&self, faults: &mut Faults) {
        faults.range("max_concurrent_calls", &self.max_concurrent_calls, 1..=100_000);
        let bounds = HumanDuration::from_millis(100)..=HumanDuration::from_secs(600);
        faults.range("call_deadline", &self.call_deadline, bounds);
        faults.range("max_message_bytes", &self.max_message_bytes, 65_536..=67_108_864);
        faults.range("max_virtual_hosts", &self.max_virtual_hosts, 1..=1_000_000);
    }
}

fn plain_only_on_loopback(faults: &mut Faults, key: &str, addr: Option<&ListenAddr>, no_tls: bool) {
    if let Some(addr) = addr.filter(|addr| no_tls && !addr.is_loopback()) {
        let rule = format!(
            "= {addr} needs TLS: only loopback may be plain; set tls.cert, tls.key and tls.ca, or listen on 127.0.0.1 or [::1]"
        );
        faults.refuse(key, rule);
    }
}

#[cfg(test)]
mod tests {
    use usher_runtime::config::{Loader, Origin};

    use super::*;

    fn load(text: &str) -> Result<CoordinatorConfig, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("coordinator.toml");
        std::fs::write(&path, text).unwrap();
        let loader = Loader::new("").file(Some(path), Origin::Flag("--config".to_owned()));
        loader.load().map(|loaded| loaded.value).map_err(|errors| errors.to_string())
    }

    #[track_caller]
    fn refused(text: &str, parts: &[&str]) {
        let message = load(text).unwrap_err();
        for part in parts {
            assert!(message.contains(part), "{part:?} not in {message}");
        }
    }

    #[test]
    fn an_empty_file_gives_the_documented_defaults() {
        let config = load("").unwrap();
        assert_eq!(config, CoordinatorConfig::default());
        assert_eq!(config.listen.to_string(), "127.0.0.1:7443");
        assert_eq!(config.http.listen.to_string(), "127.0.0.1:7480");
        assert!(!config.allow_virtual);
    }

    #[test]
    fn plain_beyond_loopback_is_refused_and_the_rule_is_named() {
        let rule = "needs TLS: only loopback may be plain";
        refused("listen = \"0.0.0.0:7443\"", &["coordinator.toml:1:", "listen = 0.0.0.0:7443", rule]);
        refused("[http]\nlisten = \"192.0.2.1:7480\"", &["coordinator.toml:2:", "http.listen", rule]);
        let tls = "[tls]\ncert = \"a\"\nkey = \"b\"\nca = \"c\"\n";
        assert!(load(&format!("listen = \"0.0.0.0:7443\"\n{tls}")).is_ok());
        refused(
            "listen = \"0.0.0.0:7443\"\n[tls]\ncert = \"a\"",
            &["tls.key is missing", "tls.ca is missing"],
        );
    }

    #[test]
    fn the_http_port_can_be_switched_off() {
        assert_eq!(load("[http]\nlisten = \"none\"").unwrap().http.listen, HttpListen::None);
        refused("[http]\nlisten = \"off\"", &["http.listen", "coordinator.toml:2:"]);
        refused("listen = \"127.0.0.1:7480\"", &["http.listen", "needs one of its own"]);
    }

    #[test]
    fn etcd_needs_members_that_can_be_reached_and_all_faults_are_told_together() {
        let etcd = "[store]\nkind = \"etcd\"\n";
        let members = "endpoints = [\"127.0.0.1:2379\", \"http://localhost:2379\"]\n";
        let config = load(&format!("farm = \"site\"\n{etcd}{members}")).unwrap();
        let options = config.store.etcd(&config.farm).unwrap();
        assert_eq!((options.prefix.as_str(), options.endpoints.len()), ("/usher/site/", 2));
        assert!(load("").unwrap().store.etcd("site").is_none());
        refused(etcd, &["store.endpoints is missing"]);
        refused(
            &format!(
                "{etcd}endpoints = [\"etcd1:2379\", \"127.0.0.1\"]\nprefix = \"usher\"\nuser = \"u\"\ncall_timeout = \"1ms\""
            ),
            &[
                "\"etcd1:2379\": cannot connect to etcd1:2379 without TLS",
                "\"127.0.0.1\": it names no port; etcd's own is 2379",
                "store.prefix = \"usher\" is not allowed",
                "store.user and password_file belong together",
                "store.call_timeout = 1ms is not allowed, must be 100ms..=1m",
            ],
        );
        refused("[store]\nendpoints = [\"127.0.0.1:2379\"]", &["is used with kind = \"etcd\" only"]);
        refused(
            &format!("policy_source = \"file\"\n{etcd}{members}"),
            &["policy_source", "choose one of them"],
        );
        refused("[store]\nkind = \"raft\"", &["store.kind"]);
    }

    #[test]
    fn an_unknown_key_is_refused_with_a_suggestion() {
        refused("allow_virtul = true", &["allow_virtul", "did you mean allow_virtual?"]);
    }

    #[test]
    fn every_limit_has_bounds_and_all_faults_are_told_together() {
        refused(
            "farm = \"a b\"\n[limits]\nmax_concurrent_calls = 0\ncall_deadline = \"1ms\"\nmax_message_bytes = 1\nmax_virtual_hosts = 0",
            &[
                "farm = \"a b\" is not allowed",
                "limits.max_concurrent_calls = 0 is not allowed, must be 1..=100000",
                "limits.call_deadline = 1ms is not allowed, must be 100ms..=10m",
                "limits.max_message_bytes = 1 is not allowed, must be 65536..=67108864",
                "limits.max_virtual_hosts = 0 is not allowed, must be 1..=1000000",
            ],
        );
    }
}
