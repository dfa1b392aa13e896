//! Who is logged in on this host?
//!
//! logind knows best where it runs, so it is asked first; the utmp file stands in where there is none; where there is
//! neither, the answer is "unknown", never "nobody": a farm of zeros would put everybody on one server.
//!
//! logind wins whenever it answers, also with an empty list. On a host whose logins bypass logind (no `pam_systemd`)
//! that is wrong, and only the operator can know it: `source = "utmp"` forces the file.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::deadline::Detached;
use super::error::{SampleError, describe};
use super::logind::{self, BusAddress, LogindClient};
use super::uptime::monotonic_clock;
use super::utmp::{self, UtmpSession};

/// Which source of sessions is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionSource {
    /// logind if it answers, else utmp.
    #[default]
    Auto,
    /// Only logind.
    Logind,
    /// Only the utmp file.
    Utmp,
    /// None: users and sessions of this host stay unknown.
    None,
}

/// How sessions are counted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SessionConfig {
    /// Which source is asked: `auto` (default), `logind`, `utmp` or `none`.
    pub source: SessionSource,
    /// Login names whose sessions do not count, such as that of a monitoring probe. Exact names. Default none.
    pub ignore_users: Vec<String>,
    /// PAM services whose sessions count although logind files them as background, such as `teleport`. Naming a
    /// service of timers (`crond`) counts its jobs as users. Default none.
    pub session_services_extra: Vec<String>,
}

impl SessionConfig {
    pub(crate) fn ignores(&self, user: &str) -> bool {
        self.ignore_users.iter().any(|ignored| ignored == user)
    }
}

/// What a session does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SessionState {
    /// Somebody works in it. The only state that logind and utmp can tell.
    Active,
    /// It runs, nobody is connected to it.
    Disconnected,
    /// Logged out, but its processes live on.
    Lingering,
}

/// One session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionSeen {
    /// As its source names it.
    pub id: String,
    /// Login name.
    pub user: String,
    /// What it does.
    pub state: SessionState,
    /// Time since it began. Absent if the source does not say.
    pub age: Option<Duration>,
}

/// All sessions of the host at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionSample {
    /// `logind` or `utmp`.
    pub source: &'static str,
    /// In the order of the source.
    pub sessions: Vec<SessionSeen>,
}

impl SessionSample {
    /// Distinct login names, the number that load is computed from: ten terminals of one person are one user.
    #[must_use]
    pub fn distinct_users(&self) -> usize {
        self.sessions.iter().map(|session| session.user.as_str()).collect::<BTreeSet<_>>().len()
    }
}

/// A sample with what an operator should know about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionReading {
    /// The sessions.
    pub sample: SessionSample,
    /// Something odd that did not stop the reading.
    pub warning: Option<String>,
}

/// Reads the sessions from the source that the configuration and the host allow.
#[derive(Debug)]
pub struct SessionReader {
    config: SessionConfig,
    root: PathBuf,
    logind: LogindClient,
    utmp: Detached<()>,
}

impl SessionReader {
    /// A reader of the bus at `bus` and of the utmp file below `root` (`/` in production).
    #[must_use]
    pub fn new(config: SessionConfig, root: &Path, bus: BusAddress) -> Self {
        Self { config, root: root.to_owned(), logind: LogindClient::new(bus), utmp: Detached::new("utmp") }
    }

    /// Reads the sessions now; at most `deadline` for each source.
    ///
    /// # Errors
    /// When no allowed source answers: the sessions are unknown.
    pub async fn read(&mut self, deadline: Duration) -> Result<SessionReading, SampleError> {
        match self.config.source {
            SessionSource::None => Err(SampleError::Off { subject: "sessions" }),
            SessionSource::Logind => self.read_logind(deadline).await,
            SessionSource::Utmp => self.read_utmp(deadline).await,
            SessionSource::Auto => {
                let logind = match self.read_logind(deadline).await {
                    Ok(reading) => return Ok(reading),
                    Err(error) => error,
                };
                match self.read_utmp(deadline).await {
                    Ok(reading) => {
                        let warning = Some(format!("utmp is used: {}", describe(&logind)));
                        Ok(SessionReading { warning, ..reading })
                    }
                    Err(utmp) => {
                        Err(SampleError::NoSessions { logind: Box::new(logind), utmp: Box::new(utmp) })
                    }
                }
            }
        }
    }

    async fn read_logind(&mut self, deadline: Duration) -> Result<SessionReading, SampleError> {
        let rows = self.logind.rows(deadline).await?;
        let logind::LogindDecision { sessions, warning } =
            logind::decide(&rows, &self.config, monotonic_clock());
        Ok(SessionReading { sample: SessionSample { source: "logind", sessions }, warning })
    }

