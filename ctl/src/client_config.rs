//! What does this client know of its farm without being told each time?
//!
//! The file `/etc/usher/client.toml` names the coordinators, the gateway that this client acts as, how long it waits,
//! its certificate, how it hides login names, and where it keeps what it knows of the farm. Options and environment win over it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use usher_agent::user_names::UserNameKey;
use usher_placement::host::{NameHasher, NameSettings, Naming};
use usher_runtime::config::{Faults, HumanDuration, Loader, Origin, Validate};
use usher_runtime::tls::TlsSettings;
use usher_types::{UserMatch, UserNames};

use crate::failure::Failure;

const DEFAULT_PATH: &str = "/etc/usher/client.toml";
const CONFIG_ENV: &str = "USHER_CONFIG";

/// The settings of a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ClientConfig {
    /// `host:port` of each coordinator, in the order in which they are asked.
    pub(crate) coordinators: Vec<String>,
    /// The gateway that calls are made as on plain loopback. Absent: the coordinator's default.
    pub(crate) gateway: Option<String>,
    /// How long one coordinator may take to answer. Longer waits out a slow network, shorter comes sooner to the next.
    timeout: HumanDuration,
    /// The key with which login names are hashed on their way under TLS: that of the hosts of a pool that says
    /// `user_names = hashed`. Absent: names are sent as they are.
    pub(crate) user_names_key_file: Option<PathBuf>,
    /// How the pool compares login names; a name is brought into that form before it is hashed.
    pub(crate) user_match: UserMatch,
    /// Certificate, key and authority; without them only loopback can be reached.
    pub(crate) tls: TlsSettings,
    /// The farm as it was last known, for `connect` when no coordinator answers.
    pub(crate) cache: CacheSettings,
}

/// The table `[cache]`: whether, where and for how long the farm is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CacheSettings {
    /// Whether it is kept, and used.
    pub(crate) enabled: bool,
    /// The folder. Whoever may write there says where logins go when nobody answers. Absent: `usher` in the person's own
    /// folder of caches, if there is one.
    pub(crate) dir: Option<PathBuf>,
    /// How old it may be. Longer rides out more, and sends more logins to hosts that are full or gone.
    pub(crate) max_age: HumanDuration,
}

impl Default for CacheSettings {
    fn default() -> Self {
        // As long as a gateway's library believes it.
        Self { enabled: true, dir: None, max_age: HumanDuration::from_secs(15 * 60) }
    }
}

impl Validate for CacheSettings {
    fn validate(&self, faults: &mut Faults) {
        if self.max_age.get().is_zero() {
            faults.reject("max_age", self.max_age, "longer than 0");
        }
        // Each login begins in a folder of its own.
        if self.dir.as_ref().is_some_and(|dir| !dir.is_absolute()) {
            faults.refuse("dir", "must begin with /");
        }
    }
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            coordinators: vec!["127.0.0.1:7443".to_owned()],
            gateway: None,
            // A placement may take a second of asking hosts for consent; five leave room for a slow network.
            timeout: HumanDuration::from_secs(5),
            user_names_key_file: None,
            user_match: UserMatch::default(),
            tls: TlsSettings::default(),
            cache: CacheSettings::default(),
        }
    }
}

impl Validate for ClientConfig {
    fn validate(&self, faults: &mut Faults) {
        if self.coordinators.is_empty() {
            faults.refuse("coordinators", "is empty, must name at least one host:port");
        }
        if self.timeout() == Duration::ZERO {
            faults.reject("timeout", self.timeout, "longer than 0");
        }
        faults.nested("tls", &self.tls);
        faults.nested("cache", &self.cache);
    }
}

