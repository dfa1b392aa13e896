//! Which settings does an operator want to change?
//!
//! A setting goes by the name that every page shows, with its unit in the value (`reservation_ttl=60s`), or as in a
//! file for `-f` (`reservation_ttl_ms=60000`, `weights.users_percent=100`). A name that does not exist is refused with
//! a suggestion, before anybody is asked. Whether the values fit together is the coordinator's to say, since only it
//! knows what is in force.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use toml::{Table, Value};
use usher_runtime::config::{Faults, Loader, Origin, Validate};
use usher_types::{PolicyChange, Profile, SettingError};

use crate::failure::Failure;

/// What can be set, for the help of every command that sets something.
pub(super) const SETTINGS_HELP: &str = "Settings:
  method=weighted_load|predictive|availability|fill_first, weights=CPU/MEMORY/USERS/PROCESSES, users_full_scale,
  range, threshold, exit_margin, max_users=N|unlimited, max_pending=N|unlimited,
  max_pending_mode=soft|hard, mem_critical, cpu_critical, psi_critical, mount_critical (percent or off),
  max_error_share, max_replica_lag=60s, reservation_ttl=120s, affinity=session|disconnected|linger|none,
  user_match=folded|exact, user_names=plain|hashed|none, shared_accounts=NAME,NAME, allow_unknown,
  when_blind=spread|refuse, kind=ssh|rdp|http|tcp|none, baseline=robust|minimum, min_possible=1us,
  max_possible=20s, predict=true|false
What is not named keeps its value. A key of the file may be typed too, like weights.users_percent=100;
when one weight is named so, those not named become 0";

/// What changes.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct ChangeArguments {
    /// Settings for a kind of farm, several at once; the file and --set win over them
    #[arg(long)]
    pub(super) profile: Option<KindOfFarm>,
    /// TOML file with the settings to change
    #[arg(short, long, value_name = "FILE.toml")]
    pub(super) file: Option<PathBuf>,
    /// One setting to change; wins over the file
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_setting)]
    pub(super) set: Vec<Setting>,
}

/// A profile, as it is typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum KindOfFarm {
    /// Equal hosts, equal sessions: users alone count
    Identical,
    /// Hosts of different sizes that serve the same: 15/15/55/15
    Mixed,
    /// Users do different things: CPU and users, 50/50
    Unlike,
    /// Login nodes: 40/30/15/15, users return to what they left running
    SshLogin,
    /// Domino servers: the availability index, no affinity
    Domino,
    /// Web servers: the availability index, no affinity
    Web,
}

impl From<KindOfFarm> for Profile {
    fn from(kind: KindOfFarm) -> Self {
        match kind {
            KindOfFarm::Identical => Self::Identical,
            KindOfFarm::Mixed => Self::Mixed,
            KindOfFarm::Unlike => Self::Unlike,
            KindOfFarm::SshLogin => Self::SshLogin,
            KindOfFarm::Domino => Self::Domino,
            KindOfFarm::Web => Self::Web,
        }
    }
}

/// A setting as typed in.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Setting {
    key: String,
    text: String,
}

impl Setting {
    /// The value as in a TOML file; a value that is no TOML is a word, so that quotes are not needed.
    fn value(&self) -> Value {
        self.text.parse().unwrap_or_else(|_| Value::String(self.text.clone()))
    }

    /// Whether it says in TOML what it is: a list, or a text in quotes.
    fn is_quoted(&self) -> bool {
        self.text.starts_with(['[', '"', '\''])
    }

    /// Whether it is a key of the file, with a value of it.
    fn fits_the_file(&self) -> bool {
        let table = Table::from_iter([(self.key.clone(), self.value())]);
        table.try_into::<PolicyChange>().is_ok()
    }
}

fn parse_setting(text: &str) -> Result<Setting, String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE, like max_users=50")?;
    let (key, value) = (key.trim(), value.trim());
    if key.is_empty() || key.split('.').any(str::is_empty) {
        return Err("the key is empty".to_owned());
    }
    Ok(Setting { key: key.to_owned(), text: value.to_owned() })
}

/// The settings to change, as the reader of configurations wants them.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
struct Typed(PolicyChange);

impl Validate for Typed {
    /// Ranges depend on what is in force, which only the coordinator knows.
    fn validate(&self, _faults: &mut Faults) {}
}

impl ChangeArguments {
    /// What the file and the settings on the command line change, without the profile.
    ///
    /// # Errors
    /// [`Failure::Usage`] with everything that is wrong with them.
    pub(super) fn read(&self) -> Result<PolicyChange, Failure> {
        // Without a file the path is empty: a file that nobody named and that is not there.
        let mut loader =
            Loader::new(PathBuf::new()).file(self.file.clone(), Origin::Flag("--file".to_owned()));
        let (mut typed, mut faults) = (PolicyChange::default(), Vec::new());
        let mut by_name = Vec::new();
        for setting in &self.set {
            let taken = typed.set(&setting.key, &setting.text);
            if setting.key.contains('.')
                || ((setting.is_quoted() || taken.is_err()) && setting.fits_the_file())
            {
                let origin = Origin::Flag(format!("--set {}", setting.key));
                loader = loader.override_with(&setting.key, setting.value(), origin);
            } else if let Err(fault) = taken {
                faults.push((setting, fault));
            } else {
                by_name.push(setting);
            }
        }
        let mut change = match (loader.load::<Typed>(), faults.is_empty()) {
            (Ok(loaded), true) => loaded.value.0,
            (loaded, _) => return Err(wrong(loaded.err().map(|errors| errors.to_string()), &faults)),
        };
        for setting in by_name {
            change.set(&setting.key, &setting.text).map_err(|fault| wrong(None, &[(setting, fault)]))?;
        }
        Ok(change)
    }
}