    async fn read_utmp(&mut self, deadline: Duration) -> Result<SessionReading, SampleError> {
        let root = self.root.clone();
        let found = self.utmp.run(deadline, move |()| utmp::read(&root)).await??;
        // A wall clock before 1970 gives no ages.
        let now_unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let sessions = utmp_sessions(found, &self.config, now_unix);
        Ok(SessionReading { sample: SessionSample { source: "utmp", sessions }, warning: None })
    }
}

fn utmp_sessions(found: Vec<UtmpSession>, config: &SessionConfig, now_unix: Duration) -> Vec<SessionSeen> {
    found
        .into_iter()
        .filter(|session| !config.ignores(&session.user))
        .map(|session| SessionSeen {
            id: session.line,
            user: session.user,
            state: SessionState::Active,
            age: now_unix.checked_sub(session.since_unix),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const DEADLINE: Duration = Duration::from_secs(2);
    const U1: &[u8] = include_bytes!("fixtures/utmp-384.bin");

    fn no_bus(root: &Path) -> BusAddress {
        BusAddress::At(format!("unix:path={}", root.join("no-bus").display()))
    }

    fn reader(root: &Path, source: SessionSource) -> SessionReader {
        SessionReader::new(SessionConfig { source, ..SessionConfig::default() }, root, no_bus(root))
    }

    fn tree_with_utmp(content: &[u8]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder");
        fs::create_dir(root.path().join("run")).expect("made");
        fs::write(root.path().join("run/utmp"), content).expect("written");
        root
    }

    #[tokio::test]
    async fn case_034_neither_logind_nor_utmp_is_unknown_and_names_both() {
        let root = tempfile::tempdir().expect("a folder");
        let error = reader(root.path(), SessionSource::Auto).read(DEADLINE).await.expect_err("unknown");
        let text = describe(&error);
        assert!(text.contains("logind") && text.contains("run/utmp"), "{text}");
    }

    #[tokio::test]
    async fn utmp_stands_in_for_a_missing_logind_and_says_so() {
        let root = tree_with_utmp(&U1[..384]);
        let reading = reader(root.path(), SessionSource::Auto).read(DEADLINE).await.expect("read");
        assert_eq!(reading.sample, SessionSample { source: "utmp", sessions: vec![] });
        assert!(reading.warning.expect("a warning").contains("logind"));
    }

    #[tokio::test]
    async fn a_forced_source_is_the_only_one_asked() {
        let root = tree_with_utmp(&U1[..384]);
        let utmp = reader(root.path(), SessionSource::Utmp).read(DEADLINE).await.expect("read");
        assert_eq!(utmp.warning, None);
        reader(root.path(), SessionSource::Logind).read(DEADLINE).await.expect_err("no bus");
        let off = reader(root.path(), SessionSource::None).read(DEADLINE).await.expect_err("off");
        assert_eq!(off.to_string(), "sessions: switched off by configuration");
    }

    #[test]
    fn case_024_028_ignored_accounts_do_not_count_and_panes_are_one_user() {
        let found = utmp::parse(U1, |pid| [2001, 2002, 4_194_303].contains(&pid)).expect("readable");
        let sample = |ignore_users: Vec<String>| SessionSample {
            source: "utmp",
            sessions: utmp_sessions(
                found.clone(),
                &SessionConfig { ignore_users, ..SessionConfig::default() },
                Duration::from_secs(1_800_000_000),
            ),
        };
        let all = sample(vec![]);
        assert_eq!((all.sessions.len(), all.distinct_users()), (3, 2));
        assert!(all.sessions.iter().all(|session| session.age.is_some()));
        assert_eq!(sample(vec!["alice".into()]).distinct_users(), 1);
    }

    #[test]
    fn a_session_from_the_future_has_no_age() {
        let found = vec![UtmpSession {
            user: "dana".into(),
            line: "pts/0".into(),
            since_unix: Duration::from_secs(10),
        }];
        assert_eq!(utmp_sessions(found, &SessionConfig::default(), Duration::from_secs(9))[0].age, None);
    }

    #[test]
    fn a_misspelt_option_is_refused() {
        assert!(toml::from_str::<SessionConfig>("source = \"utmp\"\nignore_users = [\"probe\"]").is_ok());
        assert!(toml::from_str::<SessionConfig>("sources = \"utmp\"").is_err());
        assert!(toml::from_str::<SessionConfig>("source = \"wtmp\"").is_err());
    }
}
