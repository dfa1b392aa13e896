//! What may an operator have tried?

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use usher_runtime::config::{Faults, HumanDuration, Validate};
use usher_types::DoorKind;

use super::tls::is_server_name;
use super::tries::{HttpUrl, Place};
use crate::latency::statsd::is_name;

/// Intervals of probes: faster would be load, slower tells nothing of a window.
const INTERVAL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3600));
/// Deadlines of probes.
const DEADLINE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(60));
/// Most probes: each is a task and a connection.
pub const MAX_PROBES: usize = 64;

/// The table `[door]`: how the host's own door is tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DoorConfig {
    /// What it speaks: `ssh`, `rdp`, `http`, `tcp` or `none`. Absent: as the pool's `kind` says.
    pub kind: Option<DoorKind>,
    /// Where it is, `host:port`. Absent: the advertised endpoint of that kind, else the first.
    pub address: Option<String>,
    /// What is asked for when it speaks HTTP.
    pub path: String,
    /// It speaks HTTP over TLS. Only for the kind `http`; with another kind, of the pool's, it says nothing.
    pub tls: bool,
    /// Certificates that it must be signed by, PEM; name and dates are checked then too. Absent: any certificate will do,
    /// for it is asked whether users can get in, not who is behind the door.
    pub ca_file: Option<PathBuf>,
    /// By what name it is called over TLS, and what its certificate must be for. Absent: the address.
    pub tls_name: Option<String>,
    /// How often it is tried, 1s..=1h.
    pub interval: HumanDuration,
    /// How long a try may take, 10ms..=60s.
    pub deadline: HumanDuration,
}

impl Default for DoorConfig {
    fn default() -> Self {
        Self {
            kind: None,
            address: None,
            path: "/".into(),
            tls: false,
            ca_file: None,
            tls_name: None,
            interval: HumanDuration::from_secs(15),
            deadline: HumanDuration::from_secs(2),
        }
    }
}

/// What a probe does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeKind {
    /// Connects.
    Tcp,
    /// Connects and shakes hands.
    Tls,
    /// Asks for a page; a status below 400 is a success.
    Http,
    /// Runs a program; 0 is a success.
    Command,
}

/// One entry of `[[probes]]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeConfig {
    /// The operation that its tries count as.
    pub name: String,
    /// What it does.
    pub kind: ProbeKind,
    /// `host:port` for `tcp` and `tls`, a URL for `http`.
    #[serde(default)]
    pub target: String,
    /// For `command`: the program and its arguments. There is no shell.
    #[serde(default)]
    pub command: Vec<String>,
    /// For `tls` and `https`: certificates that the other side must be signed by, PEM. Absent: any certificate will do,
    /// for the handshake is measured, not the peer.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// How often, 1s..=1h.
    #[serde(default = "default_interval")]
    pub interval: HumanDuration,
    /// How long a try may take, 10ms..=60s.
    #[serde(default = "default_deadline")]
    pub deadline: HumanDuration,
}

fn default_interval() -> HumanDuration {
    HumanDuration::from_secs(15)
}

fn default_deadline() -> HumanDuration {
    HumanDuration::from_secs(2)
}

impl Validate for DoorConfig {
    fn validate(&self, faults: &mut Faults) {
        if let Some(Err(message)) = self.address.as_deref().map(Place::parse) {
            faults.refuse("address", message);
        }
        let is_path = self.path.starts_with('/') && self.path.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_path {
            faults.reject("path", format_args!("{:?}", self.path), "a path as in \"/health\"");
        }
        if self.tls && self.kind.is_some_and(|kind| kind != DoorKind::Http) {
            faults.refuse("tls", "is only for the kind \"http\"");
        }
        for (key, is_set) in [("ca_file", self.ca_file.is_some()), ("tls_name", self.tls_name.is_some())] {
            if is_set && !self.tls {
                faults.refuse(key, "says nothing without `tls = true`");
            }
        }
        if let Some(name) = self.tls_name.as_ref().filter(|name| !is_server_name(name)) {
            faults.reject("tls_name", format_args!("{name:?}"), "a name as in \"desk-17.example.org\"");
        }
        within(faults, "interval", self.interval, INTERVAL);
        within(faults, "deadline", self.deadline, DEADLINE);
    }
}