fn wrong(file: Option<String>, faults: &[(&Setting, SettingError)]) -> Failure {
    let faults = faults.iter().map(|(setting, fault)| format!("--set {}: {fault}", setting.key));
    Failure::usage(faults.chain(file).collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use usher_types::{CriticalLevel, Method, Policy, UserLimit};

    use super::*;

    fn arguments(file: Option<PathBuf>, settings: &[&str]) -> Result<ChangeArguments, String> {
        let set = settings.iter().map(|text| parse_setting(text)).collect::<Result<_, _>>()?;
        Ok(ChangeArguments { file, set, ..ChangeArguments::default() })
    }

    fn change(settings: &[&str]) -> Result<PolicyChange, String> {
        arguments(None, settings)?.read().map_err(|failure| {
            assert_eq!(failure.exit_code(), 2);
            failure.for_people()
        })
    }

    #[test]
    fn settings_are_typed_by_their_names_without_quotes() {
        let change = change(&[
            "method=fill_first",
            "max_users=50",
            "range = 8.0",
            "weights=30/30/25/15",
            "threshold=40",
            "mem_critical=off",
            "reservation_ttl=60s",
            "shared_accounts=kiosk,guest",
        ])
        .unwrap();
        let policy = change.apply_to(&Policy::default()).unwrap();
        assert_eq!((policy.method, policy.max_users), (Method::FillFirst, UserLimit::Users(50)));
        assert_eq!((policy.range, policy.threshold_percent), (8.0, 40.0));
        assert_eq!((policy.weights.cpu_percent, policy.weights.users_percent), (30.0, 25.0));
        assert_eq!(
            (policy.mem_critical, policy.reservation_ttl),
            (CriticalLevel::Off, Duration::from_secs(60))
        );
        assert_eq!(policy.shared_accounts, ["kiosk", "guest"]);
    }

    #[test]
    fn keys_and_values_of_the_file_may_be_typed_too() {
        let change = change(&[
            "weights.users_percent=100",
            "reservation_ttl_ms=60000",
            "shared_accounts=[\"kiosk\"]",
            "affinity=\"none\"",
            "threshold_percent=20",
        ])
        .unwrap();
        assert_eq!(change.weights.unwrap().users_percent, Some(100.0));
        assert_eq!((change.reservation_ttl_ms, change.threshold_percent), (Some(60_000), Some(20.0)));
        assert_eq!(change.shared_accounts.unwrap(), ["kiosk"]);
        assert_eq!(change.affinity, Some(usher_types::Affinity::None));
    }

    #[test]
    fn every_wrong_setting_is_refused_at_once_with_a_suggestion() {
        let text = change(&["max_user=50", "reservation_ttl=60", "weights.cpu=50"]).unwrap_err();
        for part in ["--set max_user", "max_users", "expected a duration", "cpu_percent"] {
            assert!(text.contains(part), "{part} not in {text}");
        }
        assert!(change(&["max_users"]).is_err());
        assert!(change(&["=5"]).is_err());
        assert!(change(&["max_users=many"]).unwrap_err().contains("unlimited"));
    }

    #[test]
    fn a_file_and_set_go_together_and_set_wins() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("desk.toml");
        std::fs::write(&path, "range = 7.0\nmax_users = \"unlimited\"\n[weights]\nusers_percent = 100.0\n")
            .unwrap();
        let change = arguments(Some(path.clone()), &["max_users=5"]).unwrap().read().unwrap();
        assert_eq!((change.range, change.max_users), (Some(7.0), Some(UserLimit::Users(5))));
        std::fs::write(&path, "rang = 7.0").unwrap();
        let text = arguments(Some(path), &[]).unwrap().read().unwrap_err().for_people();
        assert!(text.contains("desk.toml:1") && text.contains("range"), "{text}");
        assert!(arguments(Some("/nonexistent/desk.toml".into()), &[]).unwrap().read().is_err());
    }

    #[test]
    fn the_help_names_every_setting() {
        let short = PolicyChange::setting_names()
            .filter(|name| !["_ms", "_us", "_percent"].iter().any(|unit| name.ends_with(unit)));
        for name in short {
            assert!(SETTINGS_HELP.contains(name), "{name}");
        }
    }

    #[test]
    fn every_profile_can_be_typed_by_the_name_that_travels() {
        let typed: Vec<_> = KindOfFarm::value_variants()
            .iter()
            .map(|kind| (kind.to_possible_value().unwrap().get_name().to_owned(), Profile::from(*kind)))
            .collect();
        assert_eq!(typed.len(), Profile::ALL.len());
        assert!(typed.iter().all(|(name, profile)| name == profile.as_str()), "{typed:?}");
    }
}
