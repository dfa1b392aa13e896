//! Who is logged in on this host?
//!
//! logind knows best where it runs, so it is asked first; its files stand in for a bus that does not answer, the utmp
//! file where there is no logind. Where there is nothing, the answer is "unknown", never "nobody": a farm of zeros
//! would put everybody on one server. One source gives the whole answer; they are never added together.
//!
//! logind wins whenever it answers, also with an empty list. On a host whose logins bypass logind (no `pam_systemd`)
//! that is wrong, and only the operator can know it: `source = "utmp"` forces the file, and `source = "program"` asks
//! whatever does know.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::accounts;
use super::clocks::{self, Clocks};
use super::deadline::Detached;
use super::error::{SampleError, describe};
use super::logind::{self, LogindRow};
use super::logind_bus::{BusAddress, LogindClient};
use super::logind_files;
use super::logind_signals::{self, SessionNews};
use super::logons::{LogonSample, LogonWatch};
use super::logons_cpu;
pub use super::session_config::{SessionConfig, SessionSource};
use super::session_program;
use super::uptime::monotonic_clock;
use super::utmp::{self, UtmpSession};

/// What a session does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SessionState {
    /// Somebody works in it. The only state that utmp can tell.
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
#[derive(Debug, Clone, PartialEq)]
pub struct SessionSample {
    /// `logind`, `logind-files`, `utmp` or `program`.
    pub source: &'static str,
    /// In the order of the source.
    pub sessions: Vec<SessionSeen>,
    /// Those who are logging on, and have done so. Absent: the source does not tell.
    pub logons: Option<LogonSample>,
}

impl SessionSample {
    /// Distinct login names, the number that load is computed from: ten terminals of one person are one user, and who
    /// has logged out is none.
    #[must_use]
    pub fn distinct_users(&self) -> usize {
        let present = self.sessions.iter().filter(|session| session.state != SessionState::Lingering);
        present.map(|session| session.user.as_str()).collect::<BTreeSet<_>>().len()
    }
}

/// A sample with what an operator should know about it.
#[derive(Debug, Clone, PartialEq)]
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
    files: Detached<()>,
    utmp: Detached<()>,
    logons: LogonWatch,
    groups: Detached<()>,
}

/// How long the use of logons is waited for: what it says is worth less than the sessions themselves.
const GROUPS_DEADLINE: Duration = Duration::from_millis(500);

impl SessionReader {
    /// A reader of the bus at `bus` and of the files below `root` (`/` in production).
    #[must_use]
    pub fn new(config: SessionConfig, root: &Path, bus: BusAddress) -> Self {
        Self {
            config,
            root: root.to_owned(),
            logind: LogindClient::new(bus),
            files: Detached::new("logind's files"),
            utmp: Detached::new("utmp"),
            logons: LogonWatch::default(),
            groups: Detached::new("control groups of logons"),
        }
    }

    #[cfg(test)]
    pub(crate) fn over(config: SessionConfig, root: &Path, bus: zbus::Connection) -> Self {
        let reader = Self::new(config, root, BusAddress::System);
        Self { logind: LogindClient::over(bus), ..reader }
    }

    /// From the next look on it goes by `config`. What is known of logind's sessions and of logons is kept. Whether that is
    /// new.
    pub fn configure(&mut self, config: &SessionConfig) -> bool {
        let is_new = self.config != *config;
        if is_new {
            config.clone_into(&mut self.config);
        }
        is_new
    }

    /// From the next look on it is of the files and the bus below `root`: of another moment of the same system.
    pub fn move_to(&mut self, root: &Path) {
        if self.root != root {
            root.clone_into(&mut self.root);
            self.logind = LogindClient::new(BusAddress::below(root));
        }
    }

    /// Reasons to look at once.
    #[must_use]
    pub fn news(&self) -> Arc<SessionNews> {
        self.logind.news().clone()
    }

    /// Hears such reasons for as long as it is polled. Absent: the source has none to tell.
    #[must_use]
    pub fn listen(&self) -> Option<impl Future<Output = ()> + Send + use<>> {
        let is_logind = matches!(self.config.source, SessionSource::Auto | SessionSource::Logind);
        is_logind.then(|| logind_signals::listen(self.logind.address().clone(), self.news()))
    }

    /// As [`SessionReader::read`]; the interval whose mean number of logons is told ends with it.
    ///
    /// # Errors
    /// As [`SessionReader::read`].
    pub async fn measure(&mut self, deadline: Duration) -> Result<SessionReading, SampleError> {
        let reading = self.read(deadline).await;
        self.logons.end_interval();
        reading
    }

    /// Reads the sessions now; at most `deadline` for each source, and half a second for the use of logons.
    ///
    /// # Errors
    /// When no allowed source answers: the sessions are unknown.
    pub async fn read(&mut self, deadline: Duration) -> Result<SessionReading, SampleError> {
        match self.config.source {
            SessionSource::None => Err(SampleError::Off { subject: "sessions" }),
            SessionSource::Logind => self.read_logind(deadline).await,
            SessionSource::Utmp => self.read_utmp(deadline).await,
            SessionSource::Program => self.read_program(deadline).await,
            SessionSource::Auto => self.read_first(deadline).await,
        }
    }

