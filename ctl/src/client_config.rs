//! What does this client know of its farm without being told each time?
//!
//! The file `/etc/usher/client.toml` names the coordinators, the gateway that this client acts as, how long it waits,
//! and its certificate. Options and environment win over it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use usher_runtime::config::{Faults, HumanDuration, Loader, Origin, Validate};
use usher_runtime::tls::TlsSettings;

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
    /// Certificate, key and authority; without them only loopback can be reached.
    pub(crate) tls: TlsSettings,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            coordinators: vec!["127.0.0.1:7443".to_owned()],
            gateway: None,
            // A placement may take a second of asking hosts for consent; five leave room for a slow network.
            timeout: HumanDuration::from_secs(5),
            tls: TlsSettings::default(),
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
    }
}

impl ClientConfig {
    /// How long one coordinator may take to answer.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout.get()
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
        let text = load("timeout = \"0s\"\ncoordinators = []\n[tls]\ncert = \"c.pem\"").unwrap_err();
        for part in ["timeout", "coordinators", "tls.key", "tls.ca"] {
            assert!(text.contains(part), "{part} not in {text}");
        }
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
