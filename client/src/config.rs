//! What does a client know before it asks?

use std::path::PathBuf;
use std::time::Duration;

use usher_placement::host::Naming;
use usher_runtime::tls::TlsFiles;

/// The farm's coordinators, and how they are asked.
#[derive(Debug, Clone)]
pub struct Config {
    pub(crate) coordinators: Vec<String>,
    pub(crate) farm: Option<String>,
    pub(crate) gateway: Option<String>,
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) naming: Naming,
    pub(crate) deadline: Duration,
    pub(crate) pools: Vec<String>,
    pub(crate) cache: Option<PathBuf>,
    pub(crate) cache_max_age: Duration,
    pub(crate) local_decisions: bool,
}

/// A placement may take a second of asking hosts for consent; five leave room for a coordinator that hangs and one that
/// answers.
pub(crate) const DEADLINE: Duration = Duration::from_secs(5);
/// Within a quarter of an hour hosts rarely come and go, and users move; after a day a farm may be another one. Doubling it
/// sends more logins to hosts that are gone, halving it refuses more that would have worked.
pub(crate) const CACHE_MAX_AGE: Duration = Duration::from_secs(15 * 60);

impl Config {
    /// Coordinators at these addresses, `host:port` or with `https://` in front; without a port, 7443. Their order does not
    /// matter: gateways should not all begin with the same one.
    pub fn new<A: Into<String>>(coordinators: impl IntoIterator<Item = A>) -> Self {
        Self {
            coordinators: coordinators.into_iter().map(Into::into).collect(),
            farm: None,
            gateway: None,
            tls: None,
            naming: Naming::default(),
            deadline: DEADLINE,
            pools: Vec::new(),
            cache: None,
            cache_max_age: CACHE_MAX_AGE,
            local_decisions: true,
        }
    }

    /// The farm's name. A coordinator, or a file, of another farm is not believed. Default: whatever farm answers first.
    #[must_use]
    pub fn farm(mut self, name: impl Into<String>) -> Self {
        self.farm = Some(name.into());
        self
    }

    /// The gateway that this client is, on plain loopback. Under TLS the certificate says it. Default: `local`.
    #[must_use]
    pub fn gateway(mut self, name: impl Into<String>) -> Self {
        self.gateway = Some(name.into());
        self
    }

    /// Our certificate, its key, and the farm's authority. Without them only coordinators on this machine can be asked.
    #[must_use]
    pub fn tls(mut self, files: TlsFiles) -> Self {
        self.tls = Some(files);
        self
    }

    /// How login names travel. Default: as they are.
    #[must_use]
    pub fn naming(mut self, naming: Naming) -> Self {
        self.naming = naming;
        self
    }

    /// How long a login waits, over all tries, more than 0. Default: 5 s. Where a decision without coordinators is possible, a
    /// quarter of it, at most 1 s, is kept for that. Longer rides out more; shorter decides sooner without them, or fails.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// The pools whose hosts are watched, at most 64. Default: all.
    #[must_use]
    pub fn pools<P: Into<String>>(mut self, pools: impl IntoIterator<Item = P>) -> Self {
        self.pools = pools.into_iter().map(Into::into).collect();
        self
    }

    /// The file in which the farm is kept over a restart of this program. Its folder must exist, and files beside it with
    /// longer names are ours too. Default: none.
    #[must_use]
    pub fn cache(mut self, path: impl Into<PathBuf>) -> Self {
        self.cache = Some(path.into());
        self
    }

    /// How old what is known of the farm may be for a decision without a coordinator. Default: 15 min.
    #[must_use]
    pub fn cache_max_age(mut self, age: Duration) -> Self {
        self.cache_max_age = age;
        self
    }

    /// Whether this client decides itself when no coordinator answers; if not, it does not watch the farm either. Default:
    /// true.
    #[must_use]
    pub fn local_decisions(mut self, allowed: bool) -> Self {
        self.local_decisions = allowed;
        self
    }
}