    /// The first source that answers; one that stands in for another says so.
    async fn read_first(&mut self, deadline: Duration) -> Result<SessionReading, SampleError> {
        let bus = match self.read_logind(deadline).await {
            Ok(reading) => return Ok(reading),
            Err(error) => error,
        };
        let files = match self.read_files(deadline).await {
            Ok(reading) => return Ok(stands_in(reading, "logind's files are", &bus)),
            Err(error) => error,
        };
        match self.read_utmp(deadline).await {
            Ok(reading) => Ok(stands_in(reading, "utmp is", &bus)),
            Err(utmp) => Err(SampleError::NoSessions { tried: vec![bus, files, utmp] }),
        }
    }

    async fn read_logind(&mut self, deadline: Duration) -> Result<SessionReading, SampleError> {
        let rows = self.logind.rows(deadline).await?;
        let (root, config) = (self.root.clone(), self.config.clone());
        let (rows, living) = if rows.iter().any(|row| row.state == "closing") {
            let look = move |(): &mut ()| {
                let living = logind::living(&root, &rows, &config);
                (rows, living)
            };
            self.files.run(deadline, look).await?
        } else {
            (rows, BTreeSet::new())
        };
        Ok(self.of_logind("logind", &rows, Some(monotonic_clock()), &living).await)
    }

    async fn read_files(&mut self, deadline: Duration) -> Result<SessionReading, SampleError> {
        let (root, config) = (self.root.clone(), self.config.clone());
        let look = move |(): &mut ()| -> Result<_, SampleError> {
            let rows = logind_files::read(&root)?;
            let living = logind::living(&root, &rows, &config);
            Ok((rows, living, clocks::read(&root)))
        };
        let (rows, living, clocks) = self.files.run(deadline, look).await??;
        Ok(self.of_logind("logind-files", &rows, clocks.monotonic, &living).await)
    }

    async fn of_logind(
        &mut self,
        source: &'static str,
        rows: &[LogindRow],
        now_monotonic: Option<Duration>,
        living: &BTreeSet<String>,
    ) -> SessionReading {
        let decision = logind::decide(rows, &self.config, now_monotonic, living);
        let logons = match now_monotonic {
            Some(now) => Some(self.follow_logons(rows, now).await),
            None => None,
        };
        let sample = SessionSample { source, sessions: decision.sessions, logons };
        SessionReading { sample, warning: decision.warning }
    }

    async fn follow_logons(&mut self, rows: &[LogindRow], now: Duration) -> LogonSample {
        let due = self.logons.see(now, logind::begun(rows, &self.config, now));
        if !due.is_empty() {
            let root = self.root.clone();
            let look = move |(): &mut ()| {
                let used = |(id, group)| (id, logons_cpu::read(&root, &group));
                due.into_iter().map(used).collect()
            };
            // One that hangs is one reading less of each of them.
            match self.groups.run(GROUPS_DEADLINE, look).await {
                Ok(readings) => self.logons.take(now, readings),
                Err(error) => tracing::debug!(%error, "the use of logons is not known"),
            }
        }
        self.logons.end_look(now);
        self.logons.sample()
    }

    async fn read_utmp(&mut self, deadline: Duration) -> Result<SessionReading, SampleError> {
        let (root, config) = (self.root.clone(), self.config.clone());
        let look = move |(): &mut ()| -> Result<_, SampleError> {
            let Clocks { wall_unix, booted_unix, .. } = clocks::read(&root);
            let sessions = utmp_sessions(utmp::read(&root, booted_unix)?, wall_unix);
            Ok(counted(&root, &config, sessions))
        };
        let (sessions, warning) = self.utmp.run(deadline, look).await??;
        let sample = SessionSample { source: "utmp", sessions, logons: None };
        Ok(SessionReading { sample, warning })
    }

    async fn read_program(&mut self, deadline: Duration) -> Result<SessionReading, SampleError> {
        let root = self.root.clone();
        let clocks = self.files.run(deadline, move |()| clocks::read(&root)).await?;
        let sessions = session_program::read(&self.config.program, deadline, clocks.wall_unix).await?;
        let (root, config) = (self.root.clone(), self.config.clone());
        let look = move |(): &mut ()| counted(&root, &config, sessions);
        let (sessions, warning) = self.files.run(deadline, look).await?;
        let sample = SessionSample { source: "program", sessions, logons: None };
        Ok(SessionReading { sample, warning })
    }
}

fn stands_in(reading: SessionReading, what: &str, bus: &SampleError) -> SessionReading {
    let instead = format!("{what} used: {}", describe(bus));
    let warning = match reading.warning {
        Some(warning) => format!("{instead}; {warning}"),
        None => instead,
    };
    SessionReading { warning: Some(warning), ..reading }
}

/// Leaves out the sessions of ignored accounts. The numbers of accounts are only looked for where they matter.
fn counted(
    root: &Path,
    config: &SessionConfig,
    mut sessions: Vec<SessionSeen>,
) -> (Vec<SessionSeen>, Option<String>) {
    let accounts =
        if config.ignore_uids_below > 0 { accounts::read(root) } else { Ok(accounts::Accounts::new()) };
    let warning =
        accounts.as_ref().err().map(|error| format!("accounts of services count: {}", describe(error)));
    let accounts = accounts.unwrap_or_default();
    sessions.retain(|session| !config.ignores(&session.user, accounts.get(&session.user).copied()));
    (sessions, warning)
}

fn utmp_sessions(found: Vec<UtmpSession>, now_unix: Option<Duration>) -> Vec<SessionSeen> {
    let seen = |session: UtmpSession| SessionSeen {
        id: session.line,
        user: session.user,
        state: SessionState::Active,
        age: now_unix.and_then(|now| now.checked_sub(session.since_unix)),
    };
    found.into_iter().map(seen).collect()
}

#[cfg(test)]
#[path = "sessions_tests.rs"]
mod tests;