impl Validate for ProbeConfig {
    fn validate(&self, faults: &mut Faults) {
        if !is_name(&self.name) {
            let allowed = "1 to 128 of A-Z a-z 0-9 _ . -";
            faults.reject("name", format_args!("{:?}", self.name), allowed);
        }
        let target = match self.kind {
            ProbeKind::Tcp | ProbeKind::Tls => Place::parse(&self.target).map(drop),
            ProbeKind::Http => HttpUrl::parse(&self.target).map(drop),
            ProbeKind::Command if self.target.is_empty() => Ok(()),
            ProbeKind::Command => Err("is not for a command".to_owned()),
        };
        if let Err(message) = target {
            faults.refuse("target", message);
        }
        let is_command = self.kind == ProbeKind::Command;
        if is_command == self.command.first().is_none_or(String::is_empty) {
            let message = if is_command { "names no program" } else { "is only for the kind \"command\"" };
            faults.refuse("command", message);
        }
        within(faults, "interval", self.interval, INTERVAL);
        within(faults, "deadline", self.deadline, DEADLINE);
    }
}

/// Judges all probes together.
pub fn validate_probes(faults: &mut Faults, probes: &[ProbeConfig]) {
    if probes.len() > MAX_PROBES {
        faults.refuse("probes", format!("has more than {MAX_PROBES} entries"));
    }
    for (index, probe) in probes.iter().enumerate() {
        let key = format!("probes[{index}]");
        faults.nested(&key, probe);
        if probes[..index].iter().any(|before| before.name == probe.name) {
            faults.refuse(&format!("{key}.name"), format!("names {:?} a second time", probe.name));
        }
    }
}

/// Judges a length of time.
pub(crate) fn within(faults: &mut Faults, key: &str, value: HumanDuration, allowed: (Duration, Duration)) {
    let (least, most) = allowed;
    if value.get() < least || value.get() > most {
        faults.reject(key, format_args!("\"{value}\""), format_args!("{least:?}..={most:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(toml: &str) -> Vec<String> {
        #[derive(Deserialize)]
        struct File {
            probes: Vec<ProbeConfig>,
        }
        let file: File = toml::from_str(toml).unwrap();
        let mut faults = Faults::default();
        validate_probes(&mut faults, &file.probes);
        faults.iter().map(|fault| fault.key.clone()).collect()
    }

    #[test]
    fn probes_of_every_kind_are_taken() {
        let good = r#"
            probes = [
                { name = "files", kind = "tcp", target = "nas.example:2049" },
                { name = "directory", kind = "tls", target = "[2001:db8::1]:636", interval = "30s" },
                { name = "web", kind = "http", target = "https://intranet.example/health", deadline = "5s" },
                { name = "print", kind = "command", command = ["/usr/bin/lpstat", "-r"] },
            ]"#;
        assert_eq!(faults(good), [] as [&str; 0]);
    }

    #[test]
    fn every_fault_of_a_probe_is_named() {
        let bad = r#"
            probes = [
                { name = "a b", kind = "tcp", target = "nas.example", interval = "1ms" },
                { name = "web", kind = "http", target = "ftp://x/", command = ["x"] },
                { name = "web", kind = "command", target = "x:1", deadline = "2h" },
            ]"#;
        let expected = [
            "probes[0].name",
            "probes[0].target",
            "probes[0].interval",
            "probes[1].target",
            "probes[1].command",
            "probes[2].target",
            "probes[2].command",
            "probes[2].deadline",
            "probes[2].name",
        ];
        assert_eq!(faults(bad), expected);
    }

    fn door_faults(toml: &str) -> Vec<String> {
        let door: DoorConfig = toml::from_str(toml).unwrap();
        let mut faults = Faults::default();
        door.validate(&mut faults);
        faults.iter().map(|fault| fault.key.clone()).collect()
    }

    #[test]
    fn tls_is_for_doors_that_speak_http_and_its_settings_mean_nothing_without_it() {
        let good =
            "tls = true\nca_file = \"/etc/ssl/certs/ca-certificates.crt\"\ntls_name = \"desk.example\"\n";
        assert_eq!(door_faults(good), [] as [&str; 0]);
        assert_eq!(door_faults(&format!("{good}kind = \"http\"\n")), [] as [&str; 0]);
        assert_eq!(door_faults("kind = \"ssh\"\ntls = true"), ["tls"]);
        assert_eq!(door_faults("ca_file = \"/x\"\ntls_name = \"x\""), ["ca_file", "tls_name"]);
        assert_eq!(door_faults("tls = true\ntls_name = \"https://desk\""), ["tls_name"]);
    }
}
