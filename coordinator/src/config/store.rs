//! Table `[store]`: where does what people decide lie?

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use usher_runtime::{
    config::{Faults, HumanDuration, Validate},
    net::check_target,
    tls::TlsSettings,
};

use crate::store::EtcdOptions;

/// Table `[store]`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreConfig {
    /// `redb`: a file of this coordinator alone. `etcd`: shared with the farm's other coordinators; the file is a copy then.
    pub kind: StoreKind,
    /// Members of the etcd cluster: `host:port`, or with `http://` or `https://` in front. One that does not answer is passed over.
    pub endpoints: Vec<String>,
    /// What all keys begin with. Absent: `/usher/FARM/`. All coordinators of a farm need the same one.
    pub prefix: Option<String>,
    /// Certificate files for etcd; all three or none. Anything but loopback needs them.
    pub tls: TlsSettings,
    /// Who to log in as at etcd. Absent: nobody, or whom the certificate names.
    pub user: Option<String>,
    /// Holds the password of `user` in its first line.
    pub password_file: Option<PathBuf>,
    /// Longest time to connect to a member, 100ms..=1m. Higher: a member that hangs is passed over later.
    pub connect_timeout: HumanDuration,
    /// Longest time for one call to etcd, 100ms..=1m. Higher: a lost cluster is noticed later. Lower: a slow disk of etcd's looks
    /// like a lost cluster.
    pub call_timeout: HumanDuration,
    /// Whether an empty store is filled with what this coordinator's own file has. For one start, when a farm moves to etcd.
    pub seed: bool,
}

/// Kinds of stores.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoreKind {
    /// A file of each coordinator.
    #[default]
    Redb,
    /// A cluster of etcd.
    Etcd,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            kind: StoreKind::Redb,
            endpoints: Vec::new(),
            prefix: None,
            tls: TlsSettings::default(),
            user: None,
            password_file: None,
            connect_timeout: HumanDuration::from_secs(2),
            call_timeout: HumanDuration::from_secs(2),
            seed: false,
        }
    }
}

impl StoreConfig {
    /// How etcd is reached. Absent: it is not used.
    pub fn etcd(&self, farm: &str) -> Option<EtcdOptions> {
        (self.kind == StoreKind::Etcd).then(|| EtcdOptions {
            endpoints: self.endpoints.clone(),
            prefix: self.prefix.clone().unwrap_or_else(|| format!("/usher/{farm}/")),
            tls: self.tls.files(),
            login: self.user.clone().zip(self.password_file.clone()),
            connect_timeout: self.connect_timeout.into(),
            call_timeout: self.call_timeout.into(),
        })
    }

    fn validate_etcd(&self, faults: &mut Faults) {
        if self.endpoints.is_empty() {
            faults.refuse(
                "endpoints",
                "is missing: kind = \"etcd\" needs the members of the cluster, as in [\"etcd1:2379\"]",
            );
        }
        let has_tls = self.tls.files().is_some();
        for endpoint in &self.endpoints {
            if let Err(error) = check_target(endpoint, has_tls) {
                // It speaks of coordinators, which etcd is none of.
                let why = error.to_string().replace("is not a coordinator address", "is not an address");
                faults.refuse("endpoints", format!("has {endpoint:?}: {why}"));
            } else if !names_port(endpoint) {
                faults.refuse("endpoints", format!("has {endpoint:?}: it names no port; etcd's own is 2379"));
            }
        }
        if self.user.is_some() != self.password_file.is_some() {
            faults.refuse("user", "and password_file belong together: both, or none of them");
        }
        if let Some(prefix) = self.prefix.as_ref().filter(|prefix| !is_prefix(prefix)) {
            faults.reject(
                "prefix",
                format!("{prefix:?}"),
                "1..=256 printable characters with a slash at both ends",
            );
        }
    }
}

fn names_port(endpoint: &str) -> bool {
    endpoint.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok())
}

/// A slash at its end keeps a farm from reading one whose name goes on where its own ends.
fn is_prefix(prefix: &str) -> bool {
    (2..=256).contains(&prefix.len())
        && prefix.starts_with('/')
        && prefix.ends_with('/')
        && prefix.bytes().all(|byte| byte.is_ascii_graphic())
}

impl Validate for StoreConfig {
    fn validate(&self, faults: &mut Faults) {
        faults.nested("tls", &self.tls);
        let bounds = HumanDuration::from_millis(100)..=HumanDuration::from_secs(60);
        faults.range("connect_timeout", &self.connect_timeout, bounds.clone());
        faults.range("call_timeout", &self.call_timeout, bounds);
        if self.kind == StoreKind::Etcd {
            self.validate_etcd(faults);
        } else if !self.endpoints.is_empty() {
            faults.refuse("endpoints", "is used with kind = \"etcd\" only");
        }
    }
}
