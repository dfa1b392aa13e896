//! What may an operator say about whose sessions count?

use std::path::Path;

use serde::{Deserialize, Serialize};
use usher_runtime::config::{Faults, Validate};

use super::logind::USER_CLASSES;

/// Which source of sessions is used. Sources are never added together: they would count people twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionSource {
    /// logind if its bus answers, else its files, else utmp.
    #[default]
    Auto,
    /// Only logind over its bus.
    Logind,
    /// Only the utmp file.
    Utmp,
    /// Only the operator's program.
    Program,
    /// None: users and sessions of this host stay unknown.
    None,
}

/// How sessions are counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SessionConfig {
    /// Which source is asked: `auto` (default), `logind`, `utmp`, `program` or `none`.
    pub source: SessionSource,
    /// A program and its arguments that prints the sessions, one JSON object a line; for `source = "program"`. The
    /// program's path is absolute. Default none.
    pub program: Vec<String>,
    /// Login names whose sessions do not count, such as that of a monitoring probe. Exact names; a `*` at the end
    /// stands for any ending. Default none.
    pub ignore_users: Vec<String>,
    /// Sessions of accounts with a lower number do not count: 1000 leaves out the accounts of services, and root.
    /// Default 0: all count.
    pub ignore_uids_below: u32,
    /// logind's classes that count: `user`, `user-early`, `user-light`. Default all three.
    pub session_classes: Vec<String>,
    /// PAM services whose sessions count although logind files them as background, such as `teleport`. Naming a
    /// service of timers (`crond`) counts its jobs as users. Default none.
    pub session_services_extra: Vec<String>,
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self {
            source: SessionSource::default(),
            program: Vec::new(),
            ignore_users: Vec::new(),
            ignore_uids_below: 0,
            session_classes: USER_CLASSES.map(str::to_owned).to_vec(),
            session_services_extra: Vec::new(),
        }
    }
}

impl SessionConfig {
    /// Whether sessions of `user` do not count. An account whose number is not known belongs to a person.
    #[must_use]
    pub fn ignores(&self, user: &str, uid: Option<u32>) -> bool {
        let is_named = |ignored: &String| match ignored.strip_suffix('*') {
            Some(beginning) => user.starts_with(beginning),
            None => user == ignored,
        };
        self.ignore_users.iter().any(is_named) || uid.is_some_and(|uid| uid < self.ignore_uids_below)
    }

    /// Whether people sit in logind's sessions of `class`.
    #[must_use]
    pub fn counts_class(&self, class: &str) -> bool {
        self.session_classes.iter().any(|counted| counted == class)
    }
}

impl Validate for SessionConfig {
    fn validate(&self, faults: &mut Faults) {
        for (index, class) in self.session_classes.iter().enumerate() {
            if !USER_CLASSES.contains(&class.as_str()) {
                let key = format!("session_classes[{index}]");
                faults.reject(&key, format_args!("{class:?}"), "\"user\", \"user-early\" or \"user-light\"");
            }
        }
        for (index, user) in self.ignore_users.iter().enumerate() {
            if matches!(user.as_str(), "" | "*") {
                let key = format!("ignore_users[{index}]");
                faults.reject(
                    &key,
                    format_args!("{user:?}"),
                    "a login name, or its beginning with a * after it",
                );
            }
        }
        let is_program = self.source == SessionSource::Program;
        match self.program.first() {
            None if is_program => faults.refuse("program", "is missing: source is \"program\""),
            Some(_) if !is_program => faults.refuse("program", "is only used with source = \"program\""),
            Some(program) if !Path::new(program).is_absolute() => {
                faults.reject("program[0]", format_args!("{program:?}"), "an absolute path");
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<String> {
        let mut faults = Faults::default();
        toml::from_str::<SessionConfig>(text).unwrap().validate(&mut faults);
        faults.iter().map(|fault| fault.key.clone()).collect()
    }

    #[test]
    fn case_024_accounts_are_ignored_by_name_by_beginning_and_by_number() {
        let config: SessionConfig =
            toml::from_str("ignore_users = [\"probe\", \"svc-*\"]\nignore_uids_below = 1000").unwrap();
        for (user, uid, ignored) in [
            ("probe", None, true),
            ("probe2", None, false),
            ("svc-backup", Some(5000), true),
            ("git", Some(998), true),
            ("alice", Some(1000), false),
            ("ldap-user", None, false),
        ] {
            assert_eq!(config.ignores(user, uid), ignored, "{user}");
        }
    }

    #[test]
    fn a_misspelt_option_is_refused() {
        assert!(toml::from_str::<SessionConfig>("source = \"utmp\"\nignore_users = [\"probe\"]").is_ok());
        assert!(toml::from_str::<SessionConfig>("sources = \"utmp\"").is_err());
        assert!(toml::from_str::<SessionConfig>("source = \"wtmp\"").is_err());
    }

    #[test]
    fn what_cannot_work_is_named() {
        assert_eq!(faults(""), [""; 0]);
        assert_eq!(faults("source = \"program\"\nprogram = [\"/bin/x\", \"-v\"]"), [""; 0]);
        assert_eq!(faults("source = \"program\""), ["program"]);
        assert_eq!(faults("program = [\"/bin/x\"]"), ["program"]);
        assert_eq!(faults("source = \"program\"\nprogram = [\"x\"]"), ["program[0]"]);
        assert_eq!(faults("session_classes = [\"user\", \"greeter\"]"), ["session_classes[1]"]);
        assert_eq!(faults("ignore_users = [\"\", \"a\", \"*\"]"), ["ignore_users[0]", "ignore_users[2]"]);
    }
}