impl ClientConfig {
    /// How long one coordinator may take to answer.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout.get()
    }

    /// In which form login names are sent. Reads the key.
    ///
    /// # Errors
    /// [`Failure::Usage`] if the key cannot be used.
    pub(crate) fn naming(&self) -> Result<Naming, Failure> {
        let Some(path) = &self.user_names_key_file else { return Ok(Naming::default()) };
        let key = UserNameKey::read(path).map_err(|error| {
            let why = std::error::Error::source(&error).map_or_else(String::new, |why| format!(": {why}"));
            Failure::usage(format!("user_names_key_file: {error}{why}"))
        })?;
        let hasher: Arc<dyn NameHasher> = Arc::new(key);
        let settings = NameSettings { secured: self.tls.files().is_some(), hasher: Some(hasher) };
        Ok(Naming::new(self.user_match, UserNames::Hashed, &settings))
    }

    /// Reads the file that the flag names, else the one of the environment; it must exist. Else the default one, which
    /// need not. `environment` looks a variable up; an empty one names no file.
    ///
    /// # Errors
    /// [`Failure::Usage`] with everything that is wrong with it.
    pub(crate) fn load(
        flag: Option<&Path>,
        environment: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, Failure> {
        let variable = environment(CONFIG_ENV).filter(|path| !path.is_empty()).map(PathBuf::from);
        let loaded = Loader::new(DEFAULT_PATH)
            .file(variable, Origin::Environment(CONFIG_ENV.to_owned()))
            .file(flag.map(PathBuf::from), Origin::Flag("--config".to_owned()))
            .load::<Self>();
        loaded.map(|loaded| loaded.value).map_err(|errors| Failure::usage(errors.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<ClientConfig, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("client.toml");
        std::fs::write(&path, text).unwrap();
        ClientConfig::load(Some(&path), |_| None).map_err(|failure| {
            assert_eq!(failure.exit_code(), 2);
            failure.for_people()
        })
    }

    #[test]
    fn what_is_not_in_the_file_is_the_default() {
        let config = load("gateway = \"bastion-1\"\ntimeout = \"250ms\"").unwrap();
        assert_eq!(config.coordinators, ["127.0.0.1:7443"]);
        assert_eq!(
            (config.gateway.as_deref(), config.timeout()),
            (Some("bastion-1"), Duration::from_millis(250))
        );
    }

    #[test]
    fn an_unknown_key_is_refused_with_a_suggestion() {
        let text = load("coordinator = [\"a:1\"]").unwrap_err();
        assert!(text.contains("coordinators") && text.contains("client.toml:1"), "{text}");
    }

    #[test]
    fn everything_that_is_wrong_is_said_at_once() {
        let text = "timeout = \"0s\"\ncoordinators = []\n[tls]\ncert = \"c.pem\"\n[cache]\nmax_age = \"0s\"\ndir = \"x\"";
        let text = load(text).unwrap_err();
        for part in ["timeout", "coordinators", "tls.key", "tls.ca", "cache.max_age", "cache.dir"] {
            assert!(text.contains(part), "{part} not in {text}");
        }
    }

    #[test]
    fn login_names_are_hashed_under_tls_with_the_key_that_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("names.key");
        std::fs::write(&key, "0123456789abcdef").unwrap();
        let named = format!("user_names_key_file = {key:?}\n");
        let tls = "[tls]\ncert = \"c\"\nkey = \"k\"\nca = \"a\"\n";
        let sent = |text: &str, name: &str| load(text).unwrap().naming().unwrap().sent(name).unwrap();
        let hashed = sent(&format!("{named}{tls}"), "CORP\\Alice");
        assert!(hashed.starts_with("hmac:9f9f5111:"), "{hashed}");
        assert_eq!(hashed, sent(&format!("{named}{tls}"), "alice"));
        let exact = format!("{named}user_match = \"exact\"\n{tls}");
        assert_ne!(hashed, sent(&exact, "Alice"));
        assert_eq!(sent(&named, "Alice"), "Alice", "on the plain loopback");
        assert_eq!(sent(tls, "Alice"), "Alice", "without a key");
        let text = load("user_names_key_file = \"/nonexistent/names.key\"").unwrap().naming();
        let text = text.unwrap_err().for_people();
        assert!(text.contains("/nonexistent/names.key") && text.contains("No such file"), "{text}");
    }

    #[test]
    fn a_file_that_was_named_must_exist() {
        let named = Path::new("/nonexistent/client.toml");
        let failure = ClientConfig::load(Some(named), |_| None).unwrap_err();
        assert!(failure.for_people().contains("/nonexistent/client.toml"));
        assert_eq!(failure.exit_code(), 2);
    }

    #[test]
    fn the_environment_names_a_file_that_must_exist_unless_it_is_empty() {
        let missing = ClientConfig::load(None, |_| Some("/nonexistent/x".into())).unwrap_err().for_people();
        assert!(missing.contains("environment USHER_CONFIG"), "{missing}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("client.toml");
        std::fs::write(&path, "gateway = \"g\"").unwrap();
        assert!(ClientConfig::load(Some(&path), |_| Some("/nonexistent/x".into())).is_ok());
        let variable = path.clone().into_os_string();
        let config = ClientConfig::load(None, |_| Some(variable.clone())).unwrap();
        assert_eq!(config.gateway.as_deref(), Some("g"));
        assert!(ClientConfig::load(Some(&path), |_| Some(OsString::new())).is_ok());
    }
}
